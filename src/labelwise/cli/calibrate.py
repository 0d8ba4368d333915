"""The verb calibrate: probabilities and thresholds from images of one's own."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

import labelwise as lw
from labelwise.cli.inputs import open_data_for, open_model
from labelwise.cli.options import Choice, Data, Model, Out, ScoreBy, shared
from labelwise.cli.output import calibration_line, one_line, show, styled
from labelwise.support.errors import DataError

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.evaluation.test_set import TestSet

SPLIT_HELP = "Which images; by default val, or all not trained on."
ACCEPTS_HELP = "Share of different pairs that verify may accept."


def calibrate(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Data,
    out_folder: Out,
    known_rate: Annotated[float, Option(help="Share of known images that stay known.")] = 0.95,
    split: Annotated[Choice | None, Option(help=SPLIT_HELP)] = None,
    false_accepts: Annotated[float | None, Option(help=ACCEPTS_HELP)] = None,
    by: ScoreBy = "similarity",
) -> None:
    """Recalibrate on held-out images of your own."""
    import torch

    from labelwise.core.store import check_free
    from labelwise.evaluation.evaluation import align_targets
    from labelwise.tasks.calibrate import calibrate as run
    from labelwise.tasks.verify import Rule, can_verify, fit_verifier

    check_free(out_folder, shared().overwrite)
    classifier = open_model(model)
    part = _part(classifier, open_data_for(classifier, data), split)
    targets = torch.from_numpy(align_targets(classifier, part.split, part.labels))
    scores = classifier.scores(part.split.images)
    calibrated = run(scores, targets, keep=known_rate)
    if false_accepts is not None or by != "similarity" or (not part.split.multilabel and can_verify(targets)):
        rule: Rule = "eer" if false_accepts is None else false_accepts
        import torch

        calibrated = fit_verifier(scores.of(calibrated), torch.from_numpy(part.split.targets), rule, by=by)
    lw.save(calibrated, out_folder, overwrite=shared().overwrite)
    figures = calibrated.origin.summary["calibration"]
    about = f": calibrated on {figures['images']} images. {calibration_line(figures)}."
    show(
        {"model": str(out_folder), "calibration": figures, "measured": part.figures()},
        one_line(part.words),
        styled((str(out_folder), "bold"), about),
    )


def _part(classifier: "Classifier", data: "lw.data.Dataset", split: str | None) -> "TestSet":
    """Return the images to calibrate on; of data that it was trained on those that fit held out for this, not its test images."""
    from labelwise.evaluation.test_set import select_test_set

    part = select_test_set(classifier, data, split or "all")
    trained = data.own_splits or part.doubt or bool(part.leaked.any())
    if split is None and trained and not data.own_splits and classifier.head.kind == "discriminant":
        raise DataError(
            f'All of "{data.name}" that is not for the test trained this classifier. It was calibrated on these pictures, each left out. '
            "Give others, or say which with --split."
        )
    return select_test_set(classifier, data, "val") if split is None and trained else part
