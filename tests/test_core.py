from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from labelwise.core import Classifier, LabelModel, Labels, Spec, as_float
from labelwise.errors import UnsupportedError, UsageError

ABC = Labels(
    names=("a", "b", "c"),
    vectors=torch.eye(3),
    texts=(("first",), ("second", "2nd"), ("third",)),
    order=(2, 0, 1),
    shares=torch.tensor([0.5, 0.3, 0.2]),
)


class Pixels(LabelModel):
    """Scores by one weight per label and channel."""

    def __init__(self, labels: Labels = ABC) -> None:
        super().__init__(Spec(shape=(3, 2, 2), labels=labels))
        self.weights = nn.Parameter(torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]))

    def encode_images(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))

    def encode_labels(self, labels: Labels) -> Tensor:
        return self.weights[[self.spec.labels.index(name) for name in labels.names]]

    def score(self, image_codes: Tensor, label_codes: Tensor) -> Tensor:
        return image_codes @ label_codes.T


class NeedsTexts(Pixels):
    reads = ("texts",)


class Together(Pixels):
    fitted_together = True


@pytest.fixture
def classifier() -> Classifier:
    return replace(Pixels().bind(ABC), scale=torch.tensor([1.0, 2, 3]), offset=torch.tensor([0.0, 1, 2]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"names": ()}, "No label was given"),
        ({"names": ("a", " ")}, "Label 1 has no name"),
        ({"names": ("a", "b", "a")}, "unique; given more than once: a"),
        ({"names": ("a", "b"), "vectors": torch.eye(3)}, "2 labels but 3 vectors"),
        ({"names": ("a", "b"), "vectors": torch.tensor([[1.0], [float("nan")]])}, "finite numbers"),
        ({"names": ("a", "b"), "texts": (("x",),)}, "2 labels but 1 texts"),
        ({"names": ("a", "b"), "order": (1, 1)}, "different rank"),
        ({"names": ("a", "b"), "shares": torch.tensor([0.5, 0.6])}, "sum to 1; they sum to 1.1"),
    ],
)
def test_wrong_labels_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Labels(**wrong)


def test_select_keeps_what_is_known() -> None:
    some = ABC.select(["c", "a"])
    assert some.names == ("c", "a")
    assert some.texts == (("third",), ("first",))
    assert some.order == (1, 2)
    assert some.vectors is not None
    assert torch.equal(some.vectors, torch.eye(3)[[2, 0]])
    assert some.shares is not None
    torch.testing.assert_close(some.shares, torch.tensor([2 / 7, 5 / 7]))


def test_unknown_label_error_suggests() -> None:
    labels = Labels(names=("barn owl", "robin"))
    with pytest.raises(
        UsageError, match=r'No label "barnowl"\. Did you mean "barn owl"\? Known labels: barn owl, robin'
    ):
        labels.index("barnowl")


def test_added_label_keeps_only_what_all_have() -> None:
    plain = ABC.add("d")
    assert plain.names == ("a", "b", "c", "d")
    assert plain.vectors is None
    assert plain.texts is None
    known = ABC.add("d", vector=torch.ones(3), texts=["fourth"])
    assert known.texts == (("first",), ("second", "2nd"), ("third",), ("fourth",))
    assert known.vectors is not None
    assert known.vectors.shape == (4, 3)
    with pytest.raises(UsageError, match='already a label "a"'):
        ABC.add("a")


def test_scores_apply_scale_and_offset(classifier: Classifier) -> None:
    images = torch.rand(5, 3, 2, 2)
    means = images.mean((2, 3))
    torch.testing.assert_close(classifier.scores(images), means * torch.tensor([1.0, 2, 3]) + torch.tensor([0.0, 1, 2]))
    torch.testing.assert_close(classifier.scores(images, batch=2), classifier.scores(images))


def test_bytes_and_floats_score_alike(classifier: Classifier) -> None:
    images = torch.randint(0, 256, (4, 3, 2, 2), dtype=torch.uint8)
    torch.testing.assert_close(classifier.scores(images), classifier.scores(images.float() / 255))
    assert as_float(images).dtype == torch.float32


def test_probabilities_are_of_exactly_one_label(classifier: Classifier) -> None:
    """softmax(scores) is what independent yes/no answers say, given that exactly one label is right."""
    scores = classifier.scores(torch.rand(6, 3, 2, 2))
    yes = classifier.answers(scores)
    one = torch.stack([yes[:, i] * (1 - yes).prod(1) / (1 - yes[:, i]) for i in range(3)], 1)
    torch.testing.assert_close(classifier.probabilities(scores), one / one.sum(1, keepdim=True))


def test_select_add_remove_return_new_classifiers(classifier: Classifier) -> None:
    images = torch.rand(4, 3, 2, 2)
    before = classifier.scores(images)
    assert torch.equal(classifier.select(["c", "a"]).scores(images), before[:, [2, 0]])
    added = classifier.add(classifier.labels.add("d"), torch.tensor([1.0, 1, 1]))
    assert added.labels.names == ("a", "b", "c", "d")
    assert float(added.scale[3]) == 2.0
    assert float(added.offset[3]) == 1.0
    assert classifier.labels.names == ("a", "b", "c")
    assert torch.equal(added.remove("d").scores(images), before)
    with pytest.raises(UsageError, match="the only label"):
        classifier.select(["a"]).remove("a")
    with pytest.raises(UsageError, match="added at the end"):
        classifier.add(Labels(names=("d", "a", "b", "c")), torch.ones(3))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(2, 3, 4, 4), r"shape \[3, 2, 2\]; given \[3, 4, 4\]"),
        (torch.tensor([0.0, float("nan")])[:, None, None, None].expand(2, 3, 2, 2), "Image 1 holds a value"),
    ],
)
def test_wrong_images_are_refused(classifier: Classifier, images: Tensor, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        classifier.scores(images)


def test_no_image_gives_no_score(classifier: Classifier) -> None:
    assert classifier.scores(torch.rand(0, 3, 2, 2)).shape == (0, 3)


def test_missing_knowledge_is_named() -> None:
    with pytest.raises(UsageError, match='NeedsTexts reads the "texts" of labels'):
        NeedsTexts().bind(Labels(names=("a", "b", "c")))


def test_model_fitted_together_refuses_a_new_label() -> None:
    with pytest.raises(UnsupportedError, match="fitted to all labels together"):
        Together().bind(ABC).add(ABC.add("d"), torch.ones(3))


def test_what_a_model_cannot_do_says_so() -> None:
    model = Pixels()
    with pytest.raises(UnsupportedError, match="Pixels cannot learn a label from example images"):
        model.encode_examples(torch.rand(1, 3, 2, 2), torch.zeros(1))
    with pytest.raises(UnsupportedError, match="Pixels has no feature maps"):
        model.feature_maps(torch.rand(1, 3, 2, 2))
