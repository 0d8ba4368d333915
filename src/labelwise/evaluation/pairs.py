"""How alike images are, by every score at once: verification and retrieval on the same embeddings, of known labels or of new ones."""

from dataclasses import dataclass

import torch

from labelwise.core.rows import drawn_rows
from labelwise.evaluation.retrieval import RetrievalResult, evaluate_retrieval
from labelwise.evaluation.tested import Tested
from labelwise.evaluation.verification import VerificationResult, evaluate_verification
from labelwise.tasks.similarity import By, known_scores


@dataclass(frozen=True, kw_only=True)
class PairsResult:
    """Figures of pairs of test images, by each score."""

    images: int  # how many were compared
    labels: int  # how many labels they have
    # by the model's similarity, the cosine of embeddings, and their sum; of these by the cosine alone where the
    # model learns no similarity of its own. By the cosine of whitened embeddings where it has what that needs
    verification: dict[By, VerificationResult]
    retrieval: dict[By, RetrievalResult]  # likewise
    leaked: float  # share of the images that the classifier was trained or calibrated on; anything but 0 flatters it


def evaluate_pairs(tested: Tested, *, most: int | None = None, seed: int = 0) -> PairsResult:
    """Return how well the classifier tells pairs of one label from others and finds images of a label, by every score.

    Labels may be ones that the classifier does not know. Where there are more images than ``most``, so many are drawn.
    """
    tested = tested.own_labelled()
    if most is not None and len(tested) > most:
        tested = tested[drawn_rows(len(tested), most, seed)]
    scores = known_scores(tested.classifier.model)
    return PairsResult(
        images=len(tested),
        labels=len(torch.unique(tested.split.targets)),
        verification={by: evaluate_verification(tested, by=by) for by in scores},
        retrieval={by: evaluate_retrieval(tested, by=by) for by in scores},
        leaked=tested.leaked,
    )
