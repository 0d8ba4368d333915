"""Readers of packed benchmarks: one ``.npz`` file for each, read without pickle, that serves for the official layout.

``data`` holds encoded pictures one after another and ``offsets [n + 1]`` where each begins; or ``images`` holds pixels.
``labels [n]``, ``split [n]`` (0 train, 1 test; with a 2: train, val, test) and ``classes`` say the rest.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from labelwise.data.read.npz_files import read_npz
from labelwise.data.read.pictures import Array
from labelwise.errors import DataError
from labelwise_papers.benchmarks.binary_layouts import CLOTHES_NAMES, DIGITS
from labelwise_papers.benchmarks.folder_layouts import first_synonyms, omniglot_records
from labelwise_papers.benchmarks.listed_layouts import FLOWER_NAMES, SPECIES
from labelwise_papers.benchmarks.records import Ints, Records, tidy

Held = dict[str, Array]


def _encoded(file: Path, held: Held) -> list[bytes]:
    """Return the content of each picture file."""
    data, ends = held["data"], held["offsets"].tolist()
    if data.dtype != np.uint8 or ends != sorted(ends) or ends[0] < 0 or ends[-1] > len(data):
        raise DataError(f'"{file}": "offsets" do not fit "data". Write it again.')
    return [data[start:end].tobytes() for start, end in pairwise(ends)]


def _ints(values: Array) -> Ints:
    return values.astype(np.int64)


def _splits(values: Array) -> list[str]:
    words = ("train", "val", "test") if 2 in values else ("train", "test")
    return [words[value] for value in _ints(values).tolist()]


def _pictures(file: Path) -> tuple[Records, Held]:
    """Return the records of encoded pictures with labels, classes and splits, and all that the file holds."""
    held = read_npz(file, "data", "offsets", "labels")
    classes = tuple(tidy(str(name)) for name in held["classes"]) if "classes" in held else ()
    records = Records(
        names=classes,
        pictures=_encoded(file, held),
        targets=_ints(held["labels"]),
        splits=_splits(held["split"]) if "split" in held else (),
        files=[str(name) for name in held["files"]] if "files" in held else (),
    )
    return records, held


def _plain(file: Path) -> Records:
    return _pictures(file)[0]


def _cifar100(file: Path) -> Records:
    records, held = _pictures(file)
    return replace(
        records, other_names=tuple(map(tidy, held["superclasses"].tolist())), other_targets=_ints(held["coarse"])
    )


def _pets(file: Path) -> Records:
    records, held = _pictures(file)
    return replace(records, other_names=SPECIES, other_targets=_ints(held["species"]))


def _pacs(file: Path) -> Records:
    records, held = _pictures(file)
    return replace(records, domains=[str(held["domains"][i]) for i in held["domain"]])


def _flowers(file: Path) -> Records:
    records, held = _pictures(file)
    return replace(records, names=FLOWER_NAMES, files=[f"image_{i:05d}.jpg" for i in held["image_id"].tolist()])


def _tinyimagenet(file: Path) -> Records:
    records, held = _pictures(file)
    names = first_synonyms(held["classes"].tolist(), held["wnids"].tolist())
    return replace(records, names=names, splits=["test"] * len(records))


def _pixels(names: tuple[str, ...]) -> Callable[[Path], Records]:
    """Return the reader of a file with ``images``, ``labels`` and ``split``."""

    def read(file: Path) -> Records:
        held = read_npz(file, "images", "labels", "split")
        images = torch.from_numpy(held["images"])
        return Records(
            names=names or tuple(str(name) for name in held["classes"]),
            pictures=images[:, None] if images.ndim == 3 else images.movedim(3, 1).contiguous(),
            targets=_ints(held["labels"]),
            splits=_splits(held["split"]),
        )

    return read


def _small_omniglot(file: Path) -> Records:
    return omniglot_records(
        [(file.parent / f"images_background_small{i}", split) for i, split in ((1, "train"), (2, "test"))]
    )


PACKS: dict[str, Callable[[Path], Records]] = {
    "cifar10.npz": _pixels(()),
    "cifar100.npz": _cifar100,
    "cub200_64.npz": _plain,
    "pets37_64.npz": _pets,
    "bmw_from_cars_128.npz": _plain,
    "pacs_64.npz": _pacs,
    "flowers102_64.npz": _flowers,
    "tinyimagenet_val_64.npz": _tinyimagenet,
    "mnist.npz": _pixels(DIGITS),
    "fashion_mnist_20k.npz": _pixels(CLOTHES_NAMES),
    "omniglot/images_background_small1.zip": _small_omniglot,
}
