"""The verb evaluate: figures on images that a classifier was not trained on."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelwise.cli.figures import episodes, learnt_pairs, ordinal, pairs, zero_shot
from labelwise.cli.inputs import open_model, open_part, open_unknown
from labelwise.cli.options import AsJson, Data, Device, Model, Root, SplitName, Splits, Unknown
from labelwise.cli.output import PLOTS, bar, note, percent, plain_table, show, unbroken, warn_leaked
from labelwise.errors import UsageError, listing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from labelwise.evaluate.part import Part
    from labelwise.evaluate.tested import Tested

EACH = "average_precision"
ADVICE = ", so the figures are too good. Give test images a folder or a split of their own."


def evaluate(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Data,
    split: SplitName = None,
    unknown: Unknown = None,
    curve: Annotated[
        Path | None, typer.Option(help="A picture to draw: accuracy on labels with and without training images.")
    ] = None,
    splits: Splits = None,
    root: Root = None,
    json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Measure a classifier on images that it was not trained on."""
    from labelwise.evaluate.tested import Tested

    if curve is not None and curve.suffix.lower() not in PLOTS:
        raise UsageError(f"The curve is written as {listing(PLOTS)}; given {curve}.")
    classifier = open_model(model, device)
    part = open_part(classifier, data, split, root, splits)
    strange = None if unknown is None else open_unknown(classifier, unknown, root)
    about: dict[str, Any] = {"model": str(model), "data": data, "split": part.name, "measured": part.figures()}
    lines: list[RenderableType] = [unbroken(part.words)]
    tested = Tested.of(classifier, part.split, part.labels)
    if _all_new(tested) and not (unknown or curve):
        note("The classifier knows none of these labels, so it is measured on how well it compares and learns them.")
        about["pairs"] = None
        more = [pairs(tested), episodes(tested)]
    else:
        figures = _closed(tested)
        if curve and tested.multilabel:
            raise UsageError(
                f'There is no curve of "{data}": several labels may be true of one image. Leave --curve out.'
            )
        more = [zero_shot(tested, curve), ordinal(tested), learnt_pairs(tested)]
        if strange is not None:
            lines.append(unbroken(f"As unknown: {strange.words}"))
            about["measured_unknown"] = strange.figures()
            figures |= _unknown(tested, strange)
        warn_leaked(figures["leaked"], ADVICE)
        about |= figures
        lines += _lines(f"{data}, {part.name}", figures)
    for one in filter(None, more):
        about[one.key] = one.values
        lines += one.lines
    show(about, *lines, json=json)


def _all_new(tested: "Tested") -> bool:
    """Return whether the classifier knows not one label of these pictures, each of which has one."""
    from labelwise.evaluate.pairs import used_labels

    used = [] if tested.multilabel else used_labels(tested.split, tested.labels)
    known = tested.classifier.labels.names + tested.classifier.model.spec.labels.names
    return bool(used) and not set(used) & set(known)


def _closed(tested: "Tested") -> dict[str, Any]:
    """Return the figures of test images of known labels: of one label each, or of several."""
    from labelwise.evaluate.closed import evaluate_closed
    from labelwise.evaluate.multilabel import evaluate_multilabel

    return asdict(evaluate_multilabel(tested) if tested.multilabel else evaluate_closed(tested))


def _unknown(tested: "Tested", strange: "Part") -> dict[str, Any]:
    """Return how well images of known labels are told from those of other data."""
    from labelwise.evaluate.outliers import evaluate_outliers

    result = evaluate_outliers(tested.scores, tested.classifier.scores(strange.split.images))
    return {f"unknown_{key}": value for key, value in asdict(result).items()}


def _lines(title: str, figures: dict[str, Any]) -> "list[RenderableType]":
    """Return the figures, and the average precision of each label, lowest first, where there is one."""
    table = plain_table(title, ">")
    for key, value in ((key, value) for key, value in figures.items() if key != EACH):
        table.add_row(key.replace("_", " "), str(value) if isinstance(value, int) else percent(value))
    if EACH not in figures:
        return [table]
    each = plain_table("label", "", ">average precision")
    for name, value in sorted(figures[EACH].items(), key=lambda pair: -1 if pair[1] is None else pair[1]):
        each.add_row(name, "" if value is None else bar(value), "no test image" if value is None else percent(value))
    return [table, "", each]
