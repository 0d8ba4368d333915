"""Write and edit ONNX files as protobuf messages, without an exporter or the package onnx."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from labelwise.support.errors import StoreError

IR_VERSION, OPSET = 8, 18
KINDS: Final = {"f": 1, "u": 2, "i": 7}  # of numbers, as ONNX counts them: float32, bytes, int64
STORED: Final = {"f": np.float32, "u": np.uint8, "i": np.int64}
INT, INTS, FLOAT, STRING = 2, 7, 1, 3  # kinds of attributes

Attribute = int | float | str | Sequence[int]
Array = npt.NDArray[Any]
Shape = tuple[int | None, ...]


@dataclass
class Graph:
    """An ONNX graph under construction, with the input ``images [n, *shape]``."""

    shape: tuple[int, ...]  # of one image
    outputs: Mapping[str, tuple[int, ...]]  # the shape of each for one image
    bytes_in: bool = False
    nodes: list[bytes] = field(default_factory=list)
    tensors: list[bytes] = field(default_factory=list)

    def add(
        self, kind: str, inputs: Iterable[str], output: str, attributes: Mapping[str, Attribute] | None = None
    ) -> str:
        """Add an operation on named tensors, and return the name of its output."""
        parts = [_text(1, name) for name in inputs] + [_text(2, output), _text(4, kind)]
        parts += [length_delimited(5, _attribute(name, value)) for name, value in (attributes or {}).items()]
        self.nodes.append(b"".join(parts))
        return output

    def constant(self, name: str, values: Array) -> str:
        """Add a constant tensor and return its name."""
        dims = b"".join(_number(1, size) for size in values.shape)
        content = np.ascontiguousarray(values, STORED[values.dtype.kind]).tobytes()
        self.tensors.append(dims + _number(2, KINDS[values.dtype.kind]) + _text(8, name) + length_delimited(9, content))
        return name

    def described_outputs(self) -> list[bytes]:
        """Return the serialized name, type and shape of each output."""
        return [_value(name, KINDS["f"], shape) for name, shape in self.outputs.items()]

    def file(self) -> bytes:
        """Return the content of the file."""
        graph = b"".join(length_delimited(1, node) for node in self.nodes) + _text(2, "encoder")
        graph += b"".join(length_delimited(5, tensor) for tensor in self.tensors)
        graph += length_delimited(11, _value("images", KINDS["u" if self.bytes_in else "f"], self.shape))
        graph += b"".join(length_delimited(12, each) for each in self.described_outputs())
        opset = length_delimited(8, _number(2, OPSET))
        return _number(1, IR_VERSION) + _text(2, "labelwise") + length_delimited(7, graph) + opset


def varint(value: int) -> bytes:
    """Encode an integer as a protobuf varint."""
    value &= 2**64 - 1
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes((*digits, value))


def _number(place: int, value: int) -> bytes:
    return varint(place << 3) + varint(value)


def length_delimited(place: int, content: bytes) -> bytes:
    """Encode a length-delimited field of a protobuf message."""
    return varint(place << 3 | 2) + varint(len(content)) + content


def _text(place: int, text: str) -> bytes:
    return length_delimited(place, text.encode())


def _attribute(name: str, value: Attribute) -> bytes:
    head = _text(1, name)
    if isinstance(value, int):
        return head + _number(3, value) + _number(20, INT)
    if isinstance(value, float):
        return head + varint(2 << 3 | 5) + np.float32(value).tobytes() + _number(20, FLOAT)
    if isinstance(value, str):
        return head + _text(4, value) + _number(20, STRING)
    return head + b"".join(_number(8, each) for each in value) + _number(20, INTS)


def _value(name: str, kind: int, shape: Sequence[int]) -> bytes:
    """Describe a tensor ``[n, *shape]``."""
    sizes = b"".join(length_delimited(1, _number(1, size)) for size in shape)
    tensor = _number(1, kind) + length_delimited(2, length_delimited(1, _text(2, "n")) + sizes)
    return _text(1, name) + length_delimited(2, length_delimited(1, tensor))


GRAPH: Final = 7  # the field of a model that holds its graph
NODE, TENSOR, INPUT, OUTPUT, KNOWN = (
    1,
    5,
    11,
    12,
    13,
)  # fields of a graph: operations, fixed numbers, inputs, outputs, shapes in between
TENSOR_NAME, ATTRIBUTE, SUBGRAPHS = 8, 5, (6, 11)  # fields of a tensor, of an operation, of an attribute
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # how a field is written


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation to append to a graph."""

    kind: str  # as ONNX names it
    inputs: tuple[str, ...]  # tensors of the graph, or constants
    output: str
    attributes: dict[str, int | tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The new outputs of a graph, and the operations appended to compute them."""

    outputs: dict[str, tuple[int, ...]]  # the shape of each for one image
    operations: tuple[Operation, ...] = ()
    constants: dict[str, int | tuple[int, ...]] = field(default_factory=dict)  # whole numbers by name


def cut(content: bytes, plan: Cut) -> bytes:
    """Return an ONNX file with other outputs; unused operations stay, but do not run."""
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
        raise StoreError(f"The file is not ONNX, or it is damaged ({error}).") from None


def interface(content: bytes) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Return the inputs and outputs of an ONNX file: names and fixed sizes."""
    try:
        (graph,) = (part for number, part, _ in _fields(content) if number == GRAPH)
        inner = list(_fields(graph))
        fixed = {_name(part, TENSOR_NAME) for number, part, _ in inner if number == TENSOR}
        inputs = dict(_described(part) for number, part, _ in inner if number == INPUT)
        outputs = dict(_described(part) for number, part, _ in inner if number == OUTPUT)
    except (IndexError, ValueError) as error:
        raise StoreError(f"The file is not ONNX, or it is damaged ({error}).") from None
    return {name: shape for name, shape in inputs.items() if name not in fixed}, outputs


def part_of(content: bytes, outputs: Collection[str]) -> bytes:
    """Return the part of an ONNX file that computes some outputs, with only the inputs and constants they need."""
    whole = list(_fields(content))
    (graph,) = (part for number, part, _ in whole if number == GRAPH)
    inner, needed, operations = list(_fields(graph)), set(outputs), []
    for _, part, field_bytes in reversed([each for each in inner if each[0] == NODE]):
        if needed & set(_names(part, 2)):
            needed |= set(_read_names(part))
            operations.append(field_bytes)
    kept = operations[::-1]
    for number, part, field_bytes in inner:
        name_place = TENSOR_NAME if number == TENSOR else 1
        wanted = needed if number in (TENSOR, INPUT) else outputs
        if number in (TENSOR, INPUT, OUTPUT) and _name(part, name_place) in wanted:
            kept.append(field_bytes)
    rest = [field_bytes for number, _, field_bytes in whole if number != GRAPH]
    return b"".join([*rest, length_delimited(GRAPH, _text(2, "part") + b"".join(kept))])


def _read_names(node: bytes) -> Iterator[str]:
    """Yield the input names of an operation, including those of nested graphs."""
    yield from _names(node, 1)
    for attribute in _parts(node, ATTRIBUTE):
        for graph in (each for place in SUBGRAPHS for each in _parts(attribute, place)):
            yield from (_name(output) for output in _parts(graph, OUTPUT))
            for inner in _parts(graph, NODE):
                yield from _read_names(inner)


def _described(value: bytes) -> tuple[str, Shape]:
    """Return the name and shape of an input or output; None is a dynamic size."""
    (tensor,) = (tensor for kind in _parts(value, 2) for tensor in _parts(kind, 1))
    sizes = (size for shape in _parts(tensor, 2) for size in _parts(shape, 1))
    read = ([_varint(whole, 1)[0] for number, _, whole in _fields(size) if number == 1] for size in sizes)
    return _name(value), tuple(known[0] if known else None for known in read)


def _parts(message: bytes, place: int) -> list[bytes]:
    return [part for number, part, _ in _fields(message) if number == place]


def _names(message: bytes, place: int) -> list[str]:
    return [part.decode() for part in _parts(message, place)]


def _name(message: bytes, place: int = 1) -> str:
    """Return the name of a tensor, an input or an output."""
    return next(iter(_names(message, place)), "")


def _rewired(graph: bytes, more: Graph) -> bytes:
    parts = [whole for number, _, whole in _fields(graph) if number not in (OUTPUT, KNOWN)]
    added = [(NODE, each) for each in more.nodes] + [(TENSOR, each) for each in more.tensors]
    added += [(OUTPUT, each) for each in more.described_outputs()]
    return b"".join([*parts, *(length_delimited(number, each) for number, each in added)])


def _fields(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the number, the content and all bytes of each field of a protobuf message."""
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
    """Decode a varint; return it and the position after it."""
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if not byte & 128:
            return value, place
        if shift > 63:
            raise ValueError("a number is too long")
