from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from labelwise.core.classifier import Classifier, Origin, bind
from labelwise.images.as_images import as_images
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UnsupportedError, UsageError
from tests.changed import exact
from tests.close import assert_close
from tests.plain import ABC, Colours, Weighed, plain_classifier

EYE = np.eye(3, dtype=np.float32)


class NeedsTexts(Weighed):
    reads: ClassVar[tuple[str, ...]] = ("texts",)


class Together(Weighed):
    fitted_together = True


@pytest.fixture
def classifier() -> Classifier:
    return plain_classifier()


def test_scores_apply_scale_and_offset(classifier: Classifier) -> None:
    images = torch.rand(5, 3, 2, 2).mul(255).round() / 255
    means = images.mean((2, 3))
    assert_close(exact(classifier, images).log_odds, means * torch.tensor([1.0, 2, 3]) + torch.tensor([0.0, 1, 2]))


def test_bytes_and_floats_score_alike(classifier: Classifier) -> None:
    images = torch.randint(0, 256, (4, 3, 2, 2), dtype=torch.uint8)
    assert_close(exact(classifier, images).log_odds, exact(classifier, images.float() / 255).log_odds)
    assert np.array_equal(classifier.scores(images).log_odds, classifier.scores(images.float() / 255).log_odds)


def test_select_add_remove_return_new_classifiers(classifier: Classifier) -> None:
    images = torch.rand(4, 3, 2, 2)
    before = exact(classifier, images).log_odds
    assert np.array_equal(exact(classifier.select(["c", "a"]), images).log_odds, before[:, [2, 0]])
    added = classifier.add(classifier.labels.add("d"), np.asarray(torch.tensor([1.0, 1, 1])))
    assert added.labels.names == ("a", "b", "c", "d")
    assert float(added.calibration.scale[3]) == 2.0
    assert float(added.calibration.offset[3]) == 1.0
    assert classifier.labels.names == ("a", "b", "c")
    assert np.array_equal(exact(added.remove("d"), images).log_odds, before)
    with pytest.raises(UsageError, match="the only label"):
        classifier.select(["a"]).remove("a")
    with pytest.raises(UsageError, match="must be last"):
        classifier.add(Labels(names=("d", "a", "b", "c")), np.asarray(torch.ones(3)))


def test_pictures_of_another_size_are_brought_to_the_model(classifier: Classifier) -> None:
    images = torch.full((2, 3, 4, 6), 51, dtype=torch.uint8)
    assert np.array_equal(classifier.scores(images).embeddings, classifier.scores(images[:, :, :2, :2]).embeddings)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(2, 5, 6, 7), r"1, 3 or 4 channels, or \[n, height, width\]; given \[2, 5, 6, 7\]"),
        (torch.tensor([0.0, float("nan")])[:, None, None, None].expand(2, 3, 2, 2), "not a finite number"),
        (torch.rand(2, 3, 2, 2) + 1, r"must be in \[0, 1\]"),
        (torch.rand(0, 3, 2, 2), "No image was given"),
    ],
)
def test_wrong_images_are_refused(classifier: Classifier, images: Tensor, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        classifier.scores(images)


def test_no_image_gives_no_score(classifier: Classifier) -> None:
    nothing = classifier.scores_of(np.empty((0, 3), np.float32))
    assert nothing.log_odds.shape == (0, 3)
    assert nothing.unknown.shape == (0,)


def test_missing_knowledge_is_named() -> None:
    with pytest.raises(UsageError, match='"weighed" needs the "texts" of labels'):
        bind(NeedsTexts(weights=EYE), Colours(), Labels(names=("a", "b", "c")))


def test_model_fitted_together_refuses_a_new_label() -> None:
    with pytest.raises(UnsupportedError, match="fitted to all labels together"):
        bind(Together(weights=EYE), Colours(), ABC).add(ABC.add("d"), np.asarray(torch.ones(3)))


def test_labels_known_from_a_description_are_named(classifier: Classifier) -> None:
    assert classifier.unseen == frozenset()
    added = classifier.add(ABC.add("d"), np.asarray(torch.ones(3)), unseen=True)
    assert added.unseen == {"d"}
    assert added.select(["d", "a"]).unseen == {"d"}
    assert added.remove("d").unseen == frozenset()


def test_an_origin_gathers_images() -> None:
    images = torch.randint(0, 256, (4, 3, 2, 2), dtype=torch.uint8)
    nothing = Origin()
    one = nothing.with_images(as_images(images[:1]))
    both = one.with_images(as_images(images[1:]))
    assert nothing.train_digests is None
    assert one.train_digests is not None
    assert len(one.train_digests) == 1
    assert both.train_digests is not None
    assert len(both.train_digests) == 4
