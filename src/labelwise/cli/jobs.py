"""What verbs share that ask about very many pictures: ``--out FOLDER.parquet --workers N --engine local|ray``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console
from rich.progress import Progress
from typer import Option

from labelwise.cli.inputs import list_files
from labelwise.cli.output import plain_table, show, styled
from labelwise.errors import UsageError
from labelwise.writable import sole_writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from labelwise.jobs.job import Job, Question

JobOut = Annotated[
    Path | None,
    Option(
        "--out",
        help="For very many pictures: a folder of Parquet files to write. The same command again goes on where it stopped.",
    ),
]
Workers = Annotated[int | None, Option(min=1, help="With --out: so many processes at a time.")]
Engine = Annotated[
    Literal["local", "ray"] | None, Option(help="With --out: processes here, or Ray (RAY_ADDRESS: a cluster).")
]


def make_job(question: "Question", model: Path, paths: Sequence[Path], out: Path, device: str, top: int = 3) -> "Job":
    """Return the job of a question about all pictures of files, folders and shards."""
    from labelwise.jobs.job import Job
    from labelwise.training.distribution import choose_device

    if out.suffix.lower() != ".parquet":
        raise UsageError(
            f"Answers about many pictures are written as Parquet: give --out a name that ends with .parquet; given {out}."
        )
    files = tuple(str(file.absolute()) if isinstance(file, Path) else file for file in list_files(paths))
    place, kind = (str(each.absolute()) for each in (model, out)), choose_device(device).type
    return Job(question=question, model=next(place), out=next(place), files=files, top=top, device=kind)


def run_job(job: "Job", workers: int | None, engine: str | None, *, json: bool) -> None:
    """Answer what is missing of a job, and say what was written."""
    with sole_writer(Path(job.out)):
        job.begin()
        missing = job.missing
        left = sum(len(job.blocks[block]) for block in missing)
        with _bar(len(job.files), len(job.files) - left) as done:
            if engine == "ray":
                from labelwise.jobs.on_ray import run_on_ray

                run_on_ray(job, workers or 1, done)
            else:
                from labelwise.jobs.local import run_here

                run_here(job, workers or 1, done)
    document = _outcome(job) | {"found_done": len(job.blocks) - len(missing)}
    before = f", {document['found_done']} of them from before" if document["found_done"] else ""
    lines: list[Any] = [styled((job.out, "bold"), f": {len(job.files)} pictures in {document['files']} files{before}")]
    lines += [f"{document['unread']} could not be read: column reason says why."] if document["unread"] else []
    if "answers" in document:
        rows = ((word, str(count)) for word, count in document["answers"].items())
        lines.append(plain_table("answer", ">pictures", rows=rows))
    show(document, *lines, json=json)


def _outcome(job: "Job") -> dict[str, Any]:
    """Return what the files of a finished job hold, in numbers."""
    names = [str(job.place(block)) for block in range(len(job.blocks))]
    columns = ["answer", "reason"] if job.question == "classify" else ["reason"]
    table = import_module("pyarrow.dataset").dataset(names).to_table(columns=columns)
    unread = len(job.files) - table["reason"].null_count
    about = {"model": job.model, "written": job.out, "pictures": len(job.files), "unread": unread, "files": len(names)}
    if job.question != "classify":
        return about
    counts = ((each["values"], each["counts"]) for each in table["answer"].drop_null().value_counts().to_pylist())
    return about | {"answers": dict(sorted(counts, key=lambda pair: -pair[1]))}


def refuse_alone(workers: int | None, engine: str | None) -> None:
    """Raise an error where options of a job stand without one."""
    if workers is not None or engine is not None:
        raise UsageError("--workers and --engine go with --out FOLDER.parquet.")


@contextmanager
def _bar(total: int, before: int) -> "Iterator[Callable[[int], None]]":
    """Yield what takes how many pictures more are done, and shows it where a person looks."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("Pictures", total=total, completed=before)
        yield lambda count: progress.advance(task, count)
