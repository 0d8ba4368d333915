"""Pictures that a service shows: a gallery to search in, examples to try. Clients name them by opaque ids, never by paths."""

import io
import os
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from PIL import Image

from labelwise.classifier import Classifier
from labelwise.data.read.decoding import Frame
from labelwise.data.read.pictures import list_pictures
from labelwise.data.read.workers import crew
from labelwise.errors import DataError
from labelwise.server.refusals import Refusal
from labelwise.tasks.gallery import Gallery, gallery_of_files

SIDE = 192  # of a gallery picture
LARGEST = 1_000_000  # bytes of an example
MOST_EXAMPLES = 12
TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif"}
Files = dict[str, Path]  # by the ids that clients know


def open_gallery(classifier: Classifier, folder: Path) -> tuple[Gallery, Files]:
    """Return the pictures of a folder with their embeddings, under their ids; those that cannot be read are left out."""
    files = list_pictures(folder) if folder.is_dir() else []
    if not files:
        raise DataError(f"No picture found in the gallery {folder}.")
    gallery, _ = gallery_of_files(classifier, files)
    if not len(gallery):
        raise DataError(f"No picture in the gallery {folder} can be read.")
    by_id = _with_ids(map(Path, gallery.files))
    gallery = replace(gallery, files=tuple(by_id))
    gallery.check(classifier)  # once, and not when the first picture is searched
    return gallery, by_id


def open_examples(folder: Path) -> Files:
    """Return the first pictures of a folder that a browser can show."""
    files = list_pictures(folder) if folder.is_dir() else []
    small = [
        file for file in files if file.suffix.lower() in TYPES and file.is_file() and file.stat().st_size <= LARGEST
    ]
    if not small:
        raise DataError(f"No picture to try was found in {folder}: PNG, JPEG, WebP or GIF, of at most {LARGEST} bytes.")
    return _with_ids(small[:MOST_EXAMPLES])


def _with_ids(files: Iterable[Path]) -> Files:
    return {blake2b(os.fsencode(file.absolute()), digest_size=12).hexdigest(): file for file in files}


@lru_cache(maxsize=512)
def small_picture(file: Path, pixels: int) -> bytes:
    """Return a picture as a small JPEG."""
    (array,) = crew().decode([file], Frame(SIDE, SIDE, 3, pixels), low=True)
    if isinstance(array, str):
        raise Refusal(404, f"The picture cannot be read any more: {array}")
    stream = io.BytesIO()
    Image.fromarray(array.transpose(1, 2, 0)).save(stream, "JPEG", quality=85)
    return stream.getvalue()
