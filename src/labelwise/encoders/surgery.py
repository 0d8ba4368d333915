"""Give an ONNX file other outputs, such as an inner tensor: its bytes are edited, so the package onnx is not needed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from labelwise.encoders.graph import Attribute, Graph, length_delimited
from labelwise.support.errors import StoreError

GRAPH: Final = 7  # the field of a model that holds its graph
NODE, TENSOR, OUTPUT, KNOWN = 1, 5, 12, 13  # fields of a graph: operations, fixed numbers, outputs, shapes in between
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # how a field is written


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation to add behind a graph."""

    kind: str  # as ONNX names it
    inputs: tuple[str, ...]  # tensors of the graph, or constants
    output: str
    attributes: dict[str, int | tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The outputs that a graph gets in place of its own, and what is added to make them."""

    outputs: dict[str, tuple[int, ...]]  # the shape of each for one image
    operations: tuple[Operation, ...] = ()
    constants: dict[str, int | tuple[int, ...]] = field(default_factory=dict)  # whole numbers by name


def cut(content: bytes, plan: Cut) -> bytes:
    """Return an ONNX file with other outputs; operations that lead to none of them stay and are not run."""
    more = Graph((1,), plan.outputs)
    for name, numbers in plan.constants.items():
        more.constant(name, np.array(numbers, np.int64))
    for each in plan.operations:
        attributes: dict[str, Attribute] = dict(each.attributes)
        more.add(each.kind, each.inputs, each.output, attributes)
    try:
        return b"".join(
            length_delimited(number, _rewired(part, more)) if number == GRAPH else whole
            for number, part, whole in _fields(content)
        )
    except (IndexError, ValueError) as error:
        raise StoreError(f"This is no ONNX file, or it is damaged ({error}).") from None


def _rewired(graph: bytes, more: Graph) -> bytes:
    parts = [whole for number, _, whole in _fields(graph) if number not in (OUTPUT, KNOWN)]
    added = [(NODE, each) for each in more.nodes] + [(TENSOR, each) for each in more.tensors]
    added += [(OUTPUT, each) for each in more.described_outputs()]
    return b"".join([*parts, *(length_delimited(number, each) for number, each in added)])


def _fields(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the number, the content and the whole of each field of a protobuf message."""
    place = 0
    while place < len(content):
        key, after = _varint(content, place)
        kind, start = key & 7, after
        if kind == BYTES:
            size, start = _varint(content, after)
            end = start + size
        elif kind == VARINT:
            end = _varint(content, after)[1]
        elif kind in (FIXED32, FIXED64):
            end = after + (4 if kind == FIXED32 else 8)
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if end > len(content):
            raise ValueError("it ends too early")
        yield key >> 3, content[start:end], content[place:end]
        place = end


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Return the number at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if not byte & 128:
            return value, place
        if shift > 63:
            raise ValueError("a number is too long")
