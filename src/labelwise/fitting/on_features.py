"""Fit a method that trains on the features of an ONNX file, which itself is not trained."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from labelwise.core.classifier import Classifier, MethodRecord
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Encoder, Precomputed
from labelwise.fitting.choice import TRAINS, encoder_of
from labelwise.images.dataset import Dataset
from labelwise.images.images import FeatureRows, skipped_lines
from labelwise.images.view import WHOLE
from labelwise.support.errors import UnsupportedError
from labelwise.train.method import Method, Run
from labelwise.train.networks.encoder import Encoder as EncoderSettings

Fit = Callable[[Dataset, Method, Run], Classifier]


def fit_on_features(data: Dataset, method: Method, run: Run, fit: Fit) -> Classifier:
    """Return the classifier of a method whose encoder is an ONNX file: ``fit`` sees features in place of images."""
    if any(getattr(method, name, None) is not None for name in TRAINS):
        encoder_of(method).build((), method.view)  # raises that it is not trained
    encoder = encoder_of(method).open_encoder(method.view)
    known: Any = {"encoder": EncoderSettings(), "view": WHOLE}  # every method with an encoder has both
    plain: Method = replace(method, **known)
    fitted = fit(_encoded(data.below_home(), encoder, run), plain, run)
    if not isinstance(fitted.encoder, Precomputed):
        raise UnsupportedError(
            f"Method {method.name} with these settings trains layers of its own on the features of {encoder.name}, and such a "
            "classifier cannot be saved. Leave out encoder.code_size, or use method discriminant."
        )
    origin = replace(fitted.origin, method=MethodRecord.of(method), training=None)
    origin = replace(origin, summary={**origin.summary, "encoder_runtime": encoder.runtime})
    return replace(fitted, encoder=encoder, origin=origin)


def _encoded(data: Dataset, encoder: Encoder, run: Run) -> Dataset:
    """Return data with features in place of the images that are trained on; those that cannot be read are left out and told."""
    splits, skipped = {}, data.skipped
    for name in ("train", "val"):
        if name in data.splits:
            features = encode(encoder, data.splits[name].images)
            rows = FeatureRows(features.values, features.digests)
            splits[name] = replace(data.splits[name].select(features.rows), images=rows)
            skipped += features.skipped
    if run.tell is not None:
        for line in skipped_lines(skipped[len(data.skipped) :]):
            run.tell(f"Skipped {line}")
    return replace(data, splits=splits, skipped=skipped)
