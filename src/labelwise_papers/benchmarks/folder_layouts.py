"""Readers of official layouts that say everything by folders and file names: PACS, TinyImageNet, Omniglot, faces."""

import csv
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from labelwise.images.images import Skipped
from labelwise.images.sources.paths import is_hidden, is_image, list_images
from labelwise.support.errors import DataError
from labelwise.support.files import check_size, open_regular, read_regular
from labelwise_papers.benchmarks.entries import ENTRIES
from labelwise_papers.benchmarks.records import Records, records_of, text_lines, tidy

PACS_DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
_AGES = ("(0, 2)", "(4, 6)", "(8, 12)", "(15, 20)", "(25, 32)", "(38, 43)", "(48, 53)", "(60, 100)")
_AGE_GROUPS = {age: group for group, age in enumerate(_AGES)} | {"(8, 13)": 2}
_OLDEST = 116


def read_pacs(home: Path) -> Records:
    """Return PACS with the domain of each image; no official split."""
    rows = [
        (domain, label, path)
        for domain in PACS_DOMAINS
        for label, name in enumerate(ENTRIES["pacs"].labels)
        for path in list_images(home / domain / name)
    ]
    return records_of("domains targets pictures", rows, home)


def read_tinyimagenet(home: Path) -> Records:
    """Return TinyImageNet: its train, and its val as test."""
    wnids = sorted(line.strip() for line in text_lines(home / "wnids.txt"))
    position = {wnid: i for i, wnid in enumerate(wnids)}
    words = dict(line.split("\t", 1) for line in text_lines(home / "words.txt") if "\t" in line)
    rows = [
        ("train", position[wnid], path, path.name)
        for wnid in wnids
        for path in list_images(home / "train" / wnid / "images")
    ]
    for line in text_lines(home / "val" / "val_annotations.txt"):
        file, wnid = line.split("\t")[:2] if "\t" in line else (line, "")
        if wnid not in position:
            raise DataError(f'"val_annotations.txt" in "{home}": no class in the line "{line}". Download it again.')
        rows.append(("test", position[wnid], home / "val" / "images" / file, file))
    names = first_synonyms([words.get(wnid, wnid) for wnid in wnids], wnids)
    return replace(records_of("splits targets pictures files", rows), names=names)


def first_synonyms(names: Iterable[str], ids: Iterable[str]) -> tuple[str, ...]:
    """Return the first of the synonyms of each class, with its id behind it where two classes share one."""
    short = [name.split(",")[0].strip() for name in names]
    return tuple(name if short.count(name) == 1 else f"{name} ({i})" for name, i in zip(short, ids, strict=True))


def read_lsun(home: Path) -> Records:
    """Return every image of a folder as test without a label."""
    return records_of("splits targets pictures", [("test", -1, path) for path in list_images(home)], home)


def read_omniglot(home: Path) -> Records:
    """Return Omniglot: the background alphabets as train, those for evaluation as test; folders or zips."""
    return omniglot_records([(home / "images_background", "train"), (home / "images_evaluation", "test")])


def omniglot_records(parts: Iterable[tuple[Path, str]]) -> Records:
    """Return the characters of several folders (or zips of that name); an alphabet stays in the first that has it."""
    rows: list[tuple[str, str, str, bytes]] = []
    owner: dict[str, Path] = {}
    for folder, split in parts:
        for alphabet, character, content in _characters(folder):
            if owner.setdefault(alphabet, folder) == folder:
                rows.append((tidy(alphabet), f"{alphabet}/{character}", split, content))
    names = list(dict.fromkeys(label for _, label, _, _ in rows))
    position = {name: i for i, name in enumerate(names)}
    numbered = [(alphabet, position[label], split, content) for alphabet, label, split, content in rows]
    records = records_of("groups targets splits pictures", numbered)
    return replace(records, names=tuple(map(tidy, names)), grey=True)


def _characters(folder: Path) -> list[tuple[str, str, bytes]]:
    """Return alphabet, character and content of each image below a folder or in a zip of that name."""
    if folder.is_dir():
        paths = [(path.relative_to(folder).parts, path) for path in list_images(folder)]
        return [(parts[0], parts[1], read_regular(path)) for parts, path in paths if len(parts) == 3]
    packed = folder.with_name(folder.name + ".zip")
    try:
        with open_regular(packed, None) as stream, zipfile.ZipFile(stream) as archive:
            names = sorted(name for name in archive.namelist() if is_image(name))
            split = [(name.split("/")[1:], name) for name in names if not any(map(is_hidden, name.split("/")))]
            check_size(packed, sum(archive.getinfo(name).file_size for _, name in split))
            return [(parts[0], parts[1], archive.read(name)) for parts, name in split if len(parts) == 3]
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f'Cannot read "{folder}" or "{packed}": {error}. Look whether it arrived whole.') from None


def read_utkface(home: Path) -> Records:
    """Return UTKFace with decades of age as ordered labels and years as second ones; no official split."""
    rows, skipped = [], []
    for path in list_images(home):
        age = path.name.split("_")[0]
        if age.isdigit() and int(age) <= _OLDEST:
            rows.append((path, path.name, min(int(age) // 10, 9), int(age)))
        else:
            skipped.append(Skipped(file=str(path), reason="its name does not begin with an age"))
    years = sorted({age for *_, age in rows})
    return replace(
        records_of("pictures files targets other_targets", [(*row, years.index(age)) for *row, age in rows]),
        other_names=tuple(str(year) for year in years),
        ordered=True,
        skipped=tuple(skipped),
    )


def read_adience(home: Path) -> Records:
    """Return Adience in 8 ordered age groups; the fold of each image is given as its domain, the person as its group."""
    aligned = (home / "aligned").is_dir()
    folder, prefix = ("aligned", "landmark_aligned_face") if aligned else ("faces", "coarse_tilt_aligned_face")
    rows, skipped = [], []
    for fold in range(5):
        for row in csv.DictReader(text_lines(home / f"fold_{fold}_data.txt"), delimiter="\t"):
            if None in row.values() or not {"user_id", "original_image", "face_id", "age"} <= row.keys():
                raise DataError(f'"fold_{fold}_data.txt" in "{home}" lacks columns or is cut off. Download it again.')
            file = f"{folder}/{row['user_id']}/{prefix}.{row['face_id']}.{row['original_image']}"
            if row["age"] in _AGE_GROUPS:
                rows.append((f"fold{fold}", row["user_id"], home / file, _AGE_GROUPS[row["age"]]))
            else:
                skipped.append(Skipped(file=file, reason=f"its age, {row['age'] or 'empty'}, is none of the 8 groups"))
    return replace(records_of("domains groups pictures targets", rows, home), ordered=True, skipped=tuple(skipped))
