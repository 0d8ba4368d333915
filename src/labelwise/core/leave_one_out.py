"""What a classifier says of its training images as if each had not been among them."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class LeaveOneOut:
    """Scores of training images, each scored as if it, and its copies, had not been among them."""

    rows: Array  # which of the training images these are [n]: all, or of very many some
    scores: Array  # of every pair [n, k]
    outlier_scores: Array  # [n], see ``head.SensesFamiliarity``
    nearest: Array  # distance to the nearest training image of those that are remembered [n]
    usable: Array  # which rows say something: another image of their label is left [n] (bool)
    groups: Array  # images that were left out together have the same number [n]
    # What a new image would find, for which none of its label was left out: the score of its own label [n], as certain as the others,
    # and how much less the margin to the best of these varies [n].
    own_scores: Array
    margin_ratio: Array


class LeavesOut(Protocol):
    """What is known after a fit whose training images can be left out in closed form."""

    def leave_one_out(self, *, grouped: bool = True) -> LeaveOneOut:
        """Return what is said of training images, each left out; ``grouped`` with all of its group, else with its copies alone."""

    def pair_cosines(self, pairs: Array) -> Array | None:
        """Return how alike pairs ``[p, 2]`` of training images are by ``head.Whitens.whitened``, as if neither had been seen.

        None where the head does not whiten.
        """
