"""The verb that measures a classifier: evaluate."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelwise.cli.multilabel import EACH, closed_figures, print_each
from labelwise.cli.output import note, out, percent, plain_table, print_json
from labelwise.cli.pair_figures import all_new, pair_result, plain_pairs, print_pairs, tell_new_labels
from labelwise.cli.parts import SplitName, Unknown, print_words, read_data, unknown_part
from labelwise.cli.picture_verbs import AsJson, Device, Model, open_model
from labelwise.cli.rank_verb import ordinal_result, print_ordinal
from labelwise.cli.train_verbs import Data, Root, Splits
from labelwise.cli.zero_shot import check_curve, plain_figures, print_figures, zero_shot_result
from labelwise.errors import UsageError

if TYPE_CHECKING:
    from labelwise.evaluate.part import Part
    from labelwise.scores import Scores


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
    from labelwise.evaluate.part import choose_part
    from labelwise.evaluate.tested import Tested

    check_curve(curve)
    classifier = open_model(model, device)
    part = choose_part(classifier, read_data(classifier.shape, data, root, splits), split)
    strange = None if unknown is None else unknown_part(classifier, unknown, root)
    about: dict[str, Any] = {"model": str(model), "data": data, "split": part.name, "measured": part.figures()}
    tested = Tested.of(classifier, part.split, part.labels)
    if all_new(classifier, part.split, part.labels) and not (unknown or curve):
        if not json:
            print_words(part.words)
        tell_new_labels(tested, about, json)
        return
    figures = closed_figures(tested)
    if curve and tested.multilabel:
        raise UsageError(f'There is no curve of "{data}": several labels may be true of one image. Leave --curve out.')
    zero_shot = None if tested.multilabel else zero_shot_result(tested, curve)
    ordinal = ordinal_result(tested)
    pairs = pair_result(tested)
    if strange is not None:
        about["measured_unknown"] = strange.figures()
        figures |= _unknown_figures(tested.scores, strange)
    if figures["leaked"]:
        note(
            f"Warning: {percent(figures['leaked'])} of these images were used to train or calibrate this classifier, so the "
            "figures are too good. Give test images a folder or a split of their own."
        )
    if json:
        figures |= {"zero_shot": plain_figures(zero_shot)} if zero_shot else {}
        figures |= {"ordinal": asdict(ordinal)} if ordinal else {}
        figures |= {"pairs": plain_pairs(pairs)} if pairs else {}
        print_json({**about, **figures})
        return
    print_words(part.words, *([f"As unknown: {strange.words}"] if strange else []))
    _print(f"{data}, {part.name}", figures)
    if zero_shot:
        print_figures(zero_shot)
    if ordinal:
        print_ordinal(ordinal)
    if pairs:
        print_pairs(pairs)


def _print(title: str, figures: dict[str, Any]) -> None:
    table = plain_table(title, ">")
    for key, value in ((key, value) for key, value in figures.items() if key != EACH):
        table.add_row(key.replace("_", " "), str(value) if isinstance(value, int) else percent(value))
    out().print(table)
    print_each(figures)


def _unknown_figures(known: "Scores", strange: "Part") -> dict[str, Any]:
    """Return how well images of known labels are told from those of other data."""
    from labelwise.evaluate.outliers import evaluate_outliers

    found = evaluate_outliers(known, known.classifier.scores(strange.split.images))
    return {f"unknown_{key}": value for key, value in asdict(found).items()}
