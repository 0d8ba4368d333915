"""The classifier that a service answers with. It is replaced, never altered: readers take the current one and do not wait.

The work for a change (encoding, the new label's rows) is done before the transaction. Within it only the state is looked at, and its
answer is made of what was committed: whatever happens afterwards, a committed change is answered with success.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from labelwise.core.classifier import Classifier
from labelwise.core.load import digest_of, load
from labelwise.core.store import save
from labelwise.images.describe.labels import find_name
from labelwise.server.changes import Source, State, correct_record, follow, forget_record, teach_record, undo_record
from labelwise.server.errors import LATER, HTTPError, known_label
from labelwise.server.settings import is_address
from labelwise.server.store import News, Position, Record, Store, UnavailableError
from labelwise.support.errors import StoreError

LOG = logging.getLogger("labelwise.server")
MOST_TAUGHT = 10_000  # labels and corrections
MOST_BYTES = 512_000_000  # of what they hold: 1,560 labels of 64 images each with the default encoder
TRIES = 5  # of a correction that others of the same label overtake


def folder_of(model: Path) -> Path:
    """Return the folder of a saved classifier's changes: ``birds.lw.taught`` beside ``birds.lw``."""
    whole = model.resolve()
    return whole.with_name(f"{whole.name}.taught")


def open_store(model: Path, state: str | None = None, *, read_only: bool = False) -> Store:
    """Return the history of a saved classifier's changes: beside it, in another folder, or in PostgreSQL by its address."""
    place: str | Path = folder_of(model) if state is None else state if is_address(state) else Path(state)
    return Store(place, digest_of(model), read_only=read_only)


@dataclass(frozen=True)
class Seen:
    """What an answer has seen: the last change, and for how many seconds there may have been others."""

    change: int
    away: float = 0.0


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A classifier, and the state of the changes that it follows from."""

    classifier: Classifier
    state: State
    position: Position
    away: float = 0.0  # for how many seconds the store had not answered when it was asked for

    @property
    def change(self) -> int:
        """The number of the last change."""
        return self.position.number

    @property
    def seen(self) -> Seen:
        """What an answer from it has seen."""
        return Seen(self.change, self.away)


@dataclass(frozen=True)
class Committed:
    """A change that is on disk."""

    change: int
    labels: int  # how many there are since
    label: str
    undone: str  # what was undone: teach or forget


class LiveClassifier:
    """The saved classifier, the one that answers now, and the changes in between; for all threads."""

    def __init__(self, base: Classifier, model: Path, *, state: str | None = None, read_only: bool = False) -> None:
        self.base = base
        self.store = open_store(model, state, read_only=read_only)
        self.snapshot = Snapshot(base, State(), Position())
        self._misfit: StoreError | None = None  # why the history cannot be followed: nothing is added to such a one
        self._lock = threading.Lock()  # held while the snapshot is replaced
        try:
            self.read()
        except BaseException:
            self.close()
            raise

    def read(self) -> Snapshot:
        """Return the classifier with every change that any process has acknowledged."""
        while True:
            before = self.snapshot
            news = self.store.read(before.position)
            try:
                done = news is None or self._advance(before, news)
            except StoreError as error:
                self._misfit = error
                raise
            if done:
                self._misfit = None
                return self.snapshot

    def teach(
        self, label: str, source: Source, task: Callable[[Classifier], Classifier], examples: int = 0
    ) -> Committed:
        """Add a label by a task, given the current classifier; from images these are ``examples`` many."""
        before = self.snapshot
        if known := before.classifier.labels.find(label):
            raise _taken(known)
        taught = task(before.classifier)
        record = teach_record(before.classifier, taught, source, examples)

        def step(state: State) -> Record:
            if known := find_name(label, state.names(self.base)):
                raise _taken(known)
            return _allowed(state, record)

        return self._change(before, step, taught)

    def correct(self, label: str, task: Callable[[Classifier], Classifier], examples: int) -> Committed:
        """Let a known label learn from more images by a task, given the current classifier."""
        for _ in range(TRIES):
            before = self.snapshot
            known = known_label(before.classifier, label)
            at = before.state.last_of(known)
            taught = task(before.classifier)
            record = correct_record(before.classifier, taught, known, examples)

            def step(state: State, known: str = known, at: int = at, record: Record = record) -> Record:
                if known not in state.names(self.base):
                    raise HTTPError(404, f'No label "{known}".')
                if state.last_of(known) != at:  # what it learned meanwhile would be lost
                    raise _OutdatedError
                return _allowed(state, record)

            try:
                return self._change(before, step, taught)
            except _OutdatedError:
                with _refusals():
                    self.read()
        raise HTTPError(409, f'"{label}" is being changed by others. Ask again in a moment.')

    def forget(self, label: str) -> Committed:
        """Remove a label."""
        return self._change(self.snapshot, lambda state: forget_record(state, self.base, label))

    def undo(self) -> Committed:
        """Undo the last change."""
        return self._change(self.snapshot, undo_record)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def _change(self, before: Snapshot, step: Callable[[State], Record], taught: Classifier | None = None) -> Committed:
        """Do a change of a snapshot; ``taught`` is the classifier that follows, if nothing else has changed meanwhile."""

        def after(news: News, number: int | None = None) -> State:
            state = State() if news.whole else before.state
            return state.after(one for one in news.records if number is None or one.number <= number)

        with _refusals():
            if self._misfit is not None:
                raise self._misfit
            news, own = self.store.change(before.position, lambda news: step(after(news)))
        labels = len(after(news, own.number).names(self.base))
        committed = Committed(own.number, labels, own.label, str(own.about.get("undone", "")))
        try:
            self._advance(before, news, taught if len(news.records) == 1 and not news.whole else None)
        except Exception:  # the change is on disk: the next look follows it, or reports why it cannot
            LOG.exception("change %s is committed, and cannot be followed", own.number)
        return committed

    def _advance(self, before: Snapshot, news: News, classifier: Classifier | None = None) -> bool:
        """Replace the snapshot by the one after news of it; return False where another thread has replaced it meanwhile.

        ``classifier`` is the one that follows, where it is known: its new rows are not copied again.
        """
        with self._lock:
            if self.snapshot is not before:
                return False
            if news.whole and before.position.number:
                LOG.warning("The history of changes is another one than before: all of it is read again.")
            state = (State() if news.whole else before.state).after(news.records)
            if classifier is None:
                classifier = follow(self.base, before.classifier, before.state, state)
            self.snapshot = Snapshot(classifier, state, news.position)
            return True


@contextmanager
def _refusals() -> Iterator[None]:
    """Refuse a change with 503 where the store cannot be used; where it lies is not said."""
    try:
        yield
    except StoreError as error:
        LOG.error("a change was refused: %s", error)
        text = "The store of changes is damaged or belongs to another model; nothing was changed. The log says more."
        if isinstance(error, UnavailableError):
            text = f"The store of changes does not answer; {error.outcome}."
        raise HTTPError(503, text, LATER) from error


class _OutdatedError(Exception):
    """A label was changed while more examples of it were learned."""


def _allowed(state: State, record: Record) -> Record:
    """Return a change that teaches, or refuse it where there are too many or too large ones: each is kept in memory."""
    if len(state.added) >= MOST_TAUGHT:
        raise HTTPError(
            409, f"{MOST_TAUGHT} labels and corrections are stored already, and no more can be. Forget some first."
        )
    if sum(one.nbytes for one in state.added) + record.nbytes > MOST_BYTES:
        size = f"{MOST_BYTES / 1e6:,.0f} MB"
        raise HTTPError(
            409, f"What was taught fills the {size} that it may have. Forget some labels, or teach from fewer images."
        )
    return record


def _taken(label: str) -> HTTPError:
    return HTTPError(409, f'There is already a label "{label}". Forget it first, or choose another name.')


def bake(model: Path, out: Path, state: str | None = None) -> str:
    """Write the classifier of a model with all its changes to a folder; return what was done, in words."""
    with closing(LiveClassifier(load(model), model, state=state, read_only=True)) as live:
        snapshot = live.snapshot
    save(snapshot.classifier, out)
    return (
        f"{out}: {len(snapshot.classifier.labels)} labels, {len(snapshot.state.taught)} of them taught; "
        f"{len(snapshot.state.forgotten)} of the trained ones forgotten."
    )
