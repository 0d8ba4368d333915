"""Readers of packed benchmarks: one ``.npz`` file for each, read without pickle, that serves for the official layout.

``data`` holds encoded images one after another and ``offsets [n + 1]`` where each begins; or ``images`` holds pixels.
``labels [n]``, ``split [n]`` (0 train, 1 test; with a 2: train, val, test) and ``classes`` say the rest, as in a user's pack.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from labelwise.images.images import Array
from labelwise.images.sources.npz_files import read_npz
from labelwise.images.sources.packs import encoded_files, in_words, split_names
from labelwise_papers.benchmarks.folder_layouts import first_synonyms, omniglot_records
from labelwise_papers.benchmarks.listed_layouts import SPECIES
from labelwise_papers.benchmarks.records import Ints, Records, tidy


def _ints(values: Array) -> Ints:
    return values.astype(np.int64)


def _encoded(file: Path) -> Records:
    """Return the records of encoded images with labels, classes and splits, and what else a benchmark holds."""
    arrays = read_npz(file, "data", "offsets", "labels")
    with in_words(file):
        records = Records(
            names=tuple(tidy(str(name)) for name in arrays.get("classes", ())),
            pictures=encoded_files(arrays["data"], arrays["offsets"], len(arrays["labels"])),
            targets=_ints(arrays["labels"]),
            splits=split_names(arrays["split"]) if "split" in arrays else (),
            files=[str(name) for name in arrays.get("files", ())],
        )
    if "coarse" in arrays:  # CIFAR-100
        names = tuple(map(tidy, arrays["superclasses"].tolist()))
        return replace(records, other_names=names, other_targets=_ints(arrays["coarse"]))
    if "species" in arrays:  # Pets
        return replace(records, other_names=SPECIES, other_targets=_ints(arrays["species"]))
    if "domain" in arrays:  # PACS
        return replace(records, domains=[str(arrays["domains"][i]) for i in arrays["domain"]])
    if "image_id" in arrays:  # Flowers
        return replace(records, names=(), files=[f"image_{i:05d}.jpg" for i in arrays["image_id"].tolist()])
    if "wnids" in arrays:  # TinyImageNet, its val alone
        names = first_synonyms(arrays["classes"].tolist(), arrays["wnids"].tolist())
        return replace(records, names=names, splits=["test"] * len(records))
    return records


def _pixels(file: Path) -> Records:
    """Return the records of a file with ``images``, ``labels`` and ``split``."""
    arrays = read_npz(file, "images", "labels", "split")
    images = arrays["images"]
    with in_words(file):
        return Records(
            names=tuple(str(name) for name in arrays.get("classes", ())),
            pictures=images[:, None] if images.ndim == 3 else np.ascontiguousarray(np.moveaxis(images, 3, 1)),
            targets=_ints(arrays["labels"]),
            splits=split_names(arrays["split"]),
        )


def _small_omniglot(file: Path) -> Records:
    return omniglot_records(
        [(file.parent / f"images_background_small{i}", split) for i, split in ((1, "train"), (2, "test"))]
    )


PACKS: dict[str, Callable[[Path], Records]] = {
    "cifar10.npz": _pixels,
    "cifar100.npz": _encoded,
    "cub200_64.npz": _encoded,
    "pets37_64.npz": _encoded,
    "bmw_from_cars_128.npz": _encoded,
    "pacs_64.npz": _encoded,
    "flowers102_64.npz": _encoded,
    "tinyimagenet_val_64.npz": _encoded,
    "mnist.npz": _pixels,
    "fashion_mnist_20k.npz": _pixels,
    "omniglot/images_background_small1.zip": _small_omniglot,
}
