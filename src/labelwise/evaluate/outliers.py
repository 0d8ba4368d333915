"""The outlier protocol: how well are pictures of no known label told from test images?"""

from dataclasses import dataclass

from torch import Tensor

from labelwise.core import Classifier
from labelwise.metrics import auroc, fpr_at_tpr
from labelwise.tasks.outliers import Sign, flag_outliers, outlier_scores


@dataclass(frozen=True, kw_only=True)
class OutlierResult:
    """Figures of telling outliers from known images.

    Attributes:
        auroc: probability that an outlier looks stranger than a known image.
        fpr95: share of outliers that pass as known where 95 % of the known images do.
        flagged: share of outliers called unknown by the classifier's own rule.
    """

    auroc: float
    fpr95: float
    flagged: float


def evaluate_outliers(classifier: Classifier, known: Tensor, strange: Tensor, *, sign: Sign = "both") -> OutlierResult:
    """Return the outlier figures from images of known labels and images of none.

    Args:
        classifier: any classifier.
        known: test images of its labels ``[n, ...]``.
        strange: images of none of them ``[m, ...]``.
        sign: rank by both signs, or by one; ``confidence`` alone is what the papers report.
    """
    known_codes, strange_codes = classifier.encode(known), classifier.encode(strange)
    inside, outside = (outlier_scores(classifier, codes, sign) for codes in (known_codes, strange_codes))
    return OutlierResult(
        auroc=auroc(outside, inside),
        fpr95=fpr_at_tpr(-inside, -outside, 0.95),
        flagged=float(flag_outliers(classifier, outlier_scores(classifier, strange_codes)).double().mean()),
    )
