"""Export a classifier as a folder that runs without labelwise: the ONNX file, its labels, and a program in Python and one for browsers."""

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from labelwise.core.classifier import Classifier
from labelwise.core.export import Exported, export, metadata
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.support.writable import write_atomically, writing_folder

MODEL, LABELS = "model.onnx", "labels.json"
PROGRAMS = ("classify.py", "classify.js", "classify.html", "README.txt")


def export_to(classifier: Classifier, path: str | Path, *, overwrite: bool = False) -> Exported:
    """Write a classifier as one ONNX file where the path ends in ``.onnx``, and else as a folder that runs without labelwise."""
    write = export if Path(path).suffix.lower() == ".onnx" else export_folder
    return write(classifier, path, overwrite=overwrite)


def export_folder(classifier: Classifier, folder: str | Path, *, overwrite: bool = False) -> Exported:
    """Write a classifier as a folder with ``model.onnx`` (see ``export``), ``labels.json``, and programs that need no labelwise."""
    target = Path(folder)
    if len(classifier.shape) != 3:
        raise UnsupportedError(
            f"The programs of an exported folder read images, but this classifier takes {classifier.shape[0]} features. "
            f'Export the ONNX file alone: "{target.name}.onnx".'
        )
    if os.path.exists(target):
        if not overwrite:
            raise UsageError(f"{target} already exists. Choose another name, or replace it with --overwrite.")
        if not all((target / name).exists() for name in (MODEL, LABELS, *PROGRAMS)):
            raise UsageError(f"{target} exists and is not an exported folder. Choose another name.")
    with writing_folder(target) as part:
        exported = export(classifier, part / MODEL)
        description = {key: json.loads(value) for key, value in metadata(classifier).items()}
        description["reported"] = "answers" if classifier.calibration.multilabel else "probabilities"
        description["tall_first"] = _tall_first()
        description |= _promises(classifier)
        write_atomically(part / LABELS, json.dumps(description, indent=1, ensure_ascii=False).encode() + b"\n")
        for name in PROGRAMS:
            write_atomically(part / name, files("labelwise.core").joinpath("standalone", name).read_bytes())
    return Exported(target, exported.labels, exported.difference, exported.megabytes)


def _promises(classifier: Classifier) -> dict[str, Any]:
    """Return the names that lead to each label, and the mistakes by which ``max_error`` finds its limit, where it can be promised."""
    labels, mistakes = classifier.labels, classifier.promising.mistakes
    parents = labels.parents or ((),) * len(labels)
    return {
        "paths": [[*reversed(above), name] for above, name in zip(parents, labels.names, strict=True)],
        "mistakes": None if mistakes is None or classifier.thresholds else mistakes.tolist(),
    }


def _tall_first() -> bool:
    """Return whether this Pillow resizes tall images along their height first, which rounds differently."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 8), np.uint8))
    small, kernel = (16, 16), Image.Resampling.BILINEAR
    return noise.resize(small, kernel) == noise.resize((8, 16), kernel).resize(small, kernel)
