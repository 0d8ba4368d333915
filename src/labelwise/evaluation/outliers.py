"""The outlier protocol: how well images without a known label are detected."""

from dataclasses import dataclass

import numpy as np

from labelwise.core.calibration import Sign
from labelwise.core.metrics import auroc, fpr_at_tpr
from labelwise.core.scores import Scores


@dataclass(frozen=True, kw_only=True)
class OutlierResult:
    """Figures of detecting outliers among known images."""

    auroc: float  # probability that an outlier scores higher than a known image (AUROC)
    fpr95: float  # share of outliers accepted if 95 % of known images are accepted
    flagged: float  # share of outliers called unknown by the classifier's own rule


def evaluate_outliers(known: Scores, outliers: Scores, *, sign: Sign = "both") -> OutlierResult:
    """Return the figures from known images and outliers; papers rank by the sign ``confidence`` alone."""
    inside, outside = (
        np.asarray(scores.classifier.familiarity.outlier_score(scores, sign)) for scores in (known, outliers)
    )
    return OutlierResult(
        auroc=auroc(outside, inside),
        fpr95=fpr_at_tpr(-inside, -outside, 0.95),
        flagged=float(np.asarray(outliers.unknown).mean()),
    )
