"""The verb outliers: find images that have none of the labels."""

import csv
import io
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Annotated

from rich.console import RenderableType
from typer import Option

from labelwise.cli.inputs import open_images, open_model
from labelwise.cli.jobs import JobOut, make_job, run_job
from labelwise.cli.options import Model, Paths, refuse_workers
from labelwise.cli.output import Bar, plain_table, show, styled
from labelwise.support.errors import UsageError
from labelwise.support.text import FIGURES, to_cell
from labelwise.support.writable import write_file

SHOWN = 24  # rows: a screen

CsvFile = Annotated[Path | None, Option("--csv", help="A table to write: file, score, unknown.")]


def outliers(model: Model, paths: Paths, *, table: CsvFile = None, job_out: JobOut = None) -> None:
    """Which images have none of the labels? Sorted by score."""
    from labelwise.tasks.outliers import outliers as run

    if job_out is not None:
        if table is not None:
            raise UsageError("A .parquet folder holds all answers. Leave out --csv.")
        run_job(make_job("outliers", model, job_out), paths)
        return
    refuse_workers()
    classifier = open_model(model)
    images, names, skipped = open_images(classifier, paths)
    results = sorted(zip(names, run(classifier.scores(images)), strict=True), key=lambda pair: -pair[1].score)
    limit = classifier.familiarity.limit
    cells = (
        (
            name,
            Bar(result.score / limit if limit > 0 else result.flagged),
            f"{result.score:.4f}",
            styled(("unknown" if result.flagged else "", "yellow")),
        )
        for name, result in results[:SHOWN]
    )
    flag_count = sum(result.flagged for _, result in results)
    lines: list[RenderableType] = [plain_table("image", "", f">{FIGURES['outlier_score']}", "", rows=cells)]
    if len(results) > SHOWN:
        lines.append(f"The first {SHOWN} of {len(results)} images. --csv FILE writes all of them.")
    lines.append(
        f"{flag_count} of {len(results)} images are unknown"
        + (f": their score is above {limit:.4f}." if isfinite(limit) else ".")
    )
    if table is not None:
        text = io.StringIO(newline="")
        rows = ((to_cell(name), f"{result.score:.6g}", "yes" if result.flagged else "no") for name, result in results)
        csv.writer(text).writerows([("file", "score", "unknown"), *rows])
        write_file(table, text.getvalue().encode("utf-8", "surrogateescape"))
        lines.append(styled((str(table), "bold"), " written"))
    documents = [{"file": name, **asdict(result)} for name, result in results]
    show({"model": str(model), "outliers": documents, "skipped": skipped}, *lines)
