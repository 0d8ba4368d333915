"""The outlier protocol: how well are pictures of no known label told from test images?"""

from dataclasses import dataclass

from labelwise.core.familiarity import Sign
from labelwise.core.metrics import auroc, fpr_at_tpr
from labelwise.core.scores import Scores


@dataclass(frozen=True, kw_only=True)
class OutlierResult:
    """Figures of telling outliers from known images."""

    auroc: float  # probability that an outlier looks stranger than a known image
    fpr95: float  # share of outliers that pass as known where 95 % of the known images do
    flagged: float  # share of outliers called unknown by the classifier's own rule


def evaluate_outliers(known: Scores, strange: Scores, *, sign: Sign = "both") -> OutlierResult:
    """Return the figures from images of known labels and of none; papers rank by the sign ``confidence`` alone."""
    inside, outside = (scores.classifier.familiarity.outlier_score(scores, sign) for scores in (known, strange))
    return OutlierResult(
        auroc=auroc(outside, inside),
        fpr95=fpr_at_tpr(-inside, -outside, 0.95),
        flagged=float(strange.unknown.mean()),
    )
