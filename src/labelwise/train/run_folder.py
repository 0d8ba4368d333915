"""The folder of a run: one process writes to it, an unfinished run is not overwritten, errors say what is kept. Needs no torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from labelwise.support.errors import LabelwiseError, StoreError, UsageError
from labelwise.support.processes import is_main_process
from labelwise.support.writable import sole_writer

AGAIN = "the same command and --resume"
NEWEST, BEFORE = "checkpoint.safetensors", "previous.safetensors"
OWN: ContextVar[frozenset[Path]] = ContextVar("own", default=frozenset())  # the folders of the run around this call


@contextmanager
def sole_run(folder: Path | None) -> Iterator[None]:
    """While open, this run alone writes to its folder, if it has one: another is refused at once. Its own steps open it again.

    The lock is inside, since the folder may be all that can be written to. Of several processes, as torchrun starts them, the
    main one has it.
    """
    own = OWN.get()
    if folder is None or not is_main_process() or folder.resolve() in own:
        yield
        return
    token = OWN.set(own | {folder.resolve()})
    try:
        with sole_writer(folder, folder / ".lock"):
            yield
    finally:
        OWN.reset(token)


def has_checkpoint(folder: Path) -> bool:
    """Return whether a folder holds a run that can be resumed."""
    return any((folder / name).is_file() for name in (NEWEST, BEFORE))


def refuse_unfinished(folder: Path) -> None:
    """Raise an error where a folder holds a run that can be continued."""
    if has_checkpoint(folder):
        raise UsageError(
            f"An unfinished run is in {folder}. Continue it with --resume, or delete that folder to start again."
        )


@contextmanager
def sole_verb(target: Path, folder: Path, *, resume: bool) -> Iterator[None]:
    """Lock the target and the run folder while open; raise an error if another run uses them or is unfinished."""
    if not is_main_process():
        yield
        return
    with sole_writer(target), sole_run(folder):
        for run in () if resume else (folder, folder / "trial"):
            refuse_unfinished(run)
        yield


@contextmanager
def weights_told(folder: Path, *, trained: bool = False) -> Iterator[None]:
    """Add to an error where the weights are and how to continue; errors of training itself pass unchanged."""
    try:
        yield
    except Exception as error:
        advice = ""
        if has_checkpoint(folder) or has_checkpoint(folder / "trial"):
            advice = f" The trained weights are in {folder}. Fix the problem and continue with {AGAIN}."
        if isinstance(error, LabelwiseError) and trained:
            raise type(error)(f"{error}{advice}") from error
        if isinstance(error, OSError):
            raise StoreError(f"A file could not be written or read: {error}.{advice}") from error
        if advice and not isinstance(error, LabelwiseError):
            error.add_note(advice.strip())
        raise
