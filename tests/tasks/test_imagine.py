"""What is imagined of a label, against distances taken one by one."""

import math

import numpy as np
import pytest
import torch

from labelwise.core.head import Generates
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.tasks.imagine import Imagined, image_features, imagine
from tests.changed import bind_model
from tests.close import assert_close
from tests.conftest import blobs
from tests.described import Table
from tests.generating import generating
from tests.pixels_of import px

DATA = blobs(5, 12)
TEST = DATA.split("test")
CLASSIFIER = generating(DATA.labels, (3, 8, 8), frozenset({"blob 3", "blob 4"}))
NAMES = ["blob 4", "blob 1"]


def slow_distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return math.dist(a.tolist(), b.tolist())


@pytest.fixture(scope="module")
def found() -> Imagined:
    return imagine(CLASSIFIER, NAMES, px(TEST), targets=torch.as_tensor(TEST.targets), count=20, seed=3)


def test_the_nearest_image_of_each_feature(found: Imagined) -> None:
    assert found.features.shape == (2, 20, 3)
    model = CLASSIFIER.head
    assert isinstance(model, Generates)
    assert np.array_equal(found.features, model.generate(DATA.labels.select(NAMES), 20, 3))
    real = model.comparable(CLASSIFIER.encoder(px(TEST).numpy()))
    assert_close(found.gallery, real)
    for label in range(2):
        for row in range(20):
            far = [slow_distance(found.features[label, row], image) for image in real]
            assert int(found.nearest[label, row]) == far.index(min(far))
            assert float(found.distances[label, row]) == pytest.approx(min(far), rel=1e-4)


def test_typical_is_a_rank_among_real_images_of_the_label(found: Imagined) -> None:
    for label, name in enumerate(NAMES):
        real = found.gallery[torch.as_tensor(TEST.targets) == DATA.labels.index(name)]
        own = [min(slow_distance(a, b) for j, b in enumerate(real) if i != j) for i, a in enumerate(real)]
        for made, share in zip(found.features[label], found.typical[label].tolist(), strict=True):
            far = min(slow_distance(made, image) for image in real)
            assert share == pytest.approx(sum(one >= far for one in own) / len(own))
    assert 0.1 < float(found.typical.mean()) < 0.9, (
        "what comes from the same distribution is neither strange nor a copy"
    )


def test_features_far_from_every_image_are_not_typical() -> None:
    far = generating(Labels(names=("blob 0", "far"), vectors=torch.tensor([[1.0, 0, 0], [50.0, 0, 0]])), (3, 8, 8))
    targets = torch.where(torch.as_tensor(TEST.targets) == 0, 1, -1)
    found = imagine(far, ["far", "blob 0"], px(TEST), targets=targets, count=4)
    assert found.typical[0].tolist() == [0.0] * 4
    assert np.isnan(found.typical[1]).all(), "no image of it is known"
    assert np.isnan(imagine(far, ["far"], px(TEST), count=4).typical).all()


def test_closest_images_come_once_by_votes_and_then_by_distance() -> None:
    made = torch.tensor([[0.25], [2.0], [2.5], [9.0], [9.0]])
    real = torch.tensor([[2.75], [0.0], [40.0], [11.0], [1.5]])
    found = Imagined(
        names=("other", "this"),
        features=np.asarray(torch.stack([made + 30, made])),
        gallery=np.asarray(real),
        nearest=np.asarray(torch.tensor([[2, 2, 2, 2, 2], [1, 4, 0, 3, 3]])),
        distances=np.asarray(torch.zeros(2, 5)),
        typical=np.asarray(torch.zeros(2, 5)),
    )
    everything = [(3, 2.0), (0, 0.25), (1, 0.25), (4, 0.5), (2, 31.0)]
    assert found.closest("this") == everything
    assert found.closest("this", 2) == everything[:2]
    assert found.closest("other", 1) == [(2, 1.0)]


def test_a_label_is_imagined_by_its_own_images() -> None:
    found = imagine(CLASSIFIER, DATA.labels.names, px(TEST), count=30)
    for place, name in enumerate(DATA.labels.names):
        right = (torch.as_tensor(TEST.targets)[found.nearest[place]] == place).float().mean()
        assert right > 0.8, name
        assert int(torch.as_tensor(TEST.targets)[found.closest(name)[0][0]]) == place


def test_the_seed_decides() -> None:
    first, again, other = (imagine(CLASSIFIER, NAMES, px(TEST), count=3, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.features, again.features)
    assert not np.array_equal(first.features, other.features)


def test_wrong_requests_say_what_is_wrong() -> None:
    with pytest.raises(UsageError, match='No label "blob 9"'):
        imagine(CLASSIFIER, ["blob 9"], px(TEST))
    with pytest.raises(UsageError, match="0 labels and 50"):
        imagine(CLASSIFIER, [], px(TEST))
    with pytest.raises(UsageError, match="labels and 0"):
        imagine(CLASSIFIER, NAMES, px(TEST), count=0)
    with pytest.raises(UsageError, match="20 images and 3 targets"):
        imagine(CLASSIFIER, NAMES, TEST.images, targets=torch.zeros(3))
    table = bind_model(Table(DATA.labels), DATA.labels)
    with pytest.raises(UnsupportedError, match="cannot generate features of a label from its description"):
        imagine(table, NAMES, torch.zeros(2, 5))
    with pytest.raises(UnsupportedError, match="cannot generate features of a label from its description"):
        image_features(table, torch.zeros(2, 5))
