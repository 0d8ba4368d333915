"""Find the format of a file or a folder, and read it."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labelwise.images.formats import (
    camtrap,
    coco,
    cvat,
    detectors,
    fiftyone,
    gbif,
    imagefolder,
    inaturalist,
    label_studio,
    voc,
    yolo,
)
from labelwise.images.formats.annotations import Annotations, files_named, shaped
from labelwise.images.sources.delimited import first_columns
from labelwise.support.errors import DataError
from labelwise.support.files import check_size, json_size, read_regular


@dataclass(frozen=True)
class Format:
    """A format in JSON files."""

    words: str  # how errors call it
    accepts: Callable[[Any], bool]  # whether a document is of this format
    read: Callable[[Any, Path], Annotations]
    patterns: tuple[str, ...] = ()  # how such files are called in a folder


JSON = (
    Format("a COCO file", coco.accepts, coco.read, coco.PATTERNS),
    Format("a file of MegaDetector or SpeciesNet", detectors.accepts, detectors.read),
    Format("tasks of Label Studio", label_studio.accepts, label_studio.read, label_studio.PATTERNS),
    Format("an export of FiftyOne", fiftyone.accepts, fiftyone.read, fiftyone.PATTERNS),
)
SUFFIXES = (".json", ".jsonl", ".xml", ".yaml", ".yml")
TABLES = (".csv", ".tsv", ".txt")  # which are annotations if their columns are those of a download
DOWNLOADS = ((inaturalist.accepts, inaturalist.read), (gbif.accepts, gbif.read_simple))  # in one table


def is_annotations(path: str | Path) -> bool:
    """Return whether a path is a file that may annotate images, by its name."""
    place = Path(path)
    kind = place.suffix.lower()
    known = kind in SUFFIXES or place.name in imagefolder.NAMES or (kind in TABLES and bool(_download_of(place)))
    return known and os.path.isfile(place)


def find_annotations(path: Path) -> list[Annotations]:
    """Read the annotation files at a path, a file or a folder; return nothing for any other path."""
    with shaped(path, "annotations of images"):
        if path.is_dir():
            return _in_folder(path)
        part = _read_file(path) if is_annotations(path) else None
        return [part] if part else []


def _in_folder(folder: Path) -> list[Annotations]:
    if camtrap.is_camtrap(folder):
        with shaped(folder, "a Camtrap DP package"):
            return [camtrap.read(folder)]
    if gbif.is_archive(folder):
        return [_of_archive(folder)]
    if tables := inaturalist.open_tables(folder):
        return [inaturalist.read_open(tables)]
    for names in imagefolder.PLACES:
        tables = [folder / name for name in names if imagefolder.accepts(folder / name)]
        if tables:
            return [_of_table(file) for file in tables]
    for form in JSON:
        for pattern in form.patterns:
            parts = [part for file in files_named(folder, pattern) if (part := _of_json(file, [form]))]
            if parts:
                return _split_apart([replace(each, home=folder, folders=_below(each, folder)) for each in parts])
    for file in (folder / name for name in cvat.PATTERNS):
        if file.is_file() and cvat.is_cvat(file):
            return [_of_cvat(file)]
    if files := voc.files_in(folder):
        return [voc.read(files)]
    tables = [file for pattern in yolo.PATTERNS for file in files_named(folder, pattern) if yolo.accepts(file)]
    if tables:
        return [_of_yolo(tables[0])]
    exports = [file for pattern in inaturalist.PATTERNS for file in files_named(folder, pattern)]
    return [part for file in exports if (part := _download_of(file))]


def _read_file(file: Path) -> Annotations | None:
    kind = file.suffix.lower()
    if kind == ".json":
        part = _of_json(file, JSON)
        return part and _split_apart([part])[0]
    if kind in (*TABLES, ".jsonl"):
        return _of_table(file) if imagefolder.accepts(file) else _download_of(file)
    if kind == ".xml":
        return voc.read([file]) if voc.is_voc(file) else _of_cvat(file) if cvat.is_cvat(file) else None
    if kind in (".yaml", ".yml"):
        return _of_yolo(file) if yolo.accepts(file) else None
    return None


def _of_table(file: Path) -> Annotations:
    with shaped(file, "the table of an image folder"):
        return imagefolder.read(file)


def _download_of(file: Path) -> Annotations | None:
    """Return the observations of a table that is a download, by its first row; that of an archive is the archive."""
    if file.suffix.lower() not in TABLES or not os.path.isfile(file):
        return None
    if file.name in (gbif.OCCURRENCES, gbif.MEDIA) and gbif.is_archive(file.parent):
        return _of_archive(file.parent)
    columns = first_columns(file)
    own = {"path", "label", "labels"} & columns  # a table of a person
    return next((read(file) for accepts, read in DOWNLOADS if accepts(columns) and not own), None)


def _of_archive(folder: Path) -> Annotations:
    with shaped(folder, gbif.WORDS):
        return gbif.read(folder)


def _of_cvat(file: Path) -> Annotations:
    with shaped(file, "an export of CVAT for images"):
        return cvat.read(file)


def _of_yolo(file: Path) -> Annotations:
    with shaped(file, "a YOLO data set"):
        return yolo.read(file)


def read_json(file: Path) -> Any:
    """Return a JSON document."""
    with shaped(file, "a JSON file"):
        content = read_regular(file)
        check_size(file, json_size(content))
        return json.loads(content)


def _of_json(file: Path, forms: Sequence[Format]) -> Annotations | None:
    """Read a JSON file in one of these formats; return None for any other."""
    document = read_json(file)
    for form in forms:
        if form.accepts(document):
            with shaped(file, form.words):
                return form.read(document, file)
    return None


def _below(part: Annotations, folder: Path) -> tuple[str, ...]:
    """Return where the names of images start, from a folder above the one of the annotations."""
    inner = part.home.relative_to(folder)
    return tuple(dict.fromkeys([*((inner / start).as_posix() for start in part.folders), *part.folders]))


def _split_apart(parts: list[Annotations]) -> list[Annotations]:
    """Return files with the splits that their names say, but not where all are of one: they are all there is."""
    if len({record.split for part in parts for record in part.records}) > 1:
        return parts
    return [replace(part, records=tuple(replace(each, split="") for each in part.records)) for part in parts]


def read_annotations(path: Path) -> Sequence[Annotations]:
    """Call ``find_annotations``; raise an error if there is nothing."""
    parts = find_annotations(path)
    if not parts:
        raise DataError(
            f'"{path}" holds no annotations that can be read. Formats: COCO, MegaDetector, SpeciesNet, Pascal VOC, YOLO, '
            "Label Studio, CVAT, FiftyOne, Camtrap DP, a download of GBIF or iNaturalist, an image folder with metadata.csv."
        )
    return parts
