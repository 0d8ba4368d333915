"""Readers of official layouts that list their pictures in a file: Pets, CUB, Cars, BMW-10, Flowers, miniImageNet."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.data.read.pictures import list_pictures
from labelwise.errors import DataError
from labelwise_papers.benchmarks.mat_files import read_mat
from labelwise_papers.benchmarks.records import Records, text_lines, tidy

FLOWERS = """pink primrose,hard-leaved pocket orchid,canterbury bells,sweet pea,english marigold,tiger lily,moon orchid,
bird of paradise,monkshood,globe thistle,snapdragon,colt's foot,king protea,spear thistle,yellow iris,globe-flower,
purple coneflower,peruvian lily,balloon flower,giant white arum lily,fire lily,pincushion flower,fritillary,red ginger,
grape hyacinth,corn poppy,prince of wales feathers,stemless gentian,artichoke,sweet william,carnation,garden phlox,
love in the mist,mexican aster,alpine sea holly,ruby-lipped cattleya,cape flower,great masterwort,siam tulip,lenten rose,
barbeton daisy,daffodil,sword lily,poinsettia,bolero deep blue,wallflower,marigold,buttercup,oxeye daisy,
common dandelion,petunia,wild pansy,primula,sunflower,pelargonium,bishop of llandaff,gaura,geranium,orange dahlia,
pink-yellow dahlia,cautleya spicata,japanese anemone,black-eyed susan,silverbush,californian poppy,osteospermum,
spring crocus,bearded iris,windflower,tree poppy,gazania,azalea,water lily,rose,thorn apple,morning glory,
passion flower,lotus,toad lily,anthurium,frangipani,clematis,hibiscus,columbine,desert-rose,tree mallow,magnolia,
cyclamen,watercress,canna lily,hippeastrum,bee balm,ball moss,foxglove,bougainvillea,camellia,mallow,mexican petunia,
bromelia,blanket flower,trumpet creeper,blackberry lily"""
FLOWER_NAMES = tuple(FLOWERS.replace("\n", "").split(","))
SPECIES = ("cat", "dog")


def read_pets(home: Path) -> Records:
    """Return Oxford-IIIT Pets, with the species as second labels."""
    rows = []
    for split, file in (("train", "trainval.txt"), ("test", "test.txt")):
        for line in text_lines(home / "annotations" / file):
            if not line.startswith("#"):
                rows.append((split, *_fields(line, 4, home / "annotations" / file)))
    names: dict[int, str] = {int(row[2]) - 1: tidy(row[1].rpartition("_")[0]) for row in rows}
    return Records(
        names=_in_order(names, home),
        pictures=[home / "images" / f"{row[1]}.jpg" for row in rows],
        targets=[int(row[2]) - 1 for row in rows],
        splits=[row[0] for row in rows],
        files=[f"{row[1]}.jpg" for row in rows],
        other_names=SPECIES,
        other_targets=[int(row[3]) - 1 for row in rows],
    )


def read_cub200(home: Path) -> Records:
    """Return CUB-200-2011 from its lists of images, classes and splits."""
    pieces = [_pairs(home / f"{file}.txt") for file in ("images", "image_class_labels", "train_test_split", "classes")]
    images, labels, train, classes = pieces
    missing = set(images) - set(labels) | set(images) - set(train)
    if missing:
        raise DataError(f'Image {min(missing)} of "{home}" has no label or no split. Download it again.')
    names = {int(key) - 1: tidy(name) for key, name in classes.items()}
    return Records(
        names=_in_order(names, home),
        pictures=[home / "images" / file for file in images.values()],
        targets=[int(labels[key]) - 1 for key in images],
        splits=["train" if train[key] == "1" else "test" for key in images],
        files=list(images.values()),
    )


def read_cars(home: Path) -> Records:
    """Return Stanford Cars from ``cars_annos.mat`` and ``car_ims``."""
    held = _squeezed(home / "cars_annos.mat", "annotations", "class_names")
    rows = np.atleast_1d(held["annotations"])
    files = [str(row["relative_im_path"]) for row in rows]
    return Records(
        names=tuple(str(name) for name in held["class_names"]),
        pictures=[home / file for file in files],
        targets=[int(row["class"]) - 1 for row in rows],
        splits=["test" if int(row["test"]) else "train" for row in rows],
        files=files,
    )


def read_cars_devkit(home: Path) -> Records:
    """Return Stanford Cars from its devkit, ``cars_train``, ``cars_test`` and the labels of the test pictures."""
    names = _squeezed(home / "devkit" / "cars_meta.mat", "class_names")["class_names"]
    places = {"train": home / "devkit" / "cars_train_annos.mat", "test": home / "cars_test_annos_withlabels.mat"}
    if not places["test"].exists():
        places["test"] = home / "devkit" / "cars_test_annos_withlabels.mat"
    rows = [
        (split, f"cars_{split}/{row['fname']}", int(row["class"]) - 1)
        for split, file in places.items()
        for row in np.atleast_1d(_squeezed(file, "annotations")["annotations"])
    ]
    return Records(
        names=tuple(str(name) for name in names),
        pictures=[home / file for _, file, _ in rows],
        targets=[target for *_, target in rows],
        splits=[split for split, *_ in rows],
        files=[file for _, file, _ in rows],
    )


def read_bmw10(home: Path) -> Records:
    """Return BMW-10; its classes are numbers (1 to 8, 10 and 11), so labels are called ``BMW 1`` and so on."""
    held = _squeezed(home / "bmw10_annos.mat", "annos", "train_indices", "test_indices")
    rows = np.atleast_1d(held["annos"])
    splits = dict.fromkeys(np.atleast_1d(held["train_indices"]).tolist(), "train")
    splits |= dict.fromkeys(np.atleast_1d(held["test_indices"]).tolist(), "test")
    used = [i for i in range(len(rows)) if i + 1 in splits]
    classes = sorted({int(rows[i]["class"]) for i in used})
    files = [str(rows[i]["fname"]) for i in used]
    return Records(
        names=tuple(f"BMW {number}" for number in classes),
        pictures=[home / "bmw10_ims" / file for file in files],
        targets=[classes.index(int(rows[i]["class"])) for i in used],
        splits=[splits[i + 1] for i in used],
        files=files,
    )


def read_flowers102(home: Path) -> Records:
    """Return Oxford Flowers-102 with its official train, val and test."""
    labels = np.atleast_1d(_squeezed(home / "imagelabels.mat", "labels")["labels"])
    sets = _squeezed(home / "setid.mat", "trnid", "valid", "tstid")
    rows = [
        (split, int(number))
        for split, key in (("train", "trnid"), ("val", "valid"), ("test", "tstid"))
        for number in np.atleast_1d(sets[key])
    ]
    files = [f"image_{number:05d}.jpg" for _, number in rows]
    return Records(
        names=FLOWER_NAMES,
        pictures=[home / "jpg" / file for file in files],
        targets=[int(labels[number - 1]) - 1 for _, number in rows],
        splits=[split for split, _ in rows],
        files=files,
    )


def read_miniimagenet(home: Path) -> Records:
    """Return miniImageNet from its CSV files: the classes of train, val and test are different ones."""
    rows = []
    for split in ("train", "val", "test"):
        for row in csv.DictReader(text_lines(home / f"{split}.csv")):
            if not row.get("filename") or not row.get("label"):
                raise DataError(f'"{home / split}.csv" needs the columns filename and label. Download it again.')
            rows.append((split, row["filename"], row["label"]))
    names = tuple(dict.fromkeys(label for *_, label in rows))
    position = {name: i for i, name in enumerate(names)}
    found = {path.name: path for path in list_pictures(home / "images")}  # flat, or a folder for each class
    return Records(
        names=names,
        pictures=[found.get(file, home / "images" / file) for _, file, _ in rows],
        targets=[position[label] for *_, label in rows],
        splits=[split for split, *_ in rows],
        files=[file for _, file, _ in rows],
    )


def _squeezed(file: Path, *needed: str) -> dict[str, Any]:
    return read_mat(file, *needed, squeeze=True)


def _pairs(file: Path) -> dict[int, str]:
    """Return the text after the number that each line begins with."""
    pairs = {}
    for line in text_lines(file):
        number, _, rest = line.strip().partition(" ")
        if not number.isdigit() or not rest:
            raise DataError(f'"{file}": cannot read the line "{line}". Download it again.')
        pairs[int(number)] = rest.strip()
    return pairs


def _fields(line: str, count: int, file: Path) -> list[str]:
    parts = line.split()
    if len(parts) != count or not all(part.isdigit() for part in parts[1:]):
        raise DataError(f'"{file}": cannot read the line "{line}". Download it again.')
    return parts


def _in_order(names: dict[int, str], home: Path) -> tuple[str, ...]:
    """Return names by position, all of which must be there."""
    if sorted(names) != list(range(len(names))):
        raise DataError(f'"{home}" lists classes {min(names) + 1} to {max(names) + 1} with gaps. Download it again.')
    return tuple(names[i] for i in range(len(names)))
