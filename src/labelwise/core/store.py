"""A saved classifier is one folder: ``classifier.json`` and ``weights.safetensors``, written whole or not at all."""

import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from labelwise import __version__
from labelwise.core.classifier import Classifier
from labelwise.core.description import ABOUT as ABOUT
from labelwise.core.description import FORMAT, read_about
from labelwise.core.quick import WEIGHTS as WEIGHTS
from labelwise.core.quick import file_digest, keep_quick
from labelwise.core.rebuild import check_finite, classifier_of
from labelwise.images.describe.labels import Labels
from labelwise.images.view import WHOLE
from labelwise.support.errors import LabelwiseError, StoreError, UsageError
from labelwise.support.files import (
    json_bytes,
    read_tensors,
    state_tensors,
    sync_folder,
    write_atomically,
    write_tensors,
)
from labelwise.support.settings import to_plain
from labelwise.support.writable import check_writable
from labelwise.train.stages import Method

LOG = "log.jsonl"


def save(classifier: Classifier, path: str | Path, *, overwrite: bool = False, log: str | Path | None = None) -> None:
    """Write a classifier as a folder, beside it the log of its training if given.

    A crash leaves the old folder or none, never a part of the new one; ``overwrite`` replaces a classifier that is there.
    """
    target = Path(path)
    check_free(target, overwrite)
    if not isinstance(classifier.origin.method, Method):
        raise UsageError("This classifier does not know the method that made it, so it cannot be saved.")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        about = _write(classifier, part)
        if log and Path(log).exists():
            shutil.copyfile(log, part / LOG)
        _put_in_place(part, target)
    except OSError as error:
        raise StoreError(
            f'Cannot write "{target}": {error.strerror or error}. Make room, or choose another place.'
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    keep_quick(classifier, about)


def check_free(path: Path, overwrite: bool) -> None:
    """Raise an error if a classifier cannot or may not be written here."""
    check_writable(path)
    if path.exists() and not (path / ABOUT).exists():
        raise UsageError(f"{path} exists and is no saved classifier; choose another name.")
    if path.exists() and not overwrite:
        raise UsageError(f"{path} already holds a classifier. Choose another name, or replace it with --overwrite.")


def check_savable(method: Method, labels: Labels, name: str) -> None:
    """Raise an error for what the file of a classifier of this method and these labels could not hold."""
    _as_text({"method": to_plain(method), "labels": _label_words(labels), "data": name})


def load(path: str | Path, *, device: str | torch.device = "cpu") -> Classifier:
    """Return the classifier saved in a folder.

    What its description says is compared with its weights before anything of size is built, and every number is looked at.
    """
    folder = Path(path)
    about = read_about(folder)
    weights = folder / WEIGHTS
    if not weights.exists():
        raise StoreError(f"{folder} is damaged: {WEIGHTS} is missing. Restore it from a copy, or fit again.")
    if file_digest(weights) != about.get("weights_sha256"):
        raise StoreError(f"{weights} is damaged: its checksum differs. Restore it from a copy, or fit again.")
    tensors = read_tensors(weights)[0]
    try:
        classifier = classifier_of(about, tensors)
    except StoreError as error:
        raise StoreError(f"{folder} cannot be used. {error}") from error
    except (LabelwiseError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        versions = about.get("versions")
        writer = versions.get("labelwise") if isinstance(versions, dict) else None
        remedy = "Restore its description from a copy" if writer == __version__ else "Install that version"
        reason = (str(error) or repr(error)).splitlines()[0].removesuffix(".")
        raise StoreError(
            f"{folder} was written by labelwise {writer or 'of an unknown version'} and does not fit this version, "
            f"{__version__}: {reason}. {remedy}, or fit again."
        ) from error
    return classifier.to(device)


def _write(classifier: Classifier, folder: Path) -> bytes:
    """Write the files of a classifier and return its description."""
    calibration, familiarity, origin = classifier.calibration, classifier.familiarity, classifier.origin
    arrays = {"codes": classifier.label_embeddings, "scale": calibration.scale, "offset": calibration.offset}
    optional = {"seen": origin.train_digests, "memory": familiarity.memory, "width": familiarity.width}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    tensors |= state_tensors("model", classifier.model)
    for prefix, labels in (("labels", classifier.labels), ("trained_labels", classifier.model.spec.labels)):
        known = {"vectors": labels.vectors, "shares": labels.shares, "similarity": labels.similarity}
        tensors |= {f"{prefix}/{what}": torch.as_tensor(t) for what, t in known.items() if t is not None}
    method, view = origin.method, classifier.view
    settings = {name: value for name, value in to_plain(method).items() if name != "view"}
    about = {
        "format": FORMAT,
        "method": {"name": getattr(method, "name", ""), "settings": settings},
        "shape": list(classifier.model.spec.shape),
        **({} if view == WHOLE else {"view": to_plain(view)}),
        "labels": _label_words(classifier.labels),
        "trained_labels": _label_words(classifier.model.spec.labels),
        "temperature": calibration.temperature,
        "multilabel": calibration.multilabel,
        "described": sorted(classifier.unseen),
        "gap": calibration.seen_penalty,
        "outlier": to_plain(familiarity.rule),
        "verification": to_plain(classifier.verifier),
        "summary": dict(origin.summary),
        "versions": {"labelwise": __version__} | {name: _version(name) for name in ("torch", "numpy", "pillow")},
    }
    check_finite(about, tensors, classifier.model)
    write_tensors(folder / WEIGHTS, tensors, {"format": FORMAT})
    about["weights_sha256"] = file_digest(folder / WEIGHTS)
    text = _as_text(about)
    write_atomically(folder / ABOUT, text)
    return text


def _version(name: str) -> str | None:
    """Return the version of a package; None where it was put there without its metadata."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _as_text(about: dict[str, Any]) -> bytes:
    """Return what is said about a classifier as a file; text that is no UTF-8 is an error."""
    try:
        return json_bytes(about)
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
    shutil.rmtree(old, ignore_errors=True)


def _label_words(labels: Labels) -> dict[str, Any]:
    return {"names": list(labels.names), "texts": to_plain(labels.texts), "order": to_plain(labels.order)}
