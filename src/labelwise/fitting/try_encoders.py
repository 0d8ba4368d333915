"""Which encoder is worth its time for these images? Each is tried on a sample of them: leave-one-out accuracy, and time per image."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from labelwise.core.arrays import Array
from labelwise.core.metrics import wilson
from labelwise.encoders.choose import known_encoders
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Encoder
from labelwise.encoders.joined import JoinedEncoder
from labelwise.encoders.onnx import OnnxEncoder
from labelwise.encoders.registry import open_encoder
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.images import Unreadable
from labelwise.images.split.divide import pool
from labelwise.methods.discriminant.fit import fit_discriminant, with_second_opinion
from labelwise.support.errors import DataError, UsageError

IMAGES: Final = 400  # of a sample
TIMED: Final = 8  # images that each encoder is timed on
NOISE: Final = 1.96  # standard errors within which two accuracies are level


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What an encoder is worth for the images of a sample."""

    name: str
    accuracy: float  # by leave-one-out, as if labels were equally frequent
    low: float  # of the 95 % interval
    high: float
    ms: float  # milliseconds of one image on one core, without reading it
    megabytes: float
    worth: bool = False  # whether no other is both quicker and more accurate
    best: bool = False  # the quickest of those that are level with the most accurate one
    right: Any = field(default=None, repr=False)  # whether each image of the sample was answered right [n]


def try_encoders(data: Dataset, names: Sequence[str] = (), *, images: int = IMAGES, seed: int = 0) -> list[Trial]:
    """Return a trial of each encoder, the most accurate first.

    Args:
        data: with one label for each image; its test split is not read.
        names: of encoders; none: all that are at hand, and the two best joined.
        images: how many to try them on, drawn alike from all labels.
        seed: of the draw.
    """
    sample, labels = _sample(data, images, seed)
    chosen = list(names) or [each.name for each in known_encoders() if each.at_hand]
    if not chosen:
        raise UsageError("No encoder is installed. See: labelwise encoders")
    trials = [_trial(open_encoder(name), name, sample, labels) for name in chosen]
    if not names and len(trials) > 1:
        first, second = sorted(trials, key=lambda each: -each.accuracy)[:2]
        name = f"{first.name}+{second.name}"
        trials.append(_trial(open_encoder(name), name, sample, labels))
    return judged(trials)


def judged(trials: Sequence[Trial]) -> list[Trial]:
    """Return trials, the most accurate first, with those that are worth their time and the best one marked.

    Two encoders are level where the same images of the sample do not tell them apart.
    """
    ranked = sorted(trials, key=lambda each: (-each.accuracy, each.ms))
    level = [each for each in ranked if _level(ranked[0], each)]
    best = min(level, key=lambda each: each.ms)
    dominated = {
        b.name for a, b in combinations(sorted(trials, key=lambda each: each.ms), 2) if a.accuracy >= b.accuracy
    }
    return [replace(each, worth=each.name not in dominated, best=each is best) for each in ranked]


def _level(one: Trial, other: Trial) -> bool:
    """Return whether the difference of two trials is noise."""
    difference = one.right.astype(float) - other.right.astype(float)
    error = float(difference.std()) / max(1, len(difference)) ** 0.5
    return bool(abs(float(difference.mean())) <= NOISE * error)


def _trial(encoder: Encoder, name: str, sample: Split, labels: Labels) -> Trial:
    features = encode(encoder, sample.images)
    if len(features) < len(sample):
        raise DataError(f"{features.skipped[0].file} cannot be read ({features.skipped[0].reason}). Leave it out.")
    fitted = with_second_opinion(fit_discriminant(features.values, sample.targets, labels, sample.groups))
    left = fitted.leave_one_out()
    right = (left.scores.argmax(1) == sample.targets[left.rows]) & left.usable
    accuracy = float(right.mean())
    low, high = wilson(accuracy, len(right))
    seconds, size = _seconds(encoder, sample), sum(len(each) for each in _files(encoder))
    return Trial(
        name=name, accuracy=accuracy, low=low, high=high, ms=1000 * seconds, megabytes=size / 1e6, right=right
    )  # fmt: skip


def _seconds(encoder: Encoder, sample: Split) -> float:
    """Return the processor seconds that an image takes, the median of a few."""
    read = sample.images.read(range(min(TIMED + 1, len(sample))), encoder.shape, encoder.fit)
    times = []
    for image in (one for one in read if not isinstance(one, Unreadable)):
        began = time.thread_time()
        encoder(image[None])
        times.append(time.thread_time() - began)
    return float(np.median(times[1:] or times))  # the first one opens the file


def _files(encoder: Encoder) -> list[bytes]:
    if isinstance(encoder, JoinedEncoder):
        return [content for part in encoder.parts for content in _files(part)]
    return [encoder.content] if isinstance(encoder, OnnxEncoder) else []


def _sample(data: Dataset, images: int, seed: int) -> tuple[Split, Labels]:
    """Return images drawn alike from all labels that have two or more, and these labels."""
    if data.multilabel or data.features:
        what = "several labels may be true of one image" if data.multilabel else "it holds features"
        raise DataError(f'Encoders are tried on images of one label each; of "{data.name}" {what}.')
    split = pool(replace(data, splits={name: part for name, part in data.splits.items() if name != "test"}))
    counts = np.bincount(split.targets[split.targets >= 0], minlength=len(data.labels))
    labels = np.flatnonzero(counts > 1)
    if len(labels) < 2:
        raise DataError(f'"{data.name}" has fewer than two labels with two images. Add images.')
    rows = _drawn(split.targets, labels, images, seed)
    some = split.select(rows)
    return replace(some, targets=np.searchsorted(labels, some.targets)), data.labels.select(
        [data.labels.names[label] for label in labels]
    )


def _drawn(targets: Array, labels: Array, images: int, seed: int) -> Array:
    """Return rows ``[m]`` drawn alike from labels, at least two of each."""
    rng = np.random.default_rng(seed)
    drawn = [rng.permutation(np.flatnonzero(targets == label)) for label in labels]
    turns = [(max(place - 1, 0), label, row) for label, rows in enumerate(drawn) for place, row in enumerate(rows)]
    return np.array(sorted(row for _, _, row in sorted(turns)[: max(images, 2 * len(labels))]))
