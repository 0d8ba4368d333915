import numpy as np
import pytest
import torch
from torch import Tensor

from labelwise.methods.zero_label.looks import LOOKS, SIDE, looks, to_lab


def of(images: Tensor) -> dict[str, float]:
    return dict(zip(LOOKS, looks(images[None].numpy())[0].tolist(), strict=True))


def plain(red: float, green: float, blue: float) -> Tensor:
    return torch.tensor([red, green, blue])[:, None, None].repeat(1, SIDE, SIDE)


@pytest.mark.parametrize(
    ("colour", "lab"),
    [
        ((1.0, 1.0, 1.0), (100, 0, 0)),
        ((0.0, 0.0, 0.0), (0, 0, 0)),
        ((1.0, 0.0, 0.0), (53.24, 80.09, 67.20)),
        ((0.0, 0.0, 1.0), (32.30, 79.19, -107.86)),
    ],
)
def test_lab_is_that_of_published_colours(colour: tuple[float, ...], lab: tuple[float, ...]) -> None:
    np.testing.assert_allclose(to_lab(plain(*colour)[None].numpy())[0, :, 0, 0], lab, atol=0.1)


def test_regions_are_where_their_names_say() -> None:
    picture = plain(0.0, 0.0, 0.0)
    picture[2, :6] = 1.0  # blue above
    picture[0, -6:] = 1.0  # red below
    picture[:, 8:24, 8:24] = 1.0  # white in the middle
    found = of(picture)
    assert found["top yellow"] == pytest.approx(-107.86, abs=0.1)
    assert found["bottom red"] == pytest.approx(80.09, abs=0.1)
    assert found["centre light"] == pytest.approx(100, abs=0.1)
    assert found["centre colourful"] == pytest.approx(0, abs=0.1)
    assert found["rim uneven"] > 10
    assert found["contrast"] > 50


def test_edges_lie_as_their_names_say() -> None:
    stripes = (torch.arange(SIDE) // 4 % 2).float()
    upright, level = stripes.expand(3, SIDE, SIDE), stripes[:, None].expand(3, SIDE, SIDE)
    row, column = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    slanted = ((row + column) // 4 % 2).float().expand(3, SIDE, SIDE)
    assert of(upright)["upright"] == pytest.approx(1)
    assert of(level)["upright"] == pytest.approx(-1)
    assert of(upright)["square"] == pytest.approx(1)
    assert of(level)["square"] == pytest.approx(1)
    assert of(slanted)["square"] < -0.8
    assert of(level)["symmetric"] == pytest.approx(0)
    assert of(upright)["symmetric"] < -0.5
    fine = ((row + column) % 2).float().expand(3, SIDE, SIDE)
    assert of(fine)["fine"] == pytest.approx(0, abs=1e-3)
    assert of((row / SIDE).expand(3, SIDE, SIDE))["coarse"] > of(slanted)["coarse"]


def test_size_and_channels_make_no_difference() -> None:
    picture = torch.rand(2, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    wanted = looks(picture.numpy())
    np.testing.assert_allclose(looks(picture.repeat(1, 3, 1, 1).numpy()), wanted, atol=1e-4)
    large = picture.repeat_interleave(3, 2).repeat_interleave(3, 3)
    np.testing.assert_allclose(looks(large.numpy()), wanted, atol=1e-3, rtol=1e-3)
    assert np.isfinite(looks(np.zeros((1, 3, 5, 7)))).all()
