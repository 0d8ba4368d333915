"""The verb outliers: which pictures are none of the labels?"""

from dataclasses import asdict
from math import isfinite
from typing import Annotated, Any

from rich.console import RenderableType
from typer import Option

from labelwise.cli.inputs import open_model, open_part, open_pictures
from labelwise.cli.jobs import Engine, JobOut, make_job, run_job
from labelwise.cli.options import AsJson, Device, Model, Paths, Root, Strict
from labelwise.cli.output import bar, one_line, percent, plain_table, show, styled
from labelwise.support.errors import UsageError
from labelwise.support.words import FIGURES


def outliers(  # noqa: PLR0913 - the options of the verb
    model: Model,
    paths: Paths,
    *,
    known: Annotated[str | None, Option(help="Data with test images of known labels, to measure against.")] = None,
    root: Root = None,
    job_out: JobOut = None,
    engine: Engine,
    json: AsJson = False,
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """Which images have none of the labels? Sorted by score."""
    from labelwise.evaluation.outliers import evaluate_outliers
    from labelwise.tasks.outliers import outliers as run

    if job_out is not None:
        if known is not None or strict:
            raise UsageError("--out writes all answers as Parquet; leave out --known and --strict.")
        run_job(make_job("outliers", model, job_out, device), paths, engine, json=json)
        return
    engine.refuse()
    classifier = open_model(model, device)
    images, names, skipped = open_pictures(classifier, paths, strict=strict)
    scores = classifier.scores(images)
    strangest = sorted(zip(names, run(scores), strict=True), key=lambda pair: -pair[1].score)
    limit = classifier.familiarity.limit
    cells = (
        (
            name,
            bar(one.score / limit if limit > 0 else one.flagged),
            f"{one.score:.4f}",
            styled(("unknown" if one.flagged else "", "yellow")),
        )
        for name, one in strangest
    )
    lines: list[RenderableType] = [plain_table("picture", "", f">{FIGURES['strangeness']}", "", rows=cells)]
    lines += [f"A full bar is unknown: a score above {limit:.4f}."] if isfinite(limit) else []
    figures: dict[str, Any] = {}
    if known is not None:
        part = open_part(classifier, known, root=root)
        result = evaluate_outliers(classifier.scores(part.split.images), scores)
        figures = {"measured": part.figures(), **asdict(result)}
        rows = ((FIGURES[f"unknown_{key}"], percent(share)) for key, share in asdict(result).items())
        lines += ["", one_line(part.words), plain_table(f"beside known pictures of {known}", ">", rows=rows)]
    outlying = [{"file": name, **asdict(one)} for name, one in strangest]
    show({"model": str(model), "outliers": outlying, "figures": figures, "skipped": skipped}, *lines, json=json)
