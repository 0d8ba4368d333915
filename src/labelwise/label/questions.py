"""Choose the question with the most value per second: a sheet of similar images, an image, or "is it a y?".

The value of an image j is its coverage: the sum over images i of u_i max(0, k_ij - c_i). Here k is the kernel of neighbours,
c_i the kernel value of the nearest answer, and u_i the uncertainty of the guess of i (generalised coverage, Bae et al.,
ECCV 2024; with uncertainty, ICLR 2025). At first guesses are not trusted, and typical images of regions without an answer come
first. As guesses prove right, uncertain images gain weight: u_i = 1 - t p_i, where t is the share of right guesses so far.
For single questions the same value of 64 regions is added, each as unsure as its images together. It spreads the first ones over the
space, the fullest parts first (as TypiClust, Hacohen et al., ICML 2022), but not twice over one large group.
"""

from dataclasses import dataclass

import numpy as np

from labelwise.label.actions import Form
from labelwise.label.ledger import Ledger
from labelwise.label.space import Floats, Ints, Space

SHEET = 24  # images on a sheet at most
SMALL = 4  # on a sheet at least
COVERED = 0.5  # mean coverage up to which sheets come first
GOOD = 0.75  # share of fitting images above which sheets come first
PURE = 0.5  # share of fitting images below which there are no more sheets
SECONDS = {"sheet": 6.0, "what": 3.0, "keys": 2.0, "yes": 1.2}  # per question; "keys": a label is one of nine keys
KEYS = 9


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to ask a person."""

    form: Form  # sheet, what, yes or check
    rows: tuple[int, ...]  # the images, the most typical first
    suggestions: tuple[
        tuple[str, float], ...
    ] = ()  # labels and their probabilities, the most probable first; none for a check
    example: int | None = None  # an image of the first suggestion that a person answered
    again: bool = False  # a check that was answered before

    @property
    def words(self) -> str:
        """The question."""
        if self.form == "sheet":
            return "What are these? Mark those that do not belong."
        if self.again:
            return "What is it? Once more, to be sure."
        return f"Is it {self.suggestions[0][0]}?" if self.form == "yes" else "What is it?"


def gains(space: Space, unsure: Floats, covered: Floats, open_rows: np.ndarray) -> Floats:
    """Return the value of an answer to each image ``[n]``; -1 for excluded images."""
    more = np.maximum(space.kernel - covered[:, None], 0) * unsure[:, None]
    worth = np.bincount(space.neighbours.ravel(), more.ravel(), len(space)) + unsure * np.maximum(1 - covered, 0)
    return np.where(open_rows, worth, -1).astype(np.float32)


def reach(space: Space, unsure: Floats, answered: np.ndarray) -> Floats:
    """Return the value of an answer to each image for the regions near it ``[n]``, as ``gains`` has it for images."""
    places, kernel = space.regions
    covered = kernel[:, np.unique(places[answered])].max(1, initial=0)
    worth = np.bincount(places, unsure, len(kernel)) @ np.maximum(kernel - covered[:, None], 0)
    return np.asarray(worth[places], np.float32)


def coverage(space: Space, answered: np.ndarray) -> Floats:
    """Return the kernel value of the nearest answered image ``[n]``; 1 for answered images."""
    near = np.where(answered[space.neighbours], space.kernel, 0).max(1)
    return np.where(answered, 1, near).astype(np.float32)


def unsureness(chances: Floats, trust: float) -> Floats:
    """Return the uncertainty of each guess ``[n]``."""
    if not chances.shape[1]:
        return np.ones(len(chances), np.float32)
    return np.asarray(1 - trust * chances.max(1), np.float32)


def sheet_of(space: Space, seed: int, free: np.ndarray, chances: Floats, ledger: Ledger) -> tuple[int, ...]:
    """Return an image and the most similar open images with the same guess, typical ones first."""
    size = SHEET if ledger.purity() > 0.75 else SHEET // 2 if ledger.purity() > 0.6 else SHEET // 4
    rows = space.neighbours[seed][free[space.neighbours[seed]]]
    if chances.shape[1] > 1 and len(ledger.answered().rows):
        rows = rows[chances[rows].argmax(1) == chances[seed].argmax()]
    sheet = (seed, *rows[: size - 1].tolist())
    while any(len(group & set(sheet)) > max(SMALL, len(group) // 2) and seed in group for group in ledger.split):
        sheet = sheet[: max(1, len(sheet) // 2)]  # after a split, ask about halves
        if len(sheet) <= SMALL:
            break
    return sheet


def choose(space: Space, ledger: Ledger, chances: Floats, busy: frozenset[int], *, sheets: bool) -> Question | None:
    """Return the question with the most value per second; None if nothing is left to ask.

    Args:
        space: of the images.
        ledger: the answers so far.
        chances: probabilities of labels ``[n, k]``.
        busy: images in open questions of other people.
        sheets: whether to ask about several images at once.
    """
    free = ledger.open_rows()
    free[list(busy)] = False
    if not free.any():
        return None
    trained = np.isin(
        np.arange(len(space)), ledger.answered().rows
    )  # without checks: regions near these are asked about like any other
    unsure, covered = unsureness(chances, ledger.trust()), coverage(space, trained)
    worth = gains(space, unsure, covered, free)
    seed = int(worth.argmax())
    if sheets and ledger.purity() >= PURE:
        rows = sheet_of(space, seed, free, chances, ledger)
        value = ledger.purity() * _together(space, rows, unsure, covered) / SECONDS["sheet"]
        first = (covered.mean() < COVERED and ledger.purity() > GOOD) or value > worth[seed] / what_seconds(ledger)
        if len(rows) >= SMALL and first:
            return Question(form="sheet", rows=rows, suggestions=suggestions(ledger, chances[list(rows)].mean(0)))
    seed = int(np.where(free, worth + reach(space, unsure, trained), -1).argmax())
    return single(ledger, chances, seed, space)


def single(ledger: Ledger, chances: Floats, row: int, space: Space) -> Question:
    """Return a question about one image: "is it a y?" or "what is it?", whichever informs more per second."""
    listed = suggestions(ledger, chances[row])
    denied = row in ledger.excluded  # "no" was said of it: a second "is it?" could go on for ever
    if len(listed) and len(ledger.answered().rows) and ledger.trust() > 0 and not denied:
        best = ledger.trust() * listed[0][1]
        every = -float((chances[row] * np.log(np.maximum(chances[row], 1e-12))).sum())
        yes = -(best * np.log(max(best, 1e-12)) + (1 - best) * np.log(max(1 - best, 1e-12)))
        if best > 0.5 and yes / SECONDS["yes"] > every / what_seconds(ledger):
            return Question(
                form="yes", rows=(row,), suggestions=listed, example=_example(ledger, space, row, listed[0][0])
            )
    return Question(form="what", rows=(row,), suggestions=listed)


def what_seconds(ledger: Ledger) -> float:
    """Return the seconds that "what is it?" takes: fewer if each label has a key."""
    return SECONDS["keys" if len(ledger.names) <= KEYS else "what"]


def suggestions(ledger: Ledger, chances: Floats) -> tuple[tuple[str, float], ...]:
    """Return the nine most probable labels."""
    order = (-chances).argsort(kind="stable")[:KEYS].tolist()
    return tuple((ledger.names[place], round(float(chances[place]), 4)) for place in order)


def _together(space: Space, rows: tuple[int, ...], unsure: Floats, covered: Floats) -> float:
    """Return the joint value of answers to some images."""
    chosen = np.zeros(len(space), bool)
    chosen[list(rows)] = True
    return float((unsure * np.maximum(coverage(space, chosen) - covered, 0)).sum())


def _example(ledger: Ledger, space: Space, row: int, label: str) -> int | None:
    """Return the answered image of a label that is most similar to an image."""
    known: Ints = np.flatnonzero(ledger.targets == ledger.find(label))
    return int(known[(space.directions[known] @ space.directions[row]).argmax()]) if len(known) else None
