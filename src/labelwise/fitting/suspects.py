"""Suspects: images whose label looks wrong, duplicates, ambiguous images and outliers.

A closed form on features scores every image by leave-one-out, test images included. The image and its copies are left out
together, so no image confirms its own label.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from labelwise.core.arrays import Array
from labelwise.core.classifier import bind
from labelwise.encoders.choose import encoder_name
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Encoder, Precomputed
from labelwise.encoders.registry import open_encoder
from labelwise.fitting.closed_form import solve
from labelwise.fitting.estimate import calibrate_by_leave_one_out, left_out_scores
from labelwise.images.dataset import Dataset, Split
from labelwise.images.split.divide import pool
from labelwise.images.split.lookalikes import LIKENESS, fingerprints, similar_pairs
from labelwise.methods.discriminant.method import Discriminant
from labelwise.support.errors import DataError

DOUBTFUL = 0.5  # probability of another label above which the image's label is in doubt
AMBIGUOUS = 0.35  # probability of another label above which an image is ambiguous


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """An image to review."""

    file: str
    label: str
    suggested: str  # the suggested label; for a duplicate, its own
    probability: float  # leave-one-out probability of the suggested label, or similarity to the duplicate
    reason: str  # "label", "copy" (the same file content), "lookalike", "ambiguous" (two labels) or "odd" (unlike all)
    other: str = ""  # the earlier image that it duplicates
    other_label: str = ""  # the label of that image
    row: int = 0  # its position among all images, in the order train, val, test

    @property
    def doubtful(self) -> bool:
        """Whether its label, or that of its duplicate, may be wrong."""
        return self.reason != "ambiguous" and self.label != (self.other_label if self.other else self.suggested)

    @property
    def certainty(self) -> float | None:
        """The probability or similarity to show. None of a copy, or of an odd image, which has the probability of its own label."""
        return None if self.reason in ("copy", "odd") else self.probability

    @property
    def words(self) -> str:
        """The reason, in words."""
        if self.reason in ("ambiguous", "odd"):
            return f"may also be {self.suggested}" if self.reason == "ambiguous" else "looks like none of the labels"
        kind = {"copy": "same content as", "lookalike": "looks the same as"}
        labelled = f", which is labelled {self.other_label}" if self.other_label != self.label else ""
        return f"{kind[self.reason]} {self.other}{labelled}" if self.other else f"looks like {self.suggested}"


def suspects(data: Dataset, *, likeness: float = LIKENESS) -> list[Suspect]:
    """Find images whose label looks wrong, most doubtful first, then duplicates, ambiguous images and outliers.

    Args:
        data: with one label for each image.
        likeness: smallest similarity of duplicates, at most 1.
    """
    if data.multilabel:
        raise DataError(f'Several labels may be true of an image of "{data.name}". Suspects need one label per image.')
    split = pool(data)
    labelled = np.flatnonzero(split.labelled)
    features, rows, encoder = _features(split.select(labelled))
    rows = labelled[rows]
    doubtful, lookalikes = _judge(data, split, features, rows, encoder)
    return [*doubtful, *_duplicates(data, split, likeness), *lookalikes]


def _features(split: Split) -> tuple[Array, Array, Encoder]:
    """Return the features ``[n, d]`` of the readable images, their rows, and the encoder."""
    if split.shape is not None and len(split.shape) == 1:
        values = split.images.read(np.arange(len(split)), split.shape)
        return np.asarray(values, np.float32), np.arange(len(split)), Precomputed(split.shape[0])
    encoder = open_encoder(encoder_name(len(split)))
    features = encode(encoder, split.images)
    return features.values, np.asarray(features.rows), encoder


def _judge(
    data: Dataset, split: Split, features: Array, rows: Array, encoder: Encoder
) -> tuple[list[Suspect], list[Suspect]]:
    """Return the images that look like another label, most doubtful first, and the ambiguous or odd ones."""
    present, targets = np.unique(split.targets[rows], return_inverse=True)
    names = tuple(data.labels.names[place] for place in present)
    if len(names) < 2:
        raise DataError(f'"{data.name}" has images of only one label. Suspects need at least two labels.')
    labels = replace(data.labels.select(names), shares=None)
    part = Split(images=split.images.select(rows), targets=targets)
    solution, request = solve(features, part, labels, Discriminant())  # as ``fit`` does
    embeddings = solution.head.embed(features)
    classifier = calibrate_by_leave_one_out(bind(solution.head, encoder, labels), solution, part, embeddings, request)
    estimate = solution.leave_one_out()
    scores = left_out_scores(classifier, embeddings, estimate)
    chances = scores.probabilities[estimate.usable].copy()
    odd, strange = scores.unknown[estimate.usable], scores.outlier_score[estimate.usable]
    places = estimate.rows[estimate.usable]
    rows_here, own = np.arange(len(places)), targets[places]
    own_chance = chances[rows_here, own]
    chances[rows_here, own] = 0
    rivals, best = chances.argmax(1), chances.max(1)

    def suspect(i: int, reason: str) -> Suspect:
        row, suggested = int(rows[places[i]]), names[own[i] if reason == "odd" else rivals[i]]
        value = round(float(best[i] if reason != "odd" else own_chance[i]), 4)
        return Suspect(
            file=split.files[row], label=names[own[i]], suggested=suggested, probability=value, reason=reason, row=row
        )

    # by the probability of the own label: margins and confident learning find fewer wrong labels (docs/results/label.md)
    doubtful = [suspect(i, "label") for i in own_chance.argsort(kind="stable").tolist() if best[i] >= DOUBTFUL]
    close = (best >= AMBIGUOUS) & (best < DOUBTFUL) & ~odd
    is_odd = odd & (best < DOUBTFUL)
    return doubtful, [
        *(suspect(i, "ambiguous") for i in (-best).argsort(kind="stable").tolist() if close[i]),
        *(suspect(i, "odd") for i in (-strange).argsort(kind="stable").tolist() if is_odd[i]),
    ]


def _duplicates(data: Dataset, split: Split, likeness: float) -> list[Suspect]:
    """Return duplicates of earlier images, by content or by looks; those with another label first."""
    first: dict[bytes, int] = {}
    copies = {
        row: first[digest] for row, digest in enumerate(split.images.digests()) if first.setdefault(digest, row) != row
    }
    near = {} if split.shape is not None and len(split.shape) == 1 else _lookalikes(split, likeness, set(copies))
    words = split.words(data.labels.names)
    pairs = [(row, copy, 1.0, "copy") for row, copy in copies.items()]
    pairs += [(row, copy, value, "lookalike") for row, (copy, value) in near.items()]
    twins = [_twin(split.files, words, *pair) for pair in pairs]
    return sorted(twins, key=lambda one: (not one.doubtful, one.reason, -one.probability, one.row))


def _twin(files: Sequence[str], words: Sequence[str], row: int, copy: int, value: float, reason: str) -> Suspect:
    return Suspect(
        file=files[row],
        label=words[row],
        suggested=words[row],
        probability=round(value, 4),
        reason=reason,
        other=files[copy],
        other_label=words[copy],
        row=row,
    )


def _lookalikes(split: Split, likeness: float, copies: set[int]) -> dict[int, tuple[int, float]]:
    """Return the most similar earlier image of each lookalike, and their similarity."""
    prints, _ = fingerprints(split.images)
    best: dict[int, tuple[int, float]] = {}
    for first, second, values in similar_pairs(prints, likeness):
        for row, copy, value in zip(first.tolist(), second.tolist(), values.tolist(), strict=True):
            early, late = min(row, copy), max(row, copy)
            if not copies & {early, late} and value > best.get(late, (0, 0.0))[1]:
                best[late] = (early, min(float(value), 1.0))
    return best
