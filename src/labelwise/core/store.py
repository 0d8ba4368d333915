"""A saved classifier is one folder, written whole or not at all.

``classifier.json`` says what it is, ``weights.safetensors`` holds the arrays of its head, labels and calibration. An encoder that was
trained lies beside them as ``encoder.onnx`` with its card; one that others share is named by its id. ``training.safetensors``, which
only continued training reads, is the state of the model that was trained. Nothing of it is executed.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as safetensors

from labelwise import __version__
from labelwise.core.arrays import Array
from labelwise.core.classifier import Classifier
from labelwise.core.rebuild import TRAINING, StoredState, check_finite, classifier_of
from labelwise.core.saved_parts import encoder_files, label_arrays, label_words, pack, saved_encoder
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import LabelwiseError, StoreError, UsageError
from labelwise.support.files import file_digest, read_arrays, read_regular
from labelwise.support.settings import to_plain
from labelwise.support.writable import check_writable, sync_folder, write_atomically, writing

FORMAT = 3
ABOUT, WEIGHTS = "classifier.json", "weights.safetensors"
CHECKSUM = "checksum"
ENTRIES = {
    "format", "encoder", "head", "labels", "unseen", "examples", "calibration", "outlier_rule", "verifier", "thresholds", "method", "summary", "versions", "files",
}  # fmt: skip


def description_bytes(about: Mapping[str, Any]) -> bytes:
    """Return a description as the content of its file, with the SHA-256 of what it says as its first entry."""
    plain = json.loads(json.dumps(about))
    return json.dumps({CHECKSUM: _checksum(plain), **plain}, indent=1, ensure_ascii=False).encode() + b"\n"


def read_about(folder: Path) -> dict[str, Any]:
    """Return the description of the classifier saved in a folder, or raise an error."""
    if not folder.exists():
        left = sorted(folder.parent.glob(f".{folder.name}.*.old")) if folder.parent.exists() else []
        hint = f" A version that was being replaced lies in {left[0]}; rename it back." if left else ""
        raise StoreError(f"No saved classifier at {folder}.{hint or ' Make one with fit.'}")
    file = folder / ABOUT
    try:
        about: dict[str, Any] = json.loads(read_regular(file))
    except OSError as error:
        raise StoreError(f"{folder} is no saved classifier: cannot read {ABOUT} ({error.strerror}).") from None
    except (ValueError, RecursionError):
        raise StoreError(f"{file} is damaged: it is not JSON. Restore it from a copy, or fit again.") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        number = about.get("format") if isinstance(about, dict) else None
        raise StoreError(
            f"{folder} has format {number}; this version reads format {FORMAT}. Update labelwise, or fit again."
        )
    stated = about.pop(CHECKSUM, None)
    if (stated is not None and stated != _checksum(about)) or about.keys() - ENTRIES:
        raise StoreError(
            f"{file} differs from its checksum: it is damaged, or was edited. Restore it from a copy, or fit again. "
            f'If you edited it on purpose, remove its entry "{CHECKSUM}", the second line.'
        )
    return about


def _checksum(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def digest_of(path: str | Path) -> str:
    """Return the checksum of a saved classifier's weights; another one means another classifier."""
    files = read_about(Path(path)).get("files")
    return str(files.get(WEIGHTS) if isinstance(files, dict) else None)


def shape_of(path: str | Path) -> tuple[int, ...]:
    """Return the image shape of a saved classifier, without loading it."""
    encoder = read_about(Path(path)).get("encoder")
    shape = encoder.get("shape") if isinstance(encoder, dict) else None
    return tuple(shape) if isinstance(shape, list) else ()


LOG = "log.jsonl"
FAULTS = (LabelwiseError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def save(classifier: Classifier, path: str | Path, *, overwrite: bool = False, log: str | Path | None = None) -> None:
    """Write a classifier as a folder, with the log of its training if given.

    A crash leaves the old folder or none, never a part of the new one; ``overwrite`` replaces a classifier that is there.
    """
    target = Path(path)
    check_free(target, overwrite)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    with writing(target):
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            _write(classifier, part)
            if log and Path(log).exists():
                shutil.copyfile(log, part / LOG)
            _put_in_place(part, target)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def check_free(path: Path, overwrite: bool) -> None:
    """Raise an error if a classifier cannot or may not be written here."""
    check_writable(path)
    if path.exists() and not (path / ABOUT).exists():
        raise UsageError(f"{path} exists and is no saved classifier; choose another name.")
    if path.exists() and not overwrite:
        raise UsageError(
            f"{path} already holds a classifier. Choose another name, or replace it with --overwrite (overwrite=True in Python)."
        )


def check_savable(method: object, labels: Labels, name: str) -> None:
    """Raise an error for what the file of a classifier of this method and these labels could not hold."""
    _as_text({"method": to_plain(method), "labels": label_words(labels), "data": name})


def load(path: str | Path) -> Classifier:
    """Return the classifier saved in a folder.

    Checksums, shapes and numbers are checked before anything is computed with them.
    """
    folder = Path(path)
    about = read_about(folder)
    try:
        _check_files(folder, about["files"])
        encoder = saved_encoder(about["encoder"], folder)
        state = StoredState(folder / TRAINING, about["files"][TRAINING]) if TRAINING in about["files"] else None
        return classifier_of(about, read_arrays(folder / WEIGHTS)[0], encoder, state)
    except StoreError as error:
        raise StoreError(f"{folder} cannot be used. {error}") from error
    except FAULTS as error:
        versions = about.get("versions")
        writer = versions.get("labelwise") if isinstance(versions, dict) else None
        remedy = "Restore its description from a copy" if writer == __version__ else "Install that version"
        reason = (str(error) or repr(error)).splitlines()[0].removesuffix(".")
        raise StoreError(
            f"{folder} was written by labelwise {writer or 'of an unknown version'} and does not fit this version, "
            f"{__version__}: {reason}. {remedy}, or fit again."
        ) from error


def _check_files(folder: Path, digests: Mapping[str, str]) -> None:
    """Raise an error unless all files but the training state, which is checked when it is read, are as they were written."""
    for name in {WEIGHTS, *digests} - {TRAINING}:
        if not (folder / name).exists():
            raise StoreError(f"It is damaged: {name} is missing. Restore it from a copy, or fit again.")
        if file_digest(folder / name) != digests[name]:
            raise StoreError(f"{name} is damaged: its checksum differs. Restore it from a copy, or fit again.")


def _write(classifier: Classifier, folder: Path) -> None:
    """Write the files of a classifier."""
    calibration, familiarity, origin = classifier.calibration, classifier.familiarity, classifier.origin
    head = pack(classifier.head)
    arrays = {"label_embeddings": classifier.label_embeddings, "scale": calibration.scale, "offset": calibration.offset}
    optional = {
        "train_digests": origin.train_digests,
        "memory": familiarity.memory,
        "width": familiarity.width,
        "prior": calibration.prior,
    }
    examples = classifier.examples
    if examples is not None:
        optional |= {"examples/counts": examples.counts, "examples/means": examples.means}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    arrays |= {f"labels/{name}": array for name, array in label_arrays(classifier.labels).items()}
    arrays |= {f"head/{name}": array for name, array in head.arrays.items()}
    encoder, encoder_content = encoder_files(classifier.encoder)
    about = {
        "format": FORMAT,
        "encoder": encoder,
        "head": {"kind": head.kind, "settings": head.settings},
        "labels": label_words(classifier.labels),
        "unseen": sorted(classifier.unseen),
        "examples": [] if examples is None else list(examples.names),
        "calibration": {
            "seen_penalty": calibration.seen_penalty,
            "temperature": calibration.temperature,
            "multilabel": calibration.multilabel,
        },
        "outlier_rule": to_plain(familiarity.rule),
        "verifier": to_plain(classifier.verifier),
        "thresholds": dict(classifier.thresholds),
        "method": to_plain(origin.method),
        "summary": dict(origin.summary),
        "versions": {"labelwise": __version__} | {name: _version(name) for name in ("numpy", "onnxruntime", "pillow")},
    }
    check_finite(about, arrays)
    _write_arrays(folder / WEIGHTS, arrays)
    for name, content in encoder_content.items():
        write_atomically(folder / name, content)
    if origin.training is not None:
        _write_arrays(folder / TRAINING, origin.training.read())
    about["files"] = {file.name: file_digest(file) for file in sorted(folder.iterdir())}
    write_atomically(folder / ABOUT, _as_text(about))


def _write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write a safetensors file; its checksum stands in the description."""
    write_atomically(path, safetensors({name: np.asarray(array, order="C") for name, array in arrays.items()}))


def _version(name: str) -> str | None:
    """Return the version of a package; None where it was put there without its metadata."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _as_text(about: dict[str, Any]) -> bytes:
    """Return a description as a file; text that is no UTF-8 is an error."""
    try:
        return description_bytes(about)
    except UnicodeEncodeError as error:
        near = ascii(error.object[max(0, error.start - 20) : error.end + 20])
        raise StoreError(
            f"A classifier is saved as UTF-8 text, and this is none: {near}. Rename the label, file or folder it comes from."
        ) from None


def _put_in_place(part: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    shutil.rmtree(old, ignore_errors=True)
    try:
        if target.exists():
            target.rename(old)
        part.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise
    sync_folder(target.parent)
    if old.is_symlink():  # a link was replaced, not what it leads to
        old.unlink()
    else:
        shutil.rmtree(old, ignore_errors=True)
