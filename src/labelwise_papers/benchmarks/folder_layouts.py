"""Readers of official layouts that say everything by folders and file names: PACS, TinyImageNet, Omniglot, faces."""

import csv
import zipfile
from collections.abc import Iterable
from pathlib import Path

from labelwise.data.dataset import Skipped
from labelwise.data.read.pictures import is_hidden, is_picture, list_pictures
from labelwise.errors import DataError
from labelwise_papers.benchmarks.records import Records, text_lines, tidy

PACS_DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
PACS_NAMES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
_PLACES = ("bedroom", "bridge", "church outdoor", "classroom", "conference room")
LSUN_NAMES = (*_PLACES, "dining room", "kitchen", "living room", "restaurant", "tower")
AGE_GROUPS = ("0-2", "4-6", "8-13", "15-20", "25-32", "38-43", "48-53", "60+")
_AGES = {"(0, 2)": 0, "(4, 6)": 1, "(8, 12)": 2, "(8, 13)": 2, "(15, 20)": 3, "(25, 32)": 4, "(38, 43)": 5}
_AGES |= {"(48, 53)": 6, "(60, 100)": 7}
_OLDEST = 116
DECADES = (*(f"{start}-{start + 9}" for start in range(0, 90, 10)), "90+")


def read_pacs(home: Path) -> Records:
    """Return PACS with the domain of each picture; no official split."""
    rows = [
        (domain, label, path)
        for domain in PACS_DOMAINS
        for label, name in enumerate(PACS_NAMES)
        for path in list_pictures(home / domain / name)
    ]
    return Records(
        names=PACS_NAMES,
        pictures=[path for *_, path in rows],
        targets=[label for _, label, _ in rows],
        files=[path.relative_to(home).as_posix() for *_, path in rows],
        domains=[domain for domain, *_ in rows],
    )


def read_tinyimagenet(home: Path) -> Records:
    """Return TinyImageNet: its train, and its val as test."""
    wnids = sorted(line.strip() for line in text_lines(home / "wnids.txt"))
    position = {wnid: i for i, wnid in enumerate(wnids)}
    words = dict(line.split("\t", 1) for line in text_lines(home / "words.txt") if "\t" in line)
    rows = [
        ("train", position[wnid], path) for wnid in wnids for path in list_pictures(home / "train" / wnid / "images")
    ]
    for line in text_lines(home / "val" / "val_annotations.txt"):
        file, wnid = line.split("\t")[:2] if "\t" in line else (line, "")
        if wnid not in position:
            raise DataError(f'"val_annotations.txt" in "{home}": no class in the line "{line}". Download it again.')
        rows.append(("test", position[wnid], home / "val" / "images" / file))
    return Records(
        names=first_synonyms([words.get(wnid, wnid) for wnid in wnids], wnids),
        pictures=[path for *_, path in rows],
        targets=[target for _, target, _ in rows],
        splits=[split for split, *_ in rows],
        files=[path.name for *_, path in rows],
    )


def first_synonyms(names: Iterable[str], ids: Iterable[str]) -> tuple[str, ...]:
    """Return the first of the synonyms of each class, with its id behind it where two classes share one."""
    short = [name.split(",")[0].strip() for name in names]
    return tuple(name if short.count(name) == 1 else f"{name} ({i})" for name, i in zip(short, ids, strict=True))


def read_lsun(home: Path) -> Records:
    """Return every picture of a folder as test without a label."""
    pictures = list_pictures(home)
    return Records(
        names=LSUN_NAMES,
        pictures=pictures,
        targets=[-1] * len(pictures),
        splits=["test"] * len(pictures),
        files=[path.relative_to(home).as_posix() for path in pictures],
    )


def read_omniglot(home: Path) -> Records:
    """Return Omniglot: the background alphabets as train, those for evaluation as test; folders or zips."""
    return omniglot_records([(home / "images_background", "train"), (home / "images_evaluation", "test")])


def omniglot_records(parts: Iterable[tuple[Path, str]]) -> Records:
    """Return the characters of several folders (or zips of that name); an alphabet stays in the first that has it."""
    rows: list[tuple[str, str, str, bytes]] = []
    owner: dict[str, Path] = {}
    for place, split in parts:
        for alphabet, character, content in _characters(place):
            if owner.setdefault(alphabet, place) == place:
                rows.append((alphabet, f"{alphabet}/{character}", split, content))
    names = tuple(dict.fromkeys(label for _, label, _, _ in rows))
    position = {name: i for i, name in enumerate(names)}
    return Records(
        names=tuple(tidy(name) for name in names),
        pictures=[content for *_, content in rows],
        targets=[position[label] for _, label, _, _ in rows],
        splits=[split for _, _, split, _ in rows],
        groups=[tidy(alphabet) for alphabet, *_ in rows],
        grey=True,
    )


def _characters(place: Path) -> list[tuple[str, str, bytes]]:
    """Return alphabet, character and content of each picture below a folder or in a zip of that name."""
    if place.is_dir():
        found = [(path.relative_to(place).parts, path) for path in list_pictures(place)]
        return [(parts[0], parts[1], path.read_bytes()) for parts, path in found if len(parts) == 3]
    packed = place.with_name(place.name + ".zip")
    try:
        with zipfile.ZipFile(packed) as archive:
            names = sorted(name for name in archive.namelist() if is_picture(name))
            split = [(name.split("/")[1:], name) for name in names if not any(map(is_hidden, name.split("/")))]
            return [(parts[0], parts[1], archive.read(name)) for parts, name in split if len(parts) == 3]
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f'Cannot read "{place}" or "{packed}": {error}. Look whether it arrived whole.') from None


def read_utkface(home: Path) -> Records:
    """Return UTKFace with decades of age as ordered labels and years as second ones; no official split."""
    ages, kept, skipped = [], [], []
    for path in list_pictures(home):
        age = path.name.split("_")[0]
        if age.isdigit() and int(age) <= _OLDEST:
            ages.append(int(age))
            kept.append(path)
        else:
            skipped.append(Skipped(file=str(path), reason="its name does not begin with an age"))
    years = sorted(set(ages))
    return Records(
        names=DECADES,
        pictures=kept,
        targets=[min(age // 10, 9) for age in ages],
        files=[path.name for path in kept],
        other_names=tuple(str(year) for year in years),
        other_targets=[years.index(age) for age in ages],
        ordered=True,
        skipped=tuple(skipped),
    )


def read_adience(home: Path) -> Records:
    """Return Adience in 8 ordered age groups; the fold of each picture is given as its domain, the person as its group."""
    aligned = (home / "aligned").is_dir()
    folder, prefix = ("aligned", "landmark_aligned_face") if aligned else ("faces", "coarse_tilt_aligned_face")
    rows, skipped = [], []
    for fold in range(5):
        for row in csv.DictReader(text_lines(home / f"fold_{fold}_data.txt"), delimiter="\t"):
            if None in row.values() or not {"user_id", "original_image", "face_id", "age"} <= row.keys():
                raise DataError(f'"fold_{fold}_data.txt" in "{home}" lacks columns or is cut off. Download it again.')
            file = f"{folder}/{row['user_id']}/{prefix}.{row['face_id']}.{row['original_image']}"
            if row["age"] in _AGES:
                rows.append((f"fold{fold}", row["user_id"], file, _AGES[row["age"]]))
            else:
                skipped.append(Skipped(file=file, reason=f"its age, {row['age'] or 'empty'}, is none of the 8 groups"))
    return Records(
        names=AGE_GROUPS,
        pictures=[home / file for _, _, file, _ in rows],
        targets=[target for *_, target in rows],
        files=[file for _, _, file, _ in rows],
        domains=[fold for fold, *_ in rows],
        groups=[person for _, person, _, _ in rows],
        ordered=True,
        skipped=tuple(skipped),
    )
