"""Two plots of labels: which are taken for which (a matrix of counts), and where their codes lie (a map with names)."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape
from torch import Tensor

from labelwise.report.case import Case
from labelwise.report.findings import Findings
from labelwise.report.svg import COLOURS, frame, words

NAMED = 40  # labels up to which the names stand beside the matrix, and each cell says what it holds
MOST = 15  # confusions that are listed
COUNTED = 12  # labels up to which counts stand in the cells
LEVELS = 6
MAP, LARGE_MAP, EDGE = (640, 420), (980, 700), 14  # its size, that of many labels, and how far dots keep from its edge
MANY, MAPPED = 60, 400  # labels from which it is large, and that are on it, at most
LETTER, LINE = 6.1, 13  # the width and height of a letter of the map


class Confusions(NamedTuple):
    """Which labels are taken for which.

    Attributes:
        names: of the labels, in their order where they have one.
        counts: row is the true label, column what was said ``[k, k]``.
        most: the most frequent confusions: the true label, what was said, how often, and of how many images.
        kinds: how many confusions there are.
        numbered: whether there are so many labels that numbers stand for names.
    """

    names: tuple[str, ...]
    counts: Tensor
    most: list[tuple[str, str, int, int]]
    kinds: int
    numbered: bool


def confusions(case: Case, found: Findings) -> Confusions | None:
    """Return which labels of a case are taken for which; None where several may be true."""
    if found.confusion is None:
        return None
    names = case.names if found.ordinal is None else found.ordinal.levels
    order = [case.classifier.labels.index(name) for name in names]
    counts = found.confusion[order][:, order]
    totals, wrong = counts.sum(1).tolist(), counts.clone().fill_diagonal_(0)
    values, places = (part[:MOST].tolist() for part in wrong.flatten().sort(descending=True, stable=True))
    cells = [(*divmod(place, len(names)), value) for value, place in zip(values, places, strict=True) if value]
    most = [(names[row], names[column], value, totals[row]) for row, column, value in cells]
    return Confusions(names, counts, most, int((wrong > 0).sum()), len(names) > NAMED)


def matrix(counts: Tensor, names: Sequence[str]) -> Markup:
    """Return counts ``[k, k]`` of true labels (rows) and what was said: the darker, the larger the share of its row."""
    k = len(names)
    side = 30 if k <= COUNTED else 15 if k <= NAMED else max(2.0, 480 / k)
    longest = max(map(len, names))
    margin = min(150.0, 14 + 6.0 * longest) if k <= NAMED else 40.0
    top = margin if k <= NAMED else 28.0
    size = k * side
    inside = f'<rect class="sheet" x="{margin:g}" y="{top:g}" width="{size:g}" height="{size:g}"/>'
    inside += _named_cells(counts, names, (margin, top, side)) if k <= NAMED else _cells(counts, (margin, top, side))
    inside += _names(names, (margin, top, side)) if k <= NAMED else _numbers(k, (margin, top, side))
    inside += words(margin - 4, top + size + 16, "true ↓   said →", "start" if k > NAMED else "end", "soft")
    title = f"Confusion of {k} labels; the list beside it names the most frequent ones"
    width = margin + size + 8
    return frame(inside, (width, top + size + 24), title, "plot matrix", (min(width, 620) * 0.8, width * 1.15))


def _shares(counts: Tensor) -> Tensor:
    return counts.double() / counts.sum(1, keepdim=True).clamp_min(1)


def _named_cells(counts: Tensor, names: Sequence[str], place: tuple[float, float, float]) -> str:
    left, top, side = place
    shares, totals = _shares(counts), counts.sum(1).tolist()
    out = []
    for row, column in counts.nonzero().tolist():
        count, share = int(counts[row, column]), float(shares[row, column])
        x, y = left + column * side, top + row * side
        said = f"{names[row]} → {names[column]}: {count} of {totals[row]}"
        kind = "fa" if row == column else "fb"
        out.append(
            f'<rect class="{kind}" x="{x + 0.5:g}" y="{y + 0.5:g}" width="{side - 1:g}" height="{side - 1:g}" '
            f'fill-opacity="{0.12 + 0.88 * share:.2f}"><title>{escape(said)}</title></rect>'
        )
        if len(names) <= COUNTED:
            out.append(words(x + side / 2, y + side / 2 + 4, str(count), kind="on" if share > 0.5 else "strong"))
    return "".join(out)


def _cells(counts: Tensor, place: tuple[float, float, float]) -> str:
    """Return the cells of many labels, those of like shares in one path."""
    left, top, side = place
    shares = _shares(counts)
    level = (shares * LEVELS).ceil().long()
    found: dict[tuple[bool, int], list[str]] = {}
    for row, column in counts.nonzero().tolist():
        at = f"M{left + column * side:.1f} {top + row * side:.1f}h{side:.1f}v{side:.1f}h-{side:.1f}z"
        found.setdefault((row == column, int(level[row, column])), []).append(at)
    return "".join(
        f'<path class="{"fa" if right else "fb"}" fill-opacity="{0.25 + 0.75 * deep / LEVELS:.2f}" d="{"".join(cells)}"/>'
        for (right, deep), cells in sorted(found.items())
    )


def _names(names: Sequence[str], place: tuple[float, float, float]) -> str:
    left, top, side = place
    most = int((left - 10) / 6.0)
    out = []
    for i, name in enumerate(names):
        middle, short = (i + 0.5) * side, name if len(name) <= most else name[: most - 1] + "…"
        out.append(words(left - 5, top + middle + 4, short, "end"))
        out.append(
            f'<text transform="translate({left + middle + 4:.1f} {top - 5:.1f}) rotate(-90)">{escape(short)}</text>'
        )
    return "".join(out)


def _numbers(k: int, place: tuple[float, float, float]) -> str:
    left, top, side = place
    step = 10 if k <= 100 else 20 if k <= 200 else max(1, k // 10)
    out = []
    for i in range(0, k, step):
        out.append(words(left - 5, top + (i + 0.5) * side + 4, str(i + 1), "end"))
        out.append(words(left + (i + 0.5) * side, top - 6, str(i + 1)))
    return "".join(out)


def label_map(points: Tensor, names: Sequence[str], described: Collection[str] = ()) -> tuple[Markup, int]:
    """Return the map of the first labels, and how many names found no room on it.

    Args:
        points: where each label lies ``[k, 2]``.
        names: of the labels; a dot without room for its name says it where a pointer rests on it.
        described: labels that have another colour.
    """
    points, names = points[:MAPPED], names[:MAPPED]
    low, high = points.amin(0), points.amax(0)
    share = (points - low) / (high - low).clamp_min(1e-12)
    width, height = LARGE_MAP if len(names) > MANY else MAP
    room = width - 2 * EDGE - 90, height - 2 * EDGE
    places = [(EDGE + 45 + x * room[0], EDGE + (1 - y) * room[1]) for x, y in share.tolist()]
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in places]
    dots, texts, missing = [], [], 0
    for (x, y), name in zip(places, names, strict=True):
        colour = COLOURS[name in described]
        dots.append(
            f'<circle class="f{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{escape(name)}</title></circle>'
        )
        spot = _free_spot((x, y), name, taken, (width, height))
        if spot is None:
            missing += 1
            continue
        taken.append(spot)
        texts.append(words(spot[0], spot[3] - 3, name, "start"))
    title = f"A map of {len(names)} labels by their codes"
    wide = (width * 0.8, width * 1.25)
    return frame("".join(dots + texts), (width, height), title, "plot map", wide), missing


Box = tuple[float, float, float, float]


def _free_spot(point: tuple[float, float], name: str, taken: Sequence[Box], size: tuple[int, int]) -> Box | None:
    """Return a box beside a point where a name fits and covers nothing; None where there is none."""
    x, y = point
    wide = LETTER * len(name)
    for left, top in (
        (x + 7, y - 7),
        (x - 7 - wide, y - 7),
        (x - wide / 2, y - 7 - LINE),
        (x - wide / 2, y + 6),
        (x + 5, y - 5 - LINE),
        (x + 5, y + 4),
        (x - 5 - wide, y - 5 - LINE),
        (x - 5 - wide, y + 4),
    ):
        box = (left, top, left + wide, top + LINE)
        inside = box[0] >= 2 and box[1] >= 2 and box[2] <= size[0] - 2 and box[3] <= size[1] - 2
        if inside and not any(_overlap(box, other) for other in taken):
            return box
    return None


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
