"""The closing output of fit: the classifier, its estimated accuracy, images to check, and next commands."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from labelwise.cli.output import calibration_line, one_line, percent, plain_table, styled

if TYPE_CHECKING:
    import labelwise as lw
    from labelwise.core.classifier import Classifier

LISTED = 5  # images to check
CIRCULAR = {  # sources of labels other than people
    "groups": "labelwise group, which compared the same features",
    "answers": "answers of a classifier that labelwise sorted images by",
}


def outcome(classifier: "Classifier", folder: Path, home: str) -> Iterator[RenderableType]:
    """Yield the summary of a classifier: training, accuracy, confusions; ``home`` is the folder of its images."""
    summary = classifier.origin.summary
    training_summary = summary["training"]
    training = f": {len(classifier.labels)} labels from {training_summary['images']} images, {training_summary['seconds']:.0f} s on {training_summary['device']}"
    yield styled((str(folder), "bold"), training)
    estimated = summary.get("leave_one_out") or summary.get("validation")
    circular = CIRCULAR.get(summary.get("labels_by", ""))
    if estimated:
        basis, images = "answers to", "validation images"
        if "leave_one_out" in summary:
            basis, images = "leave-one-out on", "training images"
            if copies := training_summary.get("copies"):
                images += f" ({copies} more are copies)"
        yield estimate_line(estimated, basis, images, circular)
        if not circular:
            yield from _lookalike_lines(estimated)
        yield _baseline_line(estimated)
    yield from tuning_lines(classifier)
    if "validation_accuracy" in training_summary and "validation" not in summary:
        yield f"Accuracy on {training_summary['validation_images']} validation images: {percent(training_summary['validation_accuracy'])}."
    elif "validation_precision" in training_summary:
        yield f"Validation images: mean average precision {percent(training_summary['validation_precision'])}."
    elif "naming" in summary:
        yield from _naming_lines(classifier)
    elif not estimated and "calibration" in summary:
        yield from _balance_lines(classifier)
    if "words" in summary:
        yield "No image had a label, so the accuracy is not known. Label some images and measure: labelwise evaluate."
        yield ""
        return
    if "calibration" not in summary:
        yield "Each label has one image, so accuracy cannot be estimated. Add images, or a val split."
        yield ""
        return
    doubt = " This is agreement with other restarts, not truth." if "naming" in summary else ""
    yield f"{calibration_line(summary['calibration'])}.{doubt}"
    if estimated:
        yield from _doubt_lines(estimated, home)
    yield ""


def estimate_line(estimated: Mapping[str, Any], basis: str, images: str, circular: str | None) -> str:
    """Return the estimated accuracy on new images, or why there is no estimate."""
    right, low, high = (percent(estimated[key]) for key in ("accuracy", "low", "high"))
    subject = f"{basis} {estimated['images']} {images}"
    if circular:
        return (
            f"By {subject}, {right} get their own label back. This is not accuracy: the labels come from {circular}. "
            "To measure accuracy, label some images yourself: labelwise evaluate."
        )
    if estimated["accuracy"] == 1:  # report only the lower bound
        return f"Estimated accuracy on new images like these: at least {low} (with 95 % confidence), by {subject}: all are right."
    return f"Estimated accuracy on new images like these: {right} (95 % interval {low} to {high}), by {subject}."


def _lookalike_lines(estimated: Mapping[str, Any]) -> Iterator[str]:
    """Yield the accuracy on images similar to training images, if clearly higher."""
    accuracy = estimated.get("accuracy_with_lookalikes", 0.0)
    if accuracy > estimated["high"]:
        yield (
            f"Many training images look like another one, and these were left out together. New images that look like training images, "
            f"as frames of the same scene do, are answered better: about {percent(accuracy)} right."
        )


def _baseline_line(figures: Mapping[str, Any]) -> str:
    """Compare the classifier with a constant answer, the most frequent label."""
    least = figures["baseline"]
    words = f'Always answering the most frequent label, "{least["label"]}": {percent(least["accuracy"])}.'
    if figures["low"] > least["accuracy"]:
        return words
    return f"{words} Warning: this classifier is not clearly better. Add images of the other labels, or check their labels."


def next_steps(
    data: "lw.data.Dataset", folder: Path, source: Sequence[str] | None, *, doubts: bool = False
) -> Iterator[RenderableType]:
    """Yield commands to try next: classify one image (not a training image, if possible), measure, and check labels.

    ``data`` is the training data; ``source`` is its name and options in the shell, or None if there is no test set. ``doubts``: some
    labels look wrong.
    """
    commands = []
    if not data.features:
        files = [file for name in ("test", "val", "train") if name in data.splits for file in data.splits[name].files]
        commands.append(["classify", str(folder), files[0] if files and data.own_images else "IMAGE.jpg"])
    if source is not None:
        commands.append(["evaluate", str(folder), *source])
        commands += [["audit", *source, "--out", "audit.html"]] if doubts else []
    for word, command in zip(("Try: ", "Then:", "And: "), commands, strict=False):
        yield one_line(f"{word} {shlex.join(['labelwise', *command])}")


def _doubt_lines(estimate: dict[str, Any], home: str) -> Iterator[RenderableType]:
    """Yield the most confused labels, and images whose label looks wrong."""
    if estimate["confused"]:
        rows = ((suspect["label"], suspect["taken_for"], str(suspect["count"])) for suspect in estimate["confused"])
        yield ""
        yield plain_table("most often confused", "taken for", ">times", rows=rows)
    suspicious = estimate["suspicious"]
    if suspicious:
        yield ""
        yield "Images to check: each looks like a different label (the label is wrong, or the image is hard)."
    for suspect in suspicious[:LISTED]:
        yield one_line(
            f"  {os.path.normpath(os.path.join(home, suspect['file']))}: {suspect['looks_like']}? ({percent(suspect['probability'])})"
        )
    if len(suspicious) > LISTED:
        yield f"  And {len(suspicious) - LISTED} more."


def tuning_lines(classifier: "Classifier") -> Iterator[str]:
    """Yield the result of tuning, or advice to tune if it is expected to help."""
    from labelwise.fitting.tuning import FEWEST, WEAK, images_each

    summary, method = classifier.origin.summary, classifier.origin.method
    if "tuning" in summary:
        yield _tuning_result(summary["tuning"])
    elif method is not None and method.name == "discriminant" and summary["training"]["device"] == "cuda":
        accuracy, per_label = summary.get("leave_one_out", {}).get("accuracy", 1.0), images_each(classifier)
        if len(classifier.shape) == 3 and accuracy < WEAK and per_label >= FEWEST:
            yield f"--tune will probably pay here: {per_label:.0f} images of a label, a GPU, and less than {100 * WEAK:.0f} % right (docs/tune.md)"


def _tuning_result(tuning: dict[str, Any]) -> str:
    """Return the result of tuning in one line."""
    frozen_trial, *tuned_trials = tuning["trials"]
    best = max(tuned_trials, key=lambda trial: float(trial["likelihood"]))
    figures = (
        f"validation accuracy {100 * best['accuracy']:.1f} % against {100 * frozen_trial['accuracy']:.1f} % without, log-likelihood "
        f"{best['likelihood']:.3f} against {frozen_trial['likelihood']:.3f}"
    )
    if tuning["rate"] is None:
        return f"tuning did not pay, so the encoder does not change: {figures}"
    return f"encoder tuned (learning rate {tuning['rate']:g}, {best['steps']} steps): {figures}"


def _balance_lines(classifier: "Classifier") -> Iterator[str]:
    """Yield the figures of the trial on held-out labels, if there was one."""
    labels, unseen = len(classifier.labels), len(classifier.unseen)
    yield f"{labels - unseen} labels have images, {unseen} have only a description."
    figures = classifier.origin.summary.get("balance")
    if figures is None:
        yield "Too few labels have images, so the accuracy on labels without images was not estimated."
        return
    plain = percent(figures["without_gap"]["harmonic"])
    yield (
        f"In a trial with {figures['held_labels']} held-out labels, accuracy is {percent(figures['unseen'])} on these (unseen) and "
        f"{percent(figures['seen'])} on the others (seen). The harmonic mean is {percent(figures['harmonic'])}, or {plain} without the "
        f"seen penalty of {figures['gap']:.3f}."
    )


def _naming_lines(classifier: "Classifier") -> tuple[RenderableType, str]:
    """Yield label-free figures of a naming: size, certainty and agreement per label."""
    report = classifier.origin.summary["naming"]
    columns = [map(percent, report[key]) for key in ("sizes", "shares", "agreement")]
    heads = ("label", ">images", ">expected", ">same in other restarts")
    rows = zip(classifier.labels.names, *columns, strict=True)
    table = plain_table(*heads, title="named without a label", rows=rows)
    doubt = "No name was checked against a label: look at images of each label before you rely on its name."
    if report.get("prior") == "words":
        doubt += ' Names were compared by words alone. The extra "text" also compares sentences, which names more clusters correctly.'
    return table, doubt
