"""Small benchmarks written in their official layouts; the first pixel of each picture says which one it is."""

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.io import savemat

from labelwise.images.dataset import Split
from tests.pixels_of import px


def png(value: int, side: int = 6) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (side, side), (value, value, value)).save(stream, "PNG")
    return stream.getvalue()


def put(file: Path, value: int, side: int = 6) -> None:
    """A picture of one grey value; PNG whatever the name says, so that the value stays exact."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(png(value, side))


def text(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def values(split: Split) -> list[int]:
    return [int(image[0, 0, 0]) for image in px(split)]


def pairs(split: Split) -> list[tuple[int, int]]:
    """The value and the target of each picture."""
    return list(zip(values(split), split.targets.tolist(), strict=True))


def python2(held: object) -> bytes:
    """A pickle as Python 2 wrote it: bytes as its str, and numpy under its old name."""
    writer: Any = pickle._Pickler
    stream = io.BytesIO()

    def save_bytes(self: Any, obj: bytes) -> None:
        self.write(b"T" + len(obj).to_bytes(4, "little") + obj)

    def save_global(self: Any, obj: Any, name: str | None = None) -> None:
        module, _, word = f"{obj.__module__}.{name or obj.__name__}".rpartition(".")
        self.write(f"c{module.replace('_core', 'core')}\n{word}\n".encode())

    names = dict.fromkeys((type, type(np.empty), type(png)), save_global)
    old = type("Python2", (writer,), {"dispatch": writer.dispatch | names | {bytes: save_bytes}})
    old(stream, 2).dump(held)
    return stream.getvalue()


def cifar_rows(start: int, count: int) -> np.ndarray:
    """Rows of pixels; row i is start + i in the first row of red, and i in blue."""
    rows = np.zeros((count, 3, 32, 32), np.uint8)
    rows[:, 0, 0] = np.arange(start, start + count)[:, None]
    rows[:, 2] = np.arange(count)[:, None, None]
    return rows.reshape(count, -1)


def struct(columns: Mapping[str, Sequence[object]]) -> np.ndarray:
    """A MATLAB array of structs."""
    made = np.empty((1, len(next(iter(columns.values())))), dtype=[(name, object) for name in columns])
    for name, column in columns.items():
        for i, value in enumerate(column):
            made[name][0, i] = value
    return made


def pets(home: Path) -> None:
    text(home / "annotations/trainval.txt", "#Image CLASS-ID SPECIES BREED ID", "Bengal_cat_1 1 1 1", "pug_10 2 2 1")
    text(home / "annotations/test.txt", "pug_11 2 2 1", "Bengal_cat_2 1 1 1")
    for value, name in enumerate(("Bengal_cat_1", "pug_10", "pug_11", "Bengal_cat_2")):
        put(home / "images" / f"{name}.jpg", value)


def cub(home: Path, classes: int = 4) -> None:
    """Two pictures of each class, the second one for test."""
    files = [f"{c + 1:03d}.Bird_{c}/b_{i}.jpg" for c in range(classes) for i in range(2)]
    text(home / "classes.txt", *[f"{c + 1} {c + 1:03d}.Bird_{c}" for c in range(classes)])
    text(home / "images.txt", *[f"{i + 1} {file}" for i, file in enumerate(files)])
    text(home / "image_class_labels.txt", *[f"{i + 1} {i // 2 + 1}" for i in range(len(files))])
    text(home / "train_test_split.txt", *[f"{i + 1} {1 - i % 2}" for i in range(len(files))])
    for i, file in enumerate(files):
        put(home / "images" / file, i)


CARS = ["Audi A", "BMW X 2012", "BMW Y 2012", "Volvo"]


def cars(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    columns: dict[str, list[object]] = {
        "relative_im_path": [f"car_ims/{i:06d}.jpg" for i in range(8)],
        "class": [i % 4 + 1 for i in range(8)],
        "test": [int(i > 3) for i in range(8)],
    }
    rows = struct(columns)
    savemat(home / "cars_annos.mat", {"annotations": rows, "class_names": np.array([CARS], dtype=object)})
    for i in range(8):
        put(home / f"car_ims/{i:06d}.jpg", i)


def cars_devkit(home: Path) -> None:
    (home / "devkit").mkdir(parents=True)
    savemat(home / "devkit/cars_meta.mat", {"class_names": np.array([CARS], dtype=object)})
    for name, split in (("devkit/cars_train_annos.mat", "train"), ("cars_test_annos_withlabels.mat", "test")):
        rows = struct({"class": [1, 2, 3, 4], "fname": [f"{i:05d}.jpg" for i in range(4)]})
        savemat(home / name, {"annotations": rows})
        for i in range(4):
            put(home / f"cars_{split}/{i:05d}.jpg", i + 4 * (split == "test"))


def bmw10(home: Path) -> None:
    """Six pictures of classes 1, 2 and 10; the fourth is in no split."""
    home.mkdir(parents=True)
    rows = struct({"fname": [f"{i % 3}/{i}.jpg" for i in range(6)], "class": [1, 2, 10, 1, 2, 10]})
    places = {"train_indices": np.array([[1], [2], [3]]), "test_indices": np.array([[5], [6]])}
    savemat(home / "bmw10_annos.mat", {"annos": rows, **places})
    for i in range(6):
        put(home / f"bmw10_ims/{i % 3}/{i}.jpg", i)


def flowers(home: Path) -> None:
    home.mkdir(parents=True)
    savemat(home / "imagelabels.mat", {"labels": np.array([[77, 2, 77, 102, 1]])})
    savemat(home / "setid.mat", {"trnid": np.array([[2, 5]]), "valid": np.array([[1]]), "tstid": np.array([[3, 4]])})
    for i in range(1, 6):
        put(home / f"jpg/image_{i:05d}.jpg", i)


def pacs(home: Path, each: int = 10) -> None:
    """As many pictures of dog and house in each domain; the value is 10 * domain + label."""
    for d, domain in enumerate(("art_painting", "cartoon", "photo", "sketch")):
        for name in ("elephant", "giraffe", "guitar", "horse", "person"):
            (home / domain / name).mkdir(parents=True)
        for label, name in ((0, "dog"), (5, "house")):
            for i in range(each):
                put(home / domain / name / f"{i}.jpg", 10 * d + label)


def tinyimagenet(home: Path) -> None:
    text(home / "wnids.txt", "n02", "n01")
    text(home / "words.txt", "n01\tgoldfish, Carassius", "n02\tbullfrog, Rana", "n03\tother")
    for wnid, value in (("n01", 1), ("n02", 2)):
        for i in range(2):
            put(home / f"train/{wnid}/images/{wnid}_{i}.JPEG", value)
    text(home / "val/val_annotations.txt", "val_0.JPEG\tn02\t0\t0\t9\t9", "val_1.JPEG\tn01\t0\t0\t9\t9")
    put(home / "val/images/val_0.JPEG", 12)
    put(home / "val/images/val_1.JPEG", 11)


def omniglot(home: Path) -> None:
    for value, file in enumerate(("images_background/Greek/character01/a.png", "images_background/Greek/character02/b.png",
                                  "images_evaluation/Tifinagh/character01/c.png")):  # fmt: skip
        put(home / file, value)


def miniimagenet(home: Path) -> None:
    for i, split in enumerate(("train", "val", "test")):
        text(home / f"{split}.csv", "filename,label", f"n{i}0.jpg,n{i}", f"n{i}1.jpg,n{i}")
        for j in range(2):
            put(home / f"images/n{i}{j}.jpg", 10 * i + j)


def adience(home: Path) -> None:
    """Two faces in each fold, a third with an age outside the groups in the first; the value is 10 * fold + i."""
    for fold in range(5):
        rows = [f"u{fold}\tp{i}.jpg\t{i}\t{age}\tm" for i, age in enumerate(("(8, 12)", "(60, 100)"))]
        rows += [f"u{fold}\tp9.jpg\t9\t35\tm"] * (fold == 0)
        text(home / f"fold_{fold}_data.txt", "user_id\toriginal_image\tface_id\tage\tgender", *rows)
        for i in range(2):
            put(home / f"aligned/u{fold}/landmark_aligned_face.{i}.p{i}.jpg", 10 * fold + i)


def utkface(home: Path) -> None:
    for age in (3, 3, 25, 29, 90, 101):
        for i in range(3):
            put(home / f"{age}_0_1_2017{age}{i}.jpg.chip.jpg", age)
    put(home / "no_age.jpg", 0)


def lsun(home: Path) -> None:
    put(home / "a.jpg", 1)
    put(home / "kitchen/b.jpg", 2)


MADE: dict[str, Callable[[Path], None]] = {
    "pets": pets, "cub200": cub, "cars196": cars, "bmw10": bmw10, "flowers102": flowers, "pacs": pacs, "lsun": lsun,
    "tinyimagenet": tinyimagenet, "omniglot": omniglot, "miniimagenet": miniimagenet, "adience": adience,
    "utkface": utkface,
}  # fmt: skip
