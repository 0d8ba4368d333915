"""A saved classifier, read: its files, its description, its arrays. Every number is checked before anything is computed with it."""

import glob
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np

from labelwise import __version__
from labelwise.core.calibration import Calibration, Familiarity, OutlierRule, check_thresholds
from labelwise.core.classifier import Classifier, MethodRecord, Origin, Verifier
from labelwise.core.head import Array, Head
from labelwise.core.known_examples import KnownExamples
from labelwise.core.saved_parts import Packed, check_finite, checksum, labels_of, saved_encoder, unpack
from labelwise.encoders.encoder import Encoder
from labelwise.support.errors import LabelwiseError, StoreError, UsageError
from labelwise.support.files import file_digest, read_arrays, read_regular
from labelwise.support.settings import from_plain

TRIES, PAUSE = 20, 0.05  # how often a folder that is being replaced is looked at, and the seconds in between
TRAINING = "training.safetensors"
FORMAT = 3
ABOUT, WEIGHTS = "classifier.json", "weights.safetensors"
CHECKSUM = "checksum"
ENTRIES = {
    "format", "encoder", "head", "labels", "unseen", "examples", "calibration", "outlier_rule", "verifier", "thresholds", "method", "summary", "versions", "files",
}  # fmt: skip
FAULTS = (LabelwiseError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def load(path: str | Path) -> Classifier:
    """Return the classifier saved in a folder.

    Checksums, shapes and numbers are checked before anything is computed with them. A folder that is replaced meanwhile is read again.
    """
    folder = Path(path)
    for left in reversed(range(TRIES)):
        before = _stamp(folder)
        try:
            classifier = _load(folder)
        except StoreError:
            if not left or _stamp(folder) == before:
                raise
            continue
        if _stamp(folder) == before:
            return classifier
    raise StoreError(f"{folder} is replaced again and again. Wait until that ends.")


def _stamp(folder: Path) -> tuple[int, ...]:
    """Return what changes when a folder is replaced; nothing if there is none."""
    try:
        about = os.stat(folder)
    except OSError:
        return ()
    return about.st_dev, about.st_ino, about.st_ctime_ns


def _load(folder: Path) -> Classifier:
    about = read_about(folder)
    try:
        _check_files(folder, about["files"])
        encoder = saved_encoder(about["encoder"], folder)
        state = StoredState(folder / TRAINING, about["files"][TRAINING]) if TRAINING in about["files"] else None
        return classifier_of(about, read_arrays(folder / WEIGHTS)[0], encoder, state)
    except StoreError as error:
        raise StoreError(f"Cannot use {folder}. {error}") from error
    except FAULTS as error:
        versions = about.get("versions")
        writer = versions.get("labelwise") if isinstance(versions, dict) else None
        remedy = "Restore its description from a backup" if writer == __version__ else "Install that version"
        reason = (str(error) or repr(error)).splitlines()[0].removesuffix(".")
        raise StoreError(
            f"{folder} was written by labelwise {writer or 'of an unknown version'} and does not fit this version, "
            f"{__version__}: {reason}. {remedy}, or fit again."
        ) from error


def _check_files(folder: Path, digests: Mapping[str, str]) -> None:
    """Raise an error unless all files but the training state, which is checked when it is read, are as they were written."""
    for name in {WEIGHTS, *digests} - {TRAINING}:
        if not (folder / name).exists():
            raise StoreError(f"It is damaged: {name} is missing. Restore it from a backup, or fit again.")
        if file_digest(folder / name) != digests[name]:
            raise StoreError(f"{name} is damaged: its checksum differs. Restore it from a backup, or fit again.")


def read_about(folder: Path) -> dict[str, Any]:
    """Return the description of the classifier saved in a folder, or raise an error."""
    left = _left_by_a_write(folder)
    if not os.path.exists(folder):
        hint = f" An interrupted write left the old version in {left[0]}; rename it back." if left else ""
        raise StoreError(f"No saved classifier at {folder}.{hint or ' Make one with fit.'}")
    file = folder / ABOUT
    try:
        about: dict[str, Any] = json.loads(read_regular(file))
    except OSError as error:
        raise StoreError(f"{folder} is not a saved classifier: cannot read {ABOUT} ({error.strerror}).") from None
    except (ValueError, RecursionError):
        raise StoreError(f"{file} is damaged: it is not JSON. Restore it from a backup, or fit again.") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        number = about.get("format") if isinstance(about, dict) else None
        raise StoreError(
            f"{folder} has format {number}; this version reads format {FORMAT}. Update labelwise, or fit again."
        )
    stated = about.pop(CHECKSUM, None)
    if (stated is not None and stated != checksum(about)) or about.keys() - ENTRIES:
        raise StoreError(
            f"{file} does not match its checksum: it is damaged or edited. Restore it from a backup, or fit again. "
            f'If you edited it on purpose, remove its entry "{CHECKSUM}" (line 2).'
        )
    return about


def _left_by_a_write(folder: Path) -> list[Path]:
    """Return the old versions next to a folder that is missing; one that is just being replaced is back in a moment."""
    left: list[Path] = []
    for _ in range(TRIES):
        if os.path.exists(folder) or not os.path.exists(folder.parent):
            break
        if not (left := sorted(folder.parent.glob(f".{glob.escape(folder.name)}.*.old"))):
            break
        sleep(PAUSE)
    return left


def digest_of(path: str | Path) -> str:
    """Return the checksum of a saved classifier's weights; another one means another classifier."""
    files = read_about(Path(path)).get("files")
    return str(files.get(WEIGHTS) if isinstance(files, dict) else None)


def shape_of(path: str | Path) -> tuple[int, ...]:
    """Return the image shape of a saved classifier, without loading it."""
    encoder = read_about(Path(path)).get("encoder")
    shape = encoder.get("shape") if isinstance(encoder, dict) else None
    return tuple(shape) if isinstance(shape, list) else ()


@dataclass(frozen=True, kw_only=True)
class FittedScale:
    """What a description says of the calibration, next to its arrays."""

    seen_penalty: float = 0.0
    temperature: float = 1.0
    multilabel: bool = False

    def __post_init__(self) -> None:
        """Check the temperature, by which scores in single precision are divided."""
        limits = np.finfo(np.float32)
        if not float(limits.tiny) <= self.temperature <= float(limits.max):
            raise UsageError(f"the temperature must be above 0, and neither tiny nor huge; given {self.temperature}")


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a description says of a classifier, next to its encoder, head and labels."""

    calibration: FittedScale
    outlier_rule: OutlierRule | None
    verifier: Verifier | None
    method: MethodRecord | None
    summary: dict[str, Any]
    unseen: tuple[str, ...]
    examples: tuple[str, ...]  # the labels that ``KnownExamples`` knows
    thresholds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredState:
    """The state of a trained model in a file, read when it is asked for."""

    file: Path
    sha256: str

    def read(self) -> Mapping[str, Array]:
        """Return the arrays by name."""
        if not self.file.exists() or file_digest(self.file) != self.sha256:
            raise StoreError(f"{self.file} is damaged: its checksum differs. Restore it from a backup, or fit again.")
        return read_arrays(self.file)[0]


def classifier_of(
    about: Mapping[str, Any], arrays: Mapping[str, Array], encoder: Encoder, training: StoredState | None
) -> Classifier:
    """Return the classifier of a description, the arrays that were saved with it, and its encoder."""
    check_finite(about, arrays)
    described = from_plain(
        Description, {each.name: about[each.name] for each in fields(Description) if each.name in about}
    )
    labels = labels_of(about["labels"], under("labels", arrays))
    kind, settings = about["head"]["kind"], about["head"]["settings"]
    head = unpack(Packed(kind, settings, under("head", arrays)))
    known = {
        "label_embeddings",
        "scale",
        "offset",
        "train_digests",
        "memory",
        "memory_targets",
        "width",
        "prior",
        "margins",
        "mistakes",
        "background",
        "later",
    }
    if more := {name for name in arrays if "/" not in name} - known:
        raise UsageError(f'there is no place for "{min(more)}"')
    scale, offset, width = arrays["scale"], arrays["offset"], arrays.get("width")
    _check_rows(len(labels), arrays)
    _check_fit(encoder, head, arrays)
    fitted = described.calibration
    return Classifier(
        encoder=encoder,
        head=head,
        labels=labels,
        label_embeddings=arrays["label_embeddings"],
        calibration=Calibration(
            scale=scale,
            offset=offset,
            unseen=np.isin(labels.names, described.unseen),
            seen_penalty=fitted.seen_penalty,
            prior=arrays.get("prior"),
            penalty=head.penalty,
            temperature=fitted.temperature,
            exclusive=head.exclusive,
            multilabel=fitted.multilabel,
            margins=_sorted("margins", arrays),
            mistakes=_sorted("mistakes", arrays),
            background=arrays.get("background"),
            later=_later(arrays.get("later"), len(labels)),
        ),
        familiarity=Familiarity(
            memory=arrays.get("memory"), targets=_targets(arrays, len(labels)), rule=described.outlier_rule, width=width
        ),
        verifier=described.verifier,
        thresholds=check_thresholds(described.thresholds, labels),
        origin=Origin(
            method=described.method,
            summary=described.summary,
            train_digests=arrays.get("train_digests"),
            training=training,
        ),
        examples=_examples(described.examples, under("examples", arrays)),
    )


def _sorted(name: str, arrays: Mapping[str, Array]) -> Array | None:
    """Return an array of a calibration, if it is there; numbers that are no sorted row are an error."""
    array = arrays.get(name)
    if array is not None and (array.ndim != 1 or array.dtype.kind != "f" or (np.diff(array) < 0).any()):
        raise UsageError(f'"{name}" are not a sorted row of numbers')
    return array


def _later(array: Array | None, k: int) -> Array | None:
    """Return which labels came after calibration, if that is there; anything but a yes or no for each is an error."""
    if array is not None and (array.shape != (k,) or array.dtype != np.bool_):
        raise UsageError(f'"later" must say yes or no of each of {k} labels')
    return array


def _targets(arrays: Mapping[str, Array], k: int) -> Array | None:
    """Return the labels of remembered images, if they are there; numbers that are no labels are an error."""
    targets, memory = arrays.get("memory_targets"), arrays.get("memory")
    if targets is None:
        return None
    fits = memory is not None and targets.dtype == np.int64 and targets.shape == memory.shape[:1]
    if not fits or not ((targets >= -1) & (targets < k)).all():
        raise UsageError('"memory_targets" are not the labels of the remembered images')
    return targets


def _examples(names: tuple[str, ...], arrays: Mapping[str, Array]) -> KnownExamples | None:
    """Return the stored examples of labels with these names; parts that do not match are an error."""
    if not arrays:
        return None
    counts, means = arrays["counts"], arrays["means"]
    fits = counts.shape == (len(names),) and means.ndim == 2 and len(means) == len(names) == len(set(names))
    if not fits or counts.dtype.kind != "f" or means.dtype.kind != "f" or (counts < 1).any():
        raise UsageError("counts and means of examples do not fit the names of their labels")
    return KnownExamples(names, counts, means)


def under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays whose names start with ``prefix/``, without it."""
    return {name.removeprefix(f"{prefix}/"): a for name, a in arrays.items() if name.startswith(f"{prefix}/")}


def _check_rows(k: int, arrays: Mapping[str, Array]) -> None:
    """Raise an error unless each of k labels has an embedding, a scale and an offset, all of floats."""
    shapes = {name: arrays[name].shape for name in ("label_embeddings", "scale", "offset")}
    rows, scale, offset = shapes.values()
    if len(rows) != 2 or not rows[:1] == scale == offset == (k,):
        raise UsageError(f"{k} labels need as many label embeddings, scales and offsets; given {shapes}")
    for name in ("width", "prior"):
        if name in arrays and arrays[name].shape != (k,):
            raise UsageError(f"{k} labels have a {name} each; given {arrays[name].shape}")
    for name in (*shapes, "width", "prior", "memory", "background"):
        if name in arrays and arrays[name].dtype.kind != "f":
            raise UsageError(f'"{name}" holds {arrays[name].dtype} numbers')


def _check_fit(encoder: Encoder, head: Head, arrays: Mapping[str, Array]) -> None:
    """Raise an error unless a head takes the features of the encoder, and its embeddings are those of the other arrays: tried on one row."""
    if encoder.width != head.width:
        raise UsageError(f"the head takes {head.width} features, and the encoder makes {encoder.width}")
    label_embeddings = arrays["label_embeddings"]
    embedding = head.embed(np.ones((1, head.width), np.float32))
    scores = head.score(embedding, label_embeddings)
    if scores.shape != (1, len(label_embeddings)):
        raise UsageError(f"the head makes scores {list(scores.shape)} of one image and {len(label_embeddings)} labels")
    for name, width in {
        "memory": embedding.shape[1],
        "background": embedding.shape[1],
        "examples/means": embedding.shape[1],
        "train_digests": 16,
    }.items():
        if name in arrays and (arrays[name].ndim != 2 or arrays[name].shape[1] != width):
            raise UsageError(f'"{name}" has the shape {list(arrays[name].shape)}, not [m, {width}]')
    if "train_digests" in arrays and arrays["train_digests"].dtype != np.uint8:
        raise UsageError(f'"train_digests" holds {arrays["train_digests"].dtype} numbers')
