"""Observations of camera traps in Camtrap DP come back as labels of images, of boxes, and of all images of an event."""

from pathlib import Path

import pytest

import labelwise as lw
from labelwise.images.dataset import label_words
from labelwise.images.formats.annotations import rows_of
from labelwise.images.formats.find import find_annotations
from labelwise.support.errors import DataError
from tests.images.formats.written import (
    BOXES,
    LABELS,
    NAMES,
    answers,
    cut_out,
    label_of,
    photos,
    pixels,
    whole,
    write_csv,
)

MEDIA = ("mediaID", "deploymentID", "timestamp", "filePath")


def package(folder: Path, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> Path:
    photos(folder / "media")
    media = [
        (f"m{i}", f"d{i % 2}", f"2026-05-0{1 + i // 2}T10:00:00Z", f"media/{name}") for i, name in enumerate(NAMES)
    ]
    write_csv(folder / "media.csv", MEDIA, media)
    write_csv(folder / "deployments.csv", ("deploymentID", "locationName"), [("d0", "a pond"), ("d1", "a hill")])
    write_csv(folder / "observations.csv", columns, rows)
    return folder


def test_observations_of_images(tmp_path: Path) -> None:
    columns = ("mediaID", "eventID", "observationType", "scientificName")
    rows: list[tuple[object, ...]] = [(f"m{i}", f"e{i}", "animal", label_of(name)) for i, name in enumerate(NAMES)]
    data = lw.data.load(package(tmp_path, columns, [*rows, ("m0", "e0", "unclassified", "")]))
    assert answers(data) == whole()
    train = data.split("train")
    assert all(
        ("pond" if label_of(Path(file).name) == LABELS[0] else "hill") in place
        for file, place in zip(train.files, train.domains, strict=True)
    )
    assert all(train.groups)


def test_observations_of_boxes(tmp_path: Path) -> None:
    columns = ("mediaID", "observationType", "scientificName", "bboxX", "bboxY", "bboxWidth", "bboxHeight")
    rows: list[tuple[object, ...]] = [(f"m{NAMES.index(box.image)}", "animal", box.label, *box.shares) for box in BOXES]
    assert pixels(lw.data.load(package(tmp_path / "a package", columns, rows))) == cut_out(
        tmp_path, tmp_path / "a package" / "media"
    )


def test_observations_of_events_and_of_no_animal(tmp_path: Path) -> None:
    columns = ("mediaID", "deploymentID", "eventID", "eventStart", "eventEnd", "observationType", "scientificName")
    day = "2026-05-0{}T{}:00:00Z"
    rows: list[tuple[object, ...]] = [
        ("", "d0", "e1", day.format(1, "09"), day.format(2, "11"), "animal", "Tyto alba"),
        ("", "d0", "e2", day.format(3, "09"), day.format(3, "11"), "blank", ""),
        ("m1", "d1", "e3", "", "", "human", ""),
    ]
    expected = [(NAMES[0], "Tyto alba"), (NAMES[1], "human"), (NAMES[2], "Tyto alba"), (NAMES[4], "blank")]
    there = rows_of(find_annotations(package(tmp_path, columns, rows)))
    assert sorted(zip(map(image_of, there.files), label_words(there.names, there.targets), strict=True)) == expected
    assert dict(zip(map(image_of, there.files), there.groups, strict=True))[NAMES[2]] == "e1"


def image_of(file: str) -> str:
    return Path(file).name


def test_a_damaged_package_is_an_error_for_people(tmp_path: Path) -> None:
    package(tmp_path, ("mediaID", "observationType", "scientificName"), [("m9", "animal", "Tyto alba")])
    with pytest.raises(DataError, match="Camtrap DP"):
        lw.data.load(tmp_path)
