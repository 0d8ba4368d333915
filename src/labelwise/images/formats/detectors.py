"""Boxes of detectors for camera traps: the JSON files of MegaDetector and of SpeciesNet.

A record per box; what the detector calls a person or a vehicle is kept as such and is not classified. Each image also has one record
without a box and without a label, since images without a box count.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from labelwise.images.decode.crops import shares
from labelwise.images.formats.annotations import Annotations, Record, home_of

OTHERS = {"person": "person", "human": "person", "vehicle": "vehicle"}  # what is not classified
EVENTS = ("event_id", "eventID", "seq_id", "sequence_id")
PLACES = ("location", "location_id", "deploymentID")


def accepts(document: Any) -> bool:
    """Return whether a JSON document has boxes of MegaDetector or SpeciesNet."""
    if not isinstance(document, dict):
        return False
    return {"images", "detection_categories"} <= set(document) or isinstance(document.get("predictions"), list)


def read(document: Any, file: Path) -> Annotations:
    """Return the boxes of all images."""
    records = _speciesnet(document) if "predictions" in document else _megadetector(document)
    return Annotations(source=file, home=home_of(file), records=tuple(records))


def _megadetector(document: Any) -> Iterator[Record]:
    kinds = {str(key): str(name) for key, name in document["detection_categories"].items()}
    names = {str(key): str(name) for key, name in document.get("classification_categories", {}).items()}
    for image in (one for one in document["images"] if not one.get("failure")):
        yield _whole(image, image["file"])
        for one in image.get("detections") or ():
            best = max(one.get("classifications") or (), key=lambda pair: float(pair[1]), default=None)
            kind = kinds[str(one["category"])]
            record = _record(image, image["file"], one, kind, kind if best is None else names[str(best[0])])
            yield replace(record, seconds=_seconds(image, one))


def _seconds(image: Mapping[str, Any], one: Mapping[str, Any]) -> float | None:
    """Return when a video shows a box; None of a photo."""
    return int(one["frame_number"]) / float(image["frame_rate"]) if "frame_number" in one else None


def _speciesnet(document: Any) -> Iterator[Record]:
    for image in document["predictions"]:
        yield _whole(image, image["filepath"])
        answer = _species(str(image["prediction"])) if image.get("prediction") else ""
        for one in image.get("detections") or ():
            kind = str(one["label"])
            yield _record(image, image["filepath"], one, kind, answer if answer and kind not in OTHERS else kind)


def _species(answer: str) -> str:
    """Return the name in an answer of SpeciesNet: ``id;class;order;family;genus;species;common name``."""
    *_, genus, species, common = ["", "", *answer.split(";")]
    return common or f"{genus} {species}".strip()


def _record(image: Mapping[str, Any], file: str, one: Mapping[str, Any], kind: str, label: str) -> Record:
    return Record(
        file=file,
        labels=(label,),
        box=shares(one["bbox"]),
        confidence=float(one["conf"]),
        detected=OTHERS.get(kind, ""),
        group=_first(image, EVENTS),
        domain=_first(image, PLACES),
    )


def _whole(image: Mapping[str, Any], file: str) -> Record:
    return Record(file=file, scanned=True, group=_first(image, EVENTS), domain=_first(image, PLACES))


def _first(image: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((str(image[key]) for key in keys if image.get(key) not in (None, "")), "")
