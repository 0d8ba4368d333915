"""A simulated annotator, for measurements and tests: knows the labels, errs at a rate, takes seconds per action."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from labelwise.label.actions import Action
from labelwise.label.questions import SECONDS, Question, what_seconds
from labelwise.label.session import Session
from labelwise.support.errors import UsageError
from labelwise.support.rows import Draws

MAJORITY = 0.6  # share of a sheet that a person names it after; below, it is divided
MARK = 1.0  # seconds to mark an image that does not belong


@dataclass
class Person:
    """A simulated annotator who knows the labels."""

    truth: Sequence[str]  # the label of each image; "" is none of the labels
    mistakes: float = 0.0  # share of answers that are wrong
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.mistakes < 1:
            raise UsageError(f"The share of mistakes must be at least 0 and below 1; given {self.mistakes}.")
        self._draws = Draws(self.seed)
        self._labels = sorted(set(self.truth) - {""})

    def answer(self, question: Question, session: Session) -> list[Action]:
        """Return the actions that answer a question: a name for a sheet, and one action for each marked image."""
        if question.form == "sheet":
            return self._sheet(question)
        row = question.rows[0]
        seen = self._seen(row)
        if question.form == "yes":
            guess = question.suggestions[0][0]
            seconds = SECONDS["yes"]
            if seen == guess:
                return [self._name((row,), seen, question, seconds)]
            return [Action(kind="not", rows=(row,), label=guess, form="yes", guess=guess, seconds=seconds)]
        return [self._name((row,), seen, question, what_seconds(session.ledger))]

    def _sheet(self, question: Question) -> list[Action]:
        seen = [self._seen(row) for row in question.rows]
        label = max(dict.fromkeys(seen), key=seen.count)
        fits = tuple(row for row, one in zip(question.rows, seen, strict=True) if one == label)
        if len(fits) < MAJORITY * len(seen):
            return [Action(kind="split", rows=question.rows, form="sheet", seconds=SECONDS["sheet"])]
        odd = tuple(row for row in question.rows if row not in fits)
        actions = [self._name(fits, label, question, SECONDS["sheet"])]
        if odd and label:
            marked = Action(kind="not", rows=odd, label=label, form="sheet", seconds=MARK * len(odd))
            return [marked, *actions]
        return actions

    def _name(self, rows: tuple[int, ...], label: str, question: Question, seconds: float) -> Action:
        return Action(kind="name" if label else "unknown", rows=rows, label=label, form=question.form, seconds=seconds)

    def _seen(self, row: int) -> str:
        """Return the label of an image, or another one by mistake."""
        if self.mistakes and len(self._labels) > 1 and float(self._draws.uniform(1)[0]) < self.mistakes:
            others = [label for label in self._labels if label != self.truth[row]]
            return others[int(self._draws.integers(len(others), 1)[0])]
        return self.truth[row]


def simulate(
    session: Session, person: Person, *, sheets: bool = True, actions: int = 100
) -> Iterator[tuple[int, float]]:
    """Let a person answer questions; after each, yield the total actions and seconds.

    Each marked image on a sheet counts as an action.
    """
    taken, seconds = 0, 0.0
    while taken < actions and (question := session.question(sheets=sheets)) is not None:
        for action in person.answer(question, session):
            session.add(action)
            taken += len(action.rows) if action.kind == "not" and action.form == "sheet" else 1
            seconds += action.seconds
        yield taken, seconds


def accuracy(session: Session, truth: Sequence[str], among: Callable[[Session], np.ndarray] | None = None) -> float:
    """Return the accuracy of the best guesses, on all images or some ``[n]``."""
    if not session.names:
        return 0.0
    names = np.array(session.names)
    right = names[session.chances.argmax(1)] == np.array(truth)
    return float(right[among(session)].mean() if among else right.mean())
