import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from labelwise.support.errors import UsageError
from labelwise.train.augment import YIQ, Augment
from labelwise.train.tensors import BatchRng

CONTRASTIVE = Augment(
    scale=(0.2, 1.0), flip=True, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, jitter_probability=0.8, grey=0.3
)
EVERYTHING = Augment(
    size=7, padding=2, scale=(0.3, 0.9), flip=True, rotation=40, contrast=0.5, hue=0.2, erase=3, noise=0.1
)
PLACE = ("area", "ratio", "top", "left", "flip", "angle")
NAMES = (*PLACE, "brightness", "contrast", "saturation", "hue", "jitter", "grey")


def picture(n: int = 4, c: int = 3, h: int = 8, w: int = 8, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (n, c, h, w), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def numbers_of(seed: int, n: int) -> list[dict[str, float]]:
    rows = BatchRng.from_seed(seed, n).uniform(len(NAMES)).tolist()
    return [dict(zip(NAMES, row, strict=True)) for row in rows]


def pixel(image: Tensor, row: float, column: float, edge: bool) -> Tensor:
    """Bilinear value [c] at a place given in pixel centres; outside is zero, or the nearest edge."""
    h, w = image.shape[1:]
    if edge:
        row, column = min(max(row, 0), h - 1), min(max(column, 0), w - 1)
    total = torch.zeros(image.shape[0], dtype=torch.float64)
    for i in (math.floor(row), math.floor(row) + 1):
        for j in (math.floor(column), math.floor(column) + 1):
            if 0 <= i < h and 0 <= j < w:
                total += (1 - abs(row - i)) * (1 - abs(column - j)) * image[:, i, j].double() / 255
    return total


def slow_place(augment: Augment, image: Tensor, u: dict[str, float]) -> Tensor:
    """One image at a time, one pixel at a time: undo the rotation, the flip and the crop."""
    c, h, w = image.shape
    rows, columns = (h, w) if augment.size is None else (augment.size, augment.size)
    p = augment.padding
    if augment.scale is None:
        height, width = float(rows), float(columns)
        top = float(math.floor(u["top"] * (h + 2 * p - rows + 1)) - p)
        left = float(math.floor(u["left"] * (w + 2 * p - columns + 1)) - p)
    else:
        share = augment.scale[0] + u["area"] * (augment.scale[1] - augment.scale[0])
        low, high = (min(max(r, share * w / h), w / h / share) for r in augment.ratio)
        ratio = low * (high / low) ** u["ratio"]
        height, width = math.sqrt(share * h * w / ratio), math.sqrt(share * h * w * ratio)
        top, left = u["top"] * (h + 2 * p - height) - p, u["left"] * (w + 2 * p - width) - p
    angle = math.radians(augment.rotation * (2 * u["angle"] - 1))
    out = torch.zeros(c, rows, columns, dtype=torch.float64)
    for i in range(rows):
        for j in range(columns):
            y, x = i - (rows - 1) / 2, j - (columns - 1) / 2
            x, y = x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)
            x = -x if augment.flip and u["flip"] < 0.5 else x
            row, column = top + height / 2 + y * height / rows - 0.5, left + width / 2 + x * width / columns - 0.5
            out[:, i, j] = pixel(image, row, column, edge=not (augment.padding or augment.rotation))
    return out


def slow_colour(augment: Augment, image: Tensor, u: dict[str, float]) -> Tensor:
    """One operation after the other on a float image [3, h, w]."""
    yiq = torch.tensor(YIQ, dtype=torch.float64)

    def factor(name: str) -> float:
        strength = getattr(augment, name)
        low = max(0.0, 1 - strength)
        return float(low + u[name] * (1 + strength - low))

    def grey_of(image: Tensor) -> Tensor:
        return torch.einsum("c,chw->hw", yiq[0], image)

    if u["jitter"] < augment.jitter_probability:
        image = image * factor("brightness")
        mean = grey_of(image).mean()
        image = mean + (image - mean) * factor("contrast")
        image = grey_of(image) + (image - grey_of(image)) * factor("saturation")
        angle = 2 * math.pi * augment.hue * (2 * u["hue"] - 1)
        luma, first, second = torch.einsum("ij,jhw->ihw", yiq, image)
        turned = first * math.cos(angle) - second * math.sin(angle), first * math.sin(angle) + second * math.cos(angle)
        image = torch.einsum("ij,jhw->ihw", torch.linalg.inv(yiq), torch.stack((luma, *turned)))
    if u["grey"] < augment.grey:
        image = grey_of(image).expand(3, -1, -1)
    return image.clamp(0, 1)


def test_without_settings_bytes_become_fractions_exactly() -> None:
    images = picture()
    assert torch.equal(Augment()(images, BatchRng.from_seed(0, 4)), images / 255)
    assert torch.equal(Augment()(images / 255, BatchRng.from_seed(0, 4)), images / 255)


@given(st.integers(0, 3), st.integers(3, 9), st.integers(3, 9), st.integers(1, 12), st.booleans(), st.integers(0, 99))
def test_crops_and_flips_are_slices_to_the_bit(padding: int, h: int, w: int, size: int, flip: bool, seed: int) -> None:
    size = min(size, h + 2 * padding, w + 2 * padding)
    images = picture(n=5, h=h, w=w, seed=seed)
    got = Augment(size=size, padding=padding, flip=flip)(images, BatchRng.from_seed(seed, 5))
    for image, u, out in zip(images, numbers_of(seed, 5), got, strict=True):
        top = int(u["top"] * (h + 2 * padding - size + 1))
        left = int(u["left"] * (w + 2 * padding - size + 1))
        slow = F.pad(image, [padding] * 4)[:, top : top + size, left : left + size]
        slow = slow.flip(-1) if flip and u["flip"] < 0.5 else slow
        assert torch.equal(out, slow / 255)


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize(
    "augment",
    [
        Augment(rotation=30),
        Augment(padding=2, flip=True, rotation=15),
        Augment(size=6, rotation=180),
        Augment(scale=(0.2, 1.0), flip=True),
        Augment(size=11, scale=(0.5, 0.5), ratio=(0.5, 2.0)),
        Augment(size=5, padding=1, scale=(0.1, 0.9), flip=True, rotation=90),
        Augment(scale=(0.9, 1.0), ratio=(4.0, 5.0)),
    ],
)
def test_geometry_is_that_of_one_pixel_at_a_time(augment: Augment, c: int) -> None:
    images = picture(c=c, h=7, w=9)
    got = augment(images, BatchRng.from_seed(3, 4))
    slow = torch.stack([slow_place(augment, x, u) for x, u in zip(images, numbers_of(3, 4), strict=True)])
    torch.testing.assert_close(got.double(), slow, atol=2e-5, rtol=0)


@pytest.mark.parametrize("angle", [0.0, 0.25, 0.5, 0.75])
def test_right_angles_are_exact_turns(angle: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchRng, "uniform", lambda rng, count: torch.full((rng.total, count), angle))
    images = picture(h=9, w=9)
    got = Augment(rotation=180)(images, BatchRng.from_seed(0, 4))
    torch.testing.assert_close(got, torch.rot90(images, round(4 * angle - 2), (2, 3)) / 255, atol=1e-5, rtol=0)


def test_a_flip_undoes_itself_and_half_are_flipped() -> None:
    images, augment = picture(n=400), Augment(flip=True)
    once = augment(images, BatchRng.from_seed(0, 400))
    assert torch.equal(augment(once, BatchRng.from_seed(0, 400)), images / 255)
    unmoved = (once == images / 255).flatten(1).all(1).double().mean()
    assert 0.4 < unmoved < 0.6


@pytest.mark.parametrize("size", [5, 8, 13])
def test_a_crop_of_the_full_area_is_a_resize(size: int) -> None:
    images = picture(h=8, w=8)
    got = Augment(size=size, scale=(1.0, 1.0))(images, BatchRng.from_seed(0, 4))
    slow = F.interpolate(images / 255, size=(size, size), mode="bilinear")
    torch.testing.assert_close(got, slow, atol=1e-5, rtol=0)


@given(st.tuples(*[st.floats(0, 1.5)] * 3), st.floats(0, 0.5), st.tuples(*[st.floats(0, 1)] * 2), st.integers(0, 99))
def test_one_matrix_equals_one_operation_after_the_other(
    strengths: tuple[float, float, float], hue: float, often: tuple[float, float], seed: int
) -> None:
    names = ("brightness", "contrast", "saturation", "hue", "jitter_probability", "grey")
    augment = Augment(**dict(zip(names, (*strengths, hue, *often), strict=True)))  # type: ignore[arg-type]
    images = picture(h=4, w=5, seed=seed)
    got = augment(images, BatchRng.from_seed(seed, 4))
    slow = [slow_colour(augment, x.double() / 255, u) for x, u in zip(images, numbers_of(seed, 4), strict=True)]
    torch.testing.assert_close(got.double(), torch.stack(slow), atol=1e-5, rtol=0)


def test_grey_images_have_equal_channels_as_often_as_asked() -> None:
    got = Augment(grey=0.25)(picture(n=400), BatchRng.from_seed(0, 400))
    spread = (got.amax(1) - got.amin(1)).flatten(1).amax(1)
    assert 0.19 < (spread < 1e-6).double().mean() < 0.31
    full = Augment(grey=1.0, hue=0.3, saturation=0.5)(picture(), BatchRng.from_seed(0, 4))
    torch.testing.assert_close(full[:, 0], full[:, 2])


def test_one_channel_takes_brightness_and_contrast_alone() -> None:
    images = picture(c=1)
    augment = Augment(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, grey=0.5)
    got = augment(images, BatchRng.from_seed(0, 4))
    plain, three = Augment(brightness=0.4, contrast=0.4), images.double().expand(-1, 3, -1, -1) / 255
    slow = [slow_colour(plain, x, u)[:1] for x, u in zip(three, numbers_of(0, 4), strict=True)]
    torch.testing.assert_close(got.double(), torch.stack(slow), atol=1e-5, rtol=0)


@pytest.mark.parametrize("augment", [Augment(), Augment(padding=1, flip=True), CONTRASTIVE, EVERYTHING])
@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (1, 3, 8, 8), (2, 1, 8, 8), (3, 3, 6, 9)])
def test_shape_type_and_range(augment: Augment, shape: tuple[int, int, int, int]) -> None:
    n, c, h, w = shape
    got = augment(picture(*shape), BatchRng.from_seed(0, n))
    assert got.shape == (n, c, augment.size or h, augment.size or w)
    assert got.dtype == torch.float32
    assert ((got >= 0) & (got <= 1)).all()


@pytest.mark.parametrize("augment", [Augment(), Augment(padding=1), Augment(contrast=0.5), CONTRASTIVE, EVERYTHING])
def test_memory_layout_and_input_type_change_no_value(augment: Augment) -> None:
    images = picture()
    plain = augment(images, BatchRng.from_seed(0, 4))
    last = augment(images.contiguous(memory_format=torch.channels_last), BatchRng.from_seed(0, 4))
    assert plain.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(last, plain)
    floats = images / 255
    kept = floats.clone()
    torch.testing.assert_close(augment(floats, BatchRng.from_seed(0, 4)), plain)
    assert torch.equal(floats, kept), "the input must not change"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(augment(images, BatchRng.from_seed(0, 4)), plain)


@pytest.mark.parametrize("augment", [Augment(padding=2, flip=True), CONTRASTIVE, EVERYTHING])
def test_shared_batches_and_blocks_are_the_whole_batch(augment: Augment, monkeypatch: pytest.MonkeyPatch) -> None:
    images = picture(n=8)
    whole = augment(images, BatchRng.from_seed(7, 8))
    assert torch.equal(augment(images, BatchRng.from_seed(7, 8)), whole)
    assert not torch.equal(augment(images, BatchRng.from_seed(8, 8)), whole)
    generators = [torch.Generator().manual_seed(7) for _ in range(2)]
    halves = zip(generators, (slice(0, 4), slice(4, 8)), strict=True)
    parts = [augment(images[rows], BatchRng(generator, rows, 8)) for generator, rows in halves]
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-6, rtol=0)
    monkeypatch.setattr("labelwise.train.augment.BLOCK", 3 * 64)
    torch.testing.assert_close(augment(images, BatchRng.from_seed(7, 8)), whole, atol=1e-6, rtol=0)


@pytest.mark.parametrize("side", [1, 3, 4])
def test_one_square_of_each_image_is_grey(side: int) -> None:
    images = picture(n=40, h=9, w=7)
    plain, erased = (Augment(flip=True, erase=erase)(images, BatchRng.from_seed(3, 40)) for erase in (0, side))
    rng = BatchRng.from_seed(3, 40)
    rng.uniform(len(NAMES))
    expected = plain.clone()
    for image, (down, across) in zip(expected, rng.uniform(2).tolist(), strict=True):
        top, left = int(down * 9) - side // 2, int(across * 7) - side // 2
        image[:, max(0, top) : top + side, max(0, left) : left + side] = 0.5
    assert torch.equal(erased, expected)
    assert not torch.equal(erased, plain)


def test_noise_has_the_deviation_asked_for() -> None:
    middle = torch.full((64, 3, 16, 16), 0.5)
    added = Augment(noise=0.05)(middle, BatchRng.from_seed(0, 64)) - middle
    assert abs(float(added.std()) - 0.05) < 1e-3
    assert abs(float(added.mean())) < 1e-3


def test_features_pass_through() -> None:
    features = torch.randn(5, 7, dtype=torch.float64) * 9
    assert torch.equal(CONTRASTIVE(features, BatchRng.from_seed(0, 5)), features.float())
    noisy = Augment(noise=0.5)(features, BatchRng.from_seed(0, 5))
    torch.testing.assert_close(noisy, features.float() + 0.5 * BatchRng.from_seed(0, 5).normal(7))


WRONG: dict[str, tuple[object, ...]] = {
    "size": (0,),
    "padding": (-1,),
    "scale": ((0.0, 1.0), (0.9, 0.5), (0.5, 1.5)),
    "ratio": ((2.0, 1.0), (0.0, 1.0)),
    "rotation": (-1.0, 181.0),
    "brightness": (-0.1, math.inf, math.nan),
    "hue": (0.6,),
    "jitter_probability": (1.1,),
    "grey": (-0.1,),
    "erase": (-1,),
    "noise": (-1.0,),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_settings_out_of_range_are_named(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"^{name} must be .*given"):
        Augment(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("augment", "images", "message"),
    [
        (Augment(size=9), picture(), "does not fit"),
        (Augment(), picture(c=2), "1 or 3 channels"),
        (Augment(), picture().long(), "uint8"),
        (Augment(), picture(n=3), "random numbers for 4"),
    ],
)
def test_wrong_input_is_named(augment: Augment, images: Tensor, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        augment(images, BatchRng.from_seed(0, 4))
