"""Camtrap DP: ``media.csv``, ``observations.csv`` and ``deployments.csv`` of camera traps. Images of an event stay together.

An observation of one image labels it, or a box in it. One of an event labels all images of its deployment from its start to its end.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from labelwise.images.decode.crops import shares
from labelwise.images.formats.annotations import Annotations, Record
from labelwise.images.sources.delimited import read_fields

Row = Mapping[str, str]
OTHERS = ("human", "vehicle", "blank")  # types of observations that are labels themselves
BOX = ("bboxx", "bboxy", "bboxwidth", "bboxheight")
NEEDED = ("observations.csv", "media.csv")
FOLDERS = ("", "media")  # below a package, where images may be


def is_camtrap(folder: Path) -> bool:
    """Return whether a folder holds the tables of camera traps."""
    return all((folder / name).is_file() for name in NEEDED)


def read(folder: Path) -> Annotations:
    """Return the records of the images, and the images without observations."""
    media = {row["mediaid"]: row for _, row in read_fields(folder / "media.csv", "mediaid", "filepath")}
    seen = [row for _, row in read_fields(folder / "observations.csv", "observationtype", "scientificname")]
    places = _places(folder / "deployments.csv")
    about = [(one, row) for row in seen for one in _media_of(row, media)]
    groups = {one: row["eventid"] for one, row in about if row.get("eventid")}
    records = [_record(media[one], row, places) for one, row in about if _label(row)]
    labelled = {one for one, row in about if _label(row)}
    records += [
        Record(file=row["filepath"], group=groups.get(one, ""), domain=_place(row, places))
        for one, row in media.items()
        if one not in labelled
    ]
    return Annotations(source=folder / "observations.csv", home=folder, records=tuple(records), folders=FOLDERS)


def _places(file: Path) -> dict[str, str]:
    """Return the location of each deployment."""
    rows = read_fields(file, "deploymentid") if file.is_file() else []
    return {row["deploymentid"]: row.get("locationname") or row.get("locationid", "") for _, row in rows}


def _media_of(row: Row, media: Mapping[str, Row]) -> Iterator[str]:
    """Yield the images that an observation is about."""
    if row.get("mediaid"):
        yield row["mediaid"]
        return
    start, end = (datetime.fromisoformat(row[key]) for key in ("eventstart", "eventend"))
    for one, about in media.items():
        same = about.get("deploymentid") == row.get("deploymentid")
        if same and start <= datetime.fromisoformat(about["timestamp"]) <= end:
            yield one


def _label(row: Row) -> str:
    kind = row["observationtype"].strip().casefold()
    return row["scientificname"].strip() or (kind if kind in OTHERS else "")


def _record(image: Row, row: Row, places: Mapping[str, str]) -> Record:
    box = shares([float(row[key]) for key in BOX]) if row.get("mediaid") and all(row.get(key) for key in BOX) else None
    group, domain = row.get("eventid", ""), _place(image, places)
    return Record(file=image["filepath"], labels=(_label(row),), box=box, group=group, domain=domain)


def _place(image: Row, places: Mapping[str, str]) -> str:
    deployment = image.get("deploymentid", "")
    return places.get(deployment, deployment)
