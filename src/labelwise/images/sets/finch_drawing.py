"""Draw birds: a species and a random scene become a 48x48 image.

Every shape is a signed distance in pixels (negative inside), computed for a batch of images of one species at
once. Its edge is ``softness`` pixels wide, which is anti-aliasing and a slight blur in one. A bird looks right in its
own frame (x to the front, y down, its body about one unit in radius); facing, tilt and scale are in the frame.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import ImageColor

Array = NDArray[np.floating[Any]]
Number = float | Array  # a number, or one per image [n, 1, 1]
SIDE = 48
BIRDS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "finches.toml").read_text(encoding="utf-8"))
COLOURS: dict[str, str] = {name: colour["paint"] for name, colour in BIRDS["colours"].items()}
BACKDROPS: dict[str, dict[str, Any]] = BIRDS["backdrops"]
PALE, DARK = "#f7f2e0", "#1f1c21"


@dataclass(frozen=True, kw_only=True)
class Bird:
    """The appearance of a species; lengths, bars and size range from 0 to 2."""

    body: str
    wing: str
    breast: str
    cap: str | None = None
    mask: bool = False
    crest: bool = False
    eye_ring: bool = False
    wing_bars: int = 0
    pattern: Literal["plain", "streaked", "spotted"] = "plain"
    beak: Literal["conical", "slender", "curved"] = "conical"
    beak_length: int = 0
    orange_beak: bool = False
    tail_length: int = 1
    forked_tail: bool = False
    size: int = 1


_STROKES, _NUMBERS = 7, 160


def rgb(*colours: str) -> Array:
    """Return colours such as "#ff8800" as numbers in [0, 1], ``[k, 3, 1, 1]``."""
    return np.asarray([ImageColor.getrgb(colour) for colour in colours], np.float32)[..., None, None] / 255


class DrawingFrame:
    """Coordinates ``[n, h, w]`` in units of ``scale`` pixels, with distances to shapes."""

    def __init__(self, x: Array, y: Array, scale: Number = 1.0) -> None:
        self.x, self.y, self.scale = x, y, scale

    def at(self, x: Number, y: Number, angle: Number = 0.0) -> "DrawingFrame":
        """Return the frame moved to a point and turned by an angle (radians, clockwise on the screen)."""
        cos, sin = np.cos(angle, dtype=np.float32), np.sin(angle, dtype=np.float32)
        dx, dy = self.x - x, self.y - y
        return DrawingFrame(dx * cos + dy * sin, dy * cos - dx * sin, self.scale)

    def ellipse(self, radius_x: Number, radius_y: Number) -> Array:
        """Return distances to an ellipse around the origin, exact to first order near its edge."""
        u, v = self.x / radius_x, self.y / radius_y
        length = np.sqrt(u * u + v * v)
        slope = np.sqrt((u / radius_x) ** 2 + (v / radius_y) ** 2) + 1e-6
        return np.asarray(length * (length - 1) / slope * self.scale)

    def stroke(self, x: Number, y: Number, start_radius: Number, end_radius: Number) -> Array:
        """Return distances to a stroke from the origin to a point, with a radius that changes along it."""
        position = np.clip((self.x * x + self.y * y) / (x * x + y * y + 1e-6), 0, 1)
        dx, dy = self.x - position * x, self.y - position * y
        radius = start_radius + position * (end_radius - start_radius)
        return np.asarray((np.sqrt(dx * dx + dy * dy) - radius) * self.scale)


class Dice:
    """Random numbers for n images, drawn per image in a fixed order."""

    def __init__(self, numbers: Array) -> None:
        self._columns = iter(numbers.T)

    def uniform(self, low: Number, high: Number) -> Array:
        """Return numbers in [low, high), ``[n, 1, 1]``."""
        return np.asarray(low + (high - low) * next(self._columns)[:, None, None], np.float32)

    def tint(self, colour: str | Array, variation: float = 0.07) -> Array:
        """Return a colour that varies a little from image to image, ``[n, 3, 1, 1]``."""
        light = self.uniform(1 - 1.5 * variation, 1 + 1.5 * variation)[:, None]
        shift = np.stack([self.uniform(-variation, variation) for _ in range(3)], 1)
        return (rgb(colour) if isinstance(colour, str) else colour) * light + shift


@dataclass(frozen=True, eq=False)
class Canvas:
    """Pixels ``[n, 3, h, w]`` in [0, 1] that shapes are painted on, and the width of an edge in pixels."""

    pixels: Array
    softness: Array

    def cover(self, distance: Array, blur: Number = 1.0) -> Array:
        """Return the coverage of each pixel ``[n, h, w]``."""
        return np.clip(0.5 - distance / (self.softness * blur), 0, 1)

    def paint(self, cover: Array, colour: str | Array, shade: Array | None = None) -> None:
        """Paint the covered pixels with a colour, shaded by ``shade [n, h, w]``."""
        tint = rgb(colour) if isinstance(colour, str) else colour
        for channel in range(3):
            layer = self.pixels[:, channel]
            layer += cover * ((tint[:, channel] if shade is None else tint[:, channel] * shade) - layer)


def draw(bird: Bird, streams: Sequence[np.random.Generator]) -> tuple[NDArray[np.uint8], list[str], list[bool]]:
    """Return one scene per random stream: images ``[n, 3, 48, 48]``, backdrops, and which birds face left."""
    dice = Dice(np.stack([stream.random(_NUMBERS, np.float32) for stream in streams]))
    noise = np.stack([stream.standard_normal((3, SIDE, SIDE), np.float32) for stream in streams])
    kind = dice.uniform(0, len(BACKDROPS)).astype(np.int64).ravel()
    facing = np.where(dice.uniform(0, 1) < 0.5, np.float32(-1), np.float32(1))
    canvas = Canvas(np.empty_like(noise), dice.uniform(0.9, 2.1))
    y, x = (grid[None] for grid in np.mgrid[0.5:SIDE, 0.5:SIDE].astype(np.float32))
    page = DrawingFrame(x, y)
    _surroundings(canvas, page, dice, kind)
    scale = (8.8 + 0.9 * bird.size) * dice.uniform(0.86, 1.16)
    middle = 24 + facing * scale * (0.06 + 0.35 * bird.tail_length - 0.14 * bird.beak_length) * 0.6
    centre = (middle + dice.uniform(-5, 5), 24 + dice.uniform(-5, 5))
    perch = DrawingFrame((page.x - centre[0]) * facing / scale, (page.y - centre[1]) / scale, scale)
    _perch(canvas, perch, dice, kind)
    _bird(canvas, perch, dice, bird)
    _leaf(canvas, page.at(*centre), dice)
    images = _photograph(canvas.pixels, page, dice, noise)
    return images, [tuple(BACKDROPS)[i] for i in kind], [bool(side < 0) for side in facing.ravel()]


def _pick(kind: NDArray[np.int64], field: str) -> Array:
    """Return one field of each image's backdrop, ``[n, ..., 1, 1]``."""
    values = [backdrop[field] for backdrop in BACKDROPS.values()]
    return (rgb(*values) if isinstance(values[0], str) else np.asarray(values, np.float32)[..., None, None])[kind]


def _surroundings(canvas: Canvas, page: DrawingFrame, dice: Dice, kind: NDArray[np.int64]) -> None:
    top, bottom = (dice.tint(_pick(kind, field), 0.06) for field in ("top", "bottom"))
    canvas.pixels[:] = top + (bottom - top) * (page.y / SIDE)[:, None]
    ranges = [np.moveaxis(_pick(kind, field), 1, 0) for field in ("angle", "length", "radius")]
    first, second, blur = (_pick(kind, field) for field in ("stroke", "other_stroke", "blur"))
    for _ in range(_STROKES):
        start = page.at(dice.uniform(-4, SIDE + 4), dice.uniform(0, SIDE + 4))
        angle, length, radius = (dice.uniform(low, high) for low, high in ranges)
        line = start.stroke(length * np.cos(angle), -length * np.sin(angle), radius, radius * 0.7)
        canvas.paint(0.8 * canvas.cover(line, blur), first + (second - first) * dice.uniform(0, 1)[:, None])


def _perch(canvas: Canvas, frame: DrawingFrame, dice: Dice, kind: NDArray[np.int64]) -> None:
    """Paint the perch: a twig, or the top of a mound of grass or snow."""
    mound = _pick(kind, "mound") > 0
    radius = np.where(mound, np.float32(4), dice.uniform(0.09, 0.17))
    axis = frame.at(0.05, 1.1 + radius, dice.uniform(-0.2, 0.2)).at(-6, 0)
    bark = dice.tint("#6b4f38", 0.08)
    ground = dice.tint(_pick(kind, "bottom") * np.float32(0.92), 0.05)
    shade = np.clip(1.12 - 0.3 * (axis.y / radius + 0.3), 0.75, 1.15)
    cover = canvas.cover(axis.stroke(12, 0, radius, radius))
    canvas.paint(cover, np.where(mound[:, None], ground, bark), np.where(mound, np.float32(1), shade))


def _bird(canvas: Canvas, upright: DrawingFrame, dice: Dice, bird: Bird) -> None:
    body, wing, breast = (dice.tint(COLOURS[name]) for name in (bird.body, bird.wing, bird.breast))
    frame = upright.at(0, 0, dice.uniform(-0.4, 0.25))
    head = frame.at(0.62 + dice.uniform(-0.05, 0.05), -0.64 + dice.uniform(-0.05, 0.05), dice.uniform(-0.4, 0.4))
    for x in (-0.1, 0.2):
        canvas.paint(canvas.cover(upright.at(x, 0.6).stroke(0.04, 0.52, 0.055, 0.05)), "#664738")
    _tail(canvas, frame.at(-0.6, 0.12, dice.uniform(-0.22, 0.22)), bird, wing)
    cap = dice.tint(COLOURS[bird.cap or bird.body])
    crown = cap if bird.cap else body
    if bird.crest:
        canvas.paint(canvas.cover(head.at(-0.05, -0.25).stroke(-0.42, -0.72, 0.28, 0.02)), crown * np.float32(0.92))
    _beak(canvas, head, bird)

    torso = frame.at(0, 0, -0.2).ellipse(0.95, 0.78) / frame.scale
    skull = head.ellipse(0.52, 0.5) / frame.scale
    mix = np.clip(0.5 + (skull - torso) / 0.7, 0, 1)
    outline = (skull + (torso - skull) * mix - 0.35 * mix * (1 - mix)) * frame.scale
    inside = canvas.cover(outline)
    shade = np.clip(0.78 - outline / (0.25 * frame.scale) * 0.22, 0.7, 1) * (1.02 - 0.14 * frame.y)
    canvas.paint(inside, body, shade)

    chest = np.minimum(inside, canvas.cover(frame.at(0.46, 0.34, 0.35).ellipse(0.66, 0.78), 1.6))
    canvas.paint(chest, breast, shade)
    marks = frame.at(dice.uniform(0, 1), dice.uniform(0, 1))
    if bird.pattern != "plain":
        ink = PALE if bird.breast == "black" else "#3d291f"
        canvas.paint(np.minimum(chest, canvas.cover(_marks(marks, bird.pattern))), ink)
    if bird.cap:
        canvas.paint(np.minimum(inside, canvas.cover(head.at(-0.1, -0.36, 0.08).ellipse(0.6, 0.3))), crown, shade)
    if bird.mask:
        canvas.paint(np.minimum(inside, canvas.cover(head.at(0.2, -0.02).ellipse(0.46, 0.21))), DARK)
    _eye(canvas, head.at(0.18, -0.06), bird.eye_ring)
    _wing(canvas, frame.at(0.08, 0.06, dice.uniform(-0.12, 0.12)), bird.wing_bars, wing)


def _tail(canvas: Canvas, frame: DrawingFrame, bird: Bird, colour: Array) -> None:
    length = (0.6, 0.95, 1.35)[bird.tail_length]
    for drop, radius, tip in ((-0.12, 0.17, 0.05), (0.36, 0.17, 0.05)) if bird.forked_tail else ((0.12, 0.2, 0.23),):
        distance = frame.stroke(-length, drop, radius, tip)
        canvas.paint(canvas.cover(distance), colour, np.clip(0.66 - distance / frame.scale * 1.2, 0.6, 0.92))


def _beak(canvas: Canvas, head: DrawingFrame, bird: Bird) -> None:
    length = (0.34, 0.52, 0.86)[bird.beak_length]
    root = head.at(0.4, 0.04)
    if bird.beak == "curved":
        root = DrawingFrame(root.x, root.y - 0.42 * np.maximum(root.x, 0) ** 2, root.scale)
    radius = {"conical": 0.23, "slender": 0.1, "curved": 0.12}[bird.beak]
    colour = "#f78c1f" if bird.orange_beak else "#454045"
    cover = canvas.cover(root.stroke(length, 0.03, radius, 0.02))
    canvas.paint(cover, colour, np.clip(1 - 1.6 * root.y, 0.75, 1.2))


def _eye(canvas: Canvas, frame: DrawingFrame, ring: bool) -> None:
    distance = np.sqrt(frame.x * frame.x + frame.y * frame.y) * frame.scale
    if ring:
        canvas.paint(canvas.cover(distance - 0.2 * frame.scale), PALE)
    canvas.paint(canvas.cover(distance - 0.125 * frame.scale), DARK)
    canvas.paint(canvas.cover(frame.at(0.04, -0.05).ellipse(0.045, 0.045)), "#ffffff")


def _wing(canvas: Canvas, frame: DrawingFrame, bars: int, colour: Array) -> None:
    distance = frame.stroke(-1.05, 0.3, 0.4, 0.05)
    inside = canvas.cover(distance)
    rim = np.clip(0.62 - distance / frame.scale * 1.9, 0.55, 1)
    quill = (np.abs((frame.y + 0.3 * frame.x) * 5 % 1 - 0.5) < 0.16) & (frame.x < -0.2)
    canvas.paint(inside, colour, rim * np.where(quill, np.float32(0.88), np.float32(1)) * (1 - 0.15 * frame.y))
    for offset in (-0.06, -0.36)[:bars]:
        band = np.abs(frame.x - 0.25 * frame.y - offset) - 0.055
        canvas.paint(np.minimum(inside, canvas.cover(band * frame.scale)), PALE)


def _marks(frame: DrawingFrame, pattern: str) -> Array:
    """Return distances to the nearest of many staggered streaks or spots, ``[n, h, w]``."""
    wide, high, radius_x, radius_y = (0.27, 0.68, 0.05, 0.25) if pattern == "streaked" else (0.4, 0.4, 0.11, 0.11)
    column = np.round(frame.x / wide)
    y = frame.y + 0.5 * high * (column % 2)
    return DrawingFrame(frame.x - column * wide, y - np.round(y / high) * high, frame.scale).ellipse(radius_x, radius_y)


def _leaf(canvas: Canvas, frame: DrawingFrame, dice: Dice) -> None:
    """Paint a leaf over part of the bird, in one image of three."""
    distance = np.where(dice.uniform(0, 1) < 0.34, np.float32(0), np.float32(1000))
    leaf = frame.at(dice.uniform(-12, 12) + distance, dice.uniform(-10, 10), dice.uniform(0, 3.14))
    colour = dice.tint("#738538", 0.14)
    shade = np.where(np.abs(leaf.y) < 0.4, np.float32(0.8), np.where(leaf.y < 0, np.float32(1.08), np.float32(0.95)))
    canvas.paint(canvas.cover(leaf.ellipse(dice.uniform(5, 8), dice.uniform(2, 3.4))), colour, shade)


def _photograph(pixels: Array, page: DrawingFrame, dice: Dice, noise: Array) -> NDArray[np.uint8]:
    """Return the painted scenes as bytes under varied light, with noise."""
    angle, slant = dice.uniform(0, 6.283), dice.uniform(0, 0.4)
    gradient = ((page.x - 24) * np.cos(angle) + (page.y - 24) * np.sin(angle)) / 34
    light = dice.uniform(0.64, 1.15) * (1 + slant * gradient)
    cast = np.stack([dice.uniform(0.86, 1.14) for _ in range(3)], 1)
    exposed = pixels * light[:, None] * cast + noise * dice.uniform(0.005, 0.03)[:, None]
    return np.asarray(np.clip(exposed * 255 + 0.5, 0, 255).astype(np.uint8))
