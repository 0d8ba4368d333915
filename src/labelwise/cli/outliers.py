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
    ranked = sorted(zip(names, run(classifier.scores(images)), strict=True), key=lambda pair: -pair[1].score)
    limit = classifier.familiarity.limit
    cells = (
        (
            name,
            Bar(one.score / limit if limit > 0 else one.flagged),
            f"{one.score:.4f}",
            styled(("unknown" if one.flagged else "", "yellow")),
        )
        for name, one in ranked[:SHOWN]
    )
    flagged = sum(one.flagged for _, one in ranked)
    lines: list[RenderableType] = [plain_table("image", "", f">{FIGURES['outlier_score']}", "", rows=cells)]
    if len(ranked) > SHOWN:
        lines.append(f"The first {SHOWN} of {len(ranked)} images. --csv FILE writes all of them.")
    lines.append(
        f"{flagged} of {len(ranked)} images are unknown"
        + (f": their score is above {limit:.4f}." if isfinite(limit) else ".")
    )
    if table is not None:
        text = io.StringIO(newline="")
        rows = ((to_cell(name), f"{one.score:.6g}", "yes" if one.flagged else "no") for name, one in ranked)
        csv.writer(text).writerows([("file", "score", "unknown"), *rows])
        write_file(table, text.getvalue().encode("utf-8", "surrogateescape"))
        lines.append(styled((str(table), "bold"), " written"))
    found = [{"file": name, **asdict(one)} for name, one in ranked]
    show({"model": str(model), "outliers": found, "skipped": skipped}, *lines)
