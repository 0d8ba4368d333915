"""Draw plots as inline SVG: lines, dots and bars. Hand-written: small, with the colours of the page, light or dark."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Literal, NamedTuple

from markupsafe import Markup, escape

WIDTH, HEIGHT = 380, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 20, 10, 40
COLOURS = "abcdef"  # colour variables of the page style
NORMAL = NormalDist()


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of a plot."""

    label: str
    low: float = 0.0
    high: float = 1.0
    ticks: tuple[float, ...] = ()  # tick values; round values by default
    form: Literal["number", "percent"] = "number"  # number format
    probit: bool = False  # normal-deviate scale, for DET curves

    def place(self, value: float) -> float:
        """Return the place of a value, from 0 to 1, clipped at the ends."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.probit:
            low, high, at = (NORMAL.inv_cdf(number) for number in (low, high, at))
        return (at - low) / (high - low) if high > low else 0.5

    def marks(self) -> tuple[float, ...]:
        """Return the tick values."""
        return self.ticks or round_values(self.low, self.high)

    def words(self, value: float) -> str:
        """Format a value."""
        return f"{100 * value:.3g} %" if self.form == "percent" else f"{value:.4g}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """A series of points; steps are areas down to the x axis, each as wide as the distance to the next x."""

    points: Sequence[tuple[float, float]]  # infinite values and NaN are left out
    name: str = ""  # legend entry; blank is not listed
    colour: int = 0  # index of the page colour
    kind: Literal["line", "dots", "both", "steps"] = "line"
    dashed: bool = False
    sizes: Sequence[float] = ()  # radius of each dot
    bars: Sequence[tuple[float, float]] = ()  # ends of an error bar per point
    titles: Sequence[str] = ()  # tooltip of each dot

    @property
    def letter(self) -> str:
        """Its colour variable."""
        return COLOURS[self.colour % len(COLOURS)]


class Plot(NamedTuple):
    """A plot, and the series of its legend."""

    svg: Markup
    legend: tuple[Series, ...]


def round_values(low: float, high: float, most: int = 5, *, integers: bool = False) -> tuple[float, ...]:
    """Return about ``most`` round values from low to high, integers on request."""
    if not high > low:
        return (low,)
    steps = (1, 2, 5, 10) if integers else (1, 2, 2.5, 5, 10)
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    sizes = (step * scale for scale in (power, 10 * power) for step in steps)
    least = 1.0 if integers else 0.0
    size = next(candidate for candidate in sizes if candidate >= least and high - low <= candidate * most * (1 + 1e-9))
    room = 1e-9 * (high - low)
    first, last = math.ceil((low - room) / size), math.floor((high + room) / size)
    return tuple(float(f"{place * size:.12g}") for place in range(first, last + 1))


def range_of(values: Sequence[float]) -> tuple[float, float]:
    """Return axis limits with some margin around all finite values."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    room = (high - low) * 0.05 or max(abs(high), 1.0) * 0.05
    return low - room, high + room


def draw(series: Sequence[Series], x: Axis, y: Axis, *, title: str, limit: tuple[float, str] | None = None) -> Plot:
    """Draw a plot; ``title`` is its text alternative, ``limit`` the position and name of a line."""
    inside = "".join([*_grid(x, y), *(_marks(line, x, y) for line in series), _limit(*limit, x) if limit else ""])
    return Plot(frame(inside, (WIDTH, HEIGHT), title), tuple(line for line in series if line.name))


def frame(
    inside: str, size: tuple[float, float], title: str, kind: str = "plot", width: tuple[float, float] | None = None
) -> Markup:
    """Return an SVG element with a viewBox, and minimal and maximal width on the page in pixels.

    The title says what it shows to those who do not see it.
    """
    style = f' style="min-width: {width[0]:.0f}px; max-width: {width[1]:.0f}px"' if width else ""
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {size[0]:g} {size[1]:g}" role="img" aria-label="{escape(title)}"{style}>'
        f"<title>{escape(title)}</title>{inside}</svg>"
    )


def words(x: float, y: float, text: str, anchor: str = "middle", kind: str = "") -> str:
    """Return a word at a position."""
    attribute = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attribute}>{escape(text)}</text>'


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return TOP + (1 - axis.place(value)) * (HEIGHT - TOP - BOTTOM)


def _grid(x: Axis, y: Axis) -> Iterator[str]:
    low, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in y.marks():
        at = _y(y, value)
        yield f'<path class="grid" d="M{LEFT} {at:.1f}H{right}"/>' + words(LEFT - 6, at + 4, y.words(value), "end")
    for value in x.marks():
        at = _x(x, value)
        yield f'<path class="tick" d="M{at:.1f} {low}v4"/>' + words(at, low + 17, x.words(value))
    yield f'<path class="axis" d="M{LEFT} {low}H{right}"/>' + words((LEFT + right) / 2, HEIGHT - 5, x.label)
    middle = (TOP + low) / 2
    yield f'<text transform="translate(11 {middle:.1f}) rotate(-90)" text-anchor="middle">{escape(y.label)}</text>'


def _marks(series: Series, x: Axis, y: Axis) -> str:
    rows = [i for i, point in enumerate(series.points) if all(map(math.isfinite, point))]
    places = [(_x(x, series.points[i][0]), _y(y, series.points[i][1])) for i in rows]
    if not places:
        return ""
    if series.kind == "steps":
        return _steps(places, series.letter)
    marks = ""
    for (middle, _), row in zip(places, rows if series.bars else (), strict=bool(series.bars)):
        low, high = (_y(y, end) for end in series.bars[row])
        marks += _bar(middle, low, high, series.letter)
    if series.kind in ("line", "both"):
        dash = " dash" if series.dashed else ""
        marks += f'<path class="line s{series.letter}{dash}" d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in places)}"/>'
    if series.kind in ("dots", "both"):
        for i, (a, b) in zip(rows, places, strict=True):
            size = series.sizes[i] if series.sizes else 3
            title = f"<title>{escape(series.titles[i])}</title>" if series.titles else ""
            marks += f'<circle class="f{series.letter}" cx="{a:.1f}" cy="{b:.1f}" r="{size:.1f}">{title}</circle>'
    return marks


def _bar(x: float, low: float, high: float, colour: str) -> str:
    return f'<path class="bar s{colour}" d="M{x:.1f} {low:.1f}V{high:.1f}M{x - 3:.1f} {low:.1f}h6M{x - 3:.1f} {high:.1f}h6"/>'


def _steps(places: Sequence[tuple[float, float]], colour: str) -> str:
    low = HEIGHT - BOTTOM
    top = "".join(f"V{b:.1f}H{after[0]:.1f}" for (_, b), after in pairwise(places))
    line = f"M{places[0][0]:.1f} {low}{top}V{low}"
    return f'<path class="area f{colour}" d="{line}Z"/><path class="line s{colour}" d="{line}"/>'


def _limit(value: float, name: str, x: Axis) -> str:
    at = _x(x, value)
    text_place = (at + 5, "start") if at < WIDTH * 0.6 else (at - 5, "end")
    line = f'<path class="limit" d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
    return line + words(text_place[0], TOP + 11, name, text_place[1], "strong")
