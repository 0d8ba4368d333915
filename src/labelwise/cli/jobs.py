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

    from labelwise.jobs.job import Question

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


def run_job(  # noqa: PLR0913 - what the options of a verb say
    question: "Question",
    model: Path,
    paths: Sequence[Path],
    out: Path,
    *,
    workers: int | None,
    engine: str | None,
    device: str,
    top: int = 3,
    json: bool,
) -> None:
    """Answer a question about all pictures of files and folders, and say what was written."""
    from labelwise.jobs.job import Job, arrow
    from labelwise.training.distribution import choose_device

    if out.suffix.lower() != ".parquet":
        raise UsageError(
            f"Answers about many pictures are written as Parquet: give --out a name that ends with .parquet; given {out}."
        )
    files = tuple(str(file.absolute()) if isinstance(file, Path) else file for file in list_files(paths))
    kind = choose_device(device).type
    job = Job(
        question=question, model=str(model.absolute()), files=files, out=str(out.absolute()), top=top, device=kind
    )
    with sole_writer(out):
        job.begin()
        there = len(job.blocks) - len(job.missing)
        with _bar(
            len(files), sum(len(block) for block in job.blocks) - sum(len(job.blocks[i]) for i in job.missing)
        ) as done:
            if engine == "ray":
                from labelwise.jobs.on_ray import run_on_ray

                run_on_ray(job, workers or 1, done)
            else:
                from labelwise.jobs.local import run_here

                run_here(job, workers or 1, done)
    names = [str(job.place(block)) for block in range(len(job.blocks))]
    columns = ["answer", "reason"] if question == "classify" else ["reason"]
    arrow()
    table = import_module("pyarrow.dataset").dataset(names).to_table(columns=columns)
    unread = len(files) - table["reason"].null_count
    document: dict[str, Any] = {"model": str(model), "written": str(out), "pictures": len(files), "unread": unread}
    document |= {"files": len(names), "found_done": there}
    lines: list[Any] = [
        styled(
            (str(out), "bold"),
            f": {len(files)} pictures in {len(names)} files" + (f", {there} of them from before" if there else ""),
        )
    ]
    lines += [f"{unread} could not be read: column reason says why."] if unread else []
    if question == "classify":
        counts = {each["values"]: each["counts"] for each in table["answer"].drop_null().value_counts().to_pylist()}
        document["answers"] = dict(sorted(counts.items(), key=lambda pair: -pair[1]))
        lines.append(
            plain_table("answer", ">pictures", rows=((word, str(count)) for word, count in document["answers"].items()))
        )
    show(document, *lines, json=json)


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
