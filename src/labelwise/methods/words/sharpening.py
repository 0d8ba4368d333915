"""Sharpen name scores with unlabelled images, and estimate which names occur among them.

Expectation maximisation over images x and labels k, where words alone give log-odds L. The mean of the images that are likely a label is
shrunk towards the word score by the weight n / (n + 1), with n their expected number, as in StatA (Zanella et al., CVPR 2025):

    m = sum z x / (n + 1),    score = L + c / v (x . m - |m|^2 / 2)

where x is centred on all images, v is the variance inside labels, and c a constant times two shares. One is the share of labels that occur.
The other is how much words tell of images, from 0 to 1: words that do not know the labels would only learn their own mistakes.
No image adds to its own evidence. Published methods that assume that every label occurs lose half
of their answers where four do. So label shares are estimated, and weighed by how much they explain (BIC).
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import softmax

Array = npt.NDArray[Any]
STRENGTH: Final = 20.0  # c where every label occurs
ROUNDS: Final = 5
SHARE_ROUNDS: Final = 60
MANY: Final = (
    1_000  # labels; of more, an image counts for its best one only, as it would be shared among very many like it
)
FEW: Final = 2  # images from which on there is anything to estimate
DOUBTFUL: Final = 0.5  # nats per image that shares must explain to have any weight; full weight one nat later
LEAST: Final = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class Sharpened:
    """What unlabelled images add to the scores of labels."""

    rows: Array  # linear log-odds to add [k, d + 1]
    counts: Array  # how many of the images are expected to be each label [k]
    belief: float  # weight of the estimated label shares, 0 to 1

    def absent(self) -> Array:
        """Return which labels hardly occur ``[k]``; none where label shares have no weight."""
        return np.asarray(self.counts < 0.5) & (self.belief > 0)


def sharpen(embeddings: Array, log_odds: Array) -> Sharpened:
    """Return what unlabelled images ``[n, d]`` add to their word scores ``[n, k]``."""
    (n, k), d = log_odds.shape, embeddings.shape[1]
    if n < FEW or k < 2:
        return Sharpened(rows=np.zeros((k, d + 1)), counts=softmax(log_odds).sum(0), belief=0.0)
    words = log_odds.astype(np.float64)
    shares, belief = estimate_shares(words)
    prior = belief * (np.log(shares + 1 / (n + k)) - np.log(shares + 1 / (n + k)).max())
    strength = STRENGTH * np.exp(_entropy(shares)) / k * information(words)
    middle = embeddings.mean(0, dtype=np.float64)
    size = max(float(np.sqrt(np.square(embeddings).sum(1).mean())), LEAST)
    x = (embeddings - middle) / size
    own, scores = np.square(x).sum(1)[:, None], words
    for _ in range(ROUNDS):
        likely = softmax(scores + prior)
        counts, sums = likely.sum(0), likely.T @ x
        variance = (own.sum() - (np.square(sums).sum(1) / np.maximum(counts, LEAST)).sum()) / n
        slope = strength / max(float(variance), LEAST)
        products, other_counts = (
            x @ sums.T,
            counts - likely + 1,
        )  # each image is left out of the means that it is scored by
        lengths = np.square(sums).sum(1) - 2 * likely * products + likely**2 * own
        scores = words + slope * ((products - likely * own) / other_counts - lengths / other_counts**2 / 2)
    means = sums / (counts + 1)[:, None]
    weights = slope / size * means
    bias = prior - weights @ middle - slope * np.square(means).sum(1) / 2
    likely = softmax(scores + prior)
    counts = (likely if k <= MANY else likely == likely.max(1, keepdims=True)).sum(0)
    return Sharpened(rows=np.concatenate([weights, bias[:, None]], 1), counts=counts, belief=belief)


def information(log_odds: Array) -> float:
    """Return the share of the label entropy that the image removes, from log-odds ``[n, k]``: 0 to 1."""
    likely = softmax(log_odds)
    before, after = _entropy(likely.mean(0)), float(np.mean([_entropy(row) for row in likely]))
    return max(0.0, 1 - after / max(before, LEAST))


def _entropy(shares: Array) -> float:
    return float(-(shares * np.log(shares + LEAST)).sum())


def estimate_shares(log_odds: Array) -> tuple[Array, float]:
    """Return label shares among images ``[n, k]`` and their weight: the likelihood gained minus the BIC penalty."""
    n, k = log_odds.shape
    shares = np.full(k, 1 / k)
    likely = np.exp(log_odds - log_odds.max(1, keepdims=True))
    for _ in range(SHARE_ROUNDS):
        shares = shares + LEAST
        shares = shares * (likely.T @ (1 / (likely @ shares))) / n
    gain = float((np.log(likely @ shares) - np.log(likely.mean(1))).sum())
    gain_share = np.clip(1 - (k - 1) / 2 * np.log(n) / max(gain, LEAST), 0, 1)
    return shares, float(gain_share * np.clip(gain / n - DOUBTFUL, 0, 1))
