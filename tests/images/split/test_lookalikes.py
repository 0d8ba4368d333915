"""Pictures that look alike: the fast search against all pairs, what copies survive, and how large sets are searched in parts."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from labelwise.images.as_images import as_images
from labelwise.images.images import ArrayImages, FeatureRows
from labelwise.images.sets.finches import finches
from labelwise.images.split import lookalikes
from labelwise.images.split.lookalikes import Prints, fingerprints, lookalike_groups, similar_pairs
from tests.pixels_of import px


@pytest.fixture(scope="module")
def photos() -> torch.Tensor:
    return px(finches(per_species=20).split("train"))[:60]  # of five species


def some_prints(n: int = 150) -> Prints:
    """Rows around a few centres, so that many pairs lie near the threshold; and two rows of nothing."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(12, 40, generator=generator)
    rows = centres[torch.arange(n) % 12] + 0.17 * torch.randn(n, 40, generator=generator)
    rows = torch.nn.functional.normalize(rows)
    rows[[3, 77]] = 0
    return rows.numpy()


WAYS = {"all": {"_CHUNK": 64}, "tree": {"_FEW": 0}, "tree in parts": {"_FEW": 0, "_PAIRS": 100}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("likeness", [0.9, 0.97, 0.995])
def test_the_search_names_the_pairs_that_comparing_all_names(
    likeness: float, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(lookalikes, name, value)
    prints = some_prints()
    table = np.triu(prints @ prints.T, 1) >= likeness - 1e-5
    expected = {tuple(pair) for pair in np.argwhere(table).tolist()}
    answer = [
        pair
        for one, other, _ in similar_pairs(prints, likeness)
        for pair in zip(one.tolist(), other.tolist(), strict=True)
    ]
    assert len(answer) == len(set(answer))
    assert set(answer) == expected
    assert likeness > 0.99 or len(expected) > 20


@pytest.mark.parametrize("way", WAYS)
def test_groups_are_what_pairs_connect(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(lookalikes, name, value)
    images = FeatureRows(some_prints())
    prints = torch.from_numpy(fingerprints(images)[0])
    near = prints @ prints.T >= 0.9
    reach = near | torch.eye(len(near), dtype=torch.bool)
    for _ in range(8):
        reach = (reach.float() @ reach.float()) > 0
    names = lookalike_groups(images, 0.9)
    for i in range(len(images)):
        for j in range(i):
            assert (names[i] == names[j] != "") == bool(reach[i, j])
    assert len(set(names)) > 2


def changed(picture: torch.Tensor, how: str) -> np.ndarray:
    image = Image.fromarray(picture.permute(1, 2, 0).numpy())
    if how == "encoded":
        image.save(stream := io.BytesIO(), "JPEG", quality=40)
        image = Image.open(stream)
    elif how == "smaller":
        image = image.resize((37, 37)).resize((48, 48))
    elif how == "brighter":
        image = image.point(lambda value: min(255, int(value * 1.1 + 5)))
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("how", ["encoded", "smaller", "brighter"])
def test_a_copy_is_alike_and_another_picture_is_not(how: str, photos: torch.Tensor) -> None:
    copies = torch.from_numpy(np.stack([changed(picture, how) for picture in photos])).permute(0, 3, 1, 2)
    names = lookalike_groups(as_images(torch.cat([photos, copies])))
    own, other = names[:60], names[60:]
    assert sum(a == b != "" for a, b in zip(own, other, strict=True)) >= 59
    assert len(set(own)) >= 59  # hardly any two photos are called the same


def test_nothing_is_alike_in_a_single_grey_and_in_nothing() -> None:
    assert set(lookalike_groups(as_images(torch.full((4, 3, 20, 20), 7, dtype=torch.uint8)))) == {""}
    assert lookalike_groups(ArrayImages(np.zeros((0, 3, 20, 20), np.uint8))) == ()
    assert lookalike_groups(FeatureRows(np.zeros((1, 5)))) == ("",)


@pytest.mark.parametrize("side", [9, 16, 64])
def test_sides_and_colours(side: int) -> None:
    noise = torch.randint(0, 256, (3, 1, side, side), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert lookalike_groups(as_images(torch.cat([noise, noise[1:2]]))) == ("", "lookalike 1", "", "lookalike 1")
    assert lookalike_groups(as_images(torch.cat([noise, noise[1:2]]).expand(-1, 3, -1, -1))) == (
        "",
        "lookalike 1",
        "",
        "lookalike 1",
    )
