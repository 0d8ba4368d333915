"""Each kind of change against Pillow or a plain formula, and changes as a part of augmentation."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from labelwise.train.augment import Augment
from labelwise.train.random_changes import KINDS, random_change
from labelwise.train.tensors import BatchRng


def pictures(n: int = 2, side: int = 12, channels: int = 3) -> Tensor:
    made = torch.Generator().manual_seed(0)
    return torch.randint(20, 230, (n, channels, side, side), generator=made, dtype=torch.uint8).float() / 255


def change(images: Tensor, kind: str, strength: float, up: bool = True) -> Tensor:
    place = (KINDS.index(kind) + 0.5) / len(KINDS)
    return random_change(images, torch.tensor([[place, 0.9 if up else 0.1]]).repeat(len(images), 1), strength)


def as_picture(image: Tensor) -> Image.Image:
    return Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy())


def from_picture(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize(
    ("kind", "tool"),
    [("brightness", ImageEnhance.Brightness), ("contrast", ImageEnhance.Contrast), ("saturation", ImageEnhance.Color)],
)
def test_factors_are_those_of_pillow(kind: str, tool: type[ImageEnhance._Enhance], up: bool) -> None:
    images = pictures()
    found = change(images, kind, 0.5, up)
    for image, made in zip(images, found, strict=True):
        wanted = tool(as_picture(image)).enhance(1.45 if up else 0.55)  # type: ignore[call-arg]
        torch.testing.assert_close(made, from_picture(wanted), atol=2.5 / 255, rtol=0)


def test_tones() -> None:
    images = pictures()
    for image, stretched, turned, coarse in zip(
        images, *(change(images, kind, 0.5) for kind in ("autocontrast", "solarize", "posterize")), strict=True
    ):
        torch.testing.assert_close(
            stretched, from_picture(ImageOps.autocontrast(as_picture(image))), atol=2 / 255, rtol=0
        )
        torch.testing.assert_close(turned, from_picture(ImageOps.solarize(as_picture(image), 128)), atol=1e-6, rtol=0)
        torch.testing.assert_close(coarse, from_picture(ImageOps.posterize(as_picture(image), 6)), atol=1e-6, rtol=0)


def test_sharpness_moves_away_from_the_mean_of_neighbours() -> None:
    images = pictures(1)
    inside = images[0, 0, 4:7, 4:7]
    wanted = inside.mean() + 1.45 * (inside[1, 1] - inside.mean())
    assert float(change(images, "sharpness", 0.5)[0, 0, 5, 5]) == pytest.approx(float(wanted.clamp(0, 1)), abs=1e-5)


def test_geometry() -> None:
    images = torch.zeros(1, 1, 20, 20)
    images[0, 0, 4, 10] = 1
    across, down = change(images, "move across", 1 / 9), change(images, "move down", 1 / 9, up=False)
    assert across[0, 0].argmax() == 4 * 20 + 9, "a tenth of half a side is one pixel"
    assert down[0, 0].argmax() == 5 * 20 + 10
    bar = torch.zeros(1, 1, 41, 41)
    bar[0, 0, :, 20] = 1
    leaning = change(bar, "shear across", 1.0)[0, 0].argmax(1)
    assert leaning[20] == 20
    assert abs(int(leaning[0]) - 20) == pytest.approx(6, abs=1), "0.3 of the 20 pixels to the edge"
    turned = change(bar, "rotate", 1.0)[0, 0].argmax(1)
    assert abs(int(turned[5]) - 20) == pytest.approx(15 * np.tan(np.pi / 6), abs=1)
    assert int(turned[5]) - 20 == -(int(turned[35]) - 20)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_each_image_gets_its_own_change_and_stays_in_range(kind: str, channels: int) -> None:
    images = pictures(3, channels=channels)
    place = (KINDS.index(kind) + 0.5) / len(KINDS)
    found = random_change(images, torch.tensor([[0.0, 0.9], [place, 0.9], [0.0, 0.1]]), 1.0)
    assert torch.equal(found[0], images[0])
    assert torch.equal(found[2], images[2])
    assert 0 <= float(found.min()) <= float(found.max()) <= 1
    assert torch.equal(found[1], images[1]) == (kind == "none" or (kind == "saturation" and channels == 1))
    torch.testing.assert_close(found[1], change(images[1:2], kind, 1.0)[0])


def test_changes_in_augmentation() -> None:
    images = (pictures(64) * 255).byte()
    plain = Augment()(images, BatchRng.from_seed(3, 64))
    one, again = (Augment(changes=2)(images, BatchRng.from_seed(3, 64)) for _ in range(2))
    assert torch.equal(one, again)
    kept = (one == plain).flatten(1).all(1)
    assert 0 <= int(kept.sum()) < 10
