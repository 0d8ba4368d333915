"""The verb calibrate: probabilities and thresholds from the user's own images."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer import Argument, Option

import labelwise as lw
from labelwise.cli.inputs import PRIOR_HELP, open_data_for, open_model, restricted
from labelwise.cli.options import Choice, Model, Out, ScoreBy, shared_options
from labelwise.cli.output import calibration_line, one_line, percent, show, styled
from labelwise.support.errors import DataError, UsageError

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.evaluation.test_set import TestSet

SPLIT_HELP = "Which images; by default val, or all not trained on."
THRESHOLD_HELP = "LABEL=P: least probability to answer LABEL."
PRECISION_HELP = "LABEL=P: choose a threshold with this precision."
ACCEPTS_HELP = "Share of different pairs that verify may accept."


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What to fit, and thresholds set by the user."""

    known_rate: Annotated[float, Option(help="Share of known images that stay known.")] = 0.95
    false_accepts: Annotated[float | None, Option(help=ACCEPTS_HELP)] = None
    by: ScoreBy = "similarity"
    threshold: Annotated[list[str] | None, Option(help=THRESHOLD_HELP)] = None
    precision: Annotated[list[str] | None, Option(help=PRECISION_HELP)] = None
    prior: Annotated[Path | None, Option(help=PRIOR_HELP)] = None


def calibrate(
    model: Model,
    data: Annotated[str | None, Argument(help="Held-out images; --threshold and --prior need none.")] = None,
    *,
    out_folder: Out,
    split: Annotated[Choice | None, Option(help=SPLIT_HELP)] = None,
    rules: Rules,
) -> None:
    """Recalibrate, set thresholds, or name labels that occur."""
    from labelwise.core.store import check_free
    from labelwise.evaluation.evaluation import Evaluation
    from labelwise.evaluation.operating import thresholds_for
    from labelwise.tasks.calibrate import calibrate as run
    from labelwise.tasks.verify import Rule, can_verify, fit_verifier

    check_free(out_folder, shared_options().overwrite)
    classifier = open_model(model)
    if rules.prior is not None:
        classifier = restricted(classifier, rules.prior)
    thresholds = {**classifier.thresholds, **_by_label(rules.threshold)}
    document: dict[str, Any] = {"model": str(out_folder)}
    lines: list[RenderableType] = []
    if data is None:
        if (not thresholds and rules.prior is None) or rules.precision:
            raise UsageError("Give images to calibrate on, or set a threshold: --threshold LABEL=P.")
        classifier = classifier.with_thresholds(thresholds)
        note_line = ""
    else:
        part = _part(classifier, open_data_for(classifier, data), split)
        evaluation = Evaluation.of(classifier, part.split, part.labels)
        scores = evaluation.scores
        classifier = run(scores, evaluation.targets, keep=rules.known_rate)
        if rules.false_accepts is not None or rules.by != "similarity" or can_verify(part.split.targets):
            rule: Rule = "eer" if rules.false_accepts is None else rules.false_accepts
            classifier = fit_verifier(scores.of(classifier), part.split.targets, rule, by=rules.by)
        if rules.precision:
            thresholds |= thresholds_for(replace(evaluation, scores=scores.of(classifier)), _by_label(rules.precision))
        classifier = classifier.with_thresholds(thresholds)
        figures = classifier.origin.summary["calibration"]
        note_line = f": calibrated on {figures['images']} images. {calibration_line(figures)}."
        document |= {"calibration": figures, "measured": part.figures()}
        lines.append(one_line(part.words))
    lw.save(classifier, out_folder, overwrite=shared_options().overwrite)
    lines += [one_line(f'"{name}" is answered at {percent(value)} or more.') for name, value in thresholds.items()]
    show({**document, "thresholds": thresholds}, *lines, styled((str(out_folder), "bold"), note_line))


def _by_label(words: list[str] | None) -> dict[str, float]:
    """Return a number for each label, parsed from words such as ``crack=0.8``."""
    numbers = {}
    for word in words or ():
        name, _, number = word.rpartition("=")
        try:
            numbers[name] = float(number)
        except ValueError:
            raise UsageError(
                f'Give a label and a number as LABEL=NUMBER, for example crack=0.8; given "{word}".'
            ) from None
    return numbers


def _part(classifier: "Classifier", data: "lw.data.Dataset", split: str | None) -> "TestSet":
    """Return the images to calibrate on: never training images or test images of this classifier."""
    from labelwise.evaluation.test_set import select_test_set

    part = select_test_set(classifier, data, split or "all")
    in_training = data.own_splits or part.doubt or bool(part.leaked.any())
    if split is None and in_training and not data.own_splits and classifier.head.kind == "discriminant":
        raise DataError(
            f'This classifier was trained on all of "{data.name}" except the test images, and calibrated on it by leave-one-out. '
            "Give other images, or choose some with --split."
        )
    return select_test_set(classifier, data, "val") if split is None and in_training else part
