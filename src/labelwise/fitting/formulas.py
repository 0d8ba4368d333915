"""Formulas as ONNX operations: terms with the operators of arrays. Arrays and numbers among them become constants of the graph."""

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Self, Union

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Operand = Union["Term", Array, float]


@dataclass
class Formulas:
    """The operations and constants of a graph, in the order they were written."""

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        """Add fixed numbers and return their name."""
        name = f"constant{len(self.constants)}"
        array = np.ascontiguousarray(np.asarray(values, dtype))
        self.constants.append(import_module("onnx.numpy_helper").from_array(array.reshape(np.shape(values)), name))
        return name

    def add(self, kind: str, inputs: list[str], count: int = 1, **attributes: Any) -> list[str]:
        """Add an operation and return the names of its results."""
        names = [f"{kind.lower()}{len(self.nodes)}" + (f".{i}" if count > 1 else "") for i in range(count)]
        self.nodes.append(import_module("onnx.helper").make_node(kind, inputs, names, **attributes))
        return names


@dataclass(frozen=True, eq=False)
class Term:
    """A tensor of a graph, rows first."""

    sheet: Formulas
    name: str
    dtype: npt.DTypeLike = np.float32

    def apply(self, kind: str, *others: Operand, dtype: npt.DTypeLike | None = None, **attributes: Any) -> Self:
        """Return what an operation makes of it and others, arrays as numbers of its type."""
        inputs = [self.name, *(self._named(other) for other in others)]
        (name,) = self.sheet.add(kind, inputs, **attributes)
        return type(self)(self.sheet, name, self.dtype if dtype is None else dtype)

    def _named(self, other: Operand) -> str:
        return other.name if isinstance(other, Term) else self.sheet.constant(other, self.dtype)

    def __add__(self, other: Operand) -> Self:
        return self.apply("Add", other)

    def __sub__(self, other: Operand) -> Self:
        return self.apply("Sub", other)

    def __mul__(self, other: Operand) -> Self:
        return self.apply("Mul", other)

    def __truediv__(self, other: Operand) -> Self:
        return self.apply("Div", other)

    def __matmul__(self, other: Operand) -> Self:
        return self.apply("MatMul", other)

    def __neg__(self) -> Self:
        return self.apply("Neg")

    def __abs__(self) -> Self:
        return self.apply("Abs")

    def maximum(self, other: Operand) -> Self:
        """Return the larger one of each pair of numbers."""
        return self.apply("Max", other)

    def clip(self, low: float, high: float) -> Self:
        """Return numbers between two ends."""
        return self.maximum(low).apply("Min", high)

    def over_columns(self, kind: str) -> Self:
        """Return Sum, Mean or Max of each row ``[n, 1]``."""
        (name,) = self.sheet.add(f"Reduce{kind}", [self.name, self.sheet.constant([1], np.int64)])
        return type(self)(self.sheet, name, self.dtype)

    def columns(self, start: int, stop: int) -> Self:
        """Return some columns."""
        places = (self.sheet.constant([each], np.int64) for each in (start, stop, 1))
        (name,) = self.sheet.add("Slice", [self.name, *places])
        return type(self)(self.sheet, name, self.dtype)

    def gather(self, columns: Array) -> Self:
        """Return these columns, in this order."""
        (name,) = self.sheet.add("Gather", [self.name, self.sheet.constant(columns, np.int64)], axis=1)
        return type(self)(self.sheet, name, self.dtype)

    def reshape(self, *shape: int) -> Self:
        """Return the same numbers in another shape; 0 keeps a size, -1 is what is left."""
        (name,) = self.sheet.add("Reshape", [self.name, self.sheet.constant(shape, np.int64)])
        return type(self)(self.sheet, name, self.dtype)

    def beside(self, other: Self) -> Self:
        """Return both, column beside column."""
        return self.apply("Concat", other, axis=1)

    def cast(self, dtype: npt.DTypeLike) -> Self:
        """Return numbers of another type."""
        kind = import_module("onnx.helper").np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.apply("Cast", dtype=dtype, to=kind)

    def called(self, name: str) -> None:
        """Make it an output of this name."""
        self.sheet.nodes.append(import_module("onnx.helper").make_node("Identity", [self.name], [name]))
