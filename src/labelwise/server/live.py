"""The current classifier of a service. Changes replace it and never alter it, so readers need not wait.

The work for a change (encoding, computing rows) happens before the transaction, which only checks the state. A committed change
is always answered with success, whatever happens afterwards.
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
MOST_BYTES = 512_000_000  # of what they hold: 5,200 labels of 64 images each where an embedding has 384 numbers
TRIES = 5  # attempts of a correction when others change the same label first


def folder_of(model: Path) -> Path:
    """Return the folder of a saved classifier's changes: ``birds.lw.taught`` next to ``birds.lw``."""
    whole = model.resolve()
    return whole.with_name(f"{whole.name}.taught")


def open_store(model: Path, state: str | None = None, *, read_only: bool = False) -> Store:
    """Open the history of a saved classifier's changes: next to it, in another folder, or in PostgreSQL."""
    place: str | Path = folder_of(model) if state is None else state if is_address(state) else Path(state)
    return Store(place, digest_of(model), read_only=read_only)


@dataclass(frozen=True)
class Seen:
    """How current an answer is: the last change it includes, and for how many seconds others may have been missed."""

    change: int
    away: float = 0.0


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A classifier, and the state of changes that led to it."""

    classifier: Classifier
    state: State
    position: Position
    away: float = 0.0  # seconds without an answer from the store at the time of the request

    @property
    def change(self) -> int:
        """The number of the last change."""
        return self.position.number

    @property
    def seen(self) -> Seen:
        """How current an answer from it is."""
        return Seen(self.change, self.away)


@dataclass(frozen=True)
class Committed:
    """A change that is on disk."""

    change: int
    labels: int  # number of labels after the change
    label: str
    undone: str  # teach or forget


class LiveClassifier:
    """The saved classifier, the current one, and the changes in between; safe to use from all threads."""

    def __init__(self, base: Classifier, model: Path, *, state: str | None = None, read_only: bool = False) -> None:
        self.base = base
        self.store = open_store(model, state, read_only=read_only)
        self.snapshot = Snapshot(base, State(), Position())
        self._misfit: StoreError | None = None  # why the history cannot be applied; it then takes no changes
        self._lock = threading.Lock()  # held while the snapshot is replaced
        try:
            self.read()
        except BaseException:
            self.close()
            raise

    def read(self) -> Snapshot:
        """Return the classifier with every change that any process acknowledged."""
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
        """Add a label by calling ``task`` with the current classifier; ``examples`` is the number of images."""
        before = self.snapshot
        if before.classifier.labels.find(label):
            before = self._current()
        if known := before.classifier.labels.find(label):
            raise _taken(known)
        taught = task(before.classifier)
        record = teach_record(before.classifier, taught, source, examples)

        def step(state: State) -> Record:
            if known := find_name(label, state.names(self.base)):
                raise _taken(known)
            return _allowed(state, record)

        return self._change(before, step, taught)

    def correct(self, label: str, task: Callable[[Classifier, str], Classifier], examples: int) -> Committed:
        """Teach a known label more images by calling ``task`` with the current classifier and its spelling of the label."""
        for _ in range(TRIES):
            before, known = self._known(label)
            at = before.state.last_of(known)
            taught = task(before.classifier, known)
            record = correct_record(before.classifier, taught, known, examples)

            def step(state: State, known: str = known, at: bytes = at, record: Record = record) -> Record:
                if known not in state.names(self.base):
                    raise HTTPError(404, f'No label "{known}".')
                if state.last_of(known) != at:  # a concurrent change would be lost
                    raise _OutdatedError
                return _allowed(state, record)

            try:
                return self._change(before, step, taught)
            except _OutdatedError:
                self._current()
        raise HTTPError(409, f'Others are changing "{label}". Try again in a moment.')

    def forget(self, label: str) -> Committed:
        """Remove a label."""
        before, known = self._known(label)
        return self._change(before, lambda state: forget_record(state, self.base, known))

    def undo(self) -> Committed:
        """Undo the last change."""
        return self._change(self.snapshot, undo_record)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def _known(self, label: str) -> tuple[Snapshot, str]:
        """Return the snapshot and its spelling of a label; an unknown label is refused only after another look at the store."""
        before = self.snapshot
        if before.classifier.labels.find(label) is None:
            before = self._current()
        return before, known_label(before.classifier, label)

    def _current(self) -> Snapshot:
        """Return the snapshot with every acknowledged change, or refuse: what may be out of date is no reason to say no."""
        with _refusals():
            return self.read()

    def _change(self, before: Snapshot, step: Callable[[State], Record], taught: Classifier | None = None) -> Committed:
        """Commit a change to a snapshot; ``taught`` is the resulting classifier, unless there were other changes."""

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
        except Exception:  # the change is on disk: the next look applies it, or reports why it cannot
            LOG.exception("change %s is committed but cannot be applied", own.number)
        return committed

    def _advance(self, before: Snapshot, news: News, classifier: Classifier | None = None) -> bool:
        """Apply new changes to the snapshot; return False if another thread replaced it first.

        ``classifier`` is the result if it is already known, which avoids copying its new rows.
        """
        with self._lock:
            if self.snapshot is not before:
                return False
            if news.whole and before.position.number:
                LOG.warning("The history of changes was replaced: reading all of it.")
            state = (State() if news.whole else before.state).after(news.records)
            if classifier is None:
                classifier = follow(self.base, before.classifier, before.state, state)
            self.snapshot = Snapshot(classifier, state, news.position)
            return True


@contextmanager
def _refusals() -> Iterator[None]:
    """Refuse a change with 503 if the store is unusable, without revealing its location."""
    try:
        yield
    except StoreError as error:
        LOG.error("a change was refused: %s", error)
        text = "The store of changes is damaged or belongs to another model; nothing was changed. See the log."
        if isinstance(error, UnavailableError):
            text = f"The store of changes does not answer; {error.outcome}."
        raise HTTPError(503, text, LATER) from error


class _OutdatedError(Exception):
    """Another change to the label came first."""


def _allowed(state: State, record: Record) -> Record:
    """Return a change that teaches, or refuse it where there are too many or too large ones: each is kept in memory."""
    if len(state.added) >= MOST_TAUGHT:
        raise HTTPError(409, f"The limit of {MOST_TAUGHT} taught labels and corrections is reached. Forget some first.")
    if sum(one.nbytes for one in state.added) + record.nbytes > MOST_BYTES:
        size = f"{MOST_BYTES / 1e6:,.0f} MB"
        raise HTTPError(
            409, f"What was taught fills the {size} that it may have. Forget some labels, or teach from fewer images."
        )
    return record


def _taken(label: str) -> HTTPError:
    return HTTPError(409, f'The label "{label}" already exists. Forget it first, or choose another name.')


def bake(model: Path, out: Path, state: str | None = None) -> str:
    """Write a classifier with all its changes to a folder; return a summary."""
    with closing(LiveClassifier(load(model), model, state=state, read_only=True)) as live:
        snapshot = live.snapshot
    save(snapshot.classifier, out)
    return (
        f"{out}: {len(snapshot.classifier.labels)} labels, {len(snapshot.state.taught)} of them taught; "
        f"{len(snapshot.state.forgotten)} of the trained ones forgotten."
    )
