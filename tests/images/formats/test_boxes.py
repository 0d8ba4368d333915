"""Boxes of every format come back as the crops that they are, with their labels; the boxes of an image stay together."""

from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

import labelwise as lw
from labelwise.images.as_images import as_images
from labelwise.images.decode.crops import file_of
from labelwise.images.formats.find import find_annotations
from labelwise.support.errors import DataError
from tests.images.formats.written import (
    BOXES,
    HEIGHT,
    LABELS,
    NAMES,
    WIDTH,
    answers,
    cut_out,
    photos,
    pixels,
    write_csv,
    write_json,
)


def coco(home: Path) -> Path:
    photos(home / "images")
    images = [{"id": i, "file_name": name, "width": WIDTH, "height": HEIGHT} for i, name in enumerate(NAMES)]
    notes = [
        {
            "id": i,
            "image_id": NAMES.index(box.image),
            "category_id": LABELS.index(box.label) + 5,
            "bbox": [box.left, box.top, box.width, box.height],
            "iscrowd": 0,
        }
        for i, box in enumerate(BOXES)
    ]
    notes.append({**notes[0], "bbox": [0, 0, 9, 9], "iscrowd": 1})  # a crowd is no box of one thing
    categories = [{"id": i + 5, "name": name} for i, name in enumerate(LABELS)]
    document = {"images": images, "annotations": notes, "categories": categories}
    return write_json(home / "annotations" / "instances_all.json", document)


def yolo(home: Path) -> Path:
    photos(home / "images")
    (home / "labels").mkdir()
    for name in NAMES:
        lines = []
        for box in (box for box in BOXES if box.image == name):
            left, top, width, height = box.shares
            corners = [left, top, left + width, top, left + width, top + height, left, top + height]
            middle = [left + width / 2, top + height / 2, width, height]
            numbers = corners if name == NAMES[1] else middle  # an outline, as segmentation data have
            lines.append(f"{LABELS.index(box.label)} {' '.join(map(str, numbers))}\n")
        (home / "labels" / f"{Path(name).stem}.txt").write_text("".join(lines))
    file = home / "data.yaml"
    file.write_text(f"# a set\ntrain: images\nnc: 2\nnames:\n  0: {LABELS[0]}  # an owl\n  1: '{LABELS[1]}'\n", "utf-8")
    return file


def voc(home: Path) -> Path:
    photos(home / "JPEGImages")
    (home / "Annotations").mkdir()
    for name in NAMES:
        objects = "".join(
            f"<object><name>{escape(box.label)}</name><bndbox><xmin>{box.left + 1}</xmin><ymin>{box.top + 1}</ymin>"
            f"<xmax>{box.left + box.width}</xmax><ymax>{box.top + box.height}</ymax></bndbox></object>"
            for box in BOXES
            if box.image == name
        )
        text = f"<annotation><filename>{name}</filename>{objects}</annotation>"
        (home / "Annotations" / f"{Path(name).stem}.xml").write_text(text, encoding="utf-8")
    return home


def megadetector(home: Path) -> Path:
    photos(home)
    document = {
        "detection_categories": {"1": "animal", "2": "person"},
        "classification_categories": {str(i): name for i, name in enumerate(LABELS)},
        "images": [
            {
                "file": name,
                "seq_id": f"event {i // 2}",
                "detections": [
                    {"category": "1", "conf": 0.8, "bbox": box.shares, "classifications": [[str(LABELS.index(box.label)), 0.9]]}
                    for box in BOXES
                    if box.image == name
                ]
                + [{"category": "1", "conf": 0.1, "bbox": [0, 0, 0.5, 0.5]}],
            }
            for i, name in enumerate(NAMES)
        ],
    }  # fmt: skip
    return write_json(home / "md.json", document)


def speciesnet(home: Path) -> Path:
    photos(home)
    predictions = []
    for name in NAMES:
        own = [box for box in BOXES if box.image == name]
        detections = [{"category": "1", "label": "animal", "conf": 0.7, "bbox": box.shares} for box in own]
        answer = f"0b;aves;strigiformes;;;;{own[0].label}".replace("; ", ", ")
        predictions.append({"filepath": name, "detections": detections, "prediction": answer})
    return write_json(home / "speciesnet.json", {"predictions": predictions})


def imagefolder(home: Path) -> Path:
    photos(home)
    lines = []
    for name in NAMES:
        own = [box for box in BOXES if box.image == name]
        boxes = [[box.left, box.top, box.width, box.height] for box in own]
        lines.append({"file_name": name, "objects": {"bbox": boxes, "categories": [box.label for box in own]}})
    file = home / "metadata.jsonl"
    file.write_text("".join(f"{write_line(line)}\n" for line in lines), encoding="utf-8")
    return home


def label_studio(home: Path) -> Path:
    photos(home)
    tasks = []
    for name in NAMES:
        values = [
            {**dict(zip(("x", "y", "width", "height"), [100 * v for v in box.shares], strict=True)), "rectanglelabels": [box.label]}
            for box in BOXES
            if box.image == name
        ]  # fmt: skip
        results = [{"type": "rectanglelabels", "value": value} for value in values]
        tasks.append({"data": {"image": name}, "annotations": [{"result": results}]})
    return write_json(home / "labelstudio.json", tasks)


def fiftyone(home: Path) -> Path:
    photos(home / "data")
    labels = {
        Path(name).stem: [
            {"label": LABELS.index(box.label), "bounding_box": box.shares} for box in BOXES if box.image == name
        ]
        for name in NAMES
    }
    return write_json(home / "labels.json", {"classes": LABELS, "labels": labels})


def fiftyone_samples(home: Path) -> Path:
    photos(home)
    samples = [
        {
            "filepath": name,
            "found": {
                "_cls": "Detections",
                "detections": [{"label": box.label, "bounding_box": box.shares} for box in BOXES if box.image == name],
            },
        }
        for name in NAMES
    ]
    return write_json(home / "samples.json", {"samples": samples})


def cvat(home: Path) -> Path:
    photos(home / "images")
    text = ""
    for name in NAMES:
        boxes = ""
        for i, box in enumerate(box for box in BOXES if box.image == name):
            left, top, right, bottom = box.left, box.top, box.left + box.width, box.top + box.height
            corners = f"{left},{top};{right},{top};{right},{bottom};{left},{bottom}"
            edges = f'xtl="{left}" ytl="{top}" xbr="{right}" ybr="{bottom}"'
            boxes += (
                f'<polygon label="{box.label}" points="{corners}"/>' if i else f'<box label="{box.label}" {edges}/>'
            )
        text += f'<image name="{name}" width="{WIDTH}" height="{HEIGHT}">{boxes}</image>'
    (home / "annotations.xml").write_text(f"<annotations>{text}</annotations>", encoding="utf-8")
    return home / "annotations.xml"


def write_line(document: object) -> str:
    import json

    return json.dumps(document, ensure_ascii=False)


FORMATS: dict[str, Callable[[Path], Path]] = {
    "COCO": coco,
    "YOLO": yolo,
    "Pascal VOC": voc,
    "MegaDetector": megadetector,
    "imagefolder": imagefolder,
    "Label Studio": label_studio,
    "FiftyOne": fiftyone,
    "FiftyOne, samples": fiftyone_samples,
    "CVAT": cvat,
}


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("by_file", [True, False])
def test_boxes_come_back_as_the_crops_that_they_are(
    tmp_path: Path, write: Callable[[Path], Path], by_file: bool
) -> None:
    place = write(tmp_path / "some data")
    if not by_file and write is megadetector:
        pytest.skip("its file has no fixed name: it is always given")
    data = lw.data.load(place if by_file else tmp_path / "some data")
    assert not data.skipped
    home = next(tmp_path.rglob(NAMES[0])).parent
    assert pixels(data) == cut_out(tmp_path, home)


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_the_boxes_of_an_image_stay_in_one_split(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    data = lw.data.load(write(tmp_path))
    homes: dict[str, set[str]] = {}
    for name, split in data.splits.items():
        for file in split.files:
            homes.setdefault(file.partition("#")[0], set()).add(name)
    assert len(homes) == len(NAMES)
    assert all(len(names) == 1 for names in homes.values())


def test_events_of_a_detector_stay_in_one_split(tmp_path: Path) -> None:
    data = lw.data.load(megadetector(tmp_path), seed=1)
    homes: dict[str, set[str]] = {}
    for name, split in data.splits.items():
        for group in split.groups:
            homes.setdefault(group, set()).add(name)
    assert sorted(homes) == ["event 0", "event 1", "event 2"]
    assert all(len(names) == 1 for names in homes.values())


def test_speciesnet_labels_the_boxes_of_an_image_alike(tmp_path: Path) -> None:
    file = speciesnet(tmp_path)
    expected = [
        (box.image, next(one.label for one in BOXES if one.image == box.image).replace("; ", ", ")) for box in BOXES
    ]
    assert [(name.partition("#")[0], label) for name, label in answers(lw.data.load(file))] == sorted(expected)


def test_a_detector_without_species_labels_boxes_by_their_kind(tmp_path: Path) -> None:
    photos(tmp_path)
    boxes = [{"category": str(1 + i % 2), "conf": 0.9, "bbox": [0.1, 0.1, 0.5, 0.5]} for i in range(len(NAMES))]
    images = [{"file": name, "detections": [box]} for name, box in zip(NAMES, boxes, strict=True)]
    file = write_json(tmp_path / "md.json", {"detection_categories": {"1": "animal", "2": "person"}, "images": images})
    assert lw.data.load(file).labels.names == ("animal", "person")
    assert len(as_images(file)) == 3, "persons are not classified"


def test_a_file_of_boxes_is_a_list_of_images(tmp_path: Path) -> None:
    for write in (megadetector, coco):
        images = as_images(write(tmp_path / write.__name__))
        assert len(images) == len(BOXES)
        assert len(set(images.digests())) == len(BOXES)
        assert all("#xywh=" in name for name in images.ids)


@pytest.mark.parametrize(("folder", "split"), [("train", "train"), ("valid", "val"), ("test", "test")])
def test_splits_of_coco_are_folders_or_names_of_files(tmp_path: Path, folder: str, split: str) -> None:
    for name in ("train", "valid", "test"):
        file = coco(tmp_path / "x")
        photos(tmp_path / "roboflow" / name)
        (tmp_path / "roboflow" / name / "_annotations.coco.json").write_bytes(file.read_bytes())
        photos(tmp_path / "coco" / f"{name}2017")
        (tmp_path / "coco" / "annotations").mkdir(exist_ok=True, parents=True)
        (tmp_path / "coco" / "annotations" / f"instances_{name}2017.json").write_bytes(file.read_bytes())
        break_up = tmp_path / "x"
        for each in sorted(break_up.rglob("*"), reverse=True):
            each.unlink() if each.is_file() else each.rmdir()
    for data in (lw.data.load(tmp_path / "roboflow"), lw.data.load(tmp_path / "coco")):
        assert not data.skipped
        assert len(data.split(split)) == len(BOXES)
        assert all(f"/{folder}" in file for file in data.split(split).files)


def test_pascal_voc_of_roboflow_has_a_folder_for_each_split(tmp_path: Path) -> None:
    voc(tmp_path / "all")
    for i, name in enumerate(NAMES):
        home = tmp_path / "a set" / ("train" if i < 4 else "valid")
        home.mkdir(parents=True, exist_ok=True)
        (tmp_path / "all" / "JPEGImages" / name).rename(home / name)
        (tmp_path / "all" / "Annotations" / f"{Path(name).stem}.xml").rename(home / f"{Path(name).stem}.xml")
    data = lw.data.load(tmp_path / "a set")
    sizes = {split: len(part) for split, part in data.splits.items()}
    assert sizes == {
        "train": sum(box.image in NAMES[:4] for box in BOXES),
        "val": sum(box.image in NAMES[4:] for box in BOXES),
    }
    assert {Path(file_of(file)).parent.name for file in data.split("val").files} == {"valid"}


def test_turned_rectangles_and_outlines_of_label_studio_are_the_boxes_around_them(tmp_path: Path) -> None:
    about = {"original_width": WIDTH, "original_height": HEIGHT, "to_name": "image", "from_name": "label"}
    turned = {"x": 50, "y": 25, "width": 25, "height": 25, "rotation": 90, "rectanglelabels": ["owl"]}
    outline = {"points": [[10, 20], [30, 25], [15, 60]], "closed": True, "polygonlabels": ["wren"]}
    results = [
        {**about, "type": kind, "value": each}
        for kind, each in (("rectanglelabels", turned), ("polygonlabels", outline))
    ]
    task = {"data": {"image": "/data/upload/1/a photo 0.png"}, "annotations": [{"result": results}]}
    minimal = {"image": "a photo 0.png", "label": [{**turned, **about}, {**outline, **about}]}
    for document in ([task], [minimal]):
        (part,) = find_annotations(write_json(tmp_path / "tasks.json", document))
        assert [record.labels for record in part.records] == [("owl",), ("wren",)]
        first, second = (record.box for record in part.records)
        assert first == pytest.approx((50 - 100 * 8 / WIDTH, 25, 100 * 8 / WIDTH, 100 * 12 / HEIGHT, True))
        assert second == (10, 20, 20, 40, True)


def test_captions_and_panoptic_segments_are_no_coco_labels(tmp_path: Path) -> None:
    image = {"id": 1, "file_name": "a photo 0.png"}
    for note, categories in (({"caption": "an owl"}, []), ({"segments_info": []}, [{"id": 1, "name": "owl"}])):
        document = {"images": [image], "annotations": [{"id": 1, "image_id": 1, **note}], "categories": categories}
        assert not find_annotations(write_json(tmp_path / "annotations.json", document))


def test_splits_of_pascal_voc_are_its_lists(tmp_path: Path) -> None:
    voc(tmp_path)
    lists = tmp_path / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("".join(f"{Path(name).stem}\n" for name in NAMES[:4]).replace(" ", "_"))
    for name in NAMES:
        plain = name.replace(" ", "_")
        (tmp_path / "JPEGImages" / name).rename(tmp_path / "JPEGImages" / plain)
        old = tmp_path / "Annotations" / f"{Path(name).stem}.xml"
        old.write_text(old.read_text("utf-8").replace(name, plain), "utf-8")
        old.rename(tmp_path / "Annotations" / f"{Path(plain).stem}.xml")
    (lists / "test.txt").write_text("".join(f"{Path(name).stem}\n" for name in NAMES[4:]).replace(" ", "_"))
    data = lw.data.load(tmp_path)
    assert {Path(file.partition("#")[0]).stem[-1] for file in data.split("test").files} == {"4", "5"}


def test_files_outside_of_the_folder_are_refused_unless_it_is_named(tmp_path: Path) -> None:
    file = coco(tmp_path / "a" / "x")
    (tmp_path / "a" / "x" / "images").rename(tmp_path / "photos")
    text = file.read_text()
    moved = tmp_path / "boxes.json"
    for start in ("../photos/", f"{tmp_path}/photos/"):
        place = tmp_path / "lists" / "boxes.json"
        place.parent.mkdir(exist_ok=True)
        place.write_text(text.replace("a photo", f"{start}a photo"))
        with pytest.raises(DataError, match=r"outside the folder.*--data-root|no such file"):
            lw.data.load(place)
    moved.write_text(text)
    assert len(pixels(lw.data.load(moved, root=tmp_path / "photos"))) == len(BOXES)


def test_missing_images_are_skipped_with_their_names(tmp_path: Path) -> None:
    file = coco(tmp_path)
    (tmp_path / "images" / NAMES[0]).unlink()
    data = lw.data.load(file)
    assert [Path(one.file.partition("#")[0]).name for one in data.skipped] == [NAMES[0]]


BROKEN = {
    "no list": {"images": 3, "annotations": [], "categories": []},
    "no such image": {
        "images": [],
        "annotations": [{"image_id": 1, "category_id": 1}],
        "categories": [{"id": 1, "name": "a"}],
    },
    "no such label": {
        "images": [{"id": 1, "file_name": "x.png"}],
        "annotations": [{"image_id": 1, "category_id": 7}],
        "categories": [],
    },
    "box of words": {
        "images": [{"id": 1, "file_name": "x.png"}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": ["a", 1, 2, 3]}],
        "categories": [{"id": 1, "name": "a"}],
    },
    "no name": {
        "images": [{"id": 1, "file_name": ""}],
        "annotations": [{"image_id": 1, "category_id": 1}],
        "categories": [{"id": 1, "name": "a"}],
    },
    "reserved label": {
        "images": [{"id": 1, "file_name": "x.png"}],
        "annotations": [{"image_id": 1, "category_id": 1}],
        "categories": [{"id": 1, "name": "unknown"}],
    },
    "nothing": {"images": [], "annotations": [], "categories": []},
    "conf of words": {
        "detection_categories": {"1": "animal"},
        "images": [{"file": "x.png", "detections": [{"category": "1", "conf": "x", "bbox": [0, 0, 1, 1]}]}],
    },
    "nothing at all": {},
}


@pytest.mark.parametrize("document", BROKEN.values(), ids=BROKEN)
def test_a_file_that_is_not_of_its_format_is_an_error_for_people(tmp_path: Path, document: object) -> None:
    file = write_json(tmp_path / "boxes.json", document)
    with pytest.raises(DataError) as caught:
        lw.data.load(file)
    assert "boxes.json" in str(caught.value)
    if "reserved" not in str(caught.value):
        with pytest.raises(DataError):
            as_images(file)


XML = {
    "entities": '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><annotation><filename>&c;</filename></annotation>',
    "a file": '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><annotation><filename>&b;</filename></annotation>',
    "deep": "<annotation>" + "<a>" * 100_000,
    "cut off": "<annotation><object>",
    "no box": "<annotation><object><name>owl</name></object></annotation>",
}


@pytest.mark.parametrize("text", XML.values(), ids=XML)
def test_xml_expands_no_entity_and_nests_no_deeper_than_annotations_do(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.xml"
    file.write_text(text)
    with pytest.raises(DataError):
        lw.data.load(file)


def test_a_folder_of_labels_with_other_files_stays_one(tmp_path: Path) -> None:
    photos(tmp_path, [f"{('owl', 'wren')[i % 2]}/{name}" for i, name in enumerate(NAMES)])
    write_csv(tmp_path / "metadata.csv", ["camera", "place"], [["a", "b"]])
    write_json(tmp_path / "annotations.json", {"author": "me"})
    (tmp_path / "notes.yaml").write_text("names: [a, b]\n")
    assert lw.data.load(tmp_path).labels.names == ("owl", "wren")
