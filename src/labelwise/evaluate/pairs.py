"""How alike images are, by every score at once: verification and retrieval on the same codes, of known labels or of new ones."""

from dataclasses import dataclass

import torch

from labelwise.core import Classifier, Labels
from labelwise.data.dataset import Dataset, Split
from labelwise.data.pictures import as_batch
from labelwise.errors import DataError, listing
from labelwise.evaluate.closed import leaked_share
from labelwise.evaluate.retrieval import RetrievalResult, retrieval_of_codes
from labelwise.evaluate.verification import VerificationResult, verification_of_codes
from labelwise.tasks.likeness import By, known_scores


@dataclass(frozen=True, kw_only=True)
class PairsResult:
    """Figures of pairs of test images, by each score.

    Attributes:
        images: how many were compared.
        labels: how many labels they have.
        verification: by the model's ``similarity``, the ``cosine`` of codes, and their ``sum``; of these by the cosine alone where
            the model learns no similarity of its own. By the cosine of ``whitened`` codes where it has what that needs.
        retrieval: likewise.
        leaked: share of the images that the classifier was trained or calibrated on; anything but 0 flatters it.
    """

    images: int
    labels: int
    verification: dict[By, VerificationResult]
    retrieval: dict[By, RetrievalResult]
    leaked: float


def evaluate_pairs(classifier: Classifier, split: Split, *, most: int | None = None, seed: int = 0) -> PairsResult:
    """Return how well the classifier tells pairs of one label from others and finds images of a label; each is encoded once.

    Args:
        classifier: any.
        split: labelled test images; their labels may be ones that the classifier does not know.
        most: where there are more images, so many are drawn.
        seed: of what is drawn.
    """
    if split.truths is not None:
        raise DataError("Several labels may be true of these images, so two are neither the same nor different.")
    rows = (split.targets.cpu() >= 0).nonzero()[:, 0]
    if most is not None and len(rows) > most:
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:most]].sort().values
    split, model = split.select(rows), classifier.model
    codes = classifier.encode(model.prepare(as_batch(split.images, model.spec.shape))).float()
    targets, leaked = split.targets.cpu(), leaked_share(classifier, split.images)
    scores = known_scores(model)
    return PairsResult(
        images=len(split),
        labels=len(torch.unique(targets)),
        verification={by: verification_of_codes(classifier, codes, targets, by=by, leaked=leaked) for by in scores},
        retrieval={by: retrieval_of_codes(model, codes, targets, by=by, leaked=leaked) for by in scores},
        leaked=leaked,
    )


def evaluate_new_labels(classifier: Classifier, data: Dataset, split: str = "test") -> PairsResult:
    """Return the same for labels that training never saw, such as other speakers; a label that it saw is an error."""
    check_new(classifier, data, split)
    return evaluate_pairs(classifier, data.split(split))


def check_new(classifier: Classifier, data: Dataset, split: str) -> None:
    """Raise an error where the model was trained on a label of these images."""
    known = set(classifier.model.spec.labels.names)
    shared = [name for name in used_labels(data.split(split), data.labels) if name in known]
    if shared:
        raise DataError(
            f"Training saw {len(shared)} labels of the {split} split, so they are not new: {listing(shared)}. "
            "Divide the data by labels."
        )


def used_labels(split: Split, labels: Labels) -> list[str]:
    """Return the labels that some image of a split has."""
    return [labels.names[i] for i in sorted(set(split.targets.tolist())) if i >= 0]
