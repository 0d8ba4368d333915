"""Two classifiers on the same test images: is one better, or was it luck?"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

DRAWS = 10_000


@dataclass(frozen=True, kw_only=True)
class PairedResult:
    """How the right answers of two classifiers differ."""

    images: int  # how many both answered
    only_first: int  # how many the first alone got right
    only_second: int  # how many the second alone got right
    difference: float  # accuracy of the second minus that of the first
    low: float  # the lower end of the 95 % interval of that difference, from drawing the images again (bootstrap)
    high: float  # the upper end
    # how probable a division of only_first and only_second at least as uneven is if neither is better
    # (McNemar's exact test)
    p: float


def compare_answers(first: Tensor, second: Tensor, *, seed: int = 0) -> PairedResult:
    """Return how two rows of right and wrong answers ``[n]`` (bool) to the same images differ; ``seed`` draws them again.

    Drawing n images again with replacement draws how many of them only one got right: a multinomial number.
    """
    from scipy.stats import binomtest

    n = len(first)
    one, other = int((first & ~second).sum()), int((second & ~first).sum())
    draws = np.random.default_rng(seed).multinomial(n, [one / n, other / n, (n - one - other) / n], DRAWS)
    low, high = np.quantile((draws[:, 1] - draws[:, 0]) / n, [0.025, 0.975])
    return PairedResult(
        images=n,
        only_first=one,
        only_second=other,
        difference=(other - one) / n,
        low=float(low),
        high=float(high),
        p=float(binomtest(one, one + other).pvalue) if one + other else 1.0,
    )
