"""The classifier of a service: it never changes, it is replaced. Readers take the present one and never wait."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelwise.core import Classifier
from labelwise.errors import StoreError, UsageError
from labelwise.server.journal import Journal
from labelwise.server.lessons import UNDO, Change, Lesson, Story, classifier_after, follow, shortened
from labelwise.server.refusals import Refusal

SLACK = 100  # superfluous records that a journal may have
MOST_TAUGHT = 10_000


def journal_folder(model: Path) -> Path:
    """Return where the changes of a saved classifier are kept: ``birds.lw.taught`` beside ``birds.lw``."""
    whole = model.resolve()
    return whole.with_name(f"{whole.name}.taught")


def hold(folder: Path) -> int:
    """Return an open lock that says this service alone changes the model; raise an error where another one does."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "service.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(lock, 32).decode(errors="replace").strip()
        os.close(lock)
        raise StoreError(
            f"Another service (process {owner or 'unknown'}) serves this model and keeps its changes in {folder}. Stop it, "
            "start this one with --read-only, or serve a copy of the model."
        ) from None
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock


@dataclass(frozen=True, eq=False)
class Served:
    """What readers see: one classifier and how it came about, always of one piece."""

    classifier: Classifier
    story: Story

    @property
    def change(self) -> int:
        """How many changes there were."""
        return self.story.change


class Changing:
    """The present classifier, and the changes that replace it; shared by the threads of a process.

    Attributes:
        base: the saved classifier.
        journal: where changes are kept.
    """

    def __init__(self, base: Classifier, journal: Journal) -> None:
        self.base, self.journal = base, journal
        self._served = Served(base, Story())
        self._catching = threading.Lock()  # held while the journal is read
        self._changing = threading.Lock()  # held by the one thread that writes
        self._own = False  # what is new in the journal is what this process is writing

    def present(self) -> Served:
        """Return the present classifier, with every change that any process has acknowledged."""
        if self.journal.changed() and not self._own:
            self._catch_up()
        return self._served

    def peek(self) -> Served:
        """Return the classifier as this process knows it, without a look at the journal."""
        return self._served

    def restore(self) -> Path | None:
        """Set aside what a killed writer left half written, if it did; return where."""
        with self.journal.writing():
            self._catch_up()
            aside = self.journal.repair()
            self._catch_up()
            return aside

    def teach(self, lesson: Callable[[Classifier], Lesson]) -> Served:
        """Add a label and return what is served then; ``lesson`` makes it against the present labels."""

        def record(now: Served) -> dict[str, Any]:
            if len(now.story.state.taught) >= MOST_TAUGHT:
                raise Refusal(409, f"{MOST_TAUGHT} labels are taught already, and no more can be. Forget some first.")
            return {"action": "teach", "lesson": lesson(now.classifier).plain()}

        return self._change(record)

    def forget(self, label: str) -> Served:
        """Remove a label and return what is served then."""

        def record(now: Served) -> dict[str, Any]:
            check_known(now.classifier, label)
            if len(now.classifier.labels) == 1:
                raise Refusal(
                    409, f'"{label}" is the only label; a classifier needs at least one. Teach another first.'
                )
            return {"action": "forget", "label": label}

        return self._change(record)

    def undo(self) -> tuple[Change, Served]:
        """Take back the last change; return it and what is served then."""
        undone: list[Change] = []

        def record(now: Served) -> dict[str, Any]:
            if not now.story.undoable:
                raise Refusal(409, f"There is nothing to undo; the last {UNDO} changes can be taken back.")
            undone.append(now.story.undoable[-1])
            return {"action": "undo"}

        served = self._change(record)
        return undone[-1], served

    def _change(self, make: Callable[[Served], Mapping[str, Any]]) -> Served:
        """Write one record and then serve what follows from it. Until it is on disk, readers see what was before."""
        with self._changing, self.journal.writing():
            self._catch_up()
            self.journal.repair()
            now = self._served
            record = {**make(now), "change": now.change + 1}
            story = follow(now.story, record)
            after = Served(classifier_after(self.base, story.state), story)
            self._own = True
            try:
                with self._catching:
                    self._write(record, story)
                    self._served = after
            finally:
                self._own = False
            return after

    def _write(self, record: Mapping[str, Any], story: Story) -> None:
        """Put a record on disk, and the journal in short where it has become too long."""
        try:
            self.journal.append(record)
        except OSError as error:
            raise Refusal(503, f"The change could not be written ({error.strerror}); nothing was changed.") from error
        live = len(story.state.taught) + len(story.state.forgotten) + len(story.undoable)
        if self.journal.records > 2 * live + SLACK:
            with contextlib.suppress(OSError):  # the long one is as good, and the next change tries again
                self.journal.replace(shortened(story))

    def _catch_up(self) -> None:
        with self._catching:
            tail = self.journal.read()
            if not tail.records and not tail.anew:
                return
            story = Story() if tail.anew else self._served.story
            for record in tail.records:
                story = follow(story, record)
            self._served = Served(classifier_after(self.base, story.state), story)


def check_known(classifier: Classifier, label: str) -> int:
    """Return the position of a label, or refuse with the known ones."""
    try:
        return classifier.labels.index(label)
    except UsageError as error:
        raise Refusal(404, str(error)) from None


def check_new(classifier: Classifier, label: str) -> None:
    """Refuse a label that is already there."""
    if label in classifier.labels.names:
        raise Refusal(409, f'There is already a label "{label}". Forget it first, or choose another name.')
