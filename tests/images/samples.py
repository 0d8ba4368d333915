"""Small pictures, folders of them and ways to look at a data set, for the tests of what reads pictures."""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from labelwise.images.dataset import Dataset
from labelwise.images.decode.pictures import File, read_files


def noise(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", **settings: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **settings)
    return stream.getvalue()


def png(value: int, side: int = 5) -> bytes:
    return encoded(Image.new("L", (side + 1, side), value))


def read_picture(file: File, size: int, channels: int = 3) -> Tensor:
    return read_files([file], (channels, size, size), strict=True)[0][0]


def write(root: Path, counts: Mapping[str, int], start: int = 0) -> Path:
    """Pictures in class folders; the first of class i has the value 40 * i, the second one more, and so on."""
    for i, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for j in range(count):
            (root / name / f"{start + j}.png").write_bytes(png(40 * i + j))
    return root


def sizes(data: Dataset) -> dict[str, int]:
    return {name: len(split) for name, split in data.splits.items()}


def check_values(data: Dataset, order: list[str]) -> None:
    """Every picture of class i in ``order`` has a value in 40 * i .. 40 * i + 39."""
    for split in data.splits.values():
        for image, target in zip(split.images, split.targets, strict=True):
            assert order[int(image[0, 0, 0]) // 40] == data.labels.names[int(target)]
