"""Warnings of a report: leaks, few images, uncalibrated probabilities."""

from collections.abc import Iterator

from labelwise.core.metrics import wilson
from labelwise.reporting.case import Case
from labelwise.reporting.pages import count_phrase, percent
from labelwise.support.errors import listing

FEW_IMAGES, FEW_OF_LABEL = 100, 5
KEPT = 0.8  # least share of known images not called unknown


def cautions(case: Case) -> list[str]:
    """Return the warnings of a case, the most serious first."""
    return [*_about_images(case), *_about_probabilities(case)]


def _about_images(case: Case) -> Iterator[str]:
    n, origin = len(case), case.classifier.origin
    if case.figures.leaked:
        yield (
            f"{round(case.figures.leaked * n)} of these {n} test images ({percent(case.figures.leaked)}) were used to train or "
            "calibrate the classifier, so the figures on this page are too optimistic. Test on other images."
        )
    elif origin.train_digests is None:
        yield "The classifier has no hashes of its training images, so test images seen in training cannot be detected."
    if n < FEW_IMAGES:
        low, high = map(percent, wilson(case.accuracy, n))
        yield f"Only {count_phrase(n, 'test image')}: the 95 % interval of the accuracy is {low} to {high}."
    missing = [label.label for label in case.each if not label.images]
    if missing:
        yield f"No test image of {count_phrase(len(missing), 'label')}: {listing(missing, 6)}."
    rare = [label.label for label in case.each if 0 < label.images < FEW_OF_LABEL]
    if rare and n >= FEW_IMAGES:
        yield f"Fewer than {FEW_OF_LABEL} test images of {count_phrase(len(rare), 'label')}: {listing(rare, 6)}."
    if case.test_set.unlabelled:
        yield f"{case.test_set.unlabelled} test images without a label are left out."
    if case.test_set.shape and case.test_set.shape != case.classifier.shape:  # files can be read in any shape
        yield (
            f"The images have shape {list(case.test_set.shape)} and were resized to {list(case.classifier.shape)}; reading their "
            "files directly at that size may give different answers."
        )
    if skipped := origin.summary.get("training", {}).get("skipped", 0):
        yield f"{count_phrase(skipped, 'file')} could not be used in training; labelwise data check lists them."


def _about_probabilities(case: Case) -> Iterator[str]:
    summary = case.classifier.origin.summary
    if "calibration" not in summary:
        yield "Not calibrated: no held-out images were used to fit probabilities (labelwise calibrate)."
    words = {"ece": "of the answered label", "answer_ece": "of yes and no answers"}
    for kind, before in case.calibration.errors_before.items():
        after = case.calibration.errors_after[kind]
        if after > max(before, 0.05) and percent(after) != percent(before):
            error = f"{percent(after)}, not {percent(before)}"
            yield f"The calibration error {words[kind]} is larger after calibration than before: {error}."
    if "naming" in summary:
        yield "It was trained without labels: its probabilities measure the agreement of clusterings, not accuracy."
    if case.unknown.limit is None:
        yield 'It has no outlier threshold and never answers "unknown".'
    result = case.closed or case.several
    if result is not None and result.kept < KEPT:
        yield f'{percent(1 - result.kept)} of these test images of known labels are called "unknown".'
