"""The folder of a run beside what a verb writes: who may use it, and where the work is when it could not be written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labelwise.support.errors import LabelwiseError, StoreError

AGAIN = "the same command and --resume"


@contextmanager
def sole_verb(target: Path, folder: Path, *, resume: bool) -> Iterator[None]:
    """While open, this run alone writes to the target and the folder; an error where another does, or one lies unfinished."""
    from labelwise.support.processes import is_main_process
    from labelwise.support.writable import sole_writer
    from labelwise.train.sole_run import refuse_unfinished, sole_run

    if not is_main_process():
        yield
        return
    with sole_writer(target), sole_run(folder):
        for run in () if resume else (folder, folder / "trial"):
            refuse_unfinished(run)
        yield


@contextmanager
def weights_told(folder: Path, *, trained: bool = False) -> Iterator[None]:
    """Add to an error where the weights are kept and how to go on; while it trains, what training says itself is left as it is."""
    try:
        yield
    except Exception as error:
        from labelwise.train.sole_run import has_checkpoint

        advice = ""
        if has_checkpoint(folder) or has_checkpoint(folder / "trial"):
            advice = f" What was trained is kept in {folder}; mend this and continue with {AGAIN}."
        if isinstance(error, LabelwiseError) and trained:
            raise type(error)(f"{error}{advice}") from error
        if isinstance(error, OSError):
            raise StoreError(f"A file could not be written or read: {error}.{advice}") from error
        if advice and not isinstance(error, LabelwiseError):
            error.add_note(advice.strip())
        raise
