"""Verify: whether two images show the same label, seen or not, by a score and a threshold fitted on held-out pairs."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.core.arrays import Array, sigmoid
from labelwise.core.classifier import Classifier, Verifier
from labelwise.core.head import Head
from labelwise.core.metrics import det_curve, equal_error, threshold_at
from labelwise.core.platt import fit_platt
from labelwise.core.scores import Scores
from labelwise.support.errors import DataError, UsageError
from labelwise.support.rows import Draws
from labelwise.tasks.similarity import By, comparable, row_similarity, similarity_matrix

Rule = Literal["eer"] | float
PAIRS = 50_000  # most pairs of each kind to fit a rule on
CHUNK = 4_096  # pairs scored at a time
TABLE = 4_096  # score all pairs as a table up to this many images


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The answer for a pair of images."""

    score: float  # larger is more alike
    same: bool  # whether the score reaches the threshold
    probability: float  # of "same", if same and different pairs are equally frequent


def verify(first: Scores, second: Scores, *, by: By | None = None) -> list[Verification]:
    """Return whether the images of each pair show the same label; their order does not matter.

    A single image is compared with all others. ``by`` is the score of the fitted verifier, or None.
    """
    rule = check_verifier(first.classifier, by)
    counts = [len(first), len(second)]
    if counts[0] != counts[1] and 1 not in counts:
        raise UsageError(f"Pairs need equally many first and second images, or one of either; given {counts}.")
    first_rows, second_rows = (part.embeddings[np.arange(max(counts)) % len(part)] for part in (first, second))
    scores = pair_scores(first.classifier.head, first_rows, second_rows, rule.by)
    chances = sigmoid(scores * rule.scale + rule.offset)
    return [
        Verification(score=score, same=score >= rule.threshold, probability=chance)
        for score, chance in zip(scores.tolist(), chances.tolist(), strict=True)
    ]


def check_verifier(classifier: Classifier, by: By | None) -> Verifier:
    """Return the classifier's verifier; raise an error if it has none for this score."""
    rule = classifier.verifier
    if rule is None:
        raise UsageError(
            "This classifier has no threshold for pairs of images. Fit one on held-out labelled images: "
            'fit_verification(classifier, data.split("val")) in Python, "labelwise calibrate" in the shell.'
        )
    if by not in (None, rule.by):
        raise UsageError(
            f'The threshold for pairs of images was fitted for the score "{rule.by}"; given by="{by}". '
            f'Fit another: fit_verification(classifier, data.split("val"), by="{by}").'
        )
    return rule


def fit_verifier(
    scores: Scores, targets: ArrayLike, rule: Rule = "eer", *, by: By = "similarity", seed: int = 0
) -> Classifier:
    """Return the classifier with a threshold for pairs, fitted on images not seen in training.

    Their labels ``[n]``, -1 if there is none, may be ones that the classifier does not know. The rule is ``eer``, where both
    kinds of error are equally frequent, or the share of different pairs to accept at most; ``by`` is the score, as in ``retrieve``.
    """
    if np.ndim(targets) == 2:
        raise DataError("Several labels may be true of these images, so pairs are neither same nor different.")
    classifier = scores.classifier
    same, different = score_pairs(classifier.head, scores.embeddings, targets, by, (PAIRS, seed))
    verifier = verifier_of(same, different, rule, by)
    return replace(classifier, verifier=verifier, origin=classifier.origin_with(scores.images))


def verifier_of(same: Array, different: Array, rule: Rule, by: By) -> Verifier:
    """Return the threshold from the scores of pairs of one label ``[p]`` and of different labels ``[q]``."""
    curve = det_curve(same, different)
    eer, threshold = equal_error(curve)
    if rule != "eer":
        _check_share(rule, len(different))
        threshold = threshold_at(curve, rule)
    truth = np.arange(len(same) + len(different)) < len(same)
    scale, offset = fit_platt(np.concatenate([same, different])[:, None], truth[:, None])
    offset -= math.log(len(same) / len(different))  # both kinds weigh the same
    return Verifier(by=by, threshold=threshold, rule=rule, eer=eer, scale=scale, offset=offset)


def can_verify(targets: ArrayLike) -> bool:
    """Return whether targets ``[n]`` allow a pair of one label and a pair of different labels."""
    labels = np.asarray(targets)
    if labels.ndim > 1:  # several labels may be true of an image
        return False
    counts = np.unique(labels[labels >= 0], return_counts=True)[1]
    return len(counts) > 1 and int(counts.max()) > 1


def score_pairs(
    head: Head, embeddings: Array, targets: ArrayLike, by: By, draw: tuple[int, int]
) -> tuple[Array, Array]:
    """Return the scores of pairs of one label ``[p]`` and of pairs of different labels ``[q]``.

    ``targets [n]`` are -1 where an image has no label; ``draw`` is how many pairs of each kind there may be, and the seed.
    """
    labels = np.asarray(targets)
    if not can_verify(labels):
        raise DataError(
            "Pairs need at least two images of one label and one image of another; "
            f"given {(labels >= 0).sum()} labelled images of {len(set(labels.tolist()) - {-1})} labels."
        )
    same, different = draw_pairs(labels, *draw)
    embeddings, by = comparable(head, embeddings, by)
    n, d = embeddings.shape
    if by != "cosine" and n <= TABLE and n * n <= d * (len(same) + len(different)):
        # A table is fast for a learned similarity: each embedding passes the first layer once.
        similarity = similarity_matrix(head, embeddings, embeddings, by)
        table = ((similarity + similarity.T) / 2).astype(np.float64)
        return table[*same.T], table[*different.T]
    same_scores, different_scores = (pair_scores(head, embeddings, embeddings, by, rows) for rows in (same, different))
    return same_scores, different_scores


def pair_scores(head: Head, first: Array, second: Array, by: By, rows: Array | None = None) -> Array:
    """Return the symmetric score of each pair ``[p]``: the mean of both directions of a learned similarity.

    ``rows [p, 2]`` says which rows of embeddings ``[n, d]`` and ``[m, d]`` make a pair; None pairs row i with row i.
    """
    if rows is None:
        rows = np.arange(len(first))[:, None].repeat(2, 1)
    scores = np.empty(len(rows))
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        a, b = first[part[:, 0]], second[part[:, 1]]
        similarity = row_similarity(head, a, b, by)
        if by not in ("cosine", "whitened"):
            similarity = (similarity + row_similarity(head, b, a, by)) / 2
        scores[start : start + CHUNK] = similarity
    return scores


def _check_share(share: Rule, different: int) -> None:
    """Raise an error unless there are enough different pairs to estimate this share."""
    if isinstance(share, str) or not 0 < share < 1:
        raise UsageError(f'The rule must be "eer" or a share between 0 and 1; given {share}.')
    if share * different < 1:
        raise DataError(
            f"{different} pairs of different labels are too few for a share of {share:g} false accepts; "
            f"it needs at least {1 / share:.0f}. Give more held-out images, or a larger share."
        )


class LabelPairs(NamedTuple):
    """Row pairs of one label ``[p, 2]`` and of different labels ``[q, 2]``; no image with itself."""

    same: NDArray[Any]
    different: NDArray[Any]


def draw_pairs(targets: ArrayLike, most: int, seed: int = 0) -> LabelPairs:
    """Return all pairs of each kind, or an even sample of ``most`` (with replacement).

    From the label of each image ``[n]``; images without one (-1) are in no pair.
    """
    every = np.asarray(targets)
    rows = np.flatnonzero(every >= 0)
    rows = rows[every[rows].argsort(kind="stable")]
    # In label order, row i pairs with the later rows of its label (same) and all rows after them (different).
    sizes = np.unique(every[rows], return_counts=True)[1]
    end = sizes.cumsum().repeat(sizes)
    after = np.arange(1, len(rows) + 1)
    draws = Draws(seed)
    same = _draw(end - after, after, most, draws)
    return LabelPairs(rows[same], rows[_draw(len(rows) - end, end, most, draws)])


def _draw(counts: NDArray[Any], starts: NDArray[Any], most: int, draws: Draws) -> NDArray[Any]:
    """Return pairs ``[p, 2]``: row i has ``counts[i]`` consecutive partners from ``starts[i]``."""
    ends = counts.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        return np.empty((0, 2), np.int64)
    numbers = np.arange(total) if total <= most else draws.integers(total, most)
    first = np.searchsorted(ends, numbers, side="right")
    return np.stack([first, starts[first] + numbers - (ends - counts)[first]], 1)
