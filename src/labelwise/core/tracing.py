"""Trace NumPy formulas into ONNX operations, so that each formula is written once.

``Traced`` rows represent the input of a graph. NumPy hands what is computed with them to the rows themselves (NEP 13 and NEP 18). Each
operation becomes one of the graph. It is also done with a few rows, whose results tell shapes and types.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from labelwise.support.errors import UnsupportedError

Array = npt.NDArray[Any]
OPERATIONS: Final[Mapping[Any, str]] = {
    np.absolute: "Abs", np.add: "Add", np.arctan: "Atan", np.bitwise_and: "And", np.divide: "Div", np.equal: "Equal", np.exp: "Exp",
    np.greater: "Greater", np.greater_equal: "GreaterOrEqual", np.invert: "Not", np.log: "Log", np.matmul: "MatMul",
    np.maximum: "Max", np.minimum: "Min", np.multiply: "Mul", np.negative: "Neg", np.power: "Pow", np.sign: "Sign", np.sqrt: "Sqrt",
    np.subtract: "Sub",
}  # fmt: skip
FIRST: Final = -(2**31)  # where a slice that runs backwards ends, after the first


@dataclass
class Graph:
    """The operations and constants of a graph, in the order they were added."""

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        """Add fixed numbers and return their name."""
        name = f"constant{len(self.constants)}"
        array = np.ascontiguousarray(np.asarray(values, dtype))
        self.constants.append(import_module("onnx.numpy_helper").from_array(array.reshape(np.shape(values)), name))
        return name

    def add(self, kind: str, inputs: Sequence[str], outputs: Sequence[str] = (), **attributes: Any) -> str:
        """Add an operation and return the name of its first result."""
        names = [*outputs] or [f"{kind.lower()}{len(self.nodes)}"]
        self.nodes.append(import_module("onnx.helper").make_node(kind, inputs, names, **attributes))
        return names[0]


class Traced(NDArrayOperatorsMixin):
    """An array of a graph, rows first, and what it is for a few rows."""

    def __init__(self, graph: Graph, name: str, sample: Array) -> None:
        self.graph, self.name, self.sample = graph, name, sample
        self.shape, self.ndim, self.dtype = sample.shape, sample.ndim, sample.dtype

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def T(self) -> "Traced":  # noqa: N802
        """The transpose."""
        return self._become(self.graph.add("Transpose", [self.name]), self.sample.T)

    def astype(self, dtype: npt.DTypeLike) -> "Traced":
        """Return numbers of another type."""
        kind = import_module("onnx.helper").np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self._become(self.graph.add("Cast", [self.name], to=kind), self.sample.astype(dtype))

    def sum(self, axis: int, *, keepdims: bool = False) -> "Traced":
        """Return sums along an axis."""
        return self._reduced("ReduceSum", self.sample.sum(axis, keepdims=keepdims), axis, keepdims=keepdims)

    def mean(self, axis: int, *, keepdims: bool = False) -> "Traced":
        """Return means along an axis."""
        return self._reduced("ReduceMean", self.sample.mean(axis, keepdims=keepdims), axis, keepdims=keepdims)

    def max(self, axis: int, *, keepdims: bool = False) -> "Traced":
        """Return the largest numbers along an axis."""
        return self._reduced("ReduceMax", self.sample.max(axis, keepdims=keepdims), axis, keepdims=keepdims)

    def argmax(self, axis: int) -> "Traced":
        """Return the places of the largest numbers along an axis."""
        name = self.graph.add("ArgMax", [self.name], axis=axis % self.ndim, keepdims=0)
        return self._become(name, self.sample.argmax(axis))

    def clip(self, low: float, high: float) -> "Traced":
        """Return numbers between two ends."""
        above = self._apply("Max", [self, low], self.sample.clip(low))
        return self._apply("Min", [above, high], self.sample.clip(low, high))

    def __getitem__(self, key: Any) -> "Traced":
        """Return a part, all rows of it: slices, columns by number, and new axes."""
        result, axis = self, 0
        for part in key if isinstance(key, tuple) else (key,):
            if part is Ellipsis:
                axis += self.ndim + 1 - sum(item is not None for item in key)
                continue
            result = result._part(part, axis)
            axis += not isinstance(part, int)
        return result

    def name_output(self, name: str) -> None:
        """Make it an array of this name."""
        self.graph.add("Identity", [self.name], [name])

    def _become(self, name: str, sample: Any) -> "Traced":
        return Traced(self.graph, name, np.asarray(sample))

    def _reduced(self, kind: str, sample: Any, axis: int, *, keepdims: bool) -> "Traced":
        axes = self.graph.constant([axis % self.ndim], np.int64)
        return self._become(self.graph.add(kind, [self.name, axes], keepdims=int(keepdims)), sample)

    def _part(self, part: Any, axis: int) -> "Traced":
        before = (slice(None),) * axis
        sample = self.sample[(*before, part)]
        if isinstance(part, slice) and part == slice(None):
            return self
        if part is None:
            return self._become(self.graph.add("Unsqueeze", [self.name, self._places([axis])]), sample)
        if axis == 0:
            raise UnsupportedError(
                "A graph takes any number of images, so a formula to export cannot choose among them."
            )
        if isinstance(part, slice):
            start, stop, step = part.indices(self.shape[axis])
            ends = (self._places([position]) for position in (start, FIRST if stop < 0 else stop, axis, step))
            return self._become(self.graph.add("Slice", [self.name, *ends]), sample)
        places = np.arange(self.shape[axis])[part]
        return self._become(self.graph.add("Gather", [self.name, self._places(places)], axis=axis), sample)

    def _places(self, places: npt.ArrayLike) -> str:
        return self.graph.constant(places, np.int64)

    def _as(self, value: Any, dtype: npt.DTypeLike) -> str:
        """Return the name of an array or a number of a type."""
        if not isinstance(value, Traced):
            return self.graph.constant(value, dtype)
        return value.name if value.dtype == dtype else value.astype(dtype).name

    def _apply(self, kind: str, values: Sequence[Any], sample: Any) -> "Traced":
        """Return what an operation makes of arrays and numbers, all brought to the type that NumPy computes in."""
        dtype = np.result_type(*map(_sample, values))
        return self._become(self.graph.add(kind, [self._as(value, dtype) for value in values]), sample)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> "Traced":
        """Return what a function of numbers makes of inputs; nothing is changed in place."""
        if method != "__call__" or ufunc not in OPERATIONS:
            raise UnsupportedError(f"Cannot export a formula with {ufunc.__name__}.")
        return self._apply(OPERATIONS[ufunc], inputs, ufunc(*map(_sample, inputs)))

    def __array_function__(self, function: Any, _: Any, args: Any, kwargs: Any) -> Any:
        """Return what another function of NumPy makes of its arguments."""
        if function not in FUNCTIONS:
            raise UnsupportedError(f"Cannot export a formula with {function.__name__}.")
        return FUNCTIONS[function](*args, **kwargs)

    def concatenate(self, parts: Sequence[Any], axis: int) -> "Traced":
        """Return arrays one after another, see ``numpy.concatenate``."""
        sample = np.concatenate([_sample(part) for part in parts], axis)
        names = [self._as(part, sample.dtype) for part in parts]
        return self._become(self.graph.add("Concat", names, axis=axis % self.ndim), sample)

    def halves(self) -> list["Traced"]:
        """Return the first and the last half of the rows."""
        names = [f"half{len(self.graph.nodes)}.{part}" for part in range(2)]
        self.graph.add("Split", [self.name], names, axis=0, num_outputs=2)
        return [self._become(name, half) for name, half in zip(names, np.split(self.sample, 2), strict=True)]

    def where(self, condition: Any, first: Any, second: Any) -> "Traced":
        """Return numbers of the first where a condition holds, else of the other."""
        dtype = np.result_type(_sample(first), _sample(second))
        names = [self._as(condition, np.bool_), self._as(first, dtype), self._as(second, dtype)]
        sample = np.where(_sample(condition), _sample(first), _sample(second))
        return self._become(self.graph.add("Where", names), sample)

    def largest(self, count: int) -> "Traced":
        """Return the largest numbers of each row ``[n, count]``, rising."""
        names = [f"largest{len(self.graph.nodes)}", f"largest{len(self.graph.nodes)}.places"]
        self.graph.add("TopK", [self.name, self._places([count])], names, axis=1)
        return self._become(names[0], np.sort(self.sample, 1)[:, : -count - 1 : -1])[:, ::-1]


def _sample(value: Any) -> Any:
    return value.sample if isinstance(value, Traced) else value


def _first_traced(*values: Any) -> Traced:
    return next(value for value in values if isinstance(value, Traced))


def _norm(rows: Traced, *, axis: int, keepdims: bool) -> Any:
    return np.sqrt((rows * rows).sum(axis, keepdims=keepdims))


def _einsum(formula: str, first: Any, second: Any) -> Any:
    return first @ second.T if formula == "nd,kd->nk" else (first * second).sum(-1)


FUNCTIONS: Final[Mapping[Any, Callable[..., Any]]] = {
    np.concatenate: lambda parts, axis=0: _first_traced(*parts).concatenate(parts, axis),
    np.einsum: _einsum,
    np.linalg.norm: _norm,
    np.partition: lambda rows, kth, axis: rows.largest(-kth),  # noqa: ARG005
    np.where: lambda condition, first, other: _first_traced(condition, first, other).where(condition, first, other),
}
