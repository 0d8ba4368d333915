"""Images that a service shows: a gallery to search and examples to try. Clients see opaque ids, never paths."""

import io
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from PIL import Image

from labelwise.core.classifier import Classifier
from labelwise.core.scores import Scores
from labelwise.images.decode.crops import file_of, parse_crop
from labelwise.images.decode.decoding import Frame
from labelwise.images.decode.videos import Moment
from labelwise.images.decode.workers import crew
from labelwise.images.sources.paths import list_images
from labelwise.server.errors import HTTPError
from labelwise.support.errors import DataError, is_of_machine
from labelwise.support.files import open_regular, read_regular
from labelwise.tasks.gallery import Gallery, load_gallery
from labelwise.tasks.gallery_files import gallery_of_files
from labelwise.tasks.gallery_store import StoredGallery, is_stored
from labelwise.tasks.gallery_store import open_gallery as open_stored
from labelwise.tasks.retrieve import Match, retrieve, retrieve_by_text

SIDE = 192  # pixels of a gallery thumbnail
LARGEST = 1_000_000  # most bytes of an example
LARGEST_IN_GALLERY = 100_000_000  # most bytes of a gallery image
MOST_EXAMPLES = 12
MISSING = HTTPError(404, "This image does not exist.")
TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif"}
Files = dict[str, Path]  # by client id
Stamp = tuple[int, int, int, int]  # identifies one version of a file


@dataclass(frozen=True)
class Example:
    """An example image, as read when the service started."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True)
class Sentence:
    """A sentence query, instead of an image."""

    classifier: Classifier
    text: str


@dataclass(frozen=True)
class ServedGallery:
    """A gallery in memory, and its files by client id."""

    gallery: Gallery
    files: Files
    folder: Path | None  # names are relative to it; None if images may be anywhere
    stamps: dict[str, Stamp | None]  # by id; None for missing files

    def near(self, query: Scores | Sentence, count: int) -> list[tuple[str, str, float]]:
        """Return the most similar images, or those that a sentence fits best: name, id and score of each."""
        matches = _matches(query, self.gallery, count)
        return [(_short(self.files[one.file], self.folder), one.file, one.score) for one in matches]

    def image(self, id: str, pixels: int) -> bytes:
        """Return the image of an id as a small JPEG; refuse a file that changed since the service started."""
        stamp = self.stamps.get(id)
        if stamp is None:
            raise MISSING
        return small_image(self.files[id], pixels, stamp)


@dataclass(frozen=True)
class ServedStore:
    """A gallery on disk that is not loaded into memory. An id holds the checksum of its row and the digest of its name."""

    gallery: StoredGallery

    def near(self, query: Scores | Sentence, count: int) -> list[tuple[str, str, float]]:
        """Return the most similar images, or those that a sentence fits best: name, id and score of each."""
        matches = _matches(query, self.gallery, count)
        rows = self.gallery.rows_of([one.file for one in matches])
        return [
            (_short(Path(one.file), None), f"{rows[one.file]:08x}{_id(Path(one.file))}", one.score)
            for one in matches
            if one.file in rows  # it may have been removed meanwhile
        ]

    def image(self, id: str, pixels: int) -> bytes:
        """Return the image of an id as a small JPEG."""
        rows = self.gallery.with_checksum(int(id[:8], 16)) if re.fullmatch(r"[0-9a-f]{32}", id) else ()
        for file in map(Path, rows):
            if _id(file) == id[8:]:
                return small_image(file, pixels)
        raise MISSING


def _matches(query: Scores | Sentence, gallery: Gallery | StoredGallery, count: int) -> list[Match]:
    if isinstance(query, Sentence):
        return retrieve_by_text(query.classifier, query.text, gallery, count)
    return retrieve(query, gallery, count)[0]


def open_gallery(classifier: Classifier, source: Path) -> ServedGallery | ServedStore:
    """Open a gallery: a folder (encoded now), a file of ``retrieve --index``, or a gallery on disk."""
    if is_stored(source):
        stored = open_stored(source)
        stored.check(classifier)
        return ServedStore(stored)
    gallery = _of_folder(classifier, source) if source.is_dir() or not source.exists() else load_gallery(source)
    by_id = {_id(file): file for file in map(Path, gallery.files)}
    gallery = replace(gallery, files=tuple(by_id))
    gallery.check(classifier)  # now, not at the first search
    stamps = {id: _stamp_of(file) for id, file in by_id.items()}
    return ServedGallery(gallery, by_id, source if source.is_dir() else None, stamps)


def _of_folder(classifier: Classifier, folder: Path) -> Gallery:
    """Encode the images of a folder; skip unreadable ones."""
    files = list_images(folder) if folder.is_dir() else []
    if not files:
        raise DataError(f"No image found in the gallery {folder}.")
    gallery, _ = gallery_of_files(classifier, files)
    if not len(gallery):
        raise DataError(f"No image in the gallery {folder} can be read.")
    return gallery


def _short(file: Path, folder: Path | None) -> str:
    """Return the path to show to clients: relative to the gallery's folder, or the last folder and the name."""
    return str(file.relative_to(folder)) if folder else os.path.join(*file.parts[-2:])


def open_examples(folder: Path) -> dict[str, Example]:
    """Return the first images of a folder that a browser can show, by client id."""
    examples = dict[str, Example]()
    for file in list_images(folder) if folder.is_dir() else ():
        kind = TYPES.get(file.suffix.lower())
        if kind is not None and len(examples) < MOST_EXAMPLES:
            with suppress(OSError):  # larger, or no file
                examples[_id(file)] = Example(file.stem, kind, read_regular(file, LARGEST))
    if not examples:
        raise DataError(
            f"No example image in {folder}. Examples are PNG, JPEG, WebP or GIF files of at most {LARGEST} bytes."
        )
    return examples


def _id(file: Path) -> str:
    return blake2b(os.fsencode(file.absolute()), digest_size=12).hexdigest()


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _stamp_of(file: Path) -> Stamp | None:
    with suppress(OSError):
        return _stamp(os.stat(file))
    return None


@lru_cache(maxsize=512)
def small_image(file: Path, pixels: int, stamp: Stamp | None = None, side: int = SIDE) -> bytes:
    """Return an image, or a part of one, as a JPEG thumbnail; refuse a file with another stamp."""
    crop, path = parse_crop(str(file)), Path(file_of(str(file))).absolute()
    video = crop is not None and crop.seconds is not None
    try:
        with open_regular(path, None if video else LARGEST_IN_GALLERY) as stream:
            if stamp is not None and _stamp(os.fstat(stream.fileno())) != stamp:
                raise HTTPError(404, "The image changed after the service started.")
            content = Moment(str(path), crop.seconds) if crop and crop.seconds is not None else stream.read()
    except OSError as error:
        if is_of_machine(error):
            raise
        raise HTTPError(404, "The image was removed.") from None
    frame = Frame(side, side, 3, pixels, box=crop.box if crop else None)
    (array,) = crew().decode([content], frame, low=side <= SIDE)
    if isinstance(array, str):
        raise HTTPError(404, f"The image can no longer be read: {array}")
    small = io.BytesIO()
    Image.fromarray(array.transpose(1, 2, 0)).save(small, "JPEG", quality=85)
    return small.getvalue()
