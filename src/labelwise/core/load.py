"""Read a saved classifier: its files, its description and its arrays. Every number is checked before use."""

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

TRIES, PAUSE = 20, 0.05  # reads of a folder while it is being replaced, and seconds between them
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
    for attempts in reversed(range(TRIES)):
        before = _stamp(folder)
        try:
            classifier = _load(folder)
        except StoreError:
            if not attempts or _stamp(folder) == before:
                raise
            continue
        if _stamp(folder) == before:
            return classifier
    raise StoreError(f"{folder} is replaced again and again. Wait until that ends.")


def _stamp(folder: Path) -> tuple[int, ...]:
    """Return an identity that changes when the folder is replaced, or None without a folder."""
    try:
        stat = os.stat(folder)
    except OSError:
        return ()
    return stat.st_dev, stat.st_ino, stat.st_ctime_ns


def _load(folder: Path) -> Classifier:
    description = read_description(folder)
    try:
        _check_files(folder, description["files"])
        encoder = saved_encoder(description["encoder"], folder)
        state = (
            StoredState(folder / TRAINING, description["files"][TRAINING]) if TRAINING in description["files"] else None
        )
        return classifier_of(description, read_arrays(folder / WEIGHTS)[0], encoder, state)
    except StoreError as error:
        raise StoreError(f"Cannot use {folder}. {error}") from error
    except FAULTS as error:
        versions = description.get("versions")
        writer = versions.get("labelwise") if isinstance(versions, dict) else None
        remedy = "Restore its description from a backup" if writer == __version__ else "Install that version"
        reason = (str(error) or repr(error)).splitlines()[0].removesuffix(".")
        raise StoreError(
            f"{folder} was written by labelwise {writer or 'of an unknown version'} and does not fit this version, "
            f"{__version__}: {reason}. {remedy}, or fit again."
        ) from error


def _check_files(folder: Path, digests: Mapping[str, str]) -> None:
    """Raise an error unless all files are unchanged; the training state is checked when it is read."""
    for name in {WEIGHTS, *digests} - {TRAINING}:
        if not (folder / name).exists():
            raise StoreError(f"It is damaged: {name} is missing. Restore it from a backup, or fit again.")
        if file_digest(folder / name) != digests[name]:
            raise StoreError(f"{name} is damaged: its checksum differs. Restore it from a backup, or fit again.")


def read_description(folder: Path) -> dict[str, Any]:
    """Return the description of the classifier saved in a folder, or raise an error."""
    unfinished = _leftovers(folder)
    if not os.path.exists(folder):
        hint = f" An interrupted write left the old version in {unfinished[0]}; rename it back." if unfinished else ""
        raise StoreError(f"No saved classifier at {folder}.{hint or ' Make one with fit.'}")
    file = folder / ABOUT
    try:
        description: dict[str, Any] = json.loads(read_regular(file))
    except OSError as error:
        raise StoreError(f"{folder} is not a saved classifier: cannot read {ABOUT} ({error.strerror}).") from None
    except (ValueError, RecursionError):
        raise StoreError(f"{file} is damaged: it is not JSON. Restore it from a backup, or fit again.") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        number = description.get("format") if isinstance(description, dict) else None
        raise StoreError(
            f"{folder} has format {number}; this version reads format {FORMAT}. Update labelwise, or fit again."
        )
    expected = description.pop(CHECKSUM, None)
    if (expected is not None and expected != checksum(description)) or description.keys() - ENTRIES:
        raise StoreError(
            f"{file} does not match its checksum: it is damaged or edited. Restore it from a backup, or fit again. "
            f'If you edited it on purpose, remove its entry "{CHECKSUM}" (line 2).'
        )
    return description


def _leftovers(folder: Path) -> list[Path]:
    """Return old versions next to a missing folder; a folder being replaced reappears within moments."""
    leftovers: list[Path] = []
    for _ in range(TRIES):
        if os.path.exists(folder) or not os.path.exists(folder.parent):
            break
        if not (leftovers := sorted(folder.parent.glob(f".{glob.escape(folder.name)}.*.old"))):
            break
        sleep(PAUSE)
    return leftovers


def digest_of(path: str | Path) -> str:
    """Return the checksum of a saved classifier's weights, which identifies the classifier."""
    files = read_description(Path(path)).get("files")
    return str(files.get(WEIGHTS) if isinstance(files, dict) else None)


def shape_of(path: str | Path) -> tuple[int, ...]:
    """Return the image shape of a saved classifier, without loading it."""
    encoder = read_description(Path(path)).get("encoder")
    shape = encoder.get("shape") if isinstance(encoder, dict) else None
    return tuple(shape) if isinstance(shape, list) else ()


@dataclass(frozen=True, kw_only=True)
class FittedScale:
    """The settings of a calibration; its arrays are stored separately."""

    seen_penalty: float = 0.0
    temperature: float = 1.0
    multilabel: bool = False

    def __post_init__(self) -> None:
        """Check the temperature: single-precision scores are divided by it."""
        limits = np.finfo(np.float32)
        if not float(limits.tiny) <= self.temperature <= float(limits.max):
            raise UsageError(f"the temperature must be above 0, and neither tiny nor huge; given {self.temperature}")


@dataclass(frozen=True, kw_only=True)
class Description:
    """The settings of a classifier without its encoder, head and labels."""

    calibration: FittedScale
    outlier_rule: OutlierRule | None
    verifier: Verifier | None
    method: MethodRecord | None
    summary: dict[str, Any]
    unseen: tuple[str, ...]
    examples: tuple[str, ...]  # labels of ``KnownExamples``
    thresholds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredState:
    """The state of a trained model in a file, read on demand."""

    file: Path
    sha256: str

    def read(self) -> Mapping[str, Array]:
        """Return the arrays by name."""
        if not self.file.exists() or file_digest(self.file) != self.sha256:
            raise StoreError(f"{self.file} is damaged: its checksum differs. Restore it from a backup, or fit again.")
        return read_arrays(self.file)[0]


def classifier_of(
    description: Mapping[str, Any], arrays: Mapping[str, Array], encoder: Encoder, training: StoredState | None
) -> Classifier:
    """Build a classifier from its description, its arrays and its encoder."""
    check_finite(description, arrays)
    fields_of_file = from_plain(
        Description, {entry.name: description[entry.name] for entry in fields(Description) if entry.name in description}
    )
    labels = labels_of(description["labels"], with_prefix("labels", arrays))
    kind, settings = description["head"]["kind"], description["head"]["settings"]
    head = unpack(Packed(kind, settings, with_prefix("head", arrays)))
    expected_arrays = {
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
    if extra := {name for name in arrays if "/" not in name} - expected_arrays:
        raise UsageError(f'there is no place for "{min(extra)}"')
    scale, offset, width = arrays["scale"], arrays["offset"], arrays.get("width")
    _check_rows(len(labels), arrays)
    _check_fit(encoder, head, arrays)
    calibration = fields_of_file.calibration
    return Classifier(
        encoder=encoder,
        head=head,
        labels=labels,
        label_embeddings=arrays["label_embeddings"],
        calibration=Calibration(
            scale=scale,
            offset=offset,
            unseen=np.isin(labels.names, fields_of_file.unseen),
            seen_penalty=calibration.seen_penalty,
            prior=arrays.get("prior"),
            penalty=head.penalty,
            temperature=calibration.temperature,
            exclusive=head.exclusive,
            multilabel=calibration.multilabel,
            margins=_sorted("margins", arrays),
            mistakes=_sorted("mistakes", arrays),
            background=arrays.get("background"),
            later=_later(arrays.get("later"), len(labels)),
        ),
        familiarity=Familiarity(
            memory=arrays.get("memory"),
            targets=_targets(arrays, len(labels)),
            rule=fields_of_file.outlier_rule,
            width=width,
        ),
        verifier=fields_of_file.verifier,
        thresholds=check_thresholds(fields_of_file.thresholds, labels),
        origin=Origin(
            method=fields_of_file.method,
            summary=fields_of_file.summary,
            train_digests=arrays.get("train_digests"),
            training=training,
        ),
        examples=_examples(fields_of_file.examples, with_prefix("examples", arrays)),
    )


def _sorted(name: str, arrays: Mapping[str, Array]) -> Array | None:
    """Return an array of a calibration, or None; raise an error unless it is a sorted row of numbers."""
    array = arrays.get(name)
    if array is not None and (array.ndim != 1 or array.dtype.kind != "f" or (np.diff(array) < 0).any()):
        raise UsageError(f'"{name}" are not a sorted row of numbers')
    return array


def _later(array: Array | None, k: int) -> Array | None:
    """Return which labels came after calibration, or None; raise an error unless it has a bool for each."""
    if array is not None and (array.shape != (k,) or array.dtype != np.bool_):
        raise UsageError(f'"later" must say yes or no of each of {k} labels')
    return array


def _targets(arrays: Mapping[str, Array], k: int) -> Array | None:
    """Return the labels of remembered images, or None; raise an error unless they are label positions."""
    targets, memory = arrays.get("memory_targets"), arrays.get("memory")
    if targets is None:
        return None
    fits = memory is not None and targets.dtype == np.int64 and targets.shape == memory.shape[:1]
    if not fits or not ((targets >= -1) & (targets < k)).all():
        raise UsageError('"memory_targets" are not the labels of the remembered images')
    return targets


def _examples(names: tuple[str, ...], arrays: Mapping[str, Array]) -> KnownExamples | None:
    """Return the stored examples of these labels; raise an error if the parts do not match."""
    if not arrays:
        return None
    counts, means = arrays["counts"], arrays["means"]
    fits = counts.shape == (len(names),) and means.ndim == 2 and len(means) == len(names) == len(set(names))
    if not fits or counts.dtype.kind != "f" or means.dtype.kind != "f" or (counts < 1).any():
        raise UsageError("counts and means of examples do not fit the names of their labels")
    return KnownExamples(names, counts, means)


def with_prefix(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays whose names start with ``prefix/``, without the prefix."""
    return {name.removeprefix(f"{prefix}/"): a for name, a in arrays.items() if name.startswith(f"{prefix}/")}


def _check_rows(k: int, arrays: Mapping[str, Array]) -> None:
    """Raise an error unless each of k labels has a float embedding, scale and offset."""
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
    """Check on one row that a head takes the features of the encoder and that its embeddings match the other arrays."""
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
