"""The encoder of a saved classifier on another device, and the model that it was trained as."""

from dataclasses import replace

import numpy as np
import pytest

import labelwise as lw
from labelwise.encoders.onnx import OnnxEncoder
from labelwise.fitting.rebuild import on_device
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.train.networks.torch_encoder import TorchEncoder
from tests.changed import changed, model_of
from tests.contract.subjects import trained

IMAGES = np.random.default_rng(0).integers(0, 256, (9, 3, 64, 64), np.uint8)


def test_a_shared_encoder_runs_in_torch_with_the_same_weights() -> None:
    classifier = lw.fit(
        (IMAGES, list("abc") * 3), "discriminant", encoder={"frozen": True}, view={"crop": 0.875, "mirror": True}
    )
    assert isinstance(classifier.encoder, OnnxEncoder)
    moved = on_device(classifier, "cpu")
    assert isinstance(moved.encoder, TorchEncoder)
    wanted = classifier.encoder(IMAGES)
    np.testing.assert_allclose(moved.encoder(IMAGES), wanted, atol=1e-4 * abs(wanted).max())
    card = replace(classifier.encoder.card, name="dinov2")
    other = OnnxEncoder(card, "", lambda: b"", classifier.encoder.width, classifier.encoder.reference)
    with pytest.raises(UnsupportedError, match="dinov2 is an ONNX file, which runs on the CPU"):
        on_device(changed(classifier, encoder=other), "cpu")


def test_settings_that_do_not_fit_the_weights_are_told() -> None:
    classifier = trained("softmax")
    method = classifier.origin.method
    assert method is not None
    wider = {**method.settings, "encoder": {**method.settings["encoder"], "code_size": 9}}
    with pytest.raises(UsageError, match=r"settings and weights differ: there are no weights for encoder\.project"):
        model_of(changed(classifier, method=replace(method, settings=wider)))
