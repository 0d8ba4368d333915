"""The two signs of an outlier, on a model whose codes are the pixels themselves."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core import Classifier, LabelModel, Labels, Spec
from labelwise.tasks.outliers import MEMORY, NEAREST, fit_outlier_rule, flag_outliers, outlier_scores, remember

LABELS = Labels(names=("right", "up"))


class Plane(LabelModel):
    """Codes are points of a plane; the two labels are its axes."""

    def __init__(self) -> None:
        super().__init__(Spec(shape=(2,), labels=LABELS))
        self.register_buffer("axes", torch.eye(2))

    def encode_images(self, images: Tensor) -> Tensor:
        return images

    def encode_labels(self, labels: Labels) -> Tensor:
        return torch.eye(2)[[self.spec.labels.index(name) for name in labels.names]]

    def score(self, image_codes: Tensor, label_codes: Tensor) -> Tensor:
        return image_codes @ label_codes.T


def near_axes(n: int, seed: int) -> Tensor:
    made = torch.Generator().manual_seed(seed)
    return torch.eye(2)[torch.arange(n) % 2] * 5 + torch.randn(n, 2, generator=made) * 0.3


@pytest.fixture
def classifier() -> Classifier:
    bound = remember(Plane().bind(LABELS), near_axes(200, 0))
    return replace(bound, outlier=fit_outlier_rule(bound, near_axes(400, 1), keep=0.9))


def test_rule_keeps_the_share_it_was_asked_to(classifier: Classifier) -> None:
    codes = near_axes(400, 1)
    assert float((~flag_outliers(classifier, outlier_scores(classifier, codes))).double().mean()) == pytest.approx(
        0.9, abs=0.01
    )
    fresh = outlier_scores(classifier, near_axes(2000, 2))
    assert float((~flag_outliers(classifier, fresh)).double().mean()) == pytest.approx(0.9, abs=0.04)


def test_each_sign_finds_what_the_other_misses(classifier: Classifier) -> None:
    between = torch.tensor([[20.0, 20.0]])  # both labels say yes with certainty, but nothing like it was seen
    faint = torch.tensor([[0.2, 0.0]])  # right on an axis, but hardly anything there
    for codes, seen_by, missed_by in ((between, "familiarity", "confidence"), (faint, "confidence", "familiarity")):
        assert float(outlier_scores(classifier, codes, seen_by)) > 4  # type: ignore[arg-type]
        assert float(outlier_scores(classifier, codes, missed_by)) < 1  # type: ignore[arg-type]
        assert bool(flag_outliers(classifier, outlier_scores(classifier, codes)))


def test_familiarity_is_the_cosine_to_a_near_training_code(classifier: Classifier) -> None:
    codes = torch.randn(50, 2, generator=torch.Generator().manual_seed(3))
    scores = outlier_scores(classifier, codes, "familiarity")
    assert classifier.outlier is not None
    train = normalize(near_axes(200, 0), dim=1)
    for code, score in zip(normalize(codes, dim=1), scores.tolist(), strict=True):
        distance = sorted(1 - float(code @ other) for other in train)[NEAREST - 1]
        assert score == pytest.approx(
            (distance - classifier.outlier.centre[1]) / classifier.outlier.spread[1], abs=1e-3
        )


def test_memory_is_bounded_and_grows_with_examples(classifier: Classifier) -> None:
    assert classifier.memory is not None
    full = remember(replace(classifier, memory=None), near_axes(MEMORY + 50, 4))
    assert full.memory is not None
    assert len(full.memory) == MEMORY
    left = torch.tensor([[-5.0, 0.0]]).expand(NEAREST, 2)
    more = remember(classifier, left)
    before, after = (float(outlier_scores(c, left[:1], "familiarity")) for c in (classifier, more))
    assert after < 0 < before


def test_without_a_rule_nothing_is_flagged() -> None:
    bare = Plane().bind(LABELS)
    scores = outlier_scores(bare, torch.randn(5, 2))
    assert not bool(flag_outliers(bare, scores).any())
    assert outlier_scores(bare, torch.zeros(0, 2)).shape == (0,)
