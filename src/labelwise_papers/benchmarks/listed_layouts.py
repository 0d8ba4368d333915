"""Readers of official layouts that list their images in a file: Pets, CUB, Cars, BMW-10, Flowers, miniImageNet."""

import csv
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from labelwise.images.sources.paths import list_images
from labelwise.support.errors import DataError
from labelwise_papers.benchmarks.mat_files import read_mat
from labelwise_papers.benchmarks.records import Records, records_of, text_lines, tidy

SPECIES = ("cat", "dog")
_squeezed = partial(read_mat, squeeze=True)


def read_pets(home: Path) -> Records:
    """Return Oxford-IIIT Pets, with the species as second labels."""
    rows, names = [], {}
    for split, file in (("train", "trainval.txt"), ("test", "test.txt")):
        for line in text_lines(home / "annotations" / file):
            if line.startswith("#"):
                continue
            name, *numbers = line.split()
            if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
                raise DataError(f'"{home / "annotations" / file}": cannot read the line "{line}". Download it again.')
            label, species, _ = (int(number) - 1 for number in numbers)
            names[label] = tidy(name.rpartition("_")[0])
            rows.append((split, home / "images" / f"{name}.jpg", label, species))
    records = records_of("splits pictures targets other_targets", rows, home / "images")
    return replace(records, names=_in_order(names, home), other_names=SPECIES)


def read_cub200(home: Path) -> Records:
    """Return CUB-200-2011 from its lists of images, classes and splits."""
    lists = [_pairs(home / f"{file}.txt") for file in ("images", "image_class_labels", "train_test_split", "classes")]
    images, labels, train, classes = lists
    missing = set(images) - set(labels) | set(images) - set(train)
    if missing:
        raise DataError(f'Image {min(missing)} of "{home}" has no label or no split. Download it again.')
    rows = [
        (home / "images" / file, int(labels[key]) - 1, "train" if train[key] == "1" else "test")
        for key, file in images.items()
    ]
    names = {int(key) - 1: tidy(name) for key, name in classes.items()}
    return replace(records_of("pictures targets splits", rows, home / "images"), names=_in_order(names, home))


def read_cars(home: Path) -> Records:
    """Return Stanford Cars from ``cars_annos.mat`` and ``car_ims``."""
    fields = _squeezed(home / "cars_annos.mat", "annotations", "class_names")
    rows = [
        (home / str(row["relative_im_path"]), int(row["class"]) - 1, "test" if int(row["test"]) else "train")
        for row in np.atleast_1d(fields["annotations"])
    ]
    return replace(records_of("pictures targets splits", rows, home), names=tuple(map(str, fields["class_names"])))


def read_cars_devkit(home: Path) -> Records:
    """Return Stanford Cars from its devkit, ``cars_train``, ``cars_test`` and the labels of the test images."""
    names = _squeezed(home / "devkit" / "cars_meta.mat", "class_names")["class_names"]
    lists = {"train": home / "devkit" / "cars_train_annos.mat", "test": home / "cars_test_annos_withlabels.mat"}
    if not lists["test"].exists():
        lists["test"] = home / "devkit" / "cars_test_annos_withlabels.mat"
    rows = [
        (split, home / f"cars_{split}" / str(row["fname"]), int(row["class"]) - 1)
        for split, file in lists.items()
        for row in np.atleast_1d(_squeezed(file, "annotations")["annotations"])
    ]
    return replace(records_of("splits pictures targets", rows, home), names=tuple(map(str, names)))


def read_bmw10(home: Path) -> Records:
    """Return BMW-10; its classes are numbers (1 to 8, 10 and 11), so labels are called ``BMW 1`` and so on."""
    fields = _squeezed(home / "bmw10_annos.mat", "annos", "train_indices", "test_indices")
    splits = {int(i): split for split in ("train", "test") for i in np.atleast_1d(fields[f"{split}_indices"])}
    pictures = [
        (home / "bmw10_ims" / str(row["fname"]), int(row["class"]), splits[i])
        for i, row in enumerate(np.atleast_1d(fields["annos"]), 1)
        if i in splits
    ]
    classes = sorted({label for _, label, _ in pictures})
    rows = [(picture, classes.index(label), split) for picture, label, split in pictures]
    records = records_of("pictures targets splits", rows, home / "bmw10_ims")
    return replace(records, names=tuple(f"BMW {number}" for number in classes))


def read_flowers102(home: Path) -> Records:
    """Return Oxford Flowers-102 with its official train, val and test."""
    labels = np.atleast_1d(_squeezed(home / "imagelabels.mat", "labels")["labels"])
    sets = _squeezed(home / "setid.mat", "trnid", "valid", "tstid")
    rows = [
        (split, home / "jpg" / f"image_{number:05d}.jpg", int(labels[number - 1]) - 1)
        for split, key in (("train", "trnid"), ("val", "valid"), ("test", "tstid"))
        for number in np.atleast_1d(sets[key]).tolist()
    ]
    return records_of("splits pictures targets", rows, home / "jpg")


def read_miniimagenet(home: Path) -> Records:
    """Return miniImageNet from its CSV files: the classes of train, val and test are different ones."""
    rows = []
    position: dict[str, int] = {}
    paths = {path.name: path for path in list_images(home / "images")}  # flat, or a folder for each class
    for split in ("train", "val", "test"):
        for row in csv.DictReader(text_lines(home / f"{split}.csv")):
            file, label = row.get("filename"), row.get("label")
            if not file or not label:
                raise DataError(f'"{home / split}.csv" needs the columns filename and label. Download it again.')
            target = position.setdefault(label, len(position))
            rows.append((split, paths.get(file, home / "images" / file), file, target))
    return replace(records_of("splits pictures files targets", rows), names=tuple(position))


def _pairs(file: Path) -> dict[int, str]:
    """Return the text after the number that each line begins with."""
    pairs = {}
    for line in text_lines(file):
        number, _, rest = line.strip().partition(" ")
        if not number.isdigit() or not rest:
            raise DataError(f'"{file}": cannot read the line "{line}". Download it again.')
        pairs[int(number)] = rest.strip()
    return pairs


def _in_order(names: dict[int, str], home: Path) -> tuple[str, ...]:
    """Return names by position, all of which must be there."""
    if sorted(names) != list(range(len(names))):
        raise DataError(f'"{home}" lists classes {min(names) + 1} to {max(names) + 1} with gaps. Download it again.')
    return tuple(names[i] for i in range(len(names)))
