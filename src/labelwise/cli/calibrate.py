"""The verb calibrate: probabilities and thresholds from images of one's own."""

from typing import Annotated

import typer

from labelwise.cli.inputs import open_data_for, open_model
from labelwise.cli.options import Data, Model, Out, Overwrite, Root, ScoreBy, Splits
from labelwise.cli.output import calibration_line, out


def calibrate(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Data,
    out_folder: Out,
    keep: Annotated[float, typer.Option(help="Share of known images that must not be called unknown.")] = 0.95,
    split: Annotated[str, typer.Option(help="Which split to calibrate on; never the one you test on.")] = "val",
    splits: Splits = None,
    root: Root = None,
    false_accepts: Annotated[
        float | None,
        typer.Option(
            help="For verify: share of different pairs to call the same; left out, as many as same pairs are missed."
        ),
    ] = None,
    by: ScoreBy = "similarity",
    overwrite: Overwrite = False,
) -> None:
    """Fit probabilities, the outlier rule and the threshold of verify anew, on held-out images of your own."""
    from labelwise.evaluate.tested import align_targets
    from labelwise.store import check_free, save
    from labelwise.tasks.calibrate import calibrate as run
    from labelwise.tasks.verify import can_verify, fit_verifier

    check_free(out_folder, overwrite)
    classifier = open_model(model)
    dataset = open_data_for(classifier, data, root, splits)
    part = dataset.split(split)
    targets = align_targets(classifier, part, dataset.labels)
    scores = classifier.scores(part.images)
    calibrated = run(scores, targets, keep=keep)
    if false_accepts is not None or by != "similarity" or (not dataset.multilabel and can_verify(targets)):
        verified = scores.of(calibrated)
        calibrated = fit_verifier(verified, part.targets, "eer" if false_accepts is None else false_accepts, by=by)
    save(calibrated, out_folder, overwrite=overwrite)
    figures = calibrated.origin.summary["calibration"]
    out().print(f"[bold]{out_folder}[/]: calibration error {calibration_line(figures)}, on {figures['images']} images")
