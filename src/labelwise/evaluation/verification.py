"""Verification: how well image pairs of one label are separated from pairs of different labels."""

from dataclasses import dataclass, field

import numpy as np

from labelwise.core.metrics import DetCurve, auroc, det_curve, equal_error, min_dcf, misses_at
from labelwise.evaluation.evaluation import Evaluation
from labelwise.tasks.similarity import By
from labelwise.tasks.verify import score_pairs

PAIRS = 200_000  # of each kind, at most
POINTS = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True, kw_only=True)
class VerificationResult:
    """Figures on pairs of test images."""

    images: int  # how many labelled ones
    same: int  # pairs of one label that were scored
    different: int  # pairs of different labels that were scored
    by: By  # the score
    eer: float  # equal error rate, at the best threshold for these pairs
    min_dcf: float  # least detection cost, with 1 pair in 100 the same
    auroc: float  # the probability that a pair of one label scores above a pair of different labels
    # points of the detection error trade-off: share of false accepts, and of misses there
    det: tuple[tuple[float, float], ...]
    # the share of pairs of one label that the classifier's own threshold refuses; None without one for this
    # score
    misses: float | None
    false_accepts: float | None  # the share of pairs of different labels that it accepts
    leaked: float  # share of the images that the classifier was trained or calibrated on; anything but 0 flatters it
    curve: DetCurve = field(compare=False, repr=False)  # both errors at every threshold


def evaluate_verification(
    evaluation: Evaluation, *, by: By | None = None, most: int = PAIRS, seed: int = 0
) -> VerificationResult:
    """Return how well the classifier tells pairs of one label from others; labels may be ones it does not know.

    ``by`` None is the score of the classifier's own threshold, which is then measured, too. At most ``most`` pairs of each kind
    are drawn.
    """
    evaluation = evaluation.own_labelled()
    model, rule, targets = (evaluation.classifier.head, evaluation.classifier.verifier, evaluation.split.targets)
    score = by or (rule.by if rule else "similarity")
    pairs = score_pairs(model, evaluation.scores.embeddings, targets, score, (most, seed))
    same, different = map(np.asarray, pairs)
    curve = det_curve(same, different)
    own = rule if rule is not None and rule.by == score else None
    return VerificationResult(
        images=len(evaluation),
        same=len(same),
        different=len(different),
        by=score,
        eer=equal_error(curve).rate,
        min_dcf=min_dcf(curve),
        auroc=auroc(same, different),
        det=tuple((share, misses_at(curve, share)) for share in POINTS),
        misses=None if own is None else float((same < own.threshold).mean()),
        false_accepts=None if own is None else float((different >= own.threshold).mean()),
        leaked=evaluation.leaked,
        curve=curve,
    )
