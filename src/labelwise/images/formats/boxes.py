"""The boxes of annotation files as images to classify, with what the files say of each."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from labelwise.images.corrections import IMAGE_COLUMNS
from labelwise.images.decode.crops import is_video
from labelwise.images.file_images import FileImages
from labelwise.images.formats.annotations import LEAST, Record, is_sure
from labelwise.images.formats.camtrap import is_camtrap
from labelwise.images.formats.find import is_annotations, read_annotations
from labelwise.images.sources.delimited import read_fields
from labelwise.images.sources.paths import may_name_shards
from labelwise.images.sources.videos import RATE, images_and_frames
from labelwise.support.errors import DataError
from labelwise.support.text import from_cell


@dataclass(frozen=True, eq=False, kw_only=True)
class Boxes:
    """What annotation files say of images and the boxes in them, by address."""

    records: Mapping[str, Record] = field(default_factory=dict)

    @property
    def to_classify(self) -> list[str]:
        """The addresses of boxes that are not of a person or a vehicle, and of images in which nobody looked for any."""
        boxed = any(record.box is not None or record.scanned for record in self.records.values())
        return [
            address
            for address, record in self.records.items()
            if (record.box is not None and not record.detected)
            or not boxed
            or (record.box is None and record.labels is None and not record.scanned)
        ]

    @property
    def images(self) -> FileImages:
        """The images to classify."""
        return FileImages(self.to_classify)


def boxes(path: str | Path, *, least: float = LEAST, root: str | Path | None = None) -> Boxes:
    """Return the boxes of an annotation file, such as that of MegaDetector.

    Args:
        path: the file, or a folder with such a file.
        least: the least confidence of a detector that counts.
        root: the folder that the names of images start at; None is the folder of the file.
    """
    parts = read_annotations(Path(path))
    pairs = [pair for part in parts for pair in part.located(None if root is None else Path(root))]
    return Boxes(records={address: record for address, record in pairs if is_sure(record, least)})


def all_boxes(
    paths: Sequence[Path], least: float, root: Path | None, events: Path | None, rate: float = RATE
) -> tuple[list[str | Path], Boxes]:
    """Return paths with each annotation file replaced by its boxes and each video by its frames, and their records.

    ``events`` is a table of images and their event.
    """
    records: dict[str, Record] = {}
    places: list[str | Path] = []
    for path in paths:
        if is_annotations(path) or is_camtrap(path):
            own = boxes(path, least=least, root=root)
            records |= own.records
            places += own.to_classify
        elif is_video(str(path)) or (path.is_dir() and not may_name_shards(path)):
            pairs = images_and_frames(path, rate)
            records |= {address: Record(file=file) for address, file in pairs if address != file}
            places += [address for address, _ in pairs] or [path]
        else:
            places.append(path)
    return places, Boxes(records=_with_events(records, events))


def _with_events(records: dict[str, Record], events: Path | None) -> dict[str, Record]:
    """Return the records with the events of a table; images that it does not name keep theirs."""
    if events is None:
        return records
    rows = read_fields(events, "event", noun="table of events", errors="surrogateescape")
    column = next((name for name in IMAGE_COLUMNS if rows and name in rows[0][1]), None)
    if column is None:
        raise DataError(f'The table of events "{events}" needs one column "file", and a row for each image.')
    named = {os.path.normpath(from_cell(row[column].strip())): row["event"].strip() for _, row in rows}
    return {
        address: replace(record, group=named.get(os.path.normpath(record.file), record.group))
        for address, record in records.items()
    }
