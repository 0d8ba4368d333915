"""Augment whole batches on their device: one sampling pass for geometry, one matrix per image for colour.

Why it is written this way (one CPU thread, 512 colour images of 32x32, milliseconds):

- The sampling grid is one broadcast sum, 0.2; ``affine_grid`` takes 5.4. The sampling itself takes 3.1.
- Crops and flips move whole pixels, so they are gathered as bytes: 1.5, and exact to the bit.
- Colour is one batched product, 0.6; three fused multiply-adds take 1.1.
- A CPU goes through a batch in blocks that stay in its cache: 256 images of 96x96 are sampled in 23 instead of 57.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from labelwise.support.errors import UsageError
from labelwise.support.settings import setting
from labelwise.train.model import as_float
from labelwise.train.random_changes import random_change
from labelwise.train.tensors import BatchRng

# Luma and two colour differences; both differences of a grey pixel are zero.
YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
# One uniform number per image for each of: area, ratio, top, left, flip, angle; then brightness, contrast,
# saturation, hue, jitter, grey. All are always drawn, so a changed setting leaves the other random numbers unchanged.
PLACE, COLOUR = 6, 6
BLOCK = 2**17  # pixels per block on a CPU


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Random changes of a batch of images; without settings it only converts bytes to [0, 1].

    The order is fixed: crop, flip, rotation; brightness, contrast, saturation, hue, grey; random changes; square; noise. Values are cut to
    [0, 1] after colour and after noise. Geometry is one bilinear pass that does not average when it shrinks: keep stored images
    less than twice as large as ``size``.
    """

    size: int | None = setting(None, "Side of the augmented images; none: unchanged.")
    padding: int = setting(0, "Pixels of zeros around the image before cropping.")
    scale: tuple[float, float] | None = setting(
        None, "Smallest and largest area share of a crop resized to size; none: no resizing."
    )
    ratio: tuple[float, float] = setting((3 / 4, 4 / 3), "Smallest and largest width / height of a resized crop.")
    flip: bool = setting(False, "Mirror half of the images.")
    rotation: float = setting(0.0, "Largest rotation in degrees, either way.")
    brightness: float = setting(0.0, "Largest change of the brightness factor.")
    contrast: float = setting(0.0, "Largest change of the contrast factor.")
    saturation: float = setting(0.0, "Largest change of the saturation factor.")
    hue: float = setting(0.0, "Largest turn of the hue, either way; 0.5 is half the circle.")
    jitter_probability: float = setting(1.0, "Probability of the four colour changes together.")
    grey: float = setting(0.0, "Probability that an image loses its colours.")
    changes: int = setting(0, "Random changes of each image (RandAugment).")
    strength: float = setting(0.5, "Strength of random changes, 0 to 1.")
    erase: int = setting(0, "Side in pixels of a square painted grey (Cutout); 0: none.")
    noise: float = setting(0.0, "Standard deviation of normal noise on every value.")

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise UsageError(f"size must be at least 1 pixel, or None to keep the size; given {self.size}.")
        if self.scale is not None and not (len(self.scale) == 2 and 0 < self.scale[0] <= self.scale[1] <= 1):
            raise UsageError(f"scale must be two shares of the area, 0 < smallest <= largest <= 1; given {self.scale}.")
        if not (len(self.ratio) == 2 and 0 < self.ratio[0] <= self.ratio[1] < math.inf):
            raise UsageError(f"ratio must be two numbers, 0 < smallest <= largest; given {self.ratio}.")
        limits = {"rotation": 180.0, "hue": 0.5, "jitter_probability": 1.0, "grey": 1.0, "strength": 1.0}
        for name in ("padding", "brightness", "contrast", "saturation", "changes", "erase", "noise", *limits):
            value, most = getattr(self, name), limits.get(name, math.inf)
            if not 0 <= value <= most or value == math.inf:
                range_words = "zero or more" if most == math.inf else f"from 0 to {most:g}"
                raise UsageError(f"{name} must be a finite number, {range_words}; given {value}.")

    @torch.no_grad()
    def __call__(self, images: Tensor, rng: BatchRng) -> Tensor:
        """Return the changed images, float32 in [0, 1], ``[n, c, size, size]``, in the memory layout of the input.

        Images are bytes, or floats in [0, 1], with one or three channels; features ``[n, a]`` get noise and nothing
        else.
        """
        _check(images, rng)
        if images.ndim == 2:
            return self._with_noise(images.float(), rng)
        uniform = rng.uniform(PLACE + COLOUR)
        placed = self._place(images, uniform[:, :PLACE])
        coloured = self._coloured(placed, uniform[:, PLACE:])
        for change in torch.split(rng.uniform(2 * self.changes), 2, 1) if self.changes else ():
            coloured = random_change(coloured, change, self.strength)
        if self.erase:
            coloured.masked_fill_(self._square(coloured, rng.uniform(2)), 0.5)
        result = self._with_noise(coloured, rng).clamp_(0, 1) if self.noise else coloured
        return result.contiguous(memory_format=_memory_format(images))

    def _with_noise(self, images: Tensor, rng: BatchRng) -> Tensor:
        return torch.add(images, rng.normal(*images.shape[1:]), alpha=self.noise) if self.noise else images

    def _square(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Return which pixels are in the random square of each image ``[n, 1, h, w]``; it may exceed the image."""
        inside = []
        for centre, side in zip(uniform.unbind(1), images.shape[2:], strict=True):
            first = (centre * side).floor()[:, None] - self.erase // 2
            pixels = torch.arange(side, device=images.device)
            inside.append((pixels >= first) & (pixels < first + self.erase))
        return (inside[0][:, :, None] & inside[1][:, None])[:, None]

    def _place(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Return cropped, flipped and rotated floats ``[n, c, size, size]`` in new memory."""
        source = (images.shape[2], images.shape[3])
        target = source if self.size is None else (self.size, self.size)
        if self.scale is not None or self.rotation:
            # A resized crop stays inside the image, so its edge repeats; anything else is padded with zeros.
            outside = "zeros" if self.padding or self.rotation else "border"
            output = torch.empty((*images.shape[:2], *target), device=images.device)
            for x, across, down, target_block in _blocks(images, *self._lines(uniform, source, target), output):
                grid = (across + down).permute(0, 2, 3, 1)
                sample = F.grid_sample(as_float(x.contiguous()), grid, padding_mode=outside, align_corners=False)
                torch.clamp(sample, 0, 1, out=target_block)
            return output
        if self.flip or self.padding or source != target:
            return as_float(self._crop(images, uniform, target))
        return as_float(images) if images.dtype == torch.uint8 else images.to(torch.float32, copy=True)

    def _crop(self, images: Tensor, uniform: Tensor, target: tuple[int, int]) -> Tensor:
        """Crop and flip by whole pixels, ``[n, c, *target]``, keeping the dtype."""
        top, left, _, _ = self._boxes(uniform, (images.shape[2], images.shape[3]), target)
        rows = (top + self.padding).long()[:, None] + torch.arange(target[0], device=images.device)
        across = torch.arange(target[1], device=images.device)
        across = torch.where(self._flips(uniform)[:, None], across.flip(0), across)
        columns = (left + self.padding).long()[:, None] + across
        padded_images = F.pad(images, [self.padding] * 4) if self.padding else images
        positions = (rows[:, :, None] * padded_images.shape[3] + columns[:, None]).flatten(1)
        pixels = padded_images.flatten(2).gather(2, positions[:, None].expand(-1, images.shape[1], -1))
        return pixels.view(*images.shape[:2], *target)

    def _flips(self, uniform: Tensor) -> Tensor:
        return uniform[:, 4] < (0.5 if self.flip else 0.0)

    def _boxes(self, uniform: Tensor, source: tuple[int, int], target: tuple[int, int]) -> tuple[Tensor, ...]:
        """Return top, left, height and width of each crop in pixels of the image, each ``[n]``."""
        (h, w), (area, ratio, top, left, _, _) = source, uniform.unbind(1)
        room_down, room_across = h + 2 * self.padding, w + 2 * self.padding
        if self.scale is None:
            if target[0] > room_down or target[1] > room_across:
                raise UsageError(
                    f"A crop of {target[0]}x{target[1]} does not fit images of {h}x{w} with padding {self.padding}. "
                    "Give a smaller size, more padding, or a scale, which resizes."
                )
            height, width = torch.full_like(top, target[0]), torch.full_like(top, target[1])
            down = (top * (room_down - target[0] + 1)).floor()
            across = (left * (room_across - target[1] + 1)).floor()
        else:
            share = self.scale[0] + area * (self.scale[1] - self.scale[0])
            # A crop of this share fits if its width / height is between share * w / h and w / h / share.
            narrow, wide = (share * (w / h)).log(), (w / h / share).log()
            low, high = (torch.clamp(torch.full_like(share, math.log(r)), narrow, wide) for r in self.ratio)
            shape = (low + ratio * (high - low)).exp()
            height, width = (share * h * w / shape).sqrt(), (share * h * w * shape).sqrt()
            down, across = top * (room_down - height), left * (room_across - width)
        return down - self.padding, across - self.padding, height, width

    def _lines(self, uniform: Tensor, source: tuple[int, int], target: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Return ``[n, 2, 1, columns]`` and ``[n, 2, rows, 1]``, whose sum is the source position of each output pixel.

        The two numbers are x and y in ``grid_sample``'s units: -1 and 1 are the outer edges of the image.
        """
        top, left, height, width = self._boxes(uniform, source, target)
        (h, w), (rows, columns) = source, target
        angle = (2 * uniform[:, 5] - 1) * math.radians(self.rotation)
        across = 2 * width / (w * columns) * (1 - 2 * self._flips(uniform).float())
        down = 2 * height / (h * rows)
        cos, sin = angle.cos(), angle.sin()
        along_row = torch.stack((across * cos, down * sin), 1)[:, :, None]
        along_column = torch.stack((-across * sin, down * cos), 1)[:, :, None]
        centre = torch.stack(((2 * left + width) / w - 1, (2 * top + height) / h - 1), 1)[:, :, None]
        x = torch.arange(columns, device=uniform.device) - (columns - 1) / 2
        y = torch.arange(rows, device=uniform.device) - (rows - 1) / 2
        return (along_row * x)[:, :, None, :], (along_column * y + centre)[:, :, :, None]

    def _coloured(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Change the colours of floats in place: ``matrix @ pixel + lift``.

        Saturation, hue and grey keep the grey of a pixel. So the mean grey that contrast needs is that of the
        image times the brightness, and ``matrix`` is a sum of three fixed ones: the grey of a pixel, its colour, and its
        colour after a quarter turn. Grey is a saturation of zero.
        """
        strengths = (self.brightness, self.contrast, self.saturation)
        if not (any(strengths) or self.hue or self.grey):
            return images
        jitter = uniform[:, 4] < self.jitter_probability
        brightness, contrast, saturation = (
            1 + jitter * _change(uniform[:, i], strength) for i, strength in enumerate(strengths)
        )
        turn = jitter * (2 * uniform[:, 3] - 1) * (2 * math.pi * self.hue)
        colour = saturation * (uniform[:, 5] >= self.grey)
        gain, means = brightness * contrast, images.mean((2, 3))
        if images.shape[1] == 1:
            grey, matrix = means[:, 0], gain[:, None, None]
        else:
            parts = _colour_parts(images.device)
            grey = (means * parts[0, 0]).sum(1)
            weights = gain[:, None] * torch.stack((torch.ones_like(turn), colour * turn.cos(), colour * turn.sin()), 1)
            matrix = (weights[:, :, None, None] * parts).sum(1)
        lift = (brightness * (1 - contrast) * grey)[:, None, None]
        with torch.autocast(images.device.type, enabled=False):
            for x, product, offset in _blocks(images, matrix, lift):
                torch.clamp(torch.baddbmm(offset, product, x.flatten(2)).view(x.shape), 0, 1, out=x)
        return images


def _check(images: Tensor, rng: BatchRng) -> None:
    """Raise an error unless the random numbers match these images, or features."""
    if images.ndim != 2 and (images.ndim != 4 or images.shape[1] not in (1, 3)):
        raise UsageError(
            f"Images must be [n, c, h, w] with 1 or 3 channels, or features [n, a]; given {list(images.shape)}."
        )
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise UsageError(f"Images must be bytes (uint8) or floats in [0, 1]; given {images.dtype}.")
    if images.device.type != rng.device.type:
        raise UsageError(
            f"Images are on {images.device} but their random numbers on {rng.device}; put both on one device."
        )
    rows = len(range(rng.total)[rng.rows])
    if rows != len(images):
        raise UsageError(f"There are {len(images)} images but random numbers for {rows}; give those of this batch.")


def _blocks(images: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield blocks of the same rows of each tensor, sized for a CPU's cache; other devices get a single block."""
    rows = max(1, BLOCK // images[0, 0].numel()) if images.device.type == "cpu" and len(images) else max(1, len(images))
    return zip(*(torch.split(tensor, rows) for tensor in (images, *others)), strict=True)


def _memory_format(images: Tensor) -> torch.memory_format:
    last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format


def _change(uniform: Tensor, strength: float) -> Tensor:
    """Return factors minus one, from -strength (at least -1) to strength, ``[n]``."""
    low = -min(strength, 1.0)
    return low + uniform * (strength - low)


@cache
def _colour_parts(device: torch.device) -> Tensor:
    """Return matrices for the grey of a pixel, its colour, and its colour turned by 90°, ``[3, 3, 3]``."""
    to = torch.tensor(YIQ, dtype=torch.float64)
    quarter = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    grey = to[:1].expand(3, 3)
    rotation = torch.linalg.solve(to, quarter @ to)
    return torch.stack((grey, torch.eye(3, dtype=torch.float64) - grey, rotation)).float().to(device)
