"""Small data in the formats of other tools, as these tools write them, and what must come back of them."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from labelwise.images.dataset import Dataset
from labelwise.images.describe.labels import Labels

WIDTH, HEIGHT = 48, 32
LABELS = ("barn owl", "été; 鳥")


@dataclass(frozen=True)
class Box:
    """A box in pixels of an image, with its label."""

    image: str
    label: str
    left: int
    top: int
    width: int
    height: int

    @property
    def shares(self) -> list[float]:
        return [self.left / WIDTH, self.top / HEIGHT, self.width / WIDTH, self.height / HEIGHT]


NAMES = tuple(f"a photo {i}.png" for i in range(6))
BOXES = tuple(
    Box(name, LABELS[(i + j) % 2], 6 * j + 3, 4, 12 + 6 * j, 16)
    for i, name in enumerate(NAMES)
    for j in range(1 + i % 2)
)


def photos(folder: Path, names: Sequence[str] = NAMES) -> None:
    """Noise, another one in each image."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        noise = np.random.default_rng(i).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise).save(folder / name)


def label_of(name: str) -> str:
    return LABELS[NAMES.index(name) % 2]


def write_json(file: Path, document: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def write_csv(file: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    return file


def pixels(data: Dataset) -> dict[tuple[bytes, str], int]:
    """How often each image is there with its label, by its pixels."""
    there: dict[tuple[bytes, str], int] = {}
    for split in data.splits.values():
        words = split.words(data.labels.names)
        for image, word in zip(split.images.read(range(len(split)), (3, 16, 16), "stretch"), words, strict=True):
            key = (np.asarray(image).tobytes(), word)
            there[key] = there.get(key, 0) + 1
    return there


def cut_out(folder: Path, home: Path, boxes: Sequence[Box] = BOXES) -> dict[tuple[bytes, str], int]:
    """The same of boxes that Pillow cuts out of the photos."""
    from labelwise.images.as_images import as_images

    there: dict[tuple[bytes, str], int] = {}
    for i, box in enumerate(boxes):
        with Image.open(home / box.image) as image:
            part = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
        part.save(folder / f"cut {i}.png")
        (image_read,) = as_images(folder / f"cut {i}.png").read([0], (3, 16, 16), "stretch")
        key = (np.asarray(image_read).tobytes(), box.label)
        there[key] = there.get(key, 0) + 1
    return there


def whole(names: Sequence[str] = NAMES) -> list[tuple[str, str]]:
    """Images and their labels."""
    return [(name, label_of(name)) for name in names]


def answers(data: Dataset) -> list[tuple[str, str]]:
    """What a data set says of whole images, by the names of their files."""
    pairs = [
        (Path(file).name, word)
        for split in data.splits.values()
        for file, word in zip(split.files, split.words(data.labels.names), strict=True)
    ]
    return sorted(pairs)


def names_of(data: Dataset) -> Labels:
    return data.labels
