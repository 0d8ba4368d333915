"""What a service shows: its page, a gallery to search in, examples to try. Clients name them by opaque ids, never by paths."""

import asyncio
import io
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from PIL import Image
from starlette.responses import Response
from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.data.read.decoding import QUIET, Frame, UnreadableError, decode
from labelwise.data.read.pictures import list_pictures
from labelwise.errors import DataError
from labelwise.server.refusals import Refusal
from labelwise.tasks.gallery import gallery_of_files

SIDE = 192  # of a gallery picture
LARGEST = 1_000_000  # bytes of an example
MOST_EXAMPLES = 12
PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
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
        embeddings: ``[m, d]`` where they are searched.
    """

    names: tuple[str, ...]
    places: dict[str, Path]
    embeddings: Tensor | None = None

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
    """Return the pictures of a folder with their embeddings; those that cannot be read are left out."""
    files = [file.resolve() for file in list_pictures(folder)] if folder.is_dir() else []
    if not files:
        raise DataError(f"No picture found in the gallery {folder}.")
    found, _ = gallery_of_files(classifier, files)
    if not len(found):
        raise DataError(f"No picture in the gallery {folder} can be read.")
    root, kept = folder.resolve(), [Path(name) for name in found.files]
    names = tuple(str(file.relative_to(root)) if file.is_relative_to(root) else file.name for file in kept)
    return Shown(names, {identity(file): file for file in kept}, found.embeddings)


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


class Pictures:
    """Routes that show a picture by its id."""

    def __init__(self, gallery: Shown | None, examples: Shown, pixels: int) -> None:
        self.gallery, self.examples, self.pixels = gallery, examples, pixels

    async def gallery_picture(self, id: str) -> Response:
        """Return a picture of the gallery as a small JPEG."""
        if self.gallery is None:
            raise Refusal(404, "There is no gallery: the service was started without --gallery.")
        content = await asyncio.to_thread(small_picture, self.gallery.find(id), self.pixels)
        return Response(content, media_type="image/jpeg")

    async def example_picture(self, id: str) -> Response:
        """Return a picture to try, as it is."""
        file = self.examples.find(id)
        try:
            return Response(file.read_bytes(), media_type=TYPES[file.suffix.lower()])
        except OSError:
            raise Refusal(404, "The picture is not there any more.") from None


class Page:
    """The page and its files; the list is made once, so that no path of a client is ever opened."""

    def __init__(self) -> None:
        found = sorted(PAGE.iterdir()) if PAGE.is_dir() else []
        self.files = {file.name: file for file in found if file.suffix in PAGE_TYPES}

    async def start(self) -> Response:
        """Return the page."""
        return self._file("index.html")

    async def file(self, name: str) -> Response:
        """Return one of its files."""
        return self._file("" if name == "index.html" else name)

    def _file(self, name: str) -> Response:
        if name not in self.files:
            raise Refusal(404, "There is no such file.")
        file = self.files[name]
        return Response(file.read_bytes(), media_type=PAGE_TYPES[file.suffix])
