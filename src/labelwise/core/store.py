"""A saved classifier is one folder, written whole or not at all; ``load`` reads it.

``classifier.json`` describes it; ``weights.safetensors`` holds the arrays of head, labels and calibration. A trained encoder is in
``encoder.onnx`` with its card; a shared one is named by its id. ``training.safetensors`` is the state of the trained model,
for continued training. Loading executes nothing.
"""

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
from labelwise.core.load import ABOUT, CHECKSUM, FORMAT, TRAINING, WEIGHTS
from labelwise.core.saved_parts import check_finite, checksum, encoder_files, label_arrays, label_words, pack
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import StoreError, UsageError
from labelwise.support.files import file_digest
from labelwise.support.settings import to_plain
from labelwise.support.writable import check_writable, write_atomically, writing_folder


def description_bytes(description: Mapping[str, Any]) -> bytes:
    """Return a description as the content of its file; the first entry is the SHA-256 of the rest."""
    plain = json.loads(json.dumps(description))
    return json.dumps({CHECKSUM: checksum(plain), **plain}, indent=1, ensure_ascii=False).encode() + b"\n"


LOG = "log.jsonl"


def save(classifier: Classifier, path: str | Path, *, overwrite: bool = False, log: str | Path | None = None) -> None:
    """Save a classifier as a folder, with an optional training log.

    The write is atomic: a crash leaves the old folder or none. ``overwrite`` replaces an existing classifier.
    """
    target = Path(path)
    check_free(target, overwrite)
    with writing_folder(target) as part:
        _write(classifier, part)
        if log and Path(log).exists():
            shutil.copyfile(log, part / LOG)


def check_free(path: Path, overwrite: bool) -> None:
    """Raise an error if a classifier cannot or may not be written here."""
    check_writable(path)
    if os.path.exists(path) and not (path / ABOUT).exists():
        raise UsageError(f"{path} exists and is not a saved classifier. Choose another name.")
    if os.path.exists(path) and not overwrite:
        raise UsageError(
            f"{path} already holds a classifier. Choose another name, or replace it with --overwrite (overwrite=True in Python)."
        )


def check_savable(method: object, labels: Labels, name: str) -> None:
    """Raise an error for what the file of a classifier of this method and these labels could not hold."""
    _as_text({"method": to_plain(method), "labels": label_words(labels), "data": name})


def _write(classifier: Classifier, folder: Path) -> None:
    """Write the files of a classifier."""
    calibration, familiarity, origin = classifier.calibration, classifier.familiarity, classifier.origin
    head = pack(classifier.head)
    arrays = {"label_embeddings": classifier.label_embeddings, "scale": calibration.scale, "offset": calibration.offset}
    optional = {
        "train_digests": origin.train_digests,
        "memory": familiarity.memory,
        "memory_targets": familiarity.targets,
        "width": familiarity.width,
        "prior": calibration.prior,
        "margins": calibration.margins,
        "mistakes": calibration.mistakes,
        "background": calibration.background,
        "later": calibration.later,
    }
    examples = classifier.examples
    if examples is not None:
        optional |= {"examples/counts": examples.counts, "examples/means": examples.means}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    arrays |= {f"labels/{name}": array for name, array in label_arrays(classifier.labels).items()}
    arrays |= {f"head/{name}": array for name, array in head.arrays.items()}
    encoder, encoder_content = encoder_files(classifier.encoder)
    description = {
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
    check_finite(description, arrays)
    _write_arrays(folder / WEIGHTS, arrays)
    for name, content in encoder_content.items():
        write_atomically(folder / name, content)
    if origin.training is not None:
        _write_arrays(folder / TRAINING, origin.training.read())
    description["files"] = {file.name: file_digest(file) for file in sorted(folder.iterdir())}
    write_atomically(folder / ABOUT, _as_text(description))


def _write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write a safetensors file; the description holds its checksum."""
    write_atomically(path, safetensors({name: np.asarray(array, order="C") for name, array in arrays.items()}))


def _version(name: str) -> str | None:
    """Return the version of a package; None where it was put there without its metadata."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _as_text(description: dict[str, Any]) -> bytes:
    """Return a description as a file; text that is no UTF-8 is an error."""
    try:
        return description_bytes(description)
    except UnicodeEncodeError as error:
        near = ascii(error.object[max(0, error.start - 20) : error.end + 20])
        raise StoreError(
            f"A classifier is saved as UTF-8, but this text is not valid UTF-8: {near}. Rename its label, file or folder."
        ) from None
