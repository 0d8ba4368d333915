"""A classifier made anew from a description and tensors; nothing of size is made before the two agree."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from labelwise.core.calibration import Calibration
from labelwise.core.classifier import Classifier, Origin, Verifier
from labelwise.core.familiarity import Familiarity, OutlierRule
from labelwise.core.model import LabelModel, Spec
from labelwise.images.describe.labels import Labels
from labelwise.images.view import View
from labelwise.methods.registry import METHODS
from labelwise.support.errors import StoreError, UsageError, listing
from labelwise.support.files import state_tensors, under
from labelwise.support.finite import first_not_finite
from labelwise.support.settings import from_plain
from labelwise.train.stages import Method

Document = Mapping[str, Any]
Tensors = Mapping[str, Tensor]
FILLING = ("copy_", "div_", "fill_", "mul_", "normal_", "sub_", "uniform_", "zero_")  # by what builds fill tensors
# Parts of a description that may hold any number: settings check themselves, figures only tell.
FREE = ("method", "summary")


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a description says of a classifier beside its method and labels."""

    shape: tuple[int, ...]
    temperature: float
    outlier: OutlierRule | None
    summary: dict[str, Any]
    multilabel: bool = False
    described: tuple[str, ...] = ()
    gap: float = 0.0
    verification: Verifier | None = None
    view: View = field(default_factory=View)

    def __post_init__(self) -> None:
        """Check the temperature, by which scores in single precision are divided."""
        limits = torch.finfo(torch.float32)
        if not limits.tiny <= self.temperature <= limits.max:
            raise UsageError(f"the temperature must be above 0, and neither tiny nor huge; given {self.temperature}")


def classifier_of(about: Document, tensors: Tensors) -> Classifier:
    """Return the classifier of a description and the tensors that were saved with it.

    Tensors may be mapped from a file: all are copied, so that what is written over the file later changes no answer.
    """
    own = {name: tensor.clone() for name, tensor in tensors.items() if not name.startswith("model/")}
    check_finite(about, own)
    description = from_plain(Description, {f.name: about[f.name] for f in fields(Description) if f.name in about})
    labels = _labels(about["labels"], under("labels", own))
    _check_rows(len(labels), own)
    trained = _labels(about["trained_labels"], under("trained_labels", own))
    method = replace(_method(about["method"]), view=description.view)
    spec = Spec(shape=description.shape, labels=trained, view=description.view)
    model = model_of(method, spec, under("model", tensors))
    check_finite({}, state_tensors("model", model), model)
    arrays = {name: tensor.numpy() for name, tensor in own.items()}
    return Classifier(
        model=model,
        labels=labels,
        label_embeddings=arrays["codes"],
        calibration=Calibration(
            scale=arrays["scale"],
            offset=arrays["offset"],
            unseen=np.isin(labels.names, description.described),
            seen_penalty=description.gap,
            penalty=model.penalty,
            temperature=description.temperature,
            exclusive=model.exclusive,
            multilabel=description.multilabel,
        ),
        familiarity=Familiarity(memory=arrays.get("memory"), rule=description.outlier, width=arrays.get("width")),
        verifier=description.verification,
        origin=Origin(method=method, summary=description.summary, train_digests=arrays.get("seen")),
    )


def model_of(method: Method, spec: Spec, state: Tensors) -> LabelModel:
    """Return the model of these settings with this state, on the CPU, in eval mode.

    It is built without memory first, and compared with the state: whatever sizes the settings name, that takes little.
    What no state holds, such as a table of words, only a second build can compute.
    """
    with torch.device("meta"), Unfilled():
        model = method.build(spec)
    own = model.state_dict()
    _compare(model, state)
    if any(name not in own for name, _ in model.named_buffers()):
        model = method.build(spec)
    model.load_state_dict({n: tensor.to(own[n].dtype, copy=True) for n, tensor in state.items()}, assign=True)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.eval()


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


def check_finite(about: Document, tensors: Tensors, model: LabelModel | None = None) -> None:
    """Raise an error that names the first number or tensor that is not finite, but for those that the model says may be."""
    bad = next((name for key in about if key not in FREE for name in _not_finite(about[key], key)), None)
    free = () if model is None else [f"model/{name}" for name in model.infinite]
    bad = bad or first_not_finite(tensors, free)
    if bad is not None:
        raise StoreError(
            f'"{bad}" is not finite (NaN or infinity), as training that diverged leaves it, and no answer can be made of '
            "that. Fit again with a lower learning rate (--set optimizer.lr=...), or without extreme values in the data."
        )


def _not_finite(value: Any, name: str) -> Iterator[str]:
    """Yield the dotted names of numbers inside a value that are not finite."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from _not_finite(part, f"{name}.{key}")
    if isinstance(value, float) and not math.isfinite(value):
        yield name


def _compare(model: LabelModel, state: Tensors) -> None:
    """Raise an error unless the state has the names, shapes and kinds of numbers of a model built without memory."""
    own = model.state_dict()
    faults = [
        f"{name} is {_words(tensor)} in the file and {_words(own[name])} by the settings"
        for name, tensor in state.items()
        if name in own and _kind(tensor) != _kind(own[name])
    ]
    if not faults:  # a model may take a state that was saved before it had all of its parts
        shapes = {name: tensor.to("meta") for name, tensor in state.items()}
        keys = model.load_state_dict(shapes, strict=False, assign=True)
        parts = (("no weights for", keys.missing_keys), ("no place for", keys.unexpected_keys))
        faults = [f"there is {what} {listing(names, 3)}" for what, names in parts if names]
    if faults:
        raise UsageError(f"settings and weights differ: {listing(faults, 3)}")


def _kind(tensor: Tensor) -> tuple[tuple[int, ...], bool]:
    return tuple(tensor.shape), tensor.is_floating_point()


def _words(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _check_rows(k: int, tensors: Tensors) -> None:
    """Raise an error unless each of k labels has a code, a scale and an offset."""
    codes, scale, offset = (tuple(tensors[name].shape) for name in ("codes", "scale", "offset"))
    if len(codes) != 2 or not codes[:1] == scale == offset == (k,):
        raise UsageError(f"{k} labels need as many codes, scales and offsets; given {codes}, {scale} and {offset}")
    if "width" in tensors and tensors["width"].shape != (k,):
        raise UsageError(f"{k} labels have a width each; given {tuple(tensors['width'].shape)}")


def _method(document: Document) -> Method:
    name = document["name"]
    if name not in METHODS:
        raise StoreError(f'It was made by the method "{name}", which this version does not have.')
    return from_plain(METHODS[name], document["settings"])


def _labels(words: Document, tensors: Tensors) -> Labels:
    texts = None if words["texts"] is None else tuple(map(tuple, words["texts"]))
    order = None if words["order"] is None else tuple(words["order"])
    return Labels(names=tuple(words["names"]), texts=texts, order=order, **tensors)
