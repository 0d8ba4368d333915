"""A saved classifier is one folder: ``classifier.json`` and ``weights.safetensors``, written whole or not at all."""

import hashlib
import json
import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from labelwise import __version__
from labelwise.checkpoint import read_tensors, state_tensors, under, write_atomically, write_tensors
from labelwise.core import Classifier, Labels, OutlierRule, Spec, VerificationRule
from labelwise.errors import StoreError, UsageError
from labelwise.interruption import unbroken
from labelwise.methods import METHODS
from labelwise.settings import from_plain, to_plain
from labelwise.training import Method
from labelwise.writable import check_writable

FORMAT = 1
ABOUT, WEIGHTS, LOG = "classifier.json", "weights.safetensors", "log.jsonl"


def save(classifier: Classifier, path: str | Path, *, overwrite: bool = False, log: str | Path | None = None) -> None:
    """Write a classifier as a folder. A crash leaves the old folder or none, never a part of the new one.

    Args:
        classifier: one that ``fit`` or ``load`` returned, or made from it.
        path: the folder to write; its parent must exist or can be made.
        overwrite: replace a classifier that is already there.
        log: a training log to keep beside it.
    """
    target = Path(path)
    check_free(target, overwrite)
    if not isinstance(classifier.method, Method):
        raise UsageError("This classifier does not know the method that made it, so it cannot be saved.")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        _write(classifier, part)
        if log and Path(log).exists():
            shutil.copyfile(log, part / LOG)
        _put_in_place(part, target)
    except OSError as error:
        raise StoreError(
            f'Cannot write "{target}": {error.strerror or error}. Make room, or choose another place.'
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_free(path: Path, overwrite: bool) -> None:
    """Raise an error if a classifier cannot or may not be written here."""
    check_writable(path)
    if path.exists() and not (path / ABOUT).exists():
        raise UsageError(f"{path} exists and is no saved classifier; choose another name.")
    if path.exists() and not overwrite:
        raise UsageError(f"{path} already holds a classifier. Choose another name, or replace it with --overwrite.")


def check_savable(method: Method, labels: Labels, name: str) -> None:
    """Raise an error for what the file of a classifier could not hold.

    Args:
        method: what is going to be trained.
        labels: of which it will be a classifier.
        name: of the data.
    """
    _as_text({"method": to_plain(method), "labels": _label_words(labels), "data": name})


def load(path: str | Path, *, device: str | torch.device = "cpu") -> Classifier:
    """Return the classifier saved in a folder."""
    folder = Path(path)
    about = _read_about(folder)
    tensors = _read_weights(folder, about)
    try:
        if about["method"]["name"] not in METHODS:
            raise StoreError(
                f'{folder} was made by the method "{about["method"]["name"]}", which this version does not have.'
            )
        method = from_plain(METHODS[about["method"]["name"]], about["method"]["settings"])
        trained = _labels(about["trained_labels"], under("trained_labels", tensors))
        model = method.build(Spec(shape=tuple(about["shape"]), labels=trained))
        model.load_state_dict(under("model", tensors))
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        classifier = Classifier(
            model=model.eval(),
            labels=_labels(about["labels"], under("labels", tensors)),
            codes=tensors["codes"],
            scale=tensors["scale"],
            offset=tensors["offset"],
            temperature=about["temperature"],
            multilabel=about.get("multilabel", False),
            described=frozenset(about.get("described", ())),
            gap=about.get("gap", 0.0),
            memory=tensors.get("memory"),
            outlier=None if about["outlier"] is None else from_plain(OutlierRule, about["outlier"]),
            verification=from_plain(VerificationRule, rule) if (rule := about.get("verification")) else None,
            seen=tensors.get("seen"),
            method=method,
            summary=about["summary"],
        )
    except (KeyError, TypeError, RuntimeError, UsageError) as error:
        raise StoreError(
            f"{folder} was written by labelwise {about.get('versions', {}).get('labelwise', 'of an unknown version')} and does "
            f"not fit this version, {__version__} ({str(error).splitlines()[0]}). Install that version, or fit again."
        ) from error
    return classifier.to(device)


def digest_of(path: str | Path) -> str:
    """Return the checksum of a saved classifier's weights; another one means another classifier."""
    return str(_read_about(Path(path)).get("weights_sha256"))


def shape_of(path: str | Path) -> tuple[int, ...]:
    """Return the image shape of a saved classifier, without loading it."""
    return tuple(_read_about(Path(path)).get("shape", ()))


def _write(classifier: Classifier, folder: Path) -> None:
    tensors = {"codes": classifier.codes, "scale": classifier.scale, "offset": classifier.offset}
    tensors |= state_tensors("model", classifier.model)
    tensors |= {name: t for name, t in (("seen", classifier.seen), ("memory", classifier.memory)) if t is not None}
    for prefix, labels in (("labels", classifier.labels), ("trained_labels", classifier.model.spec.labels)):
        known = {"vectors": labels.vectors, "shares": labels.shares, "similarity": labels.similarity}
        tensors |= {f"{prefix}/{what}": t for what, t in known.items() if t is not None}
    write_tensors(folder / WEIGHTS, tensors, {"format": FORMAT})
    method = classifier.method
    about = {
        "format": FORMAT,
        "method": {"name": getattr(method, "name", ""), "settings": to_plain(method)},
        "shape": list(classifier.model.spec.shape),
        "labels": _label_words(classifier.labels),
        "trained_labels": _label_words(classifier.model.spec.labels),
        "temperature": classifier.temperature,
        "multilabel": classifier.multilabel,
        "described": sorted(classifier.described),
        "gap": classifier.gap,
        "outlier": None if classifier.outlier is None else to_plain(classifier.outlier),
        "verification": None if classifier.verification is None else to_plain(classifier.verification),
        "summary": dict(classifier.summary),
        "versions": {"labelwise": __version__, **_versions("torch", "numpy", "pillow")},
        "weights_sha256": _digest(folder / WEIGHTS),
    }
    write_atomically(folder / ABOUT, _as_text(about))


def _as_text(about: dict[str, Any]) -> bytes:
    """Return what is said about a classifier as a file; text that is no UTF-8 is an error."""
    try:
        return (json.dumps(about, indent=1, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError as error:
        near = ascii(error.object[max(0, error.start - 20) : error.end + 20])
        raise StoreError(
            f"A classifier is saved as UTF-8 text, and this is none: {near}. Rename the label, file or folder it comes from."
        ) from None


@unbroken()
def _put_in_place(part: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    part.rename(target)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    shutil.rmtree(old, ignore_errors=True)


def _read_about(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        left = sorted(folder.parent.glob(f".{folder.name}.*.old")) if folder.parent.exists() else []
        hint = f" A version that was being replaced lies in {left[0]}; rename it back." if left else ""
        raise StoreError(f"No saved classifier at {folder}.{hint or ' Make one with fit.'}")
    try:
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text())
    except OSError as error:
        raise StoreError(f"{folder} is no saved classifier: cannot read {ABOUT} ({error.strerror}).") from None
    except ValueError:
        raise StoreError(
            f"{folder / ABOUT} is damaged: it is not JSON. Restore it from a copy, or fit again."
        ) from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        found = about.get("format") if isinstance(about, dict) else None
        raise StoreError(
            f"{folder} has format {found}; this version reads format {FORMAT}. Update labelwise, or fit again."
        )
    return about


def _read_weights(folder: Path, about: dict[str, Any]) -> dict[str, torch.Tensor]:
    weights = folder / WEIGHTS
    if not weights.exists():
        raise StoreError(f"{folder} is damaged: {WEIGHTS} is missing. Restore it from a copy, or fit again.")
    if _digest(weights) != about.get("weights_sha256"):
        raise StoreError(f"{weights} is damaged: its checksum differs. Restore it from a copy, or fit again.")
    return read_tensors(weights)[0]


def _label_words(labels: Labels) -> dict[str, Any]:
    return {"names": list(labels.names), "texts": to_plain(labels.texts), "order": to_plain(labels.order)}


def _labels(words: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Labels:
    return Labels(
        names=tuple(words["names"]),
        vectors=tensors.get("vectors"),
        texts=None if words["texts"] is None else tuple(tuple(t) for t in words["texts"]),
        order=None if words["order"] is None else tuple(words["order"]),
        shares=tensors.get("shares"),
        similarity=tensors.get("similarity"),
    )


def _versions(*packages: str) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
