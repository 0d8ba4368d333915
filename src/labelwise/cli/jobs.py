"""Jobs: code shared by verbs that process very many images, ``--out FOLDER.parquet --workers 8`` (or ``ray:8``)."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.progress import Progress
from typer import Option

from labelwise.cli.options import Workers, shared_options
from labelwise.cli.output import plain_table, show, styled
from labelwise.support.errors import UsageError
from labelwise.support.writable import sole_writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from labelwise.cli.boxes import Boxing
    from labelwise.jobs.job import Job, Question
    from labelwise.jobs.parts import Done, Parts
    from labelwise.tasks.box_answers import Decide

JobOut = Annotated[Path | None, Option("--out", help="A .parquet folder for very many images; resumable.")]


def is_job(folder: Path) -> bool:
    """Return whether a path is the .parquet folder of a job."""
    return folder.suffix.lower() == ".parquet"


@contextmanager
def job_runner() -> "Iterator[Callable[[Parts, Done], None]]":
    """Yield the function that processes the blocks of a job."""
    workers = shared_options().workers or Workers()
    if workers.ray:
        from labelwise.jobs.on_ray import ray_started

        with ray_started(workers.count or 1) as run:
            yield run
    else:
        from labelwise.jobs.local import run_here

        yield lambda job, done: run_here(job, workers.count or 1, done)


def make_job(question: "Question", model: Path | None, out: Path, top: int = 3) -> "Job":
    """Return the job of a verb, without its files."""
    from labelwise.jobs.job import Job

    if not is_job(out):
        raise UsageError(f"--out must end with .parquet; given {out}.")
    device = "cpu" if model is None else shared_options().device
    if device not in ("auto", "cpu"):  # report a wrong or missing device at once
        from labelwise.train.distribution import choose_device

        device = choose_device(device).type
    folder = "" if model is None else str(model.absolute())
    return Job(question=question, model=folder, folder=str(out.absolute()), top=top, device=device)


def run_job(job: "Job", paths: Sequence[Path], boxing: "Boxing | None" = None) -> None:
    """Run the missing blocks of a job and print a summary; with ``boxing``, boxes of annotation files are images."""
    from labelwise.images.as_images import as_images
    from labelwise.images.formats.boxes import Boxes, all_boxes
    from labelwise.jobs.joining import write_joined

    with job_runner() as run:
        places, boxes = list[str | Path](_absolute(paths)), Boxes()
        if boxing is not None:
            root = shared_options().root and Path(os.path.abspath(shared_options().root or ""))
            places, boxes = all_boxes(_absolute(paths), boxing.min_detection, root, boxing.events, boxing.frame_rate)
            if not places:
                raise UsageError("There is no box to classify in these files. Give others, or write --csv FILE.")
        job = replace(job, images=as_images(places), boxed=bool(boxes.records))
        decide = _decider(job)
        with sole_writer(Path(job.folder)):
            job.begin()
            before = _run(job, run, "Images")
            box_answers = write_joined(job, boxes.records, decide) if decide and job.boxed else []
    document = _outcome(job) | {"found_done": before}
    earlier = f", {before} of them from an earlier run" if before else ""
    lines: list[Any] = [
        styled(
            (job.folder, "bold"),
            f": {len(job.files)} images in {document['files']} {'file' if document['files'] == 1 else 'files'}{earlier}",
        )
    ]
    lines += _unread(document["unread"])
    if "answers" in document:
        rows = ((word, str(count)) for word, count in document["answers"].items())
        lines.append(plain_table("answer", ">images", rows=rows))
    if job.boxed:
        levels = {level: sum(answer.level == level for answer in box_answers) for level in ("image", "event")}
        document["joined"] = levels
        lines.append(f"Joined: {levels['image']} images, {levels['event']} events (column level).")
    show(document, *lines)


def run_duplicates(paths: Sequence[Path], folder: Path, likeness: float | None) -> None:
    """Write the pairs of similar images, and print a summary."""
    from labelwise.images.as_images import as_images
    from labelwise.images.split.lookalikes import LIKENESS
    from labelwise.jobs.duplicates import LOOKS, PairJob

    looks, likeness = make_job("looks", None, folder), LIKENESS if likeness is None else likeness
    with job_runner() as run:
        looks = replace(looks, folder=str(Path(looks.folder) / LOOKS), images=as_images(_absolute(paths)))
        job = PairJob(folder=str(folder.absolute()), looks=looks, likeness=likeness)
        with sole_writer(folder.absolute()):
            job.begin()
            looks.begin()
            _run(looks, run, "Images")
            job.divide()
            before = _run(job, run, "Comparing")
    pairs = _columns(job, ["file", "other"])
    files = import_module("pyarrow").chunked_array([*pairs["file"].chunks, *pairs["other"].chunks], "string")
    count = len(files.unique())
    unread = len(looks.files) - _columns(looks, ["reason"])["reason"].null_count
    document = {"written": job.folder, "images": len(looks.files), "unread": unread, "pairs": pairs.num_rows}
    document |= {"alike": count, "likeness": likeness, "files": len(job.sizes), "found_done": before}
    words = f": {pairs.num_rows} pairs; {count} of {len(looks.files)} images look like another image"
    show(document, styled((job.folder, "bold"), words), *_unread(unread))


def _absolute(paths: Sequence[Path]) -> list[Path]:
    """Return absolute paths, for other processes."""
    from labelwise.images.sources.paths import may_name_shards

    return [path if may_name_shards(path) else Path(os.path.abspath(path)) for path in paths]


def _decider(job: "Job") -> "Decide | None":
    """Return the function that decides joined answers, if needed; raise an error for an impossible promise."""
    if not job.boxed and job.coverage is None and job.max_error is None:
        return None
    from numpy import zeros

    from labelwise.core.load import load
    from labelwise.tasks.box_answers import decider

    classifier = load(job.model)
    if job.coverage is not None:
        classifier.promising.covering(zeros((1, len(classifier.labels))), job.coverage)
    return decider(classifier, job.max_error)


def _run(job: "Parts", run: "Callable[[Parts, Done], None]", caption: str) -> int:
    """Run the missing blocks of a job, and return how many files already existed."""
    missing, sizes = job.missing, job.sizes
    with _bar(caption, sum(sizes), sum(sizes) - sum(sizes[block] for block in missing)) as advance:
        run(job, advance)
    return len(sizes) - len(missing)


def _columns(job: "Parts", columns: list[str]) -> Any:
    """Return columns of all files of a finished job."""
    names = [str(job.place(block)) for block in range(len(job.sizes))]
    return import_module("pyarrow.dataset").dataset(names).to_table(columns=columns)


def _unread(count: int) -> list[str]:
    return [f"{count} could not be read: see column reason."] if count else []


def _outcome(job: "Job") -> dict[str, Any]:
    """Return the numbers of images and files of a finished job."""
    table = _columns(job, ["answer", "reason"] if job.question == "classify" else ["reason"])
    unread = len(job.files) - table["reason"].null_count
    summary = {"model": job.model, "written": job.folder, "images": len(job.files), "unread": unread}
    summary["files"] = len(job.sizes)
    if job.question != "classify":
        return summary
    counts = ((row["values"], row["counts"]) for row in table["answer"].drop_null().value_counts().to_pylist())
    return summary | {"answers": dict(sorted(counts, key=lambda pair: -pair[1]))}


@contextmanager
def _bar(caption: str, total: int, before: int) -> "Iterator[Callable[[int], None]]":
    """Yield a function that adds finished images to a progress bar on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not (console.is_terminal and shared_options().progress)) as progress:
        task = progress.add_task(caption, total=total, completed=before)
        yield lambda count: progress.advance(task, count)
