"""How far a session is: accuracy with its interval from the random stream alone, and what more answers would bring."""

import math
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


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What is known about the guesses on images that nobody answered."""

    images: int
    answered: int  # images whose label a person gave
    sure: int  # images without an answer whose guess is above the threshold
    missing: (
        int | None
    )  # checks without which no guess is sure, if all of them are right; None where guesses are sure or nobody can say
    checks: int  # answers of the random stream
    accuracy: float | None  # on these; None without any
    low: float  # the accuracy lies between
    high: float
    more: int | None  # about so many answers for one more point; None where nobody can say
    stop: bool  # whether more answers are hardly worth their time

    @property
    def words(self) -> str:
        """What a person is told."""
        if self.accuracy is None:
            return "The accuracy is not known yet: no random image has been checked."
        shown = f"About {self.accuracy:.0%} of guesses are right (between {self.low:.0%} and {self.high:.0%}, from {self.checks} random images)."
        if not self.sure and self.missing:
            shown += f" After {self.missing} more random images without a mistake, guesses count as labels."
        if self.stop:
            return f"{shown} You can stop here."
        return shown if self.more is None else f"{shown} About {self.more} more answers for one more point."


def interval(hits: int, n: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson 1934): shorter ones miss shares near 1 too often.

    >>> tuple(round(end, 2) for end in interval(9, 10))
    (0.55, 1.0)
    """
    low = float(betaincinv(hits, n - hits + 1, TAIL)) if hits else 0.0
    return low, float(betaincinv(hits + 1, n - hits, 1 - TAIL)) if hits < n else 1.0


def sure_share(tops: Floats, right: np.ndarray, every: Floats, precision: float) -> tuple[float, int | None]:
    """Return the probability from which on guesses are right as often as wanted, and how many checks are missing if there is none.

    The lower limit of the share that is right is exact, of checks alone (one-sided, ``RISK``). Without a threshold the first number is
    above 1, and the second says how many more checks it takes if all are right.

    Args:
        tops: how probable the guess of each check is ``[c]``.
        right: whether it is right ``[c]``.
        every: how probable the guess of each image without an answer is ``[n]``.
        precision: how often guesses are to be right.
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
    """Return the share that is right at least, wrong with the probability ``RISK``."""
    return float(betaincinv(hits, n - hits + 1, RISK))


def answers_for_a_point(history: list[tuple[int, float]]) -> int | None:
    """Return about how many more answers bring one point, from how sure guesses were at numbers of answers: linear in the logarithm."""
    recent = [(n, sure) for n, sure in history if n >= history[-1][0] / 2 and n > 0] if history else []
    if len({n for n, _ in recent}) < 4:
        return None
    slope = float(np.polyfit(np.log([n for n, _ in recent]), [sure for _, sure in recent], 1)[0])
    if slope < 1e-3:
        return None
    return max(1, round(recent[-1][0] * math.expm1(min(POINT / slope, 5.0))))
