"""Labels of whole images come back from every format as they were written."""

from collections.abc import Callable
from pathlib import Path

import pytest

import labelwise as lw
from labelwise.images.formats.answers import read_answers
from tests.images.formats.written import (
    HEIGHT,
    LABELS,
    NAMES,
    WIDTH,
    answers,
    label_of,
    photos,
    whole,
    write_csv,
    write_json,
)


def imagefolder(home: Path) -> Path:
    photos(home)
    write_csv(home / "metadata.csv", ["file_name", "label"], whole())
    return home


def imagefolder_splits(home: Path) -> Path:
    for split, names in (("train", NAMES[:4]), ("test", NAMES[4:])):
        photos(home / split, names)
        write_csv(
            home / split / "metadata.csv", ["file_name", "label", "text"], [(n, label_of(n), f"of {n}") for n in names]
        )
    return home


def imagefolder_of_folders(home: Path) -> Path:
    photos(home, [f"{label_of(name)}/{name}" for name in NAMES])
    rows = [(f"{label_of(name)}/{name}", f"of {name}") for name in NAMES]
    write_csv(home / "metadata.csv", ["file_name", "text"], rows)
    return home


def imagefolder_lines(home: Path) -> Path:
    import json

    photos(home)
    lines = [json.dumps({"file_name": name, "label": label}) for name, label in whole()]
    (home / "metadata.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return home


def coco(home: Path) -> Path:
    photos(home / "images")
    images = [{"id": i, "file_name": f"images/{name}"} for i, name in enumerate(NAMES)]
    notes = [{"id": i, "image_id": i, "category_id": LABELS.index(label)} for i, (_, label) in enumerate(whole())]
    categories = [{"id": i, "name": name} for i, name in enumerate(LABELS)]
    write_json(home / "annotations.json", {"images": images, "annotations": notes, "categories": categories})
    return home


def coco_of_label(home: Path) -> Path:
    """As ``label --export coco`` writes it: boxes that cover the whole image."""
    coco(home)
    text = (home / "annotations.json").read_text("utf-8")
    text = text.replace('"category_id"', f'"bbox": [0, 0, {WIDTH}, {HEIGHT}], "category_id"')
    text = text.replace('"file_name"', f'"width": {WIDTH}, "height": {HEIGHT}, "file_name"')
    (home / "annotations.json").write_text(text, "utf-8")
    return home


def yolo(home: Path) -> Path:
    """The classification layout of ultralytics."""
    for split, names in (("train", NAMES[:4]), ("val", NAMES[4:])):
        photos(home / split, [f"{label_of(name)}/{name}" for name in names])
    return home


def label_studio(home: Path) -> Path:
    photos(home)
    places = ("{}", "/data/upload/3/1a2b3c4d-{}", "/data/local-files/?d={}", "https://example.org/photos/{}?x=1")
    tasks: list[object] = [
        {
            "data": {"text": "a note", "image": places[i % 4].format(name.replace(" ", "%20") if i % 4 % 2 else name)},
            "annotations": [
                {"was_cancelled": True, "result": []},
                {"result": [{"type": "choices", "value": {"choices": [label]}}]},
            ],
        }
        for i, (name, label) in enumerate(whole())
    ]
    return write_json(home / "project-1.json", [*tasks, {"data": {"image": NAMES[0]}, "annotations": []}])


def label_studio_min(home: Path) -> Path:
    photos(home)
    return write_json(home / "min.json", [{"id": 1, "image": name, "choice": label} for name, label in whole()])


def fiftyone(home: Path) -> Path:
    photos(home / "data")
    labels = {Path(name).stem: LABELS.index(label) for name, label in whole()}
    write_json(home / "labels.json", {"classes": LABELS, "labels": labels})
    return home


def fiftyone_samples(home: Path) -> Path:
    photos(home / "data")
    samples = [
        {
            "filepath": f"data/{name}",
            "tags": ["train" if i < 4 else "test"],
            "guess": {"_cls": "Classification", "label": "x"},
            "ground_truth": {"_cls": "Classification", "label": label},
        }
        for i, (name, label) in enumerate(whole())
    ]
    write_json(home / "samples.json", {"samples": samples})
    return home


def cvat(home: Path) -> Path:
    photos(home / "images")
    images = "".join(
        f'<image id="{i}" name="{n}"><tag label="{label}"/></image>' for i, (n, label) in enumerate(whole())
    )
    (home / "annotations.xml").write_text(f"<?xml version='1.0'?><annotations>{images}</annotations>", encoding="utf-8")
    return home


FORMATS: dict[str, Callable[[Path], Path]] = {
    "imagefolder": imagefolder,
    "imagefolder with splits": imagefolder_splits,
    "imagefolder with label folders": imagefolder_of_folders,
    "imagefolder, JSON lines": imagefolder_lines,
    "COCO": coco,
    "COCO of the label page": coco_of_label,
    "YOLO": yolo,
    "Label Studio": label_studio,
    "Label Studio, JSON-MIN": label_studio_min,
    "FiftyOne": fiftyone,
    "FiftyOne, samples": fiftyone_samples,
    "CVAT": cvat,
}


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_labels_come_back_as_they_were_written(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    data = lw.data.load(write(tmp_path / "some data"))
    assert answers(data) == whole()
    assert data.labels.names == LABELS
    assert not data.skipped


def test_splits_and_sentences_of_an_image_folder_come_with_it(tmp_path: Path) -> None:
    data = lw.data.load(imagefolder_splits(tmp_path))
    assert [Path(file).name for file in data.split("test").files] == list(NAMES[4:])
    assert data.split("test").texts == tuple((f"of {name}",) for name in NAMES[4:])
    assert data.own_splits


def test_images_of_several_labels_are_data_of_several_labels(tmp_path: Path) -> None:
    coco(tmp_path)
    text = (tmp_path / "annotations.json").read_text("utf-8")
    more = '{"id": 90, "image_id": 0, "category_id": 1}, {"id": 0, '
    (tmp_path / "annotations.json").write_text(
        text.replace('{"id": 0, ', more, 2).replace(more, '{"id": 0, ', 1), "utf-8"
    )
    data = lw.data.load(tmp_path)
    assert data.multilabel
    assert answers(data)[0] == (NAMES[0], ";".join(LABELS))
    assert answers(data)[1:] == whole()[1:]


def test_images_without_a_label_are_left_out(tmp_path: Path) -> None:
    photos(tmp_path)
    rows = [(name, "" if name == NAMES[3] else label) for name, label in whole()]
    write_csv(tmp_path / "metadata.csv", ["file_name", "label"], rows)
    assert answers(lw.data.load(tmp_path)) == [pair for pair in whole() if pair[0] != NAMES[3]]


@pytest.mark.parametrize("write", [cvat, fiftyone, fiftyone_samples, imagefolder_lines])
def test_the_label_page_imports_labels_of_other_tools(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    place = write(tmp_path / "some data")
    files = {"cvat": "annotations.xml", "fiftyone": "labels.json", "fiftyone_samples": "samples.json"}
    source = place / files.get(write.__name__, "metadata.jsonl")
    labels = {Path(file).name: label for file, label in read_answers(source).items()}
    assert sorted(labels.items()) == whole()
    assert all(Path(file).is_file() for file in read_answers(source))
