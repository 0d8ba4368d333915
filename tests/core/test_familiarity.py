"""The two signs that a picture is unknown, on a model whose embeddings are the pixels themselves."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.calibration import NEAREST, Familiarity, Sign
from labelwise.core.classifier import Classifier
from labelwise.images.describe.labels import Labels
from labelwise.tasks.outliers import outliers
from labelwise.train.model import LabelModel, Spec
from tests.changed import bind_model, changed

LABELS = Labels(names=("right", "up"))


class Plane(LabelModel):
    """Embeddings are points of a plane; the two labels are its axes."""

    def __init__(self) -> None:
        super().__init__(Spec(shape=(2,), labels=LABELS))
        self.register_buffer("axes", torch.eye(2))

    def encode_images(self, images: Tensor) -> Tensor:
        return images

    def encode_labels(self, labels: Labels) -> Tensor:
        return torch.eye(2)[[self.spec.labels.index(name) for name in labels.names]]

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return image_embeddings @ label_embeddings.T


class Knowing(Plane):
    """A plane that tells by itself what is strange: what lies to the left."""

    def unfamiliarity(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return -image_embeddings[:, 0]


def near_axes(n: int, seed: int) -> Tensor:
    made = torch.Generator().manual_seed(seed)
    return torch.eye(2)[torch.arange(n) % 2] * 5 + torch.randn(n, 2, generator=made) * 0.3


def outlier_score(classifier: Classifier, embeddings: Tensor, sign: Sign = "both") -> NDArray[Any]:
    return classifier.familiarity.outlier_score(classifier.scores_of(embeddings), sign)


@pytest.fixture
def classifier() -> Classifier:
    bound = bind_model(Plane(), LABELS)
    bound = replace(bound, familiarity=bound.familiarity.remember(near_axes(200, 0).numpy()))
    return replace(bound, familiarity=bound.familiarity.fit(bound.scores_of(near_axes(400, 1)), keep=0.9))


def test_rule_keeps_the_share_it_was_asked_to(classifier: Classifier) -> None:
    kept = classifier.scores_of(near_axes(400, 1))
    assert float((~kept.unknown).mean()) == pytest.approx(0.9, abs=0.01)
    fresh = classifier.scores_of(near_axes(2000, 2))
    assert float((~fresh.unknown).mean()) == pytest.approx(0.9, abs=0.04)


def test_each_sign_finds_what_the_other_misses(classifier: Classifier) -> None:
    between = torch.tensor([[20.0, 20.0]])  # both labels say yes with certainty, but nothing like it was seen
    faint = torch.tensor([[0.2, 0.0]])  # right on an axis, but hardly anything there
    cases: tuple[tuple[Tensor, Sign, Sign], ...] = (
        (between, "familiarity", "confidence"),
        (faint, "confidence", "familiarity"),
    )
    for embeddings, seen_by, missed_by in cases:
        assert outlier_score(classifier, embeddings, seen_by).item() > 4
        assert outlier_score(classifier, embeddings, missed_by).item() < 1
        scores = classifier.scores_of(embeddings)
        assert np.array_equal(scores.outlier_score, outlier_score(classifier, embeddings, seen_by))
        assert scores.unknown.item()
        (told,) = outliers(scores)
        assert (told.score, told.flagged) == (scores.outlier_score.item(), True)


def test_familiarity_is_the_cosine_to_a_near_training_embedding(classifier: Classifier) -> None:
    embeddings = torch.randn(50, 2, generator=torch.Generator().manual_seed(3))
    found, rule = outlier_score(classifier, embeddings, "familiarity"), classifier.familiarity.rule
    assert rule is not None
    train = normalize(near_axes(200, 0), dim=1)
    for embedding, score in zip(normalize(embeddings, dim=1), found.tolist(), strict=True):
        distance = sorted(1 - float(embedding @ other) for other in train)[NEAREST - 1]
        assert score == pytest.approx((distance - rule.centre[1]) / rule.spread[1], abs=1e-3)


def test_memory_grows_with_examples(classifier: Classifier) -> None:
    assert classifier.familiarity.memory is not None
    left = torch.tensor([[-5.0, 0.0]]).expand(NEAREST, 2)
    more = replace(classifier, familiarity=classifier.familiarity.remember(np.asarray(left)))
    before, after = (outlier_score(each, left[:1], "familiarity").item() for each in (classifier, more))
    assert after < 0 < before


def test_a_model_that_knows_what_is_strange_is_believed(classifier: Classifier) -> None:
    knowing = replace(classifier, head=bind_model(Knowing(), LABELS).head)
    bare = changed(knowing, rule=None)
    points = torch.tensor([[-3.0, 0.0], [4.0, 1.0]])
    assert outlier_score(bare, points, "familiarity").tolist() == [3.0, -4.0]


def test_without_a_rule_nothing_is_unknown() -> None:
    bare = bind_model(Plane(), LABELS)
    assert not bool(bare.scores_of(torch.randn(5, 2)).unknown.any())
    assert bare.scores_of(torch.zeros(0, 2)).outlier_score.shape == (0,)
    assert Familiarity().limit == float("inf")


def test_no_image_is_no_stranger(classifier: Classifier) -> None:
    assert classifier.scores_of(torch.zeros(0, 2)).unknown.shape == (0,)


def test_where_the_nearest_training_image_counts_both_signs_add_up(classifier: Classifier) -> None:
    known = classifier.scores_of(near_axes(400, 1))
    joined = replace(classifier, familiarity=classifier.familiarity.fit(known, keep=0.9, nearest=True))
    images = torch.tensor([[5.0, 0.0], [4.0, 2.5], [-5.0, 0.5]])
    rule, memory = joined.familiarity.rule, joined.familiarity.memory
    assert rule is not None
    assert memory is not None
    assert rule.nearest
    far = 1 - (normalize(images, dim=1).numpy() @ memory.T).max(1)
    doubt = outlier_score(joined, images, "confidence")
    assert np.allclose(outlier_score(joined, images, "familiarity"), (far - rule.centre[1]) / rule.spread[1], atol=1e-3)
    assert np.allclose(outlier_score(joined, images), doubt + (far - rule.centre[1]) / rule.spread[1], atol=1e-3)
    assert joined.scores_of(images).unknown.tolist() == [False, True, True]
