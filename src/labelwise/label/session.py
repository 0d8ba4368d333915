"""A labelling session: unlabelled images, a person's actions, and the labels inferred from them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.label.actions import Action
from labelwise.label.engine import Engine
from labelwise.label.grouping import group_images
from labelwise.label.ledger import NO_LABEL, UNKNOWN, Ledger, ledger_of, taken_back
from labelwise.label.progress import FEWEST, Progress, answers_for_a_point, sure_share, told
from labelwise.label.questions import Question, choose
from labelwise.label.space import Floats, Space, make_space
from labelwise.support.errors import UsageError
from labelwise.support.rows import Draws

CHECKS = 0.1  # of the questions: those of the random stream
ONE_GROUP = 6  # images of none of the labels, below which they are one group
PRECISION = 0.95  # that guesses above the threshold are to have


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """The label of one image."""

    label: str  # "" if there is none
    probability: float
    source: str  # person, guess, or none


class Session:
    """Label images with few answers: ask ``question()``, ``add`` the action, read ``labels()``.

    >>> session = Session(features, seed=1)
    >>> question = session.question()
    >>> session.name(question.rows, "robin")
    """

    def __init__(
        self,
        features: npt.NDArray[Any] | Space,
        names: Sequence[str] = (),
        *,
        actions: Iterable[Action] = (),
        checks: float = CHECKS,
        seed: int = 0,
        hidden: Iterable[int] = (),
    ) -> None:
        """Start a session, or resume one.

        Args:
            features: of all images ``[n, d]``, or the space of an earlier session.
            names: labels known in advance.
            actions: of a session to resume.
            checks: share of the questions that go to the random stream.
            seed: of the random stream.
            hidden: images that cannot be shown, so never asked about.
        """
        if not 0 <= checks < 1:
            raise UsageError(f"The share of checks must be at least 0 and below 1; given {checks}.")
        self.space = features if isinstance(features, Space) else make_space(features)
        self.names_at_start, self.checks = tuple(names), checks
        self.actions, self.hidden = list(actions), frozenset(hidden)
        self._stream = Draws(seed).permutation(len(self.space)).tolist()
        self._engine = Engine(self.space)
        self._history: list[tuple[int, float]] = []
        self.ledger = self._read(self.actions)
        self._chances: Floats | None = None

    def __len__(self) -> int:
        return len(self.space)

    @property
    def names(self) -> list[str]:
        """The labels."""
        return list(self.ledger.names)

    @property
    def chances(self) -> Floats:
        """The probability of each label of each image ``[n, k]``."""
        if self._chances is None:
            self._chances = self._engine.update(self.ledger)
            open_rows = self.ledger.open_rows()
            if self._chances.shape[1] and open_rows.any():
                answers = len(self.ledger.answered().rows)
                self._history.append((answers, float(self._chances[open_rows].max(1).mean())))
        return self._chances

    def question(self, *, sheets: bool = True, busy: Iterable[int] = (), check: bool = False) -> Question | None:
        """Return the next question, or None if every image has an answer.

        Args:
            sheets: whether to ask about several images at once.
            busy: images in open questions of other people.
            check: whether to ask about the next random image.
        """
        others = self.hidden | frozenset(busy)
        if (row := self._due(others, now=check)) is not None:
            return Question(form="check", rows=(row,), again=row in self.ledger.checks)
        return choose(self.space, self.ledger, self.chances, others, sheets=sheets)

    def add(self, action: Action) -> Action:
        """Apply an action and return it for storage; an invalid action raises an error and changes nothing."""
        if action.kind == "undo":
            return self._undo(action)
        self.ledger.check(action)
        if action.kind in ("name", "unknown") and not action.guess and action.form != "hand":
            action = replace(action, guess=self._guess_of(action.rows))
        self.actions.append(action)
        self.ledger.add(action)
        self._chances = None
        return action

    def name(self, rows: Iterable[int], label: str) -> Action:
        """Answer that images show a label."""
        return self.add(Action(kind="name", rows=tuple(map(int, rows)), label=label))

    def undo(self, person: str = "") -> Action | None:
        """Undo the last action, optionally of one person; return it, or None if there is none."""
        back = taken_back(self.actions)
        for place in reversed(range(len(self.actions))):
            action = self.actions[place]
            if action.kind != "undo" and place not in back and (not person or action.person == person):
                self._undo(Action(kind="undo", of=place, person=person))
                return action
        return None

    def restore(self, actions: Sequence[Action]) -> None:
        """Restore the session from these actions."""
        ledger = self._read(actions)
        self.actions, self.ledger, self._chances = list(actions), ledger, None

    def labels(self, precision: float = PRECISION, *, min_probability: float | None = None) -> list[Labelled]:
        """Return the label of each image: an answer, or a guess that is probable enough.

        Args:
            precision: share of guesses to be right. Random images show which guesses reach it; until then, no guess counts.
            min_probability: of a guess, instead of a share that is shown to be right.
        """
        if min_probability is not None and not 0 <= min_probability <= 1:
            raise UsageError(f"The least probability must be between 0 and 1; given {min_probability}.")
        chances, targets = self.chances, self.ledger.targets
        limit = self.threshold(precision) if min_probability is None else min_probability
        best = chances.argmax(1) if chances.shape[1] else None
        listed = []
        for row, target in enumerate(targets.tolist()):
            if target >= 0:
                listed.append(Labelled(label=self.ledger.names[target], probability=1.0, source="person"))
            elif target == UNKNOWN or best is None or chances[row, best[row]] < limit:
                top = 0.0 if best is None or target == UNKNOWN else float(chances[row, best[row]])
                listed.append(Labelled(label="", probability=top, source="person" if target == UNKNOWN else "none"))
            else:
                top = float(chances[row, best[row]])
                listed.append(Labelled(label=self.ledger.names[best[row]], probability=top, source="guess"))
        return listed

    def unknown_groups(self) -> list[tuple[int, ...]]:
        """Return the images that show none of the labels, in groups of look-alikes: the largest first, its most typical image first.

        Name a group and it becomes a label: ``session.name(session.unknown_groups()[0], "okapi")``.
        """
        rows = np.flatnonzero(self.ledger.targets == UNKNOWN)
        if not len(rows):
            return []
        groups = group_images(self.space.directions[rows], None if len(rows) >= ONE_GROUP else 1)
        return [tuple(rows[inside].tolist()) for inside in groups]

    def threshold(self, precision: float = PRECISION) -> float:
        """Return the probability threshold above which guesses reach the precision, by checks; above 1 if there is none."""
        return self._sure(precision)[0]

    def _sure(self, precision: float) -> tuple[float, int | None]:
        """Return the threshold, and the number of missing checks if there is none."""
        free = self.ledger.targets == NO_LABEL
        if not self.chances.shape[1] or not free.any() or not 0 < precision < 1:
            return 1.1, None
        rows = np.array(list(self.ledger.checks), np.int64)
        return sure_share(self.chances[rows].max(1), self._right(), self.chances[free].max(1), precision)

    def progress(self) -> Progress:
        """Return the progress of the session, and the accuracy of its guesses."""
        right, waiting = self._right(), self.ledger.again
        n, hits, slips = len(right), int(right.sum()), len(self.ledger.slips)
        again = [
            len(waiting[row][1])
            for row, hit in zip(self.ledger.checks, right, strict=True)
            if not hit and row in waiting
        ]
        shown = told(hits, again, n - len(again), slips, len(self.names)) if n else None
        targets, (limit, missing) = self.ledger.targets, self._sure(PRECISION)
        free = targets == NO_LABEL
        sure = int((self.chances[free].max(1) >= limit).sum()) if self.chances.shape[1] else 0
        more, answers = answers_for_a_point(self._history), len(self.ledger.answered().rows)
        return Progress(
            images=len(self),
            answered=int((~free).sum()),
            sure=sure,
            missing=missing,
            checks=n,
            slips=slips,
            accuracy=shown[0] if shown else None,
            low=shown[1] if shown else 0.0,
            high=shown[2] if shown else 1.0,
            more=more,
            stop=n >= FEWEST and (more is None or more > max(100, answers)),
        )

    def _right(self) -> np.ndarray:
        """Return which guesses about images of the random stream are right ``[c]``."""
        rows, targets = (np.array(list(part), np.int64) for part in (self.ledger.checks, self.ledger.checks.values()))
        return self.chances[rows].argmax(1) == targets if self.chances.shape[1] else np.zeros(len(rows), bool)

    def _due(self, busy: frozenset[int], *, now: bool) -> int | None:
        """Return the next image of the random stream if one is due; an earlier one where answer and guess differ comes first."""
        questions = len(self.ledger.hits)
        for row, (when, _) in self.ledger.again.items():
            if row not in busy and when <= questions:
                return row
        late = len(self.ledger.checks) < self.checks * (len(self.ledger.hits) + 1) - 1e-9
        if not (late or now) or not len(self.ledger.answered().rows):
            return None
        free = self.ledger.open_rows()
        return next((row for row in self._stream if free[row] and row not in busy), None)

    def _guess_of(self, rows: tuple[int, ...]) -> str:
        """Return the guessed label of the images."""
        if not self.chances.shape[1] or not len(self.ledger.answered().rows):
            return ""
        return self.ledger.names[int(self.chances[list(rows)].mean(0).argmax())]

    def _undo(self, action: Action) -> Action:
        if not 0 <= action.of < len(self.actions):
            raise UsageError(f"There is no action {action.of} to undo.")
        self.restore([*self.actions, action])
        return action

    def _read(self, actions: Sequence[Action]) -> Ledger:
        return ledger_of(len(self.space), self.names_at_start, actions)
