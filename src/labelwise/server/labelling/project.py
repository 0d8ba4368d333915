"""A project: a list of images and the actions of a session, in the store of the service. An action counts once it is on disk.

The first record lists the images; images added later get another record, so the row of an image never changes.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from labelwise.core.arrays import linear_scores, softmax
from labelwise.encoders.choose import encoder_name
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Encoder
from labelwise.encoders.registry import DEFAULT, is_installed, open_encoder
from labelwise.images.describe.labels import find_name, label_name
from labelwise.images.file_images import FileImages
from labelwise.images.formats.boxes import boxes
from labelwise.images.formats.find import is_annotations
from labelwise.images.images import skipped_lines
from labelwise.images.sources.paths import list_images
from labelwise.label.actions import Action
from labelwise.label.ledger import NO_LABEL
from labelwise.label.questions import Question
from labelwise.label.session import Session
from labelwise.methods.words.vocabulary import Vocabulary, default_vocabulary
from labelwise.server.store import FILE, News, Position, Record, Store
from labelwise.support.errors import DataError, LabelwiseError, StoreError, UsageError
from labelwise.support.writable import create_private_folder, sole_writer

MODEL = "labelwise project"  # stands in the store where a service has its model
LIST, ACTIONS = "images", "actions"
TYPICAL, WORDS, LIKELY = 12, 3, 0.03  # images that words are found for, how many words, and their least probability
Tell = Callable[[str], None]


class Project:
    """Images, their names and features, and their session; only one process at a time can open it."""

    def __init__(self, place: tuple[Store, Position], files: Sequence[str], session: Session) -> None:
        self.files, self.session = files, session
        self._store, self._position = place
        self._vocabulary: Vocabulary | None = None
        self.lock, self._reads = RLock(), 0  # guards the session; how many read it now, one in another
        self._asked: dict[str, tuple[int, ...]] = {}  # images in the open question of each browser

    def question(self, browser: str, *, sheets: bool = True, check: bool = False) -> Question | None:
        """Return the next question for a browser, or the next of the random stream; other browsers get other images if there are any."""
        with self.reading():
            busy = {row for name, rows in self._asked.items() if name != browser for row in rows}
            question = self.session.question(sheets=sheets, busy=busy, check=check) or self.session.question(
                sheets=sheets
            )
            self._asked.pop(browser, None)
            if question is not None:
                self._asked[browser] = question.rows
            while len(self._asked) > 20:  # forget closed browsers
                self._asked.pop(next(iter(self._asked)))
            return question

    def add(self, actions: Sequence[Action]) -> None:
        """Apply actions, all or none; they are on disk when this returns."""
        with self.reading():
            begin, done = len(self.session.actions), list[Action]()
            try:
                for action in actions:
                    done.append(self.session.add(action))
                self._write(done)
            except BaseException:
                self._forget(begin)
                raise

    def undo(self, person: str) -> Action | None:
        """Undo the last action of a person and its consequences; return it, or None."""
        with self.reading():
            begin = len(self.session.actions)
            try:
                undone = self.session.undo(person)
                self._write(self.session.actions[begin:])
            except BaseException:
                self._forget(begin)
                raise
            return undone

    def words(self, rows: Sequence[int]) -> list[str]:
        """Return the words that the default encoder finds nearest to some images; only likely ones.

        There are none where the encoder is not installed, or the images cannot be read: a list of images is right without them.
        """
        with suppress(LabelwiseError, OSError, MemoryError):
            if not is_installed():
                return []
            self._vocabulary = self._vocabulary or default_vocabulary()
            features = encode(open_encoder(DEFAULT), FileImages([self.files[row] for row in rows[:TYPICAL]]))
            if not len(features):
                return []
            mean = softmax(linear_scores(self._vocabulary.embed(features.values), self._vocabulary.rows)).mean(0)
            best = mean.argsort()[::-1][:WORDS]
            return [self._vocabulary.names[place] for place in best.tolist() if mean[place] >= LIKELY]
        return []

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While open, nobody else changes the session, which is what the store holds: a copy that was restored there is read again.

        The store is read once, at first: what follows a change does not depend on it any more.
        """
        with self.lock:
            if not self._reads and (news := self._store.read(self._position)) is not None:
                self._follow(news)
            self._reads += 1
            try:
                yield
            finally:
                self._reads -= 1

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _write(self, actions: Sequence[Action]) -> None:
        """Write actions to disk, all or none."""
        if actions:
            record = Record(ACTIONS, {"actions": [one.document() for one in actions]})
            news, _ = self._store.change(self._position, lambda news: self._alone(news, record))
            self._position = news.position

    def _alone(self, news: News, record: Record) -> Record:
        """Return a record to write, unless the store is not the one that its actions were checked against."""
        if news.whole or news.records:
            raise StoreError(f"{self._store.name} was replaced in this moment, and nothing was changed. Try it again.")
        return record

    def _follow(self, news: News) -> None:
        """Become what the store holds."""
        if not news.whole:
            news = self._store.read(Position()) or news
        held = _held(self._store, news.records)
        if held.files != list(self.files) or held.names != list(self.session.names_at_start):
            raise StoreError(f"{self._store.name} was replaced by that of other images or labels. Start this again.")
        with _fits(self._store):
            self.session.restore(held.actions)
        self._position = news.position

    def _forget(self, begin: int) -> None:
        """Reset the session to the actions on disk."""
        self.session.restore(self.session.actions[:begin])
        with suppress(StoreError):
            if (news := self._store.read(self._position)) is not None:
                self._follow(news)


@contextmanager
def open_project(
    folder: Path,
    photos: Path | None,
    names: Sequence[str] = (),
    *,
    encoder: str | None = None,
    seed: int = 0,
    tell: Tell = print,
) -> Iterator[Project]:
    """Open a project, or create one with the photos in a folder; new photos are added.

    Args:
        folder: the project folder.
        photos: the folder of images, or a file of boxes in them; optional for an existing project.
        names: labels to start with.
        encoder: the name of the encoder; None chooses as ``fit`` does.
        seed: the random seed of the questions.
        tell: called with messages for the user.
    """
    if photos is None and not (folder / FILE).exists():
        raise UsageError(f'There is no project in "{folder}". Give a folder of photos to create one.')
    found = _images_at(photos) if photos is not None else []
    if photos is not None and len(found) < 2:
        raise DataError(f'Labelling needs at least two images; found {len(found)} in "{photos}".')
    create_private_folder(folder)
    with sole_writer(folder, folder / "label.lock", _busy):
        store = Store(folder, MODEL)
        try:
            yield _read(
                store,
                [os.path.realpath(one) for one in found],
                names,
                encoder,
                seed,
                tell,
            )
        finally:
            store.close()


def _images_at(photos: Path) -> list[str | Path]:
    """Return the images in a folder, or the boxes of an annotation file."""
    return [*boxes(photos).to_classify] if is_annotations(photos) else [*list_images(photos)]


def _read(
    store: Store, found: Sequence[str], names: Sequence[str], encoder: str | None, seed: int, tell: Tell
) -> Project:
    news = store.read(Position())
    records, position = (news.records, news.position) if news else ((), Position())
    held = _held(store, records)
    known = set(held.files)
    more = [file for file in found if file not in known]
    new_names = [label_name(name) for name in names if find_name(name, held.names) is None]
    if more or new_names:
        news, _ = store.change(position, lambda _: Record(LIST, {"files": more, "names": new_names}))
        position = news.position
    files = [*held.files, *more]
    features, skipped = _features(open_encoder(encoder or encoder_name(len(files))), files, tell)
    with _fits(store):
        session = Session(features, [*held.names, *new_names], actions=held.actions, seed=seed, hidden=skipped)
    return Project((store, position), files, session)


def _features(encoder: Encoder, files: Sequence[str], tell: Tell) -> tuple[np.ndarray, list[int]]:
    """Return the features of all files ``[n, d]`` and the unreadable rows, which get the mean features."""
    known = encode(encoder, FileImages([Path(file) for file in files]))
    for line in skipped_lines(known.skipped):
        tell(f"Skipped {line}")
    if len(known) < 2:
        raise DataError("Fewer than two images of the project can be read.")
    values = np.tile(known.values.mean(0), (len(files), 1))
    values[known.rows] = known.values
    return values, sorted(set(range(len(files))) - set(known.rows.tolist()))


@contextmanager
def _fits(store: Store) -> Iterator[None]:
    """Raise what cannot be done with the content of a store as its damage."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise store.damage(f"it is no project of this version ({error!r})") from error


@dataclass(frozen=True)
class _Held:
    """What a store holds."""

    files: list[str]
    names: list[str]
    actions: list[Action]


def _held(store: Store, records: Sequence[Record]) -> _Held:
    """Return what records add up to; what is no record of a project is damage."""
    held = _Held([], [], [])
    with _fits(store):
        for one in records:
            if one.kind == ACTIONS:
                held.actions.extend(map(Action.read, one.about["actions"]))
            elif one.kind == LIST:
                held.files.extend(map(_text, one.about["files"]))
                held.names.extend(label_name(_text(name)) for name in one.about["names"])
            else:
                raise ValueError(f'a record of the kind "{one.kind}"')
        if any(one.kind == "undo" and not 0 <= one.of < place for place, one in enumerate(held.actions)):
            raise ValueError("an action is taken back before it was done")
    return held


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _busy(folder: Path, owner: str) -> StoreError:
    return StoreError(
        f"The project in {folder} is open in another process ({owner or 'unknown'}). Use its page, or stop it."
    )


def add_labels(project: Project, labels: Mapping[str, str]) -> int:
    """Import labels by image path and return their number. Images with an answer keep it."""
    by_label: dict[str, list[int]] = {}
    for row, file in enumerate(project.files):
        name = labels.get(file) or labels.get(os.path.realpath(file)) or ""
        if name and project.session.ledger.targets[row] == NO_LABEL:
            by_label.setdefault(name, []).append(row)
    actions = [Action(kind="name", rows=tuple(rows), label=name, form="import") for name, rows in by_label.items()]
    if actions:
        project.add(actions)
    return sum(len(rows) for rows in by_label.values())
