"""Resolve paths and addresses: image files in a folder, and shards in a folder or any fsspec store.

Addresses of stores begin with ``s3://``, ``gs://``, ``hf://``, ``file://`` and the like.
"""

import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from labelwise.images.decode.crops import file_of
from labelwise.images.decode.decoding import OTHER_SUFFIXES, RAW_SUFFIXES
from labelwise.support.errors import DataError, LabelwiseWarning, UnsupportedError, listing
from labelwise.support.files import NotAFileError, open_regular, unpacked

_READ = ".jpg .jpeg .jfif .png .gif .bmp .webp .tif .tiff .ppm .pgm .pbm .pnm .avif .jp2 .ico .heic .heif .hif"
# suffixes of images, those of formats that cannot be read included: these are reported
IMAGE_SUFFIXES = RAW_SUFFIXES | OTHER_SUFFIXES | set(_READ.split())
SPELLINGS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}  # of splits
GZIPPED = (".tar.gz", ".tgz")  # unpacked to a private copy each time they are opened
TAR, PARQUET = (".tar", *GZIPPED), (".parquet", ".pq")
PACKED = (".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
_INSIDE = re.compile(r"(.+?\.(?:tar|tar\.gz|tgz|parquet|pq))/(.+)", re.DOTALL | re.IGNORECASE)
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MAGIC = re.compile(r"[*?\[]")
MOST = 1_000_000  # shards that a pattern may name


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
    """Yield the files in a folder and below it whose names are wanted.

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
                words = f'"{here}" is a link to a folder that is already read or contains it. It is not followed.'
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


def locate(name: str, starts: Sequence[Path], bounds: Path | None, where: str) -> str:
    """Return where an image is that a table or an annotation names, or raise an error where that is outside of ``bounds``.

    Names start at one of the ``starts``: the first with such a file, else the first inside. ``where`` begins the error.
    """
    if not name:
        raise DataError(f"{where}it is empty. Fill it or remove the row.")
    places = [os.path.normpath(start / name) for start in starts]
    inside = places if bounds is None else [place for place in places if _is_below(place, bounds)]
    if inside:
        return inside[0] if len(inside) == 1 else next((e for e in inside if os.path.exists(file_of(e))), inside[0])
    raise DataError(
        f'{where}"{name:.200}" is outside the folder "{bounds}". If you trust it, name the folder of all its images: '
        "--data-root FOLDER in the shell, root=FOLDER in Python."
    )


def _is_below(place: str, folder: Path) -> bool:
    return (os.path.abspath(place) + os.sep).startswith(os.path.abspath(folder).rstrip(os.sep) + os.sep)


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is one that people do not see, such as ``.DS_Store`` and ``__MACOSX``."""
    return name.startswith(".") or name == "__MACOSX"


def is_image(name: str) -> bool:
    """Return whether a file is an image, by its name."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def address(word: str | Path) -> str:
    """Return a word as an address: with both slashes, if it passed through a path, and ``file:`` as a path."""
    match = _ADDRESS.fullmatch(str(word))
    if not match or len(match[1]) == 1:  # a drive of Windows
        return str(word)
    return unquote("/" + match[2]) if match[1] == "file" else f"{match[1]}://{match[2]}"


def is_remote(word: str) -> bool:
    """Return whether a word is an address, not a path."""
    return "://" in word


def is_shard(word: str, suffixes: tuple[str, ...] = (*TAR, *PARQUET)) -> bool:
    """Return whether a file is a shard, by its name."""
    return word.lower().endswith(suffixes)


def may_name_shards(source: str | Path) -> bool:
    """Return whether a path looks like shards by its name; a Parquet file may still hold no image."""
    word, inside = in_shard(address(source))
    if inside and os.path.isdir(word):
        return False
    if is_remote(word):
        return word.partition(":")[0].lower() not in ("http", "https", "ftp") or is_shard(word)
    return is_shard(word, (*TAR, *PARQUET, *PACKED)) or (os.path.isdir(word) and bool(_in_folder(Path(word))))


def in_shard(word: str) -> tuple[str, str]:
    """Return the shard that a name like ``birds.tar/owl/1.jpg`` begins with, and what follows; any other name unchanged."""
    match = _INSIDE.fullmatch(word)
    return (match[1], match[2]) if match else (word, "")


def list_shards(word: str) -> list[str]:
    """Return the shards that an address, a pattern or a folder names, sorted; none where it names something else.

    A pattern has stars, as paths have, or a range of numbers in braces: ``train-{00000..00146}.tar``.
    """
    if is_shard(word, PACKED):
        raise DataError(
            f'"{word}" is compressed in a way that is not read. Unpack it with tar, or write it as .tar, .tar.gz or .zip.'
        )
    words = list(_expand(word))
    if is_remote(word):
        return [each for one in words for each in _remote(one)]
    if len(words) > 1 or (is_shard(word) and os.path.isfile(word)):
        return words
    if os.path.isdir(word):
        return _in_folder(Path(word))
    if _MAGIC.search(word) and is_shard(word) and not os.path.exists(word):
        at = Path(word)
        root = Path(at.anchor)
        return sorted(str(file) for file in root.glob(str(at.relative_to(root))) if file.is_file())
    return []


def _in_folder(root: Path) -> list[str]:
    """Return the shards of a folder, and of its folders ``data``, ``train`` and the like; none if it holds images or other folders."""
    try:
        inside = [each for each in sorted(root.iterdir()) if not is_hidden(each.name)]
        homes = {each for each in inside if each.is_dir() and each.name.casefold() in ("data", *SPELLINGS)}
        inside += [each for home in sorted(homes) for each in sorted(home.iterdir()) if not is_hidden(each.name)]
    except OSError as error:
        raise DataError(f'Cannot list the folder "{error.filename}": {error.strerror}. Check its rights.') from None
    if any(is_image(each.name) or (each not in homes and each.is_dir()) for each in inside):
        return []
    return [str(each) for each in inside if is_shard(each.name) and each.is_file()]


def _expand(word: str) -> Iterator[str]:
    """Yield the names that a word with ranges in braces means."""
    match = _RANGE.search(word)
    if not match:
        yield word
        return
    first, last = int(match[1]), int(match[2])
    if not 0 <= last - first < MOST:
        raise DataError(f'"{word}" names shards from {first} to {last}: a range goes up, and to {MOST} shards at most.')
    for number in range(first, last + 1):
        yield from _expand(f"{word[: match.start()]}{number:0{len(match[1])}d}{word[match.end() :]}")


def _remote(word: str) -> list[str]:
    with plain_errors(word):
        fs, path = url_to_fs(word)
        if is_shard(path) and not _MAGIC.search(path):
            return [word]
        paths = fs.glob(path) if _MAGIC.search(path) else fs.find(path)
        return [fs.unstrip_protocol(each) for each in sorted(paths) if is_shard(each)]


def open_shard(word: str) -> BinaryIO:
    """Return a shard as a file of this machine: a local one itself; a private copy of one far away, or of what is in a compressed one.

    The copy has no name, so nothing is left of it however this process ends.
    """
    if not is_copied(word):
        try:
            return open_regular(word, most=None)
        except NotAFileError as error:
            raise DataError(f'"{word}" is not a shard: {error.strerror}.') from None
        except OSError as error:
            raise DataError(f'Cannot open "{word}": {error.strerror}. Check the path.') from None
    with plain_errors(word):
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            with _open_far(word) if is_remote(word) else open_regular(word, most=None) as stream:
                shutil.copyfileobj(unpacked(stream, word) if is_shard(word, GZIPPED) else stream, copy, 2**22)
            copy.seek(0)
        except BaseException:
            copy.close()
            raise
        return copy


def is_copied(word: str) -> bool:
    """Return whether a shard is read from a private copy."""
    return is_remote(word) or is_shard(word, GZIPPED)


def open_stream(word: str) -> Any:
    """Return a file as a stream that can be gone through, near or far."""
    return _open_far(word) if is_remote(word) else open_shard(word)


def _open_far(word: str) -> Any:
    return import_module("fsspec").open(word, "rb").open()


def url_to_fs(word: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path there."""
    fs, path = import_module("fsspec.core").url_to_fs(word)
    return fs, str(path)


@contextmanager
def plain_errors(word: str) -> Iterator[None]:
    """Turn an error of a store into one for people."""
    try:
        yield
    except ImportError as error:
        raise UnsupportedError(
            f'"{word}" needs a package for such addresses ({error}): pip install "labelwise[remote]".'
        ) from None
    except FileNotFoundError:
        raise DataError(f'There is nothing at "{word}". Check the address.') from None
    except ValueError as error:
        known = listing(sorted(import_module("fsspec").available_protocols()), 8)
        raise DataError(f'"{word}" is not a readable address ({error}). Addresses start with: {known}.') from None
    except Exception as error:  # stores have errors of their own
        if isinstance(error, DataError):
            raise
        first = str(error).partition("\n")[0]
        raise DataError(
            f'"{word}" cannot be read or written ({type(error).__name__}: {first:.200}). Check address and rights.'
        ) from None
