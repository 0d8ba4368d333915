"""Galleries of image files, in memory and on disk, built in blocks, so images need not fit in memory."""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np

from labelwise.core.classifier import Classifier
from labelwise.images.file_images import FileImages
from labelwise.images.images import Skipped, check_read
from labelwise.images.split.divide import moments
from labelwise.tasks.gallery import Gallery, probe_embeddings
from labelwise.tasks.gallery_store import StoredGallery

READ = 1_024  # files read at a time
TIDIED = 64  # small files of a table are joined after this many parts


def gallery_of_files(
    classifier: Classifier, files: Sequence[str | Path], *, previous: Gallery | None = None, strict: bool = False
) -> tuple[Gallery, tuple[Skipped, ...]]:
    """Return a gallery of image files, and the files that cannot be read.

    Files are read in blocks; ``strict`` makes one that cannot be read an error. With a known gallery, only the files that it
    lacks are read, and files that are not given are dropped from it.
    """
    if previous is not None:
        old = set(previous.files)
        new, missing_files = [file for file in files if str(file) not in old], old - set(map(str, files))
        previous = previous.remove(missing_files) if missing_files else previous
        if not new:
            return previous, ()
        additions, unread = gallery_of_files(classifier, new, strict=strict)
        return previous.join(additions), unread
    probe, skipped, names = probe_embeddings(classifier), list[Skipped](), list[str]()
    parts = [probe[:0]]
    for start in range(0, len(files), READ):
        features = classifier.features(FileImages(files[start : start + READ]))
        check_read(features.skipped, 0, strict=strict)
        if len(features):
            parts.append(classifier.head.embed(features.values))
        names += features.ids
        skipped += features.skipped
    return Gallery(embeddings=np.concatenate(parts), files=tuple(names), probe=probe), tuple(skipped)


def add_files(
    gallery: StoredGallery,
    classifier: Classifier,
    files: Sequence[str],
    *,
    label: str | None = None,
    strict: bool = False,
) -> tuple[Skipped, ...]:
    """Add new image files in blocks, and return those that cannot be read.

    A call that was stopped can be repeated: blocks that were added stay. ``label`` is the label of all of them.
    """
    skipped = list[Skipped]()
    for turn_, start in enumerate(range(0, len(files), READ), 1):
        some = [file for file in files[start : start + READ] if _is_text(file, skipped)]
        stored_rows = gallery.rows_of(some)
        some = [file for file in some if file not in stored_rows]
        if some:
            part, bad = gallery_of_files(classifier, some, strict=strict)
            labels = () if label is None else (label,) * len(part)
            gallery.add(classifier, replace(part, labels=labels), dates_of(part.files))
            skipped += bad
        if turn_ % TIDIED == 0:
            gallery.tidy()
    gallery.tidy()
    return tuple(skipped)


def dates_of(files: Sequence[str]) -> list[str]:
    """Return when each image was taken (EXIF) or, without EXIF, modified: "2026-05-01T10:20:30"."""
    moments_of_files = (moment.partition(" ")[0].partition(".")[0] for moment in moments(files))
    return [
        date or datetime.fromtimestamp(os.path.getmtime(file)).isoformat(timespec="seconds")
        for file, date in zip(files, moments_of_files, strict=True)
    ]


def _is_text(file: str, skipped: list[Skipped]) -> bool:
    """Return whether a file name is valid text; otherwise add it to ``skipped``."""
    try:
        file.encode()
    except UnicodeEncodeError:
        skipped.append(Skipped(file=file, reason="its name is not valid UTF-8"))
        return False
    return True
