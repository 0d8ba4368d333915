"""A heat map lies over a picture: what is none is said."""

import pytest
import torch

import labelwise as lw
from labelwise.classifier import bind
from labelwise.errors import UnsupportedError
from labelwise.methods import METHODS
from labelwise.settings import override


@pytest.mark.parametrize("backbone", ["xvector_8k", "identity"])
def test_sounds_and_features_have_no_heat_map(backbone: str) -> None:
    labels = lw.Labels(names=("yes", "no"))
    method = override(METHODS["softmax"](), {"encoder.backbone": backbone})
    classifier = bind(method.build(lw.Spec(shape=(4000,), labels=labels)), labels)
    with pytest.raises(UnsupportedError, match=r"heat map.* over a picture.*takes \[4000\]"):
        lw.explain(classifier, torch.rand(1, 4000))


def test_pictures_of_four_channels_are_drawn_by_their_colours() -> None:
    labels = lw.Labels(names=("yes", "no"))
    classifier = bind(METHODS["softmax"]().build(lw.Spec(shape=(4, 8, 8), labels=labels)), labels)
    image = torch.randint(0, 256, (4, 8, 8), dtype=torch.uint8)
    assert torch.equal(torch.from_numpy(lw.explain(classifier, image, "yes").picture), image[:3].permute(1, 2, 0))
