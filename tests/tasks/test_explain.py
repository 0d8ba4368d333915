"""A heat map lies over a picture: what is none is said."""

import numpy as np
import pytest
import torch

import labelwise as lw
from labelwise.methods import METHODS
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.support.settings import override
from tests.changed import bind_model
from tests.contract.subjects import pictures, trained
from tests.pixels_of import px


@pytest.mark.parametrize("backbone", ["xvector_8k", "identity"])
def test_sounds_and_features_have_no_heat_map(backbone: str) -> None:
    labels = lw.Labels(names=("yes", "no"))
    method = override(METHODS["softmax"](), {"encoder.backbone": backbone})
    classifier = bind_model(method.build(lw.Spec(shape=(4000,), labels=labels)), labels)
    with pytest.raises(UnsupportedError, match=r"heat map needs a classifier of images.*takes \[4000\]"):
        lw.explain(classifier, torch.rand(1, 4000))


def test_pictures_of_four_channels_are_drawn_by_their_colours() -> None:
    labels = lw.Labels(names=("yes", "no"))
    classifier = bind_model(METHODS["softmax"]().build(lw.Spec(shape=(4, 8, 8), labels=labels)), labels)
    image = torch.randint(0, 256, (4, 8, 8), dtype=torch.uint8)
    assert np.array_equal(torch.from_numpy(lw.explain(classifier, image, "yes").image), image[:3].permute(1, 2, 0))


@pytest.mark.parametrize("method", ["softmax", "prototype"])
def test_two_labels_are_set_against_each_other(method: str) -> None:
    classifier, image = trained(method), px(pictures(method).split("test"))[:1]
    first, second = classifier.labels.names[:2]
    why, reverse = (lw.explain(classifier, image, a, against=b) for a, b in ((first, second), (second, first)))
    assert reverse.heat_against is not None
    np.testing.assert_array_equal(why.heat, reverse.heat_against)
    np.testing.assert_array_equal(reverse.heat, why.heat_against)
    assert max(why.heat.max(), reverse.heat.max()) == 1.0, "one scale for both"
    assert why.title == f"why {first} (orange), not {second} (blue)"
    assert (why.overlay(64).size, why.overlay(30).size) == ((64, 64), (30, 30))
    assert np.asarray(why.overlay(64)).tolist() != np.asarray(reverse.overlay(64)).tolist()
    with pytest.raises(UsageError, match="twice"):
        lw.explain(classifier, image, first, against=first)
    with pytest.raises(UsageError, match="no such"):
        lw.explain(classifier, image, first, against="no such")
