"""The outlier protocol: how well are pictures of no known label told from test images?"""

from dataclasses import dataclass

from torch import Tensor

from labelwise.core import Classifier
from labelwise.metrics import auroc, fpr_at_tpr
from labelwise.tasks.outliers import outlier_scores


@dataclass(frozen=True, kw_only=True)
class OutlierResult:
    """Figures of telling outliers from known images.

    Attributes:
        auroc: probability that an outlier looks stranger than a known image.
        fpr95: share of outliers that pass as known where 95 % of the known images do.
        flagged: share of outliers called unknown at the classifier's own threshold.
    """

    auroc: float
    fpr95: float
    flagged: float


def evaluate_outliers(classifier: Classifier, known: Tensor, strange: Tensor) -> OutlierResult:
    """Return the outlier figures from images of known labels and images of none."""
    inside, outside = outlier_scores(classifier, known), outlier_scores(classifier, strange)
    limit = 1.0 if classifier.unknown is None else 1 - classifier.unknown
    return OutlierResult(
        auroc=auroc(outside, inside),
        fpr95=fpr_at_tpr(-inside, -outside, 0.95),
        flagged=float((outside > limit).double().mean()),
    )
