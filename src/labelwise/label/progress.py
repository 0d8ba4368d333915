"""Progress of a session: accuracy with its interval from the random stream, and the value of more answers.

A person slips with a rate e, on k labels. Two things follow for a share h of random images whose answer is the guess:
a wrong guess agrees with a slip in one of two answers, f = 2e / (k - 1), so the accuracy is (h - f) / (1 - f) (Rogan and Gladen,
Am. J. Epidemiology 1978); and an answer that differs, and that nobody has asked about again yet, is a slip with odds
a / (1 - a) (e / (1 - e))^m after m answers. First answers that later ones correct show the rate e. All this takes slips on
all labels alike. A person who confuses the same labels as the guesses agrees with them, and no repetition shows it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from labelwise.label.space import Floats

TAIL = 0.025  # on each side of an interval
FEWEST = 20  # checks, below which nothing is advised
POINT = 0.01
RISK = 0.1  # that guesses above the threshold are right less often than wanted
PARTS = 10  # thresholds that are tried: those of the surest tenths of the guesses
MOST = 1_000  # checks that a person is asked for
SLIPS, ANSWERS = (
    0.34,
    10.0,
)  # slips in as many answers before any is seen: 3.4 % (labels of ten test sets, Northcutt et al., NeurIPS 2021)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The quality of the guesses for unanswered images."""

    images: int
    answered: int  # images whose label a person gave
    sure: int  # images without an answer whose guess is above the threshold
    missing: int | None  # further right checks until guesses are sure; None if some are sure, or this is unknown
    checks: int  # images of the random stream
    slips: int  # of these, images whose first answer a later one corrected
    accuracy: float | None  # estimated from these; None without any
    low: float  # the accuracy lies between
    high: float
    more: int | None  # estimated answers for one more point; None if unknown
    stop: bool  # whether more answers are hardly worth their time

    @property
    def words(self) -> str:
        """The message to the user."""
        if self.accuracy is None:
            return "The accuracy is not known yet: no random image has been checked."
        shown = f"About {self.accuracy:.0%} of guesses are right (between {self.low:.0%} and {self.high:.0%}, from {self.checks} random images)."
        if self.slips:
            shown += f" {self.slips} of these got another answer when asked again: the figure allows for such mistakes."
        if not self.sure and self.missing:
            shown += f" After {self.missing} more random images without a mistake, guesses count as labels."
        if self.stop:
            return f"{shown} You can stop here."
        return shown if self.more is None else f"{shown} About {self.more} more answers for one more point."


def interval(hits: float, n: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson 1934). Shorter ones miss shares near 1 too often.

    >>> tuple(round(end, 2) for end in interval(9, 10))
    (0.55, 1.0)
    """
    low = float(betaincinv(hits, n - hits + 1, TAIL)) if hits else 0.0
    return low, float(betaincinv(hits + 1, n - hits, 1 - TAIL)) if hits < n else 1.0


def told(hits: int, waiting: Sequence[int], settled: int, slips: int, labels: int) -> tuple[float, float, float]:
    """Return the accuracy of guesses and its interval, corrected for mistakes of the person.

    >>> tuple(round(each, 2) for each in told(9, [], 10, 0, 6))
    (0.9, 0.55, 1.0)

    Args:
        hits: settled checks whose answer is the guess.
        waiting: number of answers of each check that will be asked again.
        settled: checks that will not be asked again.
        slips: of these, checks whose first answer a later one corrected.
        labels: number of labels.
    """
    rate = (slips + SLIPS) / (settled + ANSWERS)
    n, right = settled + len(waiting), float(hits)
    for _ in range(5):
        odds = (right + 0.5) / (n - right + 0.5)
        right = hits + sum(1 - 1 / (1 + odds * (rate / (1 - rate)) ** answers) for answers in waiting)
    agree = min(2 * rate / max(labels - 1, 1), 0.9)
    accuracy, low, high = ((max(share, agree) - agree) / (1 - agree) for share in (right / n, *interval(right, n)))
    return accuracy, low, high


def sure_share(tops: Floats, right: np.ndarray, every: Floats, precision: float) -> tuple[float, int | None]:
    """Return the probability threshold above which guesses reach the precision, and the number of missing checks.

    The lower confidence limit of the precision is exact and uses checks only (one-sided, ``RISK``). Without a threshold, the
    first number is above 1, and the second is the number of further checks needed if all are right.

    Args:
        tops: probability of the guess of each check ``[c]``.
        right: whether the guess is right ``[c]``.
        every: probability of the guess of each unanswered image ``[n]``.
        precision: required share of right guesses.
    """
    missing = list[float]()
    for part in range(PARTS, 0, -1):
        limit = float(np.quantile(every, 1 - part / PARTS))
        among = right[tops >= limit]
        hits, n = int(among.sum()), len(among)
        if hits and lower_limit(hits, n) >= precision:
            return limit, None
        more = next((m for m in range(1, MOST) if lower_limit(hits + m, n + m) >= precision), MOST)
        missing.append(more * PARTS / part)
    return 1.1, math.ceil(min(missing)) if min(missing) < MOST else None


def lower_limit(hits: int, n: int) -> float:
    """Return the lower confidence limit of a share, at risk ``RISK``."""
    return float(betaincinv(hits, n - hits + 1, RISK))


def answers_for_a_point(history: list[tuple[int, float]]) -> int | None:
    """Estimate the answers needed for one more point: a linear fit of confidence to the log number of answers."""
    recent = [(n, sure) for n, sure in history if n >= history[-1][0] / 2 and n > 0] if history else []
    if len({n for n, _ in recent}) < 4:
        return None
    slope = float(np.polyfit(np.log([n for n, _ in recent]), [sure for _, sure in recent], 1)[0])
    if slope < 1e-3:
        return None
    return max(1, round(recent[-1][0] * math.expm1(min(POINT / slope, 5.0))))
