"""Write answers as a Camtrap DP package, version 1.0.2: a description and the tables of deployments, media and observations.

Answers to images of a package keep its deployments, media and events: both tables are copied, and only observations are new. Of other
images, each folder is a deployment; ``deployments.csv`` in their folder may say where it was. The images stay where they are.
"""

import csv
import io
import json
import mimetypes
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labelwise.images.decode.crops import Box, file_of, parse_crop
from labelwise.images.formats import camtrap
from labelwise.images.formats.annotations import Annotations, Record, path_below
from labelwise.images.sources.delimited import read_fields
from labelwise.images.split.divide import moments
from labelwise.support.errors import UsageError
from labelwise.support.files import read_regular
from labelwise.support.writable import writing_folder

VERSION = "1.0.2"
SCHEMAS = f"https://raw.githubusercontent.com/tdwg/camtrap-dp/{VERSION}"
TABLES = ("deployments", "media", "observations")
DEPLOYMENTS = (
    "deploymentID", "locationID", "locationName", "latitude", "longitude", "coordinateUncertainty", "deploymentStart", "deploymentEnd",
    "setupBy", "cameraID", "cameraModel", "cameraDelay", "cameraHeight", "cameraDepth", "cameraTilt", "cameraHeading", "detectionDistance",
    "timestampIssues", "baitUse", "featureType", "habitat", "deploymentGroups", "deploymentTags", "deploymentComments",
)  # fmt: skip
MEDIA = (
    "mediaID", "deploymentID", "captureMethod", "timestamp", "filePath", "filePublic", "fileName", "fileMediatype", "exifData", "favorite",
    "mediaComments",
)  # fmt: skip
OBSERVATIONS = (
    "observationID", "deploymentID", "mediaID", "eventID", "eventStart", "eventEnd", "observationLevel", "observationType",
    "cameraSetupType", "scientificName", "count", "lifeStage", "sex", "behavior", "individualID", "individualPositionRadius",
    "individualPositionAngle", "individualSpeed", "bboxX", "bboxY", "bboxWidth", "bboxHeight", "classificationMethod", "classifiedBy",
    "classificationTimestamp", "classificationProbability", "observationTags", "observationComments",
)  # fmt: skip
TYPES = {"empty": "blank", "blank": "blank", "person": "human", "human": "human", "vehicle": "vehicle"}
NO_TIME = "no time in EXIF: time of the file"
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """An answer to an image, to a box in it, or to an event."""

    place: str  # the address of an image or a box; of an event its name
    labels: tuple[tuple[str, float | None], ...] = ()  # with their probabilities; none where the answer is unknown
    event: str = ""  # that the image belongs to
    of_event: bool = False  # whether it is about the whole event


@dataclass(frozen=True, kw_only=True)
class Package:
    """What is written besides observations."""

    model: str  # the name of the classifier
    home: Path  # where paths of images start
    source: Path | None = None  # the package that was classified
    root: Path | None = None  # of its images, if they are elsewhere


def write_package(
    folder: Path, observations: Sequence[Observation], images: Sequence[str], about: Package
) -> list[str]:
    """Write a package of answers to images, and return its deployments without a position; what was at ``folder`` is replaced."""
    media = _media(images, about.home) if about.source is None else _media_of(about.source, about.root)
    rows = list(_observations(observations, media, about.model))
    with writing_folder(folder) as part:
        if about.source is None:
            (part / "deployments.csv").write_bytes(_table(DEPLOYMENTS, _deployments(media.values(), about.home)))
            (part / "media.csv").write_bytes(_table(MEDIA, media.values()))
        else:
            for name in ("deployments.csv", "media.csv"):
                (part / name).write_bytes(read_regular(about.source / name))
        (part / "observations.csv").write_bytes(_table(OBSERVATIONS, rows))
        document = _description(folder, rows, [row["timestamp"] for row in media.values()], about)
        (part / "datapackage.json").write_text(json.dumps(document, indent=2, ensure_ascii=False), encoding="utf-8")
        rows = [row for _, row in read_fields(part / "deployments.csv", "deploymentid")]
        return [row["deploymentid"] for row in rows if not (row.get("latitude") and row.get("longitude"))]


def _media(images: Sequence[str], home: Path) -> dict[str, Row]:
    """Return the row of each image, by its file."""
    files = list(dict.fromkeys(images))
    rows = {}
    for number, (file, moment) in enumerate(zip(files, moments(files), strict=True), 1):
        path = path_below(file, home)
        taken = datetime.fromisoformat(moment.split(" ")[0]) if moment else None
        if taken is None and os.path.exists(file):
            taken = datetime.fromtimestamp(os.stat(file).st_mtime, UTC)
        rows[file] = {
            "mediaID": f"m{number}",
            "deploymentID": os.path.dirname(path) or home.name or "deployment",
            "timestamp": _time(taken or datetime.now(UTC)),
            "filePath": path,
            "filePublic": "false",
            "fileName": os.path.basename(path),
            "fileMediatype": mimetypes.guess_type(file)[0] or "image/jpeg",
            "mediaComments": "" if moment else NO_TIME,
        }
    return rows


def _deployments(media: Iterable[Row], home: Path) -> Iterable[Row]:
    """Yield a row for each deployment of these images, with what ``deployments.csv`` next to them says; people fill in the rest."""
    file, columns = home / "deployments.csv", {name.casefold(): name for name in DEPLOYMENTS}
    rows = [row for _, row in read_fields(file, "deploymentid")] if file.is_file() else []
    known = {
        row["deploymentid"]: {columns[key]: value for key, value in row.items() if key in columns and value}
        for row in rows
    }
    times: dict[str, list[str]] = {}
    issues: dict[str, bool] = {}
    for row in media:
        name = row["deploymentID"]
        times.setdefault(name, []).append(row["timestamp"])
        issues[name] = issues.get(name, False) or bool(row["mediaComments"])
    for name, own in times.items():
        yield {
            "deploymentID": name,
            "deploymentStart": min(own),
            "deploymentEnd": max(own),
            "timestampIssues": str(issues[name]).lower(),
            **known.get(name, {}),
        }


def _media_of(source: Path, root: Path | None) -> dict[str, Row]:
    """Return the rows of a package, by the file of each image."""
    names = {name.casefold(): name for name in MEDIA}
    rows = [
        {names.get(key, key): value for key, value in row.items()}
        for _, row in read_fields(source / "media.csv", "mediaid", "deploymentid", "timestamp", "filepath")
    ]
    records = tuple(Record(file=row["filePath"]) for row in rows)
    places = Annotations(source=source / "media.csv", home=source, records=records, folders=camtrap.FOLDERS).located(
        root
    )
    return {place: row for (place, _), row in zip(places, rows, strict=True)}


def _observations(observations: Sequence[Observation], media: Mapping[str, Row], model: str) -> Iterable[Row]:
    """Yield the rows of answers: one for each label, or one that says that there is none."""
    now, number = _time(datetime.now(UTC)), 0
    members: dict[str, list[Row]] = {}
    for one in observations:
        if one.event and not one.of_event:
            members.setdefault(one.event, []).append(media[file_of(one.place)])
    for one in observations:
        crop = parse_crop(one.place)
        own = members.get(one.place, []) if one.of_event else [media[file_of(one.place)]]
        if not own:
            continue
        times = sorted(row["timestamp"] for row in members.get(one.event, own))
        level = (
            {"observationLevel": "event"}
            if one.of_event
            else {"observationLevel": "media", "mediaID": own[0]["mediaID"]}
        )
        for label, probability in one.labels or (("", None),):
            number += 1
            kind = TYPES.get(label.casefold(), "animal") if label else "unknown"
            yield {
                "observationID": f"o{number}",
                "deploymentID": own[0]["deploymentID"],
                **level,
                "eventID": one.event,
                "eventStart": times[0],
                "eventEnd": times[-1],
                "observationType": kind,
                "scientificName": label if kind == "animal" else "",
                **(_box(crop.box, own[0]) if crop and crop.box else {}),
                "classificationMethod": "machine",
                "classifiedBy": model,
                "classificationTimestamp": now,
                "classificationProbability": "" if probability is None else f"{probability:.4f}",
            }


def _box(box: Box, image: Row) -> Row:
    """Return the shares of the sides that a box begins at and takes."""
    if not box[4]:
        raise UsageError(
            f'Boxes of "{image["filePath"]}" are in pixels; Camtrap DP needs shares. Give boxes of a detector.'
        )
    names = ("bboxX", "bboxY", "bboxWidth", "bboxHeight")
    return {name: f"{value / 100:.7f}".rstrip("0").rstrip(".") for name, value in zip(names, box[:4], strict=True)}


def _description(folder: Path, rows: Sequence[Row], times: Sequence[str], about: Package) -> Row:
    """Return the description of a package: that of its source, or one that people complete."""
    known = {} if about.source is None else _source_description(about.source)
    names = sorted({row["scientificName"] for row in rows} - {""})
    levels = sorted({row["observationLevel"] for row in rows}, reverse=True)
    resources = [
        {
            "name": name,
            "path": f"{name}.csv",
            "profile": "tabular-data-resource",
            "schema": f"{SCHEMAS}/{name}-table-schema.json",
        }
        for name in TABLES
    ]
    days = sorted(time[:10] for time in times) or [datetime.now(UTC).date().isoformat()]
    usual = {
        "profile": f"{SCHEMAS}/camtrap-dp-profile.json",
        "contributors": [{"title": about.model, "role": "contributor"}],
        "project": {
            "title": folder.name,
            "samplingDesign": "opportunistic",
            "captureMethod": ["activityDetection"],
            "individualAnimals": False,
            "observationLevel": levels,
        },
        "spatial": {"type": "GeometryCollection", "geometries": []},
        "temporal": {"start": days[0], "end": days[-1]},
    }
    taxa = {one.get("scientificName"): one for one in known.get("taxonomic", ()) if isinstance(one, dict)}
    new = {
        "resources": resources,
        "created": _time(datetime.now(UTC)),
        "taxonomic": [taxa.get(name, {"scientificName": name}) for name in names],
    }
    return usual | known | new


def _source_description(source: Path) -> Row:
    file = source / "datapackage.json"
    try:
        known = json.loads(read_regular(file)) if file.is_file() else {}
    except (ValueError, RecursionError):
        known = {}
    return known if isinstance(known, dict) else {}


def _time(moment: datetime) -> str:
    """Return a time with its zone; a camera's clock has none and counts as UTC."""
    return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _table(columns: Sequence[str], rows: Iterable[Row]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "surrogateescape")
