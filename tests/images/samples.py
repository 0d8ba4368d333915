"""Small pictures, folders of them and ways to look at a data set, for the tests of what reads pictures."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from labelwise.images.as_images import as_images
from labelwise.images.dataset import Dataset
from labelwise.images.decode.decoding import (
    File,
    Frame,
    UnreadableError,
    check_header,
    decode_stream,
    open_content,
    reason,
)
from labelwise.images.images import Skipped, Unreadable, check_read, read_all, skipped_rows
from labelwise.images.view import Fit


def noise(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", **settings: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **settings)
    return stream.getvalue()


def decode(file: File, frame: Frame) -> np.ndarray:
    """The bytes ``[c, h, w]`` of an image file, decoded in this process however large it is."""
    try:
        with open_content(file) as stream:
            check_header(stream, frame)
            return decode_stream(stream, frame)
    except Exception as error:
        raise UnreadableError(reason(error, frame)) from None


def png(value: int, side: int = 5) -> bytes:
    return encoded(Image.new("L", (side + 1, side), value))


def read_files(
    files: Sequence[File], shape: tuple[int, ...], *, fit: Fit = "crop", strict: bool = False
) -> tuple[Tensor, list[int], tuple[Skipped, ...]]:
    """The images of files that can be read, which these are, and the others."""
    images = as_images(files)
    faults = {
        i: one.reason for i, one in enumerate(images.read(range(len(files)), shape, fit)) if isinstance(one, Unreadable)
    }
    skipped = skipped_rows(images.ids, faults)
    check_read(skipped, len(files), strict=strict)
    rows = [row for row in range(len(files)) if row not in faults]
    return torch.from_numpy(read_all(images.select(rows), shape, fit)), rows, skipped


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
        for image, target in zip(read_all(split.images, (3, 8, 8)), split.targets, strict=True):
            assert order[int(image[0, 0, 0]) // 40] == data.labels.names[int(target)]
