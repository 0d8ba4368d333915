"""Resolve paths and addresses: image files in a folder, and shards in a folder or any fsspec store.

Addresses of stores begin with ``s3://``, ``gs://``, ``hf://``, ``file://`` and similar.
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
from labelwise.support.files import NotAFileError, open_gzip, open_regular

_READ = ".jpg .jpeg .jfif .png .gif .bmp .webp .tif .tiff .ppm .pgm .pbm .pnm .avif .jp2 .ico .heic .heif .hif"
# image suffixes, including unreadable formats, which are reported
IMAGE_SUFFIXES = RAW_SUFFIXES | OTHER_SUFFIXES | set(_READ.split())
SPELLINGS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}  # split names
GZIPPED = (".tar.gz", ".tgz")  # unpacked to a private copy at each opening
TAR, PARQUET = (".tar", *GZIPPED), (".parquet", ".pq")
PACKED = (".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
_INSIDE = re.compile(r"(.+?\.(?:tar|tar\.gz|tgz|parquet|pq))/(.+)", re.DOTALL | re.IGNORECASE)
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MAGIC = re.compile(r"[*?\[]")
MOST = 1_000_000  # most shards of a pattern


def list_images(folder: str | Path) -> list[Path]:
    """Return the visible image files below a folder, sorted."""
    return list_files(folder, is_image)


def list_files(folder: str | Path, accepts: Callable[[str], bool]) -> list[Path]:
    """Return the files with accepted names below a folder, as ``list_images`` does."""
    paths = sorted(_walk(folder, accepts), key=lambda path: path.split(os.sep))  # the order of paths, but faster
    return [Path(path) for path in paths]


def holds_images(folder: str | Path) -> bool:
    """Return whether there is an image file below a folder."""
    return any(_walk(folder, is_image))


def _walk(folder: str | Path, accepts: Callable[[str], bool]) -> Iterator[str]:
    """Yield the files below a folder with accepted names.

    Links are followed, but not to where the walk has been or to a folder above: the files there are those of other labels.
    """
    root = Path(os.path.realpath(folder))
    ancestors = {_identity(parent) for parent in root.parents}

    def refuse(error: OSError) -> None:
        if isinstance(error, FileNotFoundError) and error.filename != os.fspath(folder):
            return  # removed meanwhile
        raise DataError(f'Cannot list the folder "{error.filename}": {error.strerror}. Check the path and its rights.')

    for current, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        identity = _identity(current)
        if identity is None or identity in ancestors:
            folders.clear()
            if identity:
                words = f'"{current}" is a link to a folder that is already read or contains it. It is not followed.'
                warnings.warn(words, LabelwiseWarning, stacklevel=2)
            continue
        ancestors.add(identity)
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        yield from (os.path.join(current, name) for name in files if not is_hidden(name) and accepts(name))


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        at = os.stat(path)
    except OSError:
        return None
    return at.st_dev, at.st_ino


def locate(name: str, starts: Sequence[Path], bounds: Path | None, where: str) -> str:
    """Return the path of an image in a table or annotation file; raise an error if it is outside ``bounds``.

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
    """Return whether a file or folder is hidden, such as ``.DS_Store`` and ``__MACOSX``."""
    return name.startswith(".") or name == "__MACOSX"


def is_image(name: str) -> bool:
    """Return whether a file name is that of an image."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def address(word: str | Path) -> str:
    """Return a word as an address: restore a slash lost in a path, and turn ``file:`` into a path."""
    match = _ADDRESS.fullmatch(str(word))
    if not match or len(match[1]) == 1:  # a Windows drive
        return str(word)
    return unquote("/" + match[2]) if match[1] == "file" else f"{match[1]}://{match[2]}"


def is_remote(word: str) -> bool:
    """Return whether a word is an address, not a path."""
    return "://" in word


def is_shard(word: str, suffixes: tuple[str, ...] = (*TAR, *PARQUET)) -> bool:
    """Return whether a file name is that of a shard."""
    return word.lower().endswith(suffixes)


def may_name_shards(source: str | Path) -> bool:
    """Return whether a name looks like shards; a Parquet file may still contain no images."""
    word, inside = in_shard(address(source))
    if inside and os.path.isdir(word):
        return False
    if is_remote(word):
        return word.partition(":")[0].lower() not in ("http", "https", "ftp") or is_shard(word)
    return is_shard(word, (*TAR, *PARQUET, *PACKED)) or (os.path.isdir(word) and bool(_in_folder(Path(word))))


def in_shard(word: str) -> tuple[str, str]:
    """Split a name like ``birds.tar/owl/1.jpg`` into shard and member; other names are unchanged."""
    match = _INSIDE.fullmatch(word)
    return (match[1], match[2]) if match else (word, "")


def list_shards(word: str) -> list[str]:
    """Return the sorted shards of an address, a pattern or a folder; none for anything else.

    A pattern has stars, as paths have, or a range of numbers in braces: ``train-{00000..00146}.tar``.
    """
    if is_shard(word, PACKED):
        raise DataError(
            f'"{word}" is compressed in a way that is not read. Unpack it with tar, or write it as .tar, .tar.gz or .zip.'
        )
    words = list(_expand(word))
    if is_remote(word):
        return [address for one in words for address in _remote(one)]
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
    """Return the shards of a folder and its split folders; none if it holds images or other folders."""
    try:
        inside = [file for file in sorted(root.iterdir()) if not is_hidden(file.name)]
        homes = {file for file in inside if file.is_dir() and file.name.casefold() in ("data", *SPELLINGS)}
        inside += [file for home in sorted(homes) for file in sorted(home.iterdir()) if not is_hidden(file.name)]
    except OSError as error:
        raise DataError(f'Cannot list the folder "{error.filename}": {error.strerror}. Check its rights.') from None
    if any(is_image(file.name) or (file not in homes and file.is_dir()) for file in inside):
        return []
    return [str(file) for file in inside if is_shard(file.name) and file.is_file()]


def _expand(word: str) -> Iterator[str]:
    """Yield the names of a pattern with ranges in braces."""
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
        return [fs.unstrip_protocol(address) for address in sorted(paths) if is_shard(address)]


def open_shard(word: str) -> BinaryIO:
    """Yield a shard as a local file: itself, or a private copy of a remote or compressed one.

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
                shutil.copyfileobj(open_gzip(stream, word) if is_shard(word, GZIPPED) else stream, copy, 2**22)
            copy.seek(0)
        except BaseException:
            copy.close()
            raise
        return copy


def is_copied(word: str) -> bool:
    """Return whether a shard is read from a private copy."""
    return is_remote(word) or is_shard(word, GZIPPED)


def open_stream(word: str) -> Any:
    """Open a local or remote file as a seekable stream."""
    return _open_far(word) if is_remote(word) else open_shard(word)


def _open_far(word: str) -> Any:
    return import_module("fsspec").open(word, "rb").open()


def url_to_fs(word: str) -> tuple[Any, str]:
    """Return the file system of an address, and its path there."""
    fs, path = import_module("fsspec.core").url_to_fs(word)
    return fs, str(path)


@contextmanager
def plain_errors(word: str) -> Iterator[None]:
    """Convert an error of a store to ``DataError``."""
    try:
        yield
    except ImportError as error:
        raise UnsupportedError(
            f'"{word}" needs a package for such addresses ({error}): pip install "labelwise[remote]".'
        ) from None
    except FileNotFoundError:
        raise DataError(f'There is nothing at "{word}". Check the address.') from None
    except ValueError as error:
        protocols = listing(sorted(import_module("fsspec").available_protocols()), 8)
        raise DataError(f'"{word}" is not a readable address ({error}). Addresses start with: {protocols}.') from None
    except Exception as error:  # stores raise errors of other packages
        if isinstance(error, DataError):
            raise
        first = str(error).partition("\n")[0]
        raise DataError(
            f'"{word}" cannot be read or written ({type(error).__name__}: {first:.200}). Check address and rights.'
        ) from None
