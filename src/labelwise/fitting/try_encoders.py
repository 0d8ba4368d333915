"""Compare encoders on a sample of images: leave-one-out accuracy and time per image."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from labelwise.core.arrays import Array, softmax
from labelwise.core.metrics import wilson
from labelwise.core.platt import fit_temperature
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

IMAGES: Final = 400  # in the sample
TIMED: Final = 8  # images for timing


@dataclass(frozen=True, kw_only=True)
class EncoderTrial:
    """Accuracy and cost of an encoder on the sample."""

    name: str
    accuracy: float  # by leave-one-out, with equally frequent labels
    low: float  # of the 95 % interval
    high: float
    ms: float  # CPU milliseconds of one image, without reading it
    megabytes: float
    worth: bool = False  # whether no other encoder is both faster and more accurate
    level: bool = False  # whether the best one is within a standard error
    chances: Any = field(default=None, repr=False)  # calibrated probability of the right label of each image [n]

    @property
    def probability(self) -> float:
        """The mean probability of the right label."""
        return float(self.chances.mean())


def try_encoders(
    data: Dataset, names: Sequence[str] = (), *, images: int = IMAGES, seed: int = 0
) -> list[EncoderTrial]:
    """Return a trial of each encoder, see ``judge_trials``.

    Args:
        data: with one label for each image; its test split is not read.
        names: the encoders to try; by default all installed ones, and the two best joined.
        images: the size of the sample, drawn evenly from all labels.
        seed: the random seed of the sample.
    """
    sample, labels = _sample(data, images, seed)
    candidates = list(names) or [encoder.name for encoder in known_encoders() if encoder.at_hand]
    if not candidates:
        raise UsageError("No encoder is installed. See: labelwise encoders")
    trials = [_trial(open_encoder(name), name, sample, labels) for name in candidates]
    if not names and (best_joined := _best_joined(trials)):
        trials.append(_trial(open_encoder(best_joined), best_joined, sample, labels))
    return judge_trials(trials)


def _best_joined(trials: Sequence[EncoderTrial]) -> str | None:
    """Return the name of the two most accurate encoders that take images of one shape."""
    ranking = [trial.name for trial in sorted(trials, key=lambda trial: -trial.probability)]
    shapes = {name: (open_encoder(name).shape, open_encoder(name).fit) for name in ranking}
    return next(
        ("+".join(pair) for pair in combinations(ranking, 2) if len({shapes[name] for name in pair}) == 1), None
    )


def judge_trials(trials: Sequence[EncoderTrial]) -> list[EncoderTrial]:
    """Sort trials by the mean probability of the right label; mark those worth their time, and those level with the best.

    A count of right answers would say the same with more noise: an image adds 0 or 1 to it, however clear it is. The fastest of those that
    are level is a worse choice: docs/results/encoders.md has the figures.
    """
    ranking = sorted(trials, key=lambda trial: (-trial.probability, trial.ms))
    dominated = {
        b.name for a, b in combinations(sorted(trials, key=lambda trial: trial.ms), 2) if a.probability >= b.probability
    }
    return [replace(trial, worth=trial.name not in dominated, level=_level(ranking[0], trial)) for trial in ranking]


def _level(first: EncoderTrial, second: EncoderTrial) -> bool:
    """Return whether two trials differ by at most a standard error."""
    difference = first.chances - second.chances
    return bool(difference.mean() <= difference.std() / len(difference) ** 0.5)


def _trial(encoder: Encoder, name: str, sample: Split, labels: Labels) -> EncoderTrial:
    features = encode(encoder, sample.images)
    if len(features) < len(sample):
        raise DataError(f"{features.skipped[0].file} cannot be read ({features.skipped[0].reason}). Leave it out.")
    discriminant = with_second_opinion(fit_discriminant(features.values, sample.targets, labels, sample.groups))
    estimate = discriminant.leave_one_out()
    truth = sample.targets[estimate.rows]
    accuracy = float(((estimate.scores.argmax(1) == truth) & estimate.usable).mean())
    low, high = wilson(accuracy, len(truth))
    calibrated = softmax(estimate.scores / fit_temperature(estimate.scores, truth))
    chances = calibrated[np.arange(len(truth)), truth] * estimate.usable
    seconds, size = _seconds(encoder, sample), sum(len(content) for content in _files(encoder))
    return EncoderTrial(
        name=name, accuracy=accuracy, low=low, high=high, ms=1000 * seconds, megabytes=size / 1e6, chances=chances
    )  # fmt: skip


def _seconds(encoder: Encoder, sample: Split) -> float:
    """Return the median CPU seconds of one image."""
    read = sample.images.read(range(min(TIMED + 1, len(sample))), encoder.shape, encoder.fit)
    times = []
    for image in (image_read for image_read in read if not isinstance(image_read, Unreadable)):
        began = time.thread_time()
        encoder(image[None])
        times.append(time.thread_time() - began)
    return float(np.median(times[1:] or times))  # the first one opens the file


def _files(encoder: Encoder) -> list[bytes]:
    if isinstance(encoder, JoinedEncoder):
        return [content for part in encoder.parts for content in _files(part)]
    return [encoder.content] if isinstance(encoder, OnnxEncoder) else []


def _sample(data: Dataset, images: int, seed: int) -> tuple[Split, Labels]:
    """Draw images evenly from all labels with at least two images; return them and these labels."""
    if data.multilabel or data.features:
        reason = (
            "several labels may be true of one image" if data.multilabel else "there are features instead of images"
        )
        raise DataError(f'Encoders are compared on images with one label each, but in "{data.name}" {reason}.')
    split = pool(replace(data, splits={name: part for name, part in data.splits.items() if name != "test"}))
    counts = np.bincount(split.targets[split.targets >= 0], minlength=len(data.labels))
    labels = np.flatnonzero(counts > 1)
    if len(labels) < 2:
        raise DataError(f'"{data.name}" has fewer than two labels with two images. Add images.')
    rows = _draw_rows(split.targets, labels, images, seed)
    some = split.select(rows)
    return replace(some, targets=np.searchsorted(labels, some.targets)), data.labels.select(
        [data.labels.names[label] for label in labels]
    )


def _draw_rows(targets: Array, labels: Array, images: int, seed: int) -> Array:
    """Draw rows ``[m]`` evenly from labels, at least two of each."""
    rng = np.random.default_rng(seed)
    rows_by_label = [rng.permutation(np.flatnonzero(targets == label)) for label in labels]
    turns = [
        (max(place - 1, 0), label, row) for label, rows in enumerate(rows_by_label) for place, row in enumerate(rows)
    ]
    return np.array(sorted(row for _, _, row in sorted(turns)[: max(images, 2 * len(labels))]))
