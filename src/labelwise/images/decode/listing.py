"""Image files in a folder, listed."""

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from labelwise.images.decode.decoding import OTHER_SUFFIXES, RAW_SUFFIXES
from labelwise.support.errors import DataError, LabelwiseWarning

_READ = ".jpg .jpeg .jfif .png .gif .bmp .webp .tif .tiff .ppm .pgm .pbm .pnm .avif .jp2 .ico .heic .heif .hif"
# suffixes of images, those of formats that cannot be read included: these are reported
IMAGE_SUFFIXES = RAW_SUFFIXES | OTHER_SUFFIXES | set(_READ.split())


def list_images(folder: str | Path) -> list[Path]:
    """Return the image files in a folder and the folders below it, sorted; hidden files and folders are left out."""
    return list_files(folder, is_image)


def list_files(folder: str | Path, wanted: Callable[[str], bool]) -> list[Path]:
    """Return the files of names that are wanted in a folder and the folders below it, as ``list_images`` does."""
    paths = sorted(_walk(folder, wanted), key=lambda path: path.split(os.sep))  # as paths are sorted, and faster
    return [Path(path) for path in paths]


def holds_images(folder: str | Path) -> bool:
    """Return whether there is an image file in a folder or below it."""
    return any(_walk(folder, is_image))


def _walk(folder: str | Path, wanted: Callable[[str], bool]) -> Iterator[str]:
    """Yield the files of names that are wanted in a folder and below it.

    Links are followed, but not to where the walk has been or to a folder above: the files there are those of other labels.
    """
    whole = Path(os.path.realpath(folder))
    seen = {_identity(above) for above in whole.parents}

    def refuse(error: OSError) -> None:
        if isinstance(error, FileNotFoundError) and error.filename != os.fspath(folder):
            return  # it was removed meanwhile
        raise DataError(f'Cannot list the folder "{error.filename}": {error.strerror}. Check the path and its rights.')

    for here, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        identity = _identity(here)
        if identity is None or identity in seen:
            folders.clear()
            if identity:
                words = f'"{here}" is a link to a folder that is read already, or that it lies in. It is not followed.'
                warnings.warn(words, LabelwiseWarning, stacklevel=2)
            continue
        seen.add(identity)
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        yield from (os.path.join(here, name) for name in files if not is_hidden(name) and wanted(name))


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        at = os.stat(path)
    except OSError:
        return None
    return at.st_dev, at.st_ino


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is one that people do not see, such as ``.DS_Store`` and ``__MACOSX``."""
    return name.startswith(".") or name == "__MACOSX"


def is_image(name: str) -> bool:
    """Return whether a file is an image, by its name."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
