import pytest
import torch
from torch import Tensor

from labelwise.core.model import (
    Compares,
    FreezesTrunk,
    LearnsFromExamples,
    Locates,
    SensesFamiliarity,
    Whitens,
    as_float,
    can,
    cannot,
    check_shape,
    prepared,
)
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.tasks.explain import heat_maps
from labelwise.tasks.teach import teach
from tests.contract.subjects import trained
from tests.plain import Pixels, plain_classifier


class Able(Pixels):
    """Pixels that learns labels from examples, and knows how strange an image is."""

    def labels_from_examples(self, embeddings: Tensor, groups: Tensor) -> Tensor:
        return torch.stack([embeddings[groups == group].mean(0) for group in range(int(groups.max()) + 1)])

    def unfamiliarity(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return image_embeddings.sum(1)


class Frozen(Pixels):
    """Pixels whose images can be halved beforehand."""

    def prepare(self, images: Tensor) -> Tensor:
        return images / 2


def test_a_capability_is_having_its_functions() -> None:
    plain, able = Pixels(), Able()
    assert can(plain) == []
    assert can(able) == ["learn a label from example images"]
    assert isinstance(able, LearnsFromExamples)
    assert isinstance(able, SensesFamiliarity)
    for capability in (LearnsFromExamples, Locates, Compares, Whitens, SensesFamiliarity, FreezesTrunk):
        assert not isinstance(plain, capability)


@pytest.mark.parametrize(
    ("method", "besides"),
    [
        ("softmax", {"learn a label from example images", "draw a heat map", "compare whitened embeddings"}),
        (
            "prototype",
            {
                "learn a label from example images",
                "draw a heat map",
                "compare images by a learned similarity",
                "compare whitened embeddings",
            },
        ),
    ],
)
def test_what_methods_can_do(method: str, besides: set[str]) -> None:
    assert set(can(trained(method).model)) == besides


def test_what_a_model_cannot_do_says_so_and_what_it_can() -> None:
    assert str(cannot(Pixels(), "fly")) == "Pixels cannot fly. What it can: score images and labels only."
    assert str(cannot(Able(), "fly")) == "Able cannot fly. What it can: learn a label from example images."
    classifier = plain_classifier()
    examples = classifier.scores(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))
    with pytest.raises(UnsupportedError, match="Pixels cannot learn a label from example images"):
        teach(classifier, "d", examples=examples)
    with pytest.raises(UnsupportedError, match="Pixels cannot draw a heat map: it has no feature maps"):
        heat_maps(classifier, torch.rand(1, 3, 2, 2), torch.zeros(1, dtype=torch.int64))


def test_images_are_prepared_only_where_a_trunk_is_frozen() -> None:
    images = torch.rand(2, 3, 2, 2)
    assert prepared(Pixels(), images) is images
    assert torch.equal(prepared(Frozen(), images), images / 2)


def test_bytes_become_floats_between_0_and_1() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8)
    assert as_float(images).dtype == torch.float32
    torch.testing.assert_close(as_float(images), torch.tensor([0, 0.2, 1]))
    assert torch.equal(as_float(torch.tensor([0.3], dtype=torch.float64)), torch.tensor([0.3]))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(2, 3, 4, 4), r"shape \[3, 2, 2\]; given \[3, 4, 4\]"),
        (torch.tensor([0.0, float("nan")])[:, None, None, None].expand(2, 3, 2, 2), "Image 1 holds a value"),
    ],
)
def test_wrong_images_are_refused(images: Tensor, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_shape(images, (3, 2, 2))
