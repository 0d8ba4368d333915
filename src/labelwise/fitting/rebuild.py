"""Rebuild the torch model of a classifier, for work that needs gradients or a GPU."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier, KnownState
from labelwise.encoders.efficientnet import VARIANTS
from labelwise.encoders.encoder import Precomputed
from labelwise.encoders.onnx import OnnxEncoder
from labelwise.methods.registry import method_of
from labelwise.support.errors import UnsupportedError, UsageError, listing
from labelwise.train.model import LabelModel, Spec
from labelwise.train.networks.adapters import without_downloads
from labelwise.train.networks.encoder import Encoder
from labelwise.train.networks.torch_encoder import TorchEncoder

Tensors = Mapping[str, Tensor]


def training_state(model: LabelModel) -> KnownState:
    """Return the state of a model in the form that a classifier stores."""
    return KnownState({name: tensor.cpu().numpy().copy() for name, tensor in training_tensors(model).items()})


def training_tensors(model: LabelModel) -> Tensors:
    """Return the state of a model, without the published weights of a frozen encoder."""
    prefix = "encoder.backbone." if published(model) else "-"
    return {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(prefix)}


def published(model: LabelModel) -> bool:
    """Return whether the backbone of a model is frozen and its weights can be loaded by name."""
    encoder = getattr(model, "encoder", None)
    return encoder is not None and encoder.frozen and encoder.published is not None


def model_of(classifier: Classifier, device: str | torch.device = "cpu") -> LabelModel:
    """Return the model of a classifier in eval mode."""
    method, training = method_of(classifier), classifier.origin.training
    spec = Spec(shape=classifier.shape, labels=classifier.head.labels, view=method.view)
    if training is None:
        raise UnsupportedError(f"This {classifier.kind} classifier was saved without the state of its training.")
    state = {name: torch.from_numpy(array.copy()) for name, array in training.read().items()}
    with without_downloads():
        model = method.build(spec)
    _compare(training_tensors(model), state)
    model.load_state_dict(state, strict=not published(model))
    model.restore(classifier.head)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.to(device).eval()


def on_device(classifier: Classifier, device: str | torch.device) -> Classifier:
    """Return the classifier with its encoder in torch on a device: that of its model, or one with published weights."""
    encoder = classifier.encoder
    if isinstance(encoder, Precomputed):
        return classifier
    if not isinstance(encoder, OnnxEncoder) or encoder.reference is None:
        return replace(classifier, encoder=model_of(classifier, device).export_encoder())
    if encoder.name not in VARIANTS:
        raise UnsupportedError(f"{encoder.name} is an ONNX file, which runs on the CPU. Leave out the device.")
    network = Encoder(backbone=encoder.name, frozen=True).build(encoder.shape, encoder.reference)
    return replace(classifier, encoder=TorchEncoder(network.to(device)))


def _compare(own: Tensors, state: Tensors) -> None:
    """Raise an error unless a state has the names, shapes and dtypes that the settings imply."""
    faults = [f"there are no weights for {name}" for name in own if name not in state]
    faults += [f"there is no place for {name}" for name in state if name not in own]
    faults += [
        f"{name} is {_words(tensor)} in the file and {_words(own[name])} by the settings"
        for name, tensor in state.items()
        if name in own and _kind(tensor) != _kind(own[name])
    ]
    if faults:
        raise UsageError(f"settings and weights differ: {listing(faults, 3)}")


def _kind(tensor: Tensor) -> tuple[tuple[int, ...], bool]:
    return tuple(tensor.shape), tensor.is_floating_point()


def _words(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
