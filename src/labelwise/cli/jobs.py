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

from labelwise.cli.options import Workers, shared
from labelwise.cli.output import plain_table, show, styled
from labelwise.support.errors import UsageError
from labelwise.support.writable import sole_writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from labelwise.cli.boxes import Boxing
    from labelwise.jobs.job import Job, Question
    from labelwise.jobs.parts import Done, Parts
    from labelwise.tasks.joined import Decide

JobOut = Annotated[Path | None, Option("--out", help="A .parquet folder for very many images; resumable.")]


def is_job(out: Path) -> bool:
    """Return whether a path is the .parquet folder of a job."""
    return out.suffix.lower() == ".parquet"


@contextmanager
def job_runner() -> "Iterator[Callable[[Parts, Done], None]]":
    """Yield the function that processes the blocks of a job."""
    workers = shared().workers or Workers()
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
    device = "cpu" if model is None else shared().device
    if device not in ("auto", "cpu"):  # report a wrong or missing device at once
        from labelwise.train.distribution import choose_device

        device = choose_device(device).type
    folder = "" if model is None else str(model.absolute())
    return Job(question=question, model=folder, out=str(out.absolute()), top=top, device=device)


def run_job(job: "Job", paths: Sequence[Path], boxing: "Boxing | None" = None) -> None:
    """Run the missing blocks of a job and print a summary; with ``boxing``, boxes of annotation files are images."""
    from labelwise.images.as_images import as_images
    from labelwise.images.formats.boxes import Boxes, all_boxes
    from labelwise.jobs.joining import write_joined

    with job_runner() as run:
        places, boxes = list[str | Path](_absolute(paths)), Boxes()
        if boxing is not None:
            root = shared().root and Path(os.path.abspath(shared().root or ""))
            places, boxes = all_boxes(_absolute(paths), boxing.min_detection, root, boxing.events, boxing.frame_rate)
            if not places:
                raise UsageError("There is no box to classify in these files. Give others, or write --csv FILE.")
        job = replace(job, images=as_images(places), boxed=bool(boxes.records))
        decide = _decider(job)
        with sole_writer(Path(job.out)):
            job.begin()
            before = _run(job, run, "Images")
            joined = write_joined(job, boxes.records, decide) if decide and job.boxed else []
    document = _outcome(job) | {"found_done": before}
    known = f", {before} of them from an earlier run" if before else ""
    lines: list[Any] = [styled((job.out, "bold"), f": {len(job.files)} images in {document['files']} files{known}")]
    lines += _unread(document["unread"])
    if "answers" in document:
        rows = ((word, str(count)) for word, count in document["answers"].items())
        lines.append(plain_table("answer", ">images", rows=rows))
    if job.boxed:
        levels = {level: sum(one.level == level for one in joined) for level in ("image", "event")}
        document["joined"] = levels
        lines.append(f"Joined: {levels['image']} images, {levels['event']} events (column level).")
    show(document, *lines)


def run_duplicates(paths: Sequence[Path], out: Path, likeness: float | None) -> None:
    """Write the pairs of images that look alike, and print a summary."""
    from labelwise.images.as_images import as_images
    from labelwise.images.split.lookalikes import LIKENESS
    from labelwise.jobs.duplicates import LOOKS, Pairs

    looks, likeness = make_job("looks", None, out), LIKENESS if likeness is None else likeness
    with job_runner() as run:
        looks = replace(looks, out=str(Path(looks.out) / LOOKS), images=as_images(_absolute(paths)))
        job = Pairs(out=str(out.absolute()), looks=looks, likeness=likeness)
        with sole_writer(out.absolute()):
            job.begin()
            looks.begin()
            _run(looks, run, "Images")
            job.divide()
            before = _run(job, run, "Comparing")
    pairs = _columns(job, ["file", "other"])
    both = import_module("pyarrow").chunked_array([*pairs["file"].chunks, *pairs["other"].chunks], "string")
    alike = len(both.unique())
    unread = len(looks.files) - _columns(looks, ["reason"])["reason"].null_count
    document = {"written": job.out, "images": len(looks.files), "unread": unread, "pairs": pairs.num_rows}
    document |= {"alike": alike, "likeness": likeness, "files": len(job.sizes), "found_done": before}
    words = f": {pairs.num_rows} pairs; {alike} of {len(looks.files)} images look like another image"
    show(document, styled((job.out, "bold"), words), *_unread(unread))


def _absolute(paths: Sequence[Path]) -> list[Path]:
    """Return paths that processes elsewhere find."""
    from labelwise.images.sources.paths import may_name_shards

    return [path if may_name_shards(path) else Path(os.path.abspath(path)) for path in paths]


def _decider(job: "Job") -> "Decide | None":
    """Return how joined answers are decided, if the job needs that; raise an error for a promise that cannot be made."""
    if not job.boxed and job.coverage is None and job.max_error is None:
        return None
    from numpy import zeros

    from labelwise.core.load import load
    from labelwise.tasks.joined import decider

    classifier = load(job.model)
    if job.coverage is not None:
        classifier.promising.covering(zeros((1, len(classifier.labels))), job.coverage)
    return decider(classifier, job.max_error)


def _run(job: "Parts", run: "Callable[[Parts, Done], None]", what: str) -> int:
    """Run the missing blocks of a job, and return how many files already existed."""
    missing, sizes = job.missing, job.sizes
    with _bar(what, sum(sizes), sum(sizes) - sum(sizes[block] for block in missing)) as done:
        run(job, done)
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
    about = {"model": job.model, "written": job.out, "images": len(job.files), "unread": unread}
    about["files"] = len(job.sizes)
    if job.question != "classify":
        return about
    counts = ((each["values"], each["counts"]) for each in table["answer"].drop_null().value_counts().to_pylist())
    return about | {"answers": dict(sorted(counts, key=lambda pair: -pair[1]))}


@contextmanager
def _bar(what: str, total: int, before: int) -> "Iterator[Callable[[int], None]]":
    """Yield a function that adds finished images to a progress bar on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not (console.is_terminal and shared().progress)) as progress:
        task = progress.add_task(what, total=total, completed=before)
        yield lambda count: progress.advance(task, count)
