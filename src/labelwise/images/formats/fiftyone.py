"""FiftyOne: ``labels.json`` next to ``data/`` (classification or detection), or ``samples.json`` of a whole data set."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labelwise.images.decode.crops import shares
from labelwise.images.formats.annotations import Annotations, Record
from labelwise.images.sources.paths import SPELLINGS, list_images

PATTERNS = ("labels.json", "samples.json", "*/labels.json")
KINDS = ("Classification", "Classifications", "Detections")


def accepts(document: Any) -> bool:
    """Return whether a JSON document is of a FiftyOne data set."""
    if not isinstance(document, dict):
        return False
    labels = isinstance(document.get("labels"), dict) and "classes" in document
    return labels or isinstance(document.get("samples"), list)


def read(document: Any, file: Path) -> Annotations:
    """Return what FiftyOne exported."""
    records = _samples(document["samples"]) if "samples" in document else _labels(document, file)
    return Annotations(source=file, home=file.parent, records=tuple(records), folders=("", "data"))


def _labels(document: Mapping[str, Any], file: Path) -> Iterator[Record]:
    """Yield the records of ``labels.json``, whose keys are names of images without suffix."""
    names = {
        os.path.splitext(image.relative_to(file.parent / "data"))[0]: image
        for image in list_images(file.parent / "data")
    }
    classes, split = document["classes"] or (), SPELLINGS.get(file.parent.name.casefold(), "")

    def word(label: Any) -> str:
        return str(classes[label]) if isinstance(label, int) else str(label)

    for key, value in document["labels"].items():
        image = str(names[key].relative_to(file.parent)) if key in names else f"data/{key}"
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for one in value:
                yield Record(file=image, split=split, labels=(word(one["label"]),), box=shares(one["bounding_box"]))
        elif isinstance(value, list):
            yield Record(file=image, split=split, labels=tuple(map(word, value)))
        else:
            yield Record(file=image, split=split, labels=None if value is None else (word(value),))


def _samples(samples: list[Mapping[str, Any]]) -> Iterator[Record]:
    """Yield the records of ``samples.json``: of the field ``ground_truth``, else of the first one with labels."""
    for sample in samples:
        split = next((SPELLINGS[tag.casefold()] for tag in sample.get("tags") or () if tag.casefold() in SPELLINGS), "")
        fields = [sample.get("ground_truth"), *sample.values()]
        value = next((each for each in fields if isinstance(each, dict) and each.get("_cls") in KINDS), None)
        file = str(sample["filepath"])
        if value is None:
            yield Record(file=file, split=split)
        elif value["_cls"] == "Detections":
            for one in value["detections"]:
                yield Record(file=file, split=split, labels=(str(one["label"]),), box=shares(one["bounding_box"]))
        else:
            each = value.get("classifications", [value])
            yield Record(file=file, split=split, labels=tuple(str(one["label"]) for one in each))
