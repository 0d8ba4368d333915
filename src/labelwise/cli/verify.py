"""The verb verify: decide whether two images show the same label."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from labelwise.cli.inputs import open_images, open_model
from labelwise.cli.options import Model
from labelwise.cli.output import percent, plain_table, show, styled
from labelwise.support.errors import DataError, UsageError
from labelwise.support.text import FIGURES


def verify(
    model: Model,
    first: Annotated[Path | None, Argument(help="An image.")] = None,
    second: Annotated[Path | None, Argument(help="Another image.")] = None,
    pairs: Annotated[Path | None, Option(help="A .csv table with a pair of images in each row.")] = None,
) -> None:
    """Do two images show the same label, known or not?"""
    from labelwise.tasks.verify import verify as run

    asked_pairs = _pairs(first, second, pairs)
    for file in (file for pair in asked_pairs for file in pair if file.is_dir()):
        raise UsageError(f"{file} is a folder. Give two images, or a table of pairs: --pairs pairs.csv.")
    classifier = open_model(model)
    files = list(dict.fromkeys(file for pair in asked_pairs for file in pair))
    images, _, _ = open_images(classifier, files, strict=True)
    scores, row = classifier.scores(images), {file: i for i, file in enumerate(files)}
    answers = run(*(scores[[row[pair[side]] for pair in asked_pairs]] for side in (0, 1)))
    rows = []
    table = plain_table("two images", "", f">{FIGURES['score']}", f">{FIGURES['same']}")
    for (a, b), verification in zip(asked_pairs, answers, strict=True):
        rows.append({"first": str(a), "second": str(b), **asdict(verification)})
        answer = styled(("same", "green") if verification.same else ("different", "yellow"))
        table.add_row(str(a), answer, f"{verification.score:.4f}", percent(verification.probability))
        table.add_row(str(b))
    rule = classifier.verifier
    show({"model": str(model), "pairs": rows, "rule": None if rule is None else asdict(rule)}, table)


def _pairs(first: Path | None, second: Path | None, table: Path | None) -> list[tuple[Path, Path]]:
    """Return the pairs to compare: two images, or a table with paths relative to it."""
    if table is None:
        if first is None or second is None:
            raise UsageError("Give two images, or a table of pairs: --pairs pairs.csv.")
        return [(first, second)]
    if first is not None:
        raise UsageError("Give two images or --pairs, not both.")
    from labelwise.images.sources.delimited import records

    rows = [(number, [cell.strip() for cell in row]) for number, row in records(table, noun="table of pairs")]
    for number, row in rows:
        if len(row) < 2 or not (row[0] and row[1]):
            raise DataError(f"Row {number} of {table} must name two images; given {row}.")
    paths = [(table.parent / row[0], table.parent / row[1]) for _, row in rows]
    if paths and not any(path.exists() for path in paths[0]):  # column names, if other rows exist
        paths = paths[1:]
    if not paths:
        raise DataError(f"{table} has no pair of images. Write the paths of two images in each row.")
    return paths
