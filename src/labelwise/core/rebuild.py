"""A classifier from a description and arrays; every number is checked before anything is computed with it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.core.calibration import Calibration, check_thresholds
from labelwise.core.classifier import Classifier, MethodRecord, Origin, Verifier
from labelwise.core.familiarity import Familiarity, OutlierRule
from labelwise.core.head import Array, Head
from labelwise.core.known_examples import KnownExamples
from labelwise.core.saved_parts import Packed, labels_of, unpack
from labelwise.encoders.encoder import Encoder
from labelwise.support.errors import StoreError, UsageError
from labelwise.support.files import file_digest, read_arrays
from labelwise.support.settings import from_plain

TRAINING = "training.safetensors"
FREE = ("method", "summary")  # parts of a description that may hold any number: nothing is computed with them


@dataclass(frozen=True, kw_only=True)
class FittedScale:
    """What a description says of the calibration, beside its arrays."""

    seen_penalty: float = 0.0
    temperature: float = 1.0
    multilabel: bool = False

    def __post_init__(self) -> None:
        """Check the temperature, by which scores in single precision are divided."""
        limits = np.finfo(np.float32)
        if not float(limits.tiny) <= self.temperature <= float(limits.max):
            raise UsageError(f"the temperature must be above 0, and neither tiny nor huge; given {self.temperature}")


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a description says of a classifier, beside its encoder, head and labels."""

    calibration: FittedScale
    outlier_rule: OutlierRule | None
    verifier: Verifier | None
    method: MethodRecord | None
    summary: dict[str, Any]
    unseen: tuple[str, ...]
    examples: tuple[str, ...]  # the labels that ``KnownExamples`` knows
    thresholds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredState:
    """The state of a trained model in a file, read when it is asked for."""

    file: Path
    sha256: str

    def read(self) -> Mapping[str, Array]:
        """Return the arrays by name."""
        if not self.file.exists() or file_digest(self.file) != self.sha256:
            raise StoreError(f"{self.file} is damaged: its checksum differs. Restore it from a copy, or fit again.")
        return read_arrays(self.file)[0]


def classifier_of(
    about: Mapping[str, Any], arrays: Mapping[str, Array], encoder: Encoder, training: StoredState | None
) -> Classifier:
    """Return the classifier of a description, the arrays that were saved with it, and its encoder."""
    check_finite(about, arrays)
    described = from_plain(
        Description, {each.name: about[each.name] for each in fields(Description) if each.name in about}
    )
    labels = labels_of(about["labels"], under("labels", arrays))
    kind, settings = about["head"]["kind"], about["head"]["settings"]
    head = unpack(Packed(kind, settings, under("head", arrays)))
    known = {"label_embeddings", "scale", "offset", "train_digests", "memory", "width", "prior"}
    if more := {name for name in arrays if "/" not in name} - known:
        raise UsageError(f'there is no place for "{min(more)}"')
    scale, offset, width = arrays["scale"], arrays["offset"], arrays.get("width")
    _check_rows(len(labels), arrays)
    _check_fit(encoder, head, arrays)
    fitted = described.calibration
    return Classifier(
        encoder=encoder,
        head=head,
        labels=labels,
        label_embeddings=arrays["label_embeddings"],
        calibration=Calibration(
            scale=scale,
            offset=offset,
            unseen=np.isin(labels.names, described.unseen),
            seen_penalty=fitted.seen_penalty,
            prior=arrays.get("prior"),
            penalty=head.penalty,
            temperature=fitted.temperature,
            exclusive=head.exclusive,
            multilabel=fitted.multilabel,
        ),
        familiarity=Familiarity(memory=arrays.get("memory"), rule=described.outlier_rule, width=width),
        verifier=described.verifier,
        thresholds=check_thresholds(described.thresholds, labels),
        origin=Origin(
            method=described.method,
            summary=described.summary,
            train_digests=arrays.get("train_digests"),
            training=training,
        ),
        examples=_examples(described.examples, under("examples", arrays)),
    )


def _examples(names: tuple[str, ...], arrays: Mapping[str, Array]) -> KnownExamples | None:
    """Return what is known of the examples of labels with these names; parts that do not fit each other are an error."""
    if not arrays:
        return None
    counts, means = arrays["counts"], arrays["means"]
    fits = counts.shape == (len(names),) and means.ndim == 2 and len(means) == len(names) == len(set(names))
    if not fits or counts.dtype.kind != "f" or means.dtype.kind != "f" or (counts < 1).any():
        raise UsageError("counts and means of examples do not fit the names of their labels")
    return KnownExamples(names, counts, means)


def under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays whose names start with ``prefix/``, without it."""
    return {name.removeprefix(f"{prefix}/"): a for name, a in arrays.items() if name.startswith(f"{prefix}/")}


def check_finite(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Raise an error that names the first number or array that is not finite."""
    bad = next((name for key in about if key not in FREE for name in _not_finite(about[key], key)), None)
    for name, array in arrays.items():
        if bad is None and array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = name
    if bad is not None:
        raise StoreError(
            f'"{bad}" is not finite (NaN or infinity), as training that diverged leaves it. Fit again with a lower '
            "learning rate (--set optimizer.lr=...), or without extreme values in the data."
        )


def _not_finite(value: Any, name: str) -> Iterator[str]:
    """Yield the dotted names of numbers inside a value that are not finite."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from _not_finite(part, f"{name}.{key}")
    if isinstance(value, float) and not math.isfinite(value):
        yield name


def _check_rows(k: int, arrays: Mapping[str, Array]) -> None:
    """Raise an error unless each of k labels has an embedding, a scale and an offset, all of floats."""
    shapes = {name: arrays[name].shape for name in ("label_embeddings", "scale", "offset")}
    rows, scale, offset = shapes.values()
    if len(rows) != 2 or not rows[:1] == scale == offset == (k,):
        raise UsageError(f"{k} labels need as many label embeddings, scales and offsets; given {shapes}")
    for name in ("width", "prior"):
        if name in arrays and arrays[name].shape != (k,):
            raise UsageError(f"{k} labels have a {name} each; given {arrays[name].shape}")
    for name in (*shapes, "width", "prior", "memory"):
        if name in arrays and arrays[name].dtype.kind != "f":
            raise UsageError(f'"{name}" holds {arrays[name].dtype} numbers')


def _check_fit(encoder: Encoder, head: Head, arrays: Mapping[str, Array]) -> None:
    """Raise an error unless a head takes the features of the encoder, and its embeddings are those of the other arrays: tried on one row."""
    if encoder.width != head.width:
        raise UsageError(f"the head takes {head.width} features, and the encoder makes {encoder.width}")
    label_embeddings = arrays["label_embeddings"]
    embedding = head.embed(np.ones((1, head.width), np.float32))
    scores = head.score(embedding, label_embeddings)
    if scores.shape != (1, len(label_embeddings)):
        raise UsageError(f"the head makes scores {list(scores.shape)} of one image and {len(label_embeddings)} labels")
    for name, width in {
        "memory": embedding.shape[1],
        "examples/means": embedding.shape[1],
        "train_digests": 16,
    }.items():
        if name in arrays and (arrays[name].ndim != 2 or arrays[name].shape[1] != width):
            raise UsageError(f'"{name}" has the shape {list(arrays[name].shape)}, not [m, {width}]')
    if "train_digests" in arrays and arrays["train_digests"].dtype != np.uint8:
        raise UsageError(f'"train_digests" holds {arrays["train_digests"].dtype} numbers')
