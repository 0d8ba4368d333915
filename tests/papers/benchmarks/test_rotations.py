import pytest
import torch

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import DataError
from labelwise_papers.benchmarks.rotations import rotated
from tests.conftest import squares
from tests.pixels_of import px


def test_each_turn_is_a_label_of_its_own() -> None:
    image = torch.tensor([[[1, 2], [3, 4]]], dtype=torch.uint8)
    split = Split(images=torch.stack([image, 10 * image]), targets=torch.tensor([1, -1]), files=("a", "b"))
    found = rotated(Dataset(name="x", labels=Labels(names=("p", "q")), splits={"train": split}))
    assert found.labels.names[:3] == ("p", "q", "p, 90 degrees")
    part = found.split("train")
    assert part.targets.tolist() == [1, -1, 3, -1, 5, -1, 7, -1]
    turns = [[[1, 2], [3, 4]], [[2, 4], [1, 3]], [[4, 3], [2, 1]], [[3, 1], [4, 2]]]
    assert px(part)[::2, 0].tolist() == turns
    assert part.files[2:4] == ("a, 90 degrees", "b, 90 degrees")


def test_what_cannot_be_turned() -> None:
    tall = Split(images=torch.zeros(1, 1, 4, 3, dtype=torch.uint8), targets=torch.tensor([0]))
    with pytest.raises(DataError, match="Only square images can be turned"):
        rotated(Dataset(name="tall", labels=Labels(names=("p",)), splits={"test": tall}))
    with pytest.raises(DataError, match="Several labels may be true"):
        rotated(squares(30))
