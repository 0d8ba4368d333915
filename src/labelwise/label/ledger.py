"""The ledger: the state that the actions of a session add up to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from labelwise.images.describe.labels import find_name, label_name
from labelwise.label.actions import Action
from labelwise.label.guess import Answered
from labelwise.label.space import Ints
from labelwise.support.errors import UsageError, suggest

NO_LABEL, UNKNOWN = -1, -2
MOST_LABELS = 5_000  # limited, since memory holds a probability for each label and image
GAP, TIMES = 5, 3  # questions until a check is asked again, and how often it is asked at most


@dataclass
class Ledger:
    """The label of each image that has one, what is excluded, and the names of labels."""

    size: int  # how many images
    names: list[str] = field(default_factory=list)
    targets: Ints = field(init=False)  # the label of each image, NO_LABEL or UNKNOWN [n]
    batches: Ints = field(init=False)  # the number of the action that labelled each image [n]
    checks: dict[int, int] = field(default_factory=dict)  # images of the random stream, and the answers about them
    again: dict[int, tuple[int, list[int]]] = field(
        default_factory=dict
    )  # checks in doubt: when to ask again, answers so far
    slips: set[int] = field(default_factory=set)  # checks whose first answer was not the last one
    skipped: set[int] = field(default_factory=set)
    excluded: dict[int, set[int]] = field(default_factory=dict)  # labels that an image does not show
    split: list[frozenset[int]] = field(default_factory=list)  # images that are no group
    hits: list[bool] = field(default_factory=list)  # whether the guess was right, of each question that was asked
    sheets: list[tuple[int, int]] = field(
        default_factory=list
    )  # of each sheet, how many images fitted, and how many it had

    def __post_init__(self) -> None:
        self.targets = np.full(self.size, NO_LABEL, np.int64)
        self.batches = np.zeros(self.size, np.int64)

    def label(self, name: str) -> int:
        """Return the position of a label in any spelling; add a new name as a label."""
        known = find_name(name, self.names)
        if known is None:
            known = label_name(name)
            self.names.append(known)
        return self.names.index(known)

    def find(self, name: str) -> int:
        """Return the position of an existing label."""
        known = find_name(name, self.names)
        if known is None:
            raise UsageError(f'There is no label "{name}".{suggest(name, self.names)}')
        return self.names.index(known)

    def check(self, action: Action) -> None:
        """Raise an error if an action refers to unknown images or labels; change nothing."""
        wrong = [row for row in action.rows if not 0 <= row < self.size]
        if wrong:
            raise UsageError(f"There are images 0 to {self.size - 1}; given {wrong[0]}.")
        if action.kind == "merge" and self.find(action.label) == self.find(action.into):
            raise UsageError(f'"{action.label}" cannot become itself.')
        if (
            len(self.names) >= MOST_LABELS
            and action.kind in ("add", "name", "not")
            and find_name(action.label, self.names) is None
        ):
            raise UsageError(f"A session has at most {MOST_LABELS:,} labels. Merge some of them first.")

    def add(self, action: Action) -> None:
        """Apply an action."""
        rows = list(action.rows)
        if action.kind == "add":
            self.label(action.label)
        elif action.kind == "merge":
            self._merge(self.find(action.label), self.find(action.into))
        elif action.kind == "name":
            self._name(rows, self.label(action.label), action)
        elif action.kind == "unknown":
            self._name(rows, UNKNOWN, action)
        elif action.kind == "not":
            for row in rows:
                self.excluded.setdefault(row, set()).add(self.label(action.label))
        elif action.kind == "skip":
            self.skipped |= set(rows)
        elif action.kind == "split":
            self.split.append(frozenset(rows))
        if action.guess and action.kind in ("name", "unknown") and action.form in ("what", "yes", "check", "sheet"):
            self.hits.append(action.guess.casefold() == action.label.casefold())
        if action.form == "yes" and action.kind == "not":
            self.hits.append(False)
        if action.form == "sheet" and action.kind in ("name", "not", "split"):
            self.sheets.append((len(rows) if action.kind == "name" else 0, len(rows)))

    def answered(self) -> Answered:
        """Return the answers used for training, without checks, so that checks stay an unbiased sample."""
        known = self.targets >= 0
        known[list(self.checks)] = False
        rows = np.flatnonzero(known)
        return Answered(rows, self.targets[rows], len(self.names), self.batches[rows])

    def open_rows(self) -> np.ndarray:
        """Return which images may be asked about ``[n]``."""
        free = self.targets == NO_LABEL
        free[list(self.skipped | set(self.checks))] = False
        return np.asarray(free)

    def purity(self) -> float:
        """Return the mean share of images that fitted on the last sheets; the prior is two sheets with 9 of 10."""
        recent = [good / size for good, size in self.sheets[-10:]]
        return (2 * 0.9 + sum(recent)) / (2 + len(recent))

    def trust(self) -> float:
        """Return the recent accuracy of guesses about the images in questions; 0 at first."""
        recent = self.hits[-40:]
        return sum(recent) / (len(recent) + 2)

    def _name(self, rows: list[int], label: int, action: Action) -> None:
        self.batches[rows] = self.batches.max() + 1
        self.targets[rows] = label
        self.skipped -= set(rows)
        for row in rows:
            if action.form == "check":
                self._check_again(row, label, agrees=action.guess.casefold() == action.label.casefold())
            elif row in self.checks:
                self.again.pop(row, None)
            if action.form == "check" or row in self.checks:
                self.checks[row] = label

    def _check_again(self, row: int, label: int, *, agrees: bool) -> None:
        """Note that a check is to be asked again: slips of a person would count against the guesses.

        It is settled once an answer agrees with the hidden guess or with an earlier answer.
        """
        _, answers = self.again.pop(row, (0, list[int]()))
        if not agrees and label not in answers and len(answers) + 1 < TIMES:
            self.again[row] = (len(self.hits) + 1 + GAP, [*answers, label])
        elif answers and answers[0] != label:
            self.slips.add(row)

    def _merge(self, old: int, new: int) -> None:
        """Merge a label into another; later labels move up."""
        moved = [new - (new > old) if place == old else place - (place > old) for place in range(len(self.names))]
        known = self.targets >= 0
        self.targets[known] = np.array(moved)[self.targets[known]]
        self.checks = {row: moved[place] if place >= 0 else place for row, place in self.checks.items()}
        for _, answers in self.again.values():
            answers[:] = [moved[place] if place >= 0 else place for place in answers]
        self.excluded = {row: {moved[place] for place in places} for row, places in self.excluded.items()}
        for row in np.flatnonzero(self.targets == moved[old]).tolist():
            self.excluded.get(row, set()).discard(moved[old])
        del self.names[old]


def ledger_of(size: int, names: Sequence[str], actions: Iterable[Action]) -> Ledger:
    """Build the ledger of actions, without those that were undone."""
    listed = list(actions)
    back = taken_back(listed)
    ledger = Ledger(size)
    for name in names:
        ledger.label(name)
    for place, action in enumerate(listed):
        if place not in back and action.kind != "undo":
            ledger.check(action)
            ledger.add(action)
    return ledger


def taken_back(actions: Sequence[Action]) -> set[int]:
    """Return the positions of undone actions; undoing an undo restores the action."""
    back: set[int] = set()
    for place in reversed(range(len(actions))):
        if actions[place].kind == "undo" and place not in back:
            back.add(actions[place].of)
    return back
