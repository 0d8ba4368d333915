"""What a reader of a report should beware of: leaks, few images, probabilities that were never fitted."""

import math

from labelwise.errors import listing
from labelwise.report.case import Case
from labelwise.report.findings import Findings
from labelwise.report.pages import counted, percent

FEW_IMAGES, FEW_OF_LABEL = 100, 5
KEPT = 0.8  # known images that should not be called unknown, at least


def interval(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of n images (Wilson)."""
    z = 1.959964
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def cautions(case: Case, found: Findings) -> list[str]:
    """Return the warnings of a case in words, the gravest first."""
    return [*_about_leaks(case), *_about_images(case, found), *_about_probabilities(case, found)]


def _about_leaks(case: Case) -> list[str]:
    if case.tested.leaked:
        return [
            f"{round(case.tested.leaked * len(case))} of these {len(case)} images ({percent(case.tested.leaked)}) were used to train "
            "or calibrate the classifier, so the figures on this page are too good. Report on images of their own."
        ]
    if case.classifier.origin.train_hashes is None:
        return ["The classifier does not know which images it was made from, so leaks could not be looked for."]
    return []


def _about_images(case: Case, found: Findings) -> list[str]:
    said, n = [], len(case)
    if n < FEW_IMAGES:
        low, high = interval(found.accuracy, n)
        said.append(
            f"Only {counted(n, 'test image')}: the accuracy may as well be {percent(low)} or {percent(high)} (95 % interval)."
        )
    missing = [one.label for one in found.each if not one.images]
    if missing:
        said.append(f"No test image of {counted(len(missing), 'label')}: {listing(missing, 6)}.")
    rare = [one.label for one in found.each if 0 < one.images < FEW_OF_LABEL]
    if rare and n >= FEW_IMAGES:
        said.append(f"Fewer than {FEW_OF_LABEL} test images of {counted(len(rare), 'label')}: {listing(rare, 6)}.")
    if case.part.unlabelled:
        said.append(f"{case.part.unlabelled} test images have no label and were left out.")
    given, taken = case.part.shape, case.classifier.shape
    if given != taken:
        said.append(
            f"The images came as {list(given)} and were resized to {list(taken)}; the same pictures, read from their files at "
            "that size, may be answered otherwise."
        )
    skipped = case.classifier.origin.summary.get("training", {}).get("skipped", 0)
    if skipped:
        said.append(f"{skipped} files could not be read when it was trained; the training log lists them.")
    return said


def _about_probabilities(case: Case, found: Findings) -> list[str]:
    said, errors = [], found.calibration
    if "calibration" not in case.classifier.origin.summary:
        said.append("Not calibrated: probabilities were never fitted to held-out images (labelwise calibrate).")
    for kind, words in (("ece", "of the answered label"), ("answer_ece", "of yes and no answers")):
        before, after = errors.errors_before.get(kind), errors.errors_after.get(kind)
        if before is not None and after is not None and after > max(before, 0.05):
            said.append(
                f"The calibration error {words} is larger after calibration than before: {percent(after)}, not {percent(before)}."
            )
    if "naming" in case.classifier.origin.summary:
        said.append(
            "It was trained without a label: its probabilities say how far groupings agree, not how often it is right."
        )
    if found.unknown.limit is None:
        said.append('It has no rule for "unknown", so it names a label for every picture.')
    kept = found.closed.kept if found.closed else found.several.kept if found.several else 1.0
    if kept < KEPT:
        said.append(f'{percent(1 - kept)} of these images of known labels are called "unknown".')
    return said
