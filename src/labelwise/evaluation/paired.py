"""Test whether two classifiers differ on the same test images."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

DRAWS = 10_000


@dataclass(frozen=True, kw_only=True)
class PairedResult:
    """The difference of two classifiers on the same images."""

    images: int  # images answered by both
    only_first: int  # images that only the first got right
    only_second: int  # images that only the second got right
    difference: float  # accuracy of the second minus the first
    low: float  # the lower end of the 95 % interval of that difference, from drawing the images again (bootstrap)
    high: float  # the upper end
    # how probable a division of only_first and only_second at least as uneven is if neither is better
    # (McNemar's exact test)
    p: float


def compare_answers(first: ArrayLike, second: ArrayLike, *, seed: int = 0) -> PairedResult:
    """Return how the right answers ``[n]`` of two classifiers to the same images differ.

    The interval is a bootstrap: drawing n images with replacement draws a multinomial number of images that only one got right.
    """
    from scipy.stats import binomtest

    first, second = np.asarray(first, bool), np.asarray(second, bool)
    n, first_only, second_only = len(first), int((first & ~second).sum()), int((second & ~first).sum())
    draws = np.random.default_rng(seed).multinomial(
        n, [first_only / n, second_only / n, (n - first_only - second_only) / n], DRAWS
    )
    low, high = np.quantile((draws[:, 1] - draws[:, 0]) / n, [0.025, 0.975])
    return PairedResult(
        images=n,
        only_first=first_only,
        only_second=second_only,
        difference=(second_only - first_only) / n,
        low=float(low),
        high=float(high),
        p=float(binomtest(first_only, first_only + second_only).pvalue) if first_only + second_only else 1.0,
    )
