"""Pictures that a service shows: a gallery to search in, examples to try. Clients name them by opaque ids, never by paths."""

import io
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from PIL import Image
from torch import Tensor

from labelwise.core import Classifier
from labelwise.data.decoding import QUIET, Frame, UnreadableError, decode
from labelwise.data.pictures import list_pictures
from labelwise.errors import DataError
from labelwise.server.refusals import Refusal
from labelwise.tasks.retrieve import gallery_of_files

SIDE = 192  # of a gallery picture
LARGEST = 1_000_000  # bytes of an example
MOST_EXAMPLES = 12
TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif"}


def identity(file: Path) -> str:
    """Return the id of a picture."""
    return blake2b(str(file).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, eq=False)
class Shown:
    """Pictures of one folder.

    Attributes:
        names: what each is called, in order.
        places: the file of each id.
        codes: ``[m, d]`` where they are searched.
    """

    names: tuple[str, ...]
    places: dict[str, Path]
    codes: Tensor | None = None

    @property
    def ids(self) -> list[str]:
        """The id of each, in order."""
        return list(self.places)

    def find(self, given: str) -> Path:
        """Return the file of an id."""
        if given not in self.places:
            raise Refusal(404, "There is no such picture.")
        return self.places[given]


def open_gallery(classifier: Classifier, folder: Path) -> Shown:
    """Return the pictures of a folder with their codes; those that cannot be read are left out."""
    files = [file.resolve() for file in list_pictures(folder)] if folder.is_dir() else []
    if not files:
        raise DataError(f"No picture found in the gallery {folder}.")
    found, _ = gallery_of_files(classifier, files)
    if not len(found):
        raise DataError(f"No picture in the gallery {folder} can be read.")
    root, kept = folder.resolve(), [Path(name) for name in found.files]
    names = tuple(str(file.relative_to(root)) if file.is_relative_to(root) else file.name for file in kept)
    return Shown(names, {identity(file): file for file in kept}, found.codes)


def open_examples(folder: Path) -> Shown:
    """Return the first pictures of a folder that a browser can show."""
    files = [file.resolve() for file in list_pictures(folder)] if folder.is_dir() else []
    kept = [file for file in files if file.suffix.lower() in TYPES and file.stat().st_size <= LARGEST][:MOST_EXAMPLES]
    if not kept:
        raise DataError(f"No picture to try was found in {folder}: PNG, JPEG, WebP or GIF, of at most {LARGEST} bytes.")
    return Shown(tuple(file.stem for file in kept), {identity(file): file for file in kept})


@lru_cache(maxsize=512)
def small_picture(file: Path, pixels: int) -> bytes:
    """Return a picture as a small JPEG."""
    try:
        with QUIET:
            array = decode(file, Frame(SIDE, SIDE, 3, pixels))
    except UnreadableError as error:
        raise Refusal(404, f"The picture cannot be read any more: {error}") from None
    stream = io.BytesIO()
    Image.fromarray(array.transpose(1, 2, 0)).save(stream, "JPEG", quality=85)
    return stream.getvalue()
