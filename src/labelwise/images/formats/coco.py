"""COCO: ``images``, ``annotations`` and ``categories`` in one JSON file. Boxes are crops; without boxes, images have labels.

COCO Camera Traps adds ``seq_id`` and ``location`` to images: what belongs together, and where it was taken. Categories of iNaturalist
competitions have the groups that hold them (``genus``, ``family``, ...).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from labelwise.images.decode.crops import Box
from labelwise.images.formats.annotations import FOLDERS, GUESS, Annotations, Record, home_of, relative, split_of
from labelwise.images.formats.taxonomy import ranks_of

PATTERNS = (
    "annotations.json",
    "_annotations.coco.json",
    "*/_annotations.coco.json",
    "annotations/instances*.json",
    "instances*.json",
    "annotations/*.json",
    "result.json",  # of Label Studio
    "train*.json",  # of iNaturalist competitions
    "val*.json",
)


def accepts(document: Any) -> bool:
    """Return whether a JSON document is a COCO file with labels: captions and panoptic segments are none."""
    if not isinstance(document, dict) or not {"images", "annotations", "categories"} <= set(document):
        return False
    annotations = document["annotations"]
    first = annotations[0] if isinstance(annotations, list) and annotations else None
    return not isinstance(first, dict) or (bool(document["categories"]) and "category_id" in first)


def read(document: Any, file: Path) -> Annotations:
    """Read the records of a COCO file."""
    names: dict[Any, str] = {one["id"]: one["name"].strip() for one in document["categories"]}
    ranks = {one["id"]: ranks_of(one) if "genus" in one else () for one in document["categories"]}
    images = {one["id"]: one for one in document["images"]}
    records, seen = [], set()
    for one in document["annotations"]:
        image = images[one["image_id"]]
        seen.add(one["image_id"])
        if not one.get("iscrowd"):
            box = _box(one.get("bbox"), image)
            label = one["category_id"]
            record = _record(image, (names[label],), box, split_of(file))
            guess = (names[label],) if one.get("source") == GUESS else ()
            records.append(replace(record, ranks=ranks[label], guess=guess))
    records += [_record(image, (), None, split_of(file)) for id, image in images.items() if id not in seen]
    home, tail = home_of(file), file.stem.partition("_")[2]
    own = relative(file.parent, home)
    folders = (own, *FOLDERS, tail, f"images/{tail}", f"{own}/images")
    return Annotations(source=file, home=home, records=tuple(records), folders=folders)


def _record(image: dict[str, Any], labels: tuple[str, ...], box: Box | None, split: str) -> Record:
    group, domain = (str(image.get(key) or "") for key in ("seq_id", "location"))
    return Record(file=image["file_name"], labels=labels, box=box, split=split, group=group, domain=domain)


def _box(numbers: Any, image: dict[str, Any]) -> Box | None:
    """Return a box in pixels, None where it covers the whole image or there is none."""
    if not numbers:
        return None
    left, top, width, height = (float(number) for number in numbers)
    whole = max(left, top) <= 0 and width >= image.get("width", width + 1) and height >= image.get("height", height + 1)
    return None if whole else (left, top, width, height, False)
