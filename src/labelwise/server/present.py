"""The classifier of a service: it never changes, it is replaced. Readers take the present one and never wait."""

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from labelwise.core.classifier import Classifier
from labelwise.core.description import digest_of
from labelwise.core.store import load, save
from labelwise.server.database import Database
from labelwise.server.lessons import UNDO, Change, Source, State, cuts_of, joined, lesson_of, regained, without
from labelwise.server.records import Records, UnavailableError
from labelwise.server.refusals import LATER, Refusal, check_label
from labelwise.server.settings import is_address
from labelwise.support.errors import UsageError

MOST_TAUGHT = 10_000


def folder_of(model: Path) -> Path:
    """Return where the changes of a saved classifier are kept: ``birds.lw.taught`` beside ``birds.lw``."""
    whole = model.resolve()
    return whole.with_name(f"{whole.name}.taught")


def open_records(model: Path, state: str | None = None, *, read_only: bool) -> Records:
    """Return the changes of a saved classifier: beside it, in another folder, or in PostgreSQL by its address."""
    digest = digest_of(model)
    if state is None or not is_address(state):
        return Database(folder_of(model) if state is None else Path(state), digest, read_only=read_only)
    try:
        from labelwise.server.postgres import Postgres
    except ImportError:
        raise UsageError('PostgreSQL needs psycopg: pip install "labelwise[postgres]".') from None

    def former() -> State:
        with closing(Database(folder_of(model), digest, read_only=True)) as beside:
            return beside.read(State())

    return Postgres(state, digest, read_only=read_only, former=former)


@dataclass(frozen=True, eq=False)
class Served:
    """What readers see: one classifier and how it came about, always of one piece."""

    classifier: Classifier
    state: State

    @property
    def change(self) -> int:
        """How many changes there were."""
        return self.state.change


class Present:
    """The saved classifier, the one served now as far as this process knows, and the changes that replace it; for all threads."""

    def __init__(self, base: Classifier, model: Path, *, state: str | None = None, read_only: bool = False) -> None:
        self.base = base
        self.served = self._former = Served(base, State())  # and what was served before, to which an undo goes back
        self._lock = threading.Lock()
        with ExitStack() as opened:
            self.database = opened.enter_context(closing(open_records(model, state, read_only=read_only)))
            # of the thread that asks for the version
            self._watch = opened.enter_context(closing(open_records(model, state, read_only=True)))
            self.read()
            opened.pop_all()

    @property
    def remote(self) -> bool:
        """Whether it takes a message to another process to ask for the version."""
        return self.database.remote

    def behind(self) -> bool:
        """Return whether another process has changed the labels; in one thread alone."""
        return self._watch.version() != self.served.change

    def cut(self) -> None:
        """Let a look of another thread at the version fail that takes too long."""
        self._watch.cut()

    def read(self) -> Served:
        """Return the present classifier, with every change that any process has acknowledged."""
        with self._lock:
            return self._catch_up()

    def teach(self, label: str, source: Source, task: Callable[[Classifier], Classifier]) -> Served:
        """Add a label by a task, given the present classifier; return what is served then."""

        def step(now: Served) -> Served:
            if label in now.classifier.labels.names:
                raise Refusal(409, f'There is already a label "{label}". Forget it first, or choose another name.')
            if len(now.state.taught) >= MOST_TAUGHT:
                raise Refusal(409, f"{MOST_TAUGHT} labels are taught already, and no more can be. Forget some first.")
            taught = task(now.classifier)
            return Served(taught, now.state.teach(lesson_of(now.classifier, taught, source)))

        return self._change(step)[1]

    def forget(self, label: str) -> Served:
        """Remove a label and return what is served then."""

        def step(now: Served) -> Served:
            check_label(now.classifier, label)
            if len(now.classifier.labels) == 1:
                raise Refusal(
                    409, f'"{label}" is the only label; a classifier needs at least one. Teach another first.'
                )
            return self._follow(now.state.forget(label))

        return self._change(step)[1]

    def undo(self) -> tuple[Change, Served]:
        """Take back the last change; return it and what is served then."""

        def step(now: Served) -> Served:
            if not now.state.undoable:
                raise Refusal(409, f"There is nothing to undo; the last {UNDO} changes can be taken back.")
            return self._follow(now.state.undo())

        before, served = self._change(step)
        return before.state.undoable[-1], served

    def close(self) -> None:
        """Let go of the database."""
        self._watch.close()
        self.database.close()  # the last one to close tidies up

    def _change(self, step: Callable[[Served], Served]) -> tuple[Served, Served]:
        """Do one step in one transaction and return what was served before and is then; until it is on disk, nobody sees it."""
        with self._lock:
            try:
                with self.database.transaction():
                    before = self._catch_up()
                    after = step(before)
                    self.database.write(before.state, after.state)
            except UnavailableError as error:
                raise Refusal(503, str(error), LATER) from error
            self._former, self.served = before, after
            return before, after

    def _catch_up(self) -> Served:
        state = self.database.read(self.served.state)
        if state is not self.served.state:
            self._former, self.served = self.served, self._follow(state)
        return self.served

    def _follow(self, state: State) -> Served:
        """Return the classifier of a state: the present one with rows more or less where labels were only added, or one is gone."""
        now, classifier, lessons = self.served, self.served.classifier, self.served.state.taught
        if state.knows_as(self._former.state):
            return Served(self._former.classifier, state)
        if state.follows(now.state):
            return Served(joined(classifier, frozenset(), state.taught[len(lessons) :]), state)
        labels, gone = classifier.labels, state.forgotten - now.state.forgotten
        if state.taught and not regained(self.base.labels, labels, state.taught):
            if (place := state.lacks(now.state)) is not None:
                column = len(labels) - len(lessons) + place
                return Served(without(classifier, column, cuts_of(classifier, lessons, place)), state)
            if state.taught == lessons and len(gone) == 1 and now.state.forgotten < state.forgotten:
                return Served(without(classifier, labels.index(*gone), {}), state)
        return Served(joined(self.base, state.forgotten, state.taught), state)


def bake(model: Path, out: Path, state: str | None = None) -> str:
    """Write the classifier of a model with all its changes to a folder; return what was done, in words."""
    present = Present(load(model), model, state=state, read_only=True)
    present.close()
    served = present.served
    save(served.classifier, out)
    return (
        f"{out}: {len(served.classifier.labels)} labels, {len(served.state.taught)} of them taught; "
        f"{len(served.state.forgotten)} of the trained ones forgotten."
    )
