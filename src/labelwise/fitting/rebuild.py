"""The model of torch that a classifier came from, for what needs gradients: attacks, continued training, export of the whole.

Nothing of size is made before the settings and the state agree.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from labelwise.core.classifier import Classifier, KnownState
from labelwise.methods import METHODS
from labelwise.support.errors import StoreError, UnsupportedError, UsageError, listing
from labelwise.support.settings import from_plain
from labelwise.train.method import Method
from labelwise.train.model import LabelModel, Spec
from labelwise.train.networks.adapters import without_downloads

Tensors = Mapping[str, Tensor]
FILLING = ("copy_", "div_", "fill_", "mul_", "normal_", "sub_", "uniform_", "zero_")  # by what builds fill tensors


def method_of(classifier: Classifier) -> Method:
    """Return the method that made a classifier."""
    record = classifier.origin.method
    if record is None:
        raise UnsupportedError("This classifier does not know the method that made it.")
    if record.name not in METHODS:
        raise StoreError(f'It was made by the method "{record.name}", which this version does not have.')
    return from_plain(METHODS[record.name], record.settings)


def training_state(model: LabelModel) -> KnownState:
    """Return the state of a model, without the published weights of a frozen encoder."""
    left_out = "encoder.backbone." if published(model) else "-"
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(left_out)}
    return KnownState({name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()})


def published(model: LabelModel) -> bool:
    """Return whether the backbone of a model is frozen, with weights that are found again under its name."""
    encoder = getattr(model, "encoder", None)
    return encoder is not None and encoder.frozen and encoder.published is not None


def model_of(classifier: Classifier, device: str | torch.device = "cpu") -> LabelModel:
    """Return the model of a classifier in eval mode.

    It is built without memory first, and compared with the state: whatever sizes the settings name, that takes little.
    What no state holds, such as a table of words, only a second build can compute.
    """
    method, training = method_of(classifier), classifier.origin.training
    spec = Spec(shape=classifier.shape, labels=classifier.head.labels, view=method.view)
    if training is None:
        raise UnsupportedError(f"This {classifier.kind} classifier was saved without the state of its training.")
    state = {name: torch.from_numpy(array.copy()) for name, array in training.read().items()}
    with without_downloads(), torch.device("meta"), Unfilled():
        model = method.build(spec)
    kept = published(model)
    own = model.state_dict()
    _compare(model, state, kept)
    if kept or any(name not in own for name, _ in model.named_buffers()):
        with without_downloads():
            model = method.build(spec)
    model.load_state_dict({n: t.to(own[n].dtype) for n, t in state.items()}, assign=True, strict=not kept)
    model.restore(classifier.head)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.to(device).eval()


def on_device(classifier: Classifier, device: str | torch.device) -> Classifier:
    """Return the classifier with the encoder of its model, on a device."""
    return replace(classifier, encoder=model_of(classifier, device).export_encoder())


class Unfilled(TorchFunctionMode):
    """While open, tensors without memory (on torch's "meta" device) are made and not filled with numbers.

    Torch could fill them, too, but imports half of its compiler for that, which takes a second.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Return what a function of torch returns, or a tensor of the same shape."""
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in FILLING:
            tensor: Tensor = args[0] if args else kwargs["tensor"]
            return tensor if tensor.is_meta else func(*args, **kwargs)
        if len(args) == 1 and not kwargs and func is torch.arange:
            return torch.empty(args[0], dtype=torch.int64)
        if len(args) == 1 and not kwargs and func is torch.eye:
            return torch.empty(args[0], args[0])
        if not kwargs and func is torch.randn:
            return torch.rand(*args)
        return func(*args, **kwargs)


def _compare(model: LabelModel, state: Tensors, published: bool) -> None:
    """Raise an error unless the state has the names, shapes and kinds of numbers of a model built without memory."""
    own = model.state_dict()
    faults = [
        f"{name} is {_words(tensor)} in the file and {_words(own[name])} by the settings"
        for name, tensor in state.items()
        if name in own and _kind(tensor) != _kind(own[name])
    ]
    if not faults:
        shapes = {name: tensor.to("meta") for name, tensor in state.items()}
        keys = model.load_state_dict(shapes, strict=False, assign=True)
        missing = [name for name in keys.missing_keys if not (published and name.startswith("encoder.backbone."))]
        parts = (("no weights for", missing), ("no place for", keys.unexpected_keys))
        faults = [f"there is {what} {listing(names, 3)}" for what, names in parts if names]
    if faults:
        raise UsageError(f"settings and weights differ: {listing(faults, 3)}")


def _kind(tensor: Tensor) -> tuple[tuple[int, ...], bool]:
    return tuple(tensor.shape), tensor.is_floating_point()


def _words(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
