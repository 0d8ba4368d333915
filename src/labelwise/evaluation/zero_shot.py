"""The zero-shot protocols: unseen labels alone, and seen and unseen labels together (generalised)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelwise.core.balance import BalanceCurve, balance_curve
from labelwise.core.metrics import harmonic_mean, per_class_accuracy
from labelwise.evaluation.evaluation import Evaluation
from labelwise.support.errors import DataError


@dataclass(frozen=True, eq=False, kw_only=True)
class ZeroShotResult:
    """Figures on test images of seen and unseen labels; every accuracy is averaged over labels."""

    images: int  # how many were tested
    seen_labels: int  # how many labels of the test had training images
    unseen_labels: int  # how many had a description alone
    zero_shot: float  # accuracy on images of unseen labels where only those may be answered
    unseen: float  # accuracy on images of unseen labels where all labels may be answered (u)
    seen: float  # accuracy on images of seen labels where all labels may be answered (s)
    harmonic: float  # the harmonic mean of both (H)
    unseen_without_gap: float  # u without a seen penalty
    seen_without_gap: float  # s there
    harmonic_without_gap: float  # H there
    area: float  # under the curve of s over u for all gaps (AUSUC)
    gap: float  # the seen penalty, chosen without any test image
    leaked: float  # share of the images that the classifier was trained or calibrated on; anything but 0 flatters it
    curve: BalanceCurve  # u and s for every gap


def evaluate_zero_shot(evaluation: Evaluation) -> ZeroShotResult:
    """Return the zero-shot figures of test images that have one label each."""
    scores, targets = evaluation.labelled()
    calibration = scores.classifier.calibration
    seen, raw = ~np.asarray(calibration.unseen), np.asarray(scores.raw)
    of_seen = seen[targets]
    if of_seen.all() or not of_seen.any():
        raise DataError(
            f"The zero-shot protocol needs test images of labels with training images and of labels without; given "
            f"{int(of_seen.sum())} and {int((~of_seen).sum())}."
        )
    curve = balance_curve(raw, targets, seen, calibration.penalty)
    among_unseen = np.where(seen, -np.inf, raw[~of_seen]).argmax(1)
    (unseen, at_penalty), (unseen_raw, known_raw) = curve.at(calibration.seen_penalty), curve.at(0.0)
    return ZeroShotResult(
        images=len(scores),
        seen_labels=len(np.unique(targets[of_seen])),
        unseen_labels=len(np.unique(targets[~of_seen])),
        zero_shot=per_class_accuracy(among_unseen, targets[~of_seen]),
        unseen=unseen,
        seen=at_penalty,
        harmonic=harmonic_mean(unseen, at_penalty),
        unseen_without_gap=unseen_raw,
        seen_without_gap=known_raw,
        harmonic_without_gap=harmonic_mean(unseen_raw, known_raw),
        area=curve.area,
        gap=calibration.seen_penalty,
        leaked=evaluation.leaked,
        curve=curve,
    )


def draw_curve(result: ZeroShotResult) -> Any:
    """Return a figure: seen accuracy over unseen accuracy for every gap, with the chosen gap and no gap marked."""
    from matplotlib.figure import Figure

    curve = result.curve
    figure = Figure(figsize=(5, 4.6), layout="constrained", facecolor="white")
    axes = figure.subplots()
    axes.fill_between(curve.unseen, curve.seen, color="#1a6fc9", alpha=0.08, linewidth=0)
    axes.plot(curve.unseen, curve.seen, color="#1a6fc9", linewidth=1.5, label=f"every gap, area {result.area:.3f}")
    for end, colour, words in (("_without_gap", "#c9711a", "no gap"), ("", "#1a7f37", f"chosen gap {result.gap:.3f}")):
        u, s, h = (getattr(result, prefix + end) for prefix in ("unseen", "seen", "harmonic"))
        axes.plot(
            [u], [s], "o", color=colour, markersize=8, label=f"{words}: H {100 * h:.1f} %", clip_on=False, zorder=3
        )
    axes.set(
        title=f"{result.seen_labels} seen and {result.unseen_labels} unseen labels, {result.images} test images",
        xlabel="accuracy on unseen labels (u)",
        ylabel="accuracy on seen labels (s)",
        xlim=(0, 1.0),
        ylim=(0, 1.0),
        aspect="equal",
    )
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
