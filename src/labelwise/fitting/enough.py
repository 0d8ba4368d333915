"""How few pictures are too few: told before any is read."""

from collections.abc import Mapping

from labelwise.methods.registry import METHODS
from labelwise.support.errors import DataError, listing
from labelwise.train.method import Method

FEWEST = 3  # pictures of a label of which one trains, one validates and one tests
ENOUGH = 10  # of each label, from which on training is worth the while


def check_enough(counts: Mapping[str, int], method: Method, name: str) -> None:
    """Raise an error where a method holds pictures out to be calibrated on, and there are too few of each label for that."""
    large = [label for label, count in counts.items() if count >= FEWEST]
    if len(counts) < 2 or len(large) >= 2 or not method.holds_out or method.zero_shot or not method.uses_targets:
        return
    smallest = sorted(counts.items(), key=lambda pair: pair[1])
    raise DataError(
        f'"{name}" has too few pictures: {listing((f"{label} {count}" for label, count in smallest), 6)}. {too_few(method.name)}'
    )


def too_few(method: str) -> str:
    """Return how many pictures a trained method needs, and what else could be done."""
    other = listing((kind for kind, cls in METHODS.items() if cls.leaves_out), 3)
    way = f" Or use --method {other}, which takes one picture of a label." if other else ""
    return (
        f"Method {method} needs {FEWEST} pictures of at least two labels, since some are held out to calibrate it, and about "
        f"{ENOUGH} of each to be of use. Add pictures.{way}"
    )
