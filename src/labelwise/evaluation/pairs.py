"""How alike images are, by every score at once: verification and retrieval on the same embeddings, of known labels or of new ones."""

from dataclasses import dataclass

from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.retrieval import RetrievalResult, evaluate_retrieval
from labelwise.evaluation.verification import VerificationResult, evaluate_verification
from labelwise.support.rows import draw_rows
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


def evaluate_pairs(evaluation: Evaluation, *, most: int | None = None, seed: int = 0) -> PairsResult:
    """Return how well the classifier tells pairs of one label from others and finds images of a label, by every score.

    Labels may be ones that the classifier does not know. Where there are more images than ``most``, so many are drawn.
    """
    evaluation = evaluation.own_labelled()
    if most is not None and len(evaluation) > most:
        evaluation = evaluation[draw_rows(len(evaluation), most, seed)]
    scores = known_scores(evaluation.classifier.model)
    return PairsResult(
        images=len(evaluation),
        labels=len(set(evaluation.split.targets.tolist())),
        verification={by: evaluate_verification(evaluation, by=by) for by in scores},
        retrieval={by: evaluate_retrieval(evaluation, by=by) for by in scores},
        leaked=evaluation.leaked,
    )
