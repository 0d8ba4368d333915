"""Small ONNX encoders, and images in memory that count how often they are read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.encoders.graph import Graph
from labelwise.encoders.onnx import Card, OnnxEncoder, card_file, open_onnx
from labelwise.images.images import ArrayImages

SHAPE = (3, 8, 8)


def tiny_graph(shape: tuple[int, ...] = SHAPE, seed: int = 0, *, bytes_in: bool = True) -> bytes:
    """A convolution, its maps and their mean."""
    weights = np.random.default_rng(seed).normal(size=(5, shape[0], 3, 3)).astype(np.float32)
    graph = Graph(shape, {"features": (5,), "maps": (5, shape[1], shape[2])}, bytes_in=bytes_in)
    x = graph.add("Cast", ["images"], "pixels", {"to": 1}) if bytes_in else "images"
    kernel = graph.constant("kernel", weights)
    graph.add("Conv", [x, kernel], "maps", {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)})
    graph.add("Flatten", [graph.add("GlobalAveragePool", ["maps"], "pooled")], "features", {"axis": 1})
    return graph.file()


def save_tiny(folder: Path, content: bytes | None = None, **card: Any) -> Path:
    file = folder / "tiny.onnx"
    file.write_bytes(tiny_graph() if content is None else content)
    file.with_suffix(".json").write_text(json.dumps({"name": "tiny", "shape": SHAPE, **card}))
    return file


def tiny_encoder(folder: Path, **card: Any) -> OnnxEncoder:
    return open_onnx(save_tiny(folder, **card))


def card_text(card: Card) -> str:
    return card_file(card).decode()


def pixels(n: int, shape: Sequence[int] = SHAPE, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), np.uint8)


class CountedImages(ArrayImages):
    """Images in memory that note which rows were read."""

    def __init__(self, values: Any) -> None:
        super().__init__(values)
        self.read_rows: list[int] = []

    def read(self, rows: Any, shape: tuple[int, ...], fit: Any = "crop") -> Any:
        self.read_rows += np.asarray(rows).tolist()
        return super().read(rows, shape, fit)
