"""Verification on a test split: how well pairs of one label are told from pairs of different labels."""

from dataclasses import dataclass

from torch import Tensor

from labelwise.core import Classifier
from labelwise.data.dataset import Split
from labelwise.data.pictures import as_batch
from labelwise.errors import DataError
from labelwise.evaluate.closed import leaked_share
from labelwise.metrics import auroc, equal_error_rate
from labelwise.ops.detection import det_curve, min_dcf, misses_at
from labelwise.tasks.likeness import By
from labelwise.tasks.verify import scored_pairs

PAIRS = 200_000  # of each kind, at most
POINTS = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True, kw_only=True)
class VerificationResult:
    """Figures on pairs of test images.

    Attributes:
        images: how many labelled ones.
        same: pairs of one label that were scored.
        different: pairs of different labels that were scored.
        by: the score.
        eer: equal error rate, at the best threshold for these pairs.
        min_dcf: least detection cost, with 1 pair in 100 the same.
        auroc: the probability that a pair of one label scores above a pair of different labels.
        det: points of the detection error trade-off: share of false accepts, and of misses there.
        misses: the share of pairs of one label that the classifier's own threshold refuses; None without one for this score.
        false_accepts: the share of pairs of different labels that it accepts.
        leaked: share of the images that the classifier was trained or calibrated on; anything but 0 flatters it.
    """

    images: int
    same: int
    different: int
    by: By
    eer: float
    min_dcf: float
    auroc: float
    det: tuple[tuple[float, float], ...]
    misses: float | None
    false_accepts: float | None
    leaked: float


def evaluate_verification(
    classifier: Classifier, split: Split, *, by: By | None = None, most: int = PAIRS, seed: int = 0
) -> VerificationResult:
    """Return how well the classifier tells pairs of one label from others; labels may be ones it does not know.

    Args:
        classifier: any; its threshold, if it has one, is measured as well.
        split: labelled test images.
        by: the score; None is that of the classifier's threshold, or the similarity.
        most: pairs of each kind; where there are more, so many are drawn.
        seed: of what is drawn.
    """
    if split.truths is not None:
        raise DataError(
            "Several labels may be true of these images, so two of them are neither the same nor different."
        )
    split = split.select((split.targets >= 0).nonzero()[:, 0])
    codes = classifier.encode(as_batch(split.images, classifier.model.spec.shape))
    leaked = leaked_share(classifier, split.images)
    return verification_of_codes(classifier, codes, split.targets, by=by, draw=(most, seed), leaked=leaked)


def verification_of_codes(
    classifier: Classifier,
    codes: Tensor,
    targets: Tensor,
    *,
    by: By | None = None,
    draw: tuple[int, int] = (PAIRS, 0),
    leaked: float = 0.0,
) -> VerificationResult:
    """Return the same from the codes of test images ``[n, d]`` and their targets ``[n]``, none of them -1.

    Args:
        classifier: what made the codes.
        codes: ``[n, d]``.
        targets: ``[n]``.
        by: the score.
        draw: how many pairs of each kind at most, and the seed.
        leaked: share of the images that the classifier was made from.
    """
    rule = classifier.verification
    score = by or (rule.by if rule else "similarity")
    same, different = scored_pairs(classifier.model, codes, targets, score, draw)
    curve = det_curve(same, different)
    own = rule if rule is not None and rule.by == score else None
    return VerificationResult(
        images=len(codes),
        same=len(same),
        different=len(different),
        by=score,
        eer=equal_error_rate(same, different).rate,
        min_dcf=min_dcf(same, different),
        auroc=auroc(same, different),
        det=tuple((share, misses_at(curve, share)) for share in POINTS),
        misses=None if own is None else float((same < own.threshold).double().mean()),
        false_accepts=None if own is None else float((different >= own.threshold).double().mean()),
        leaked=leaked,
    )
