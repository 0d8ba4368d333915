"""Two plots of labels: the confusion matrix, and a map of label embeddings."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from labelwise.reporting.case import Case
from labelwise.reporting.svg import COLOURS, frame, words

Counts = NDArray[np.int64]
NAMED = 40  # most labels for a matrix with names and a title per cell
MOST = 15  # listed confusions
COUNTED = 12  # most labels for cells with counts
LEVELS = 6
MAP, LARGE_MAP, EDGE = (640, 420), (980, 700), 14  # size of the map, size for many labels, and margin
MANY, MAPPED = 60, 400  # least labels for the large size, and most labels on a map
LETTER, LINE = 6.1, 13  # width and height of a letter


def confusions(case: Case) -> dict[str, Any] | None:
    """Return the confusions of a case; None if several labels may be true.

    Names are in their order where they have one; ``most`` has the true label, the answer, how often, and of how many images.
    """
    if case.confusion is None:
        return None
    names = case.names if case.ordinal is None else case.ordinal.levels
    order = [case.classifier.labels.index(name) for name in names]
    counts = case.confusion[order][:, order]
    totals, wrong = counts.sum(1).tolist(), counts.copy()
    np.fill_diagonal(wrong, 0)
    cells = [divmod(cell, len(names)) for cell in np.argsort(-wrong, axis=None, kind="stable")[:MOST].tolist()]
    most = [(names[i], names[j], int(wrong[i, j]), totals[i]) for i, j in cells if wrong[i, j]]
    kinds = int((wrong > 0).sum())
    return {"names": names, "counts": counts, "most": most, "kinds": kinds, "numbered": len(names) > NAMED}


def matrix(counts: Counts, names: Sequence[str]) -> Markup:
    """Plot counts ``[k, k]`` of true labels (rows) and answers; darker cells have a larger share of the row."""
    k, has_names = len(names), len(names) <= NAMED
    side = 30 if k <= COUNTED else 15 if has_names else max(2.0, 480 / k)
    left = min(320.0, 14 + LETTER * max(map(len, names))) if has_names else 40.0
    top, size = left if has_names else 28.0, k * side
    inside = f'<rect class="sheet" x="{left:g}" y="{top:g}" width="{size:g}" height="{size:g}"/>'
    inside += (_named_cells if has_names else _cells)(counts, names, (left, top, side))
    inside += "".join(_names(names, (left, top, side)))
    inside += words(2, top + size + 16, "true ↓   answer →", "start", "soft")
    title = f"Confusion matrix of {k} labels; the list next to it has the most frequent confusions"
    width = max(left + size + 8, 120.0)
    return frame(inside, (width, top + size + 24), title, "plot matrix", (min(width, 620) * 0.8, width * 1.15))


def _named_cells(counts: Counts, names: Sequence[str], corner: tuple[float, float, float]) -> str:
    """Draw cells with titles; ``corner`` is left, top and side of the first."""
    left, top, side = corner
    cells, totals = "", counts.sum(1).tolist()
    for row, column in np.argwhere(counts).tolist():
        count = int(counts[row, column])
        share = count / totals[row]
        x, y = left + column * side, top + row * side
        title = f"{names[row]} → {names[column]}: {count} of {totals[row]}"
        cells += (
            f'<rect class="{"fa" if row == column else "fb"}" x="{x + 0.5:g}" y="{y + 0.5:g}" width="{side - 1:g}" '
            f'height="{side - 1:g}" fill-opacity="{0.12 + 0.88 * share:.2f}"><title>{escape(title)}</title></rect>'
        )
        if len(names) <= COUNTED:
            cells += words(x + side / 2, y + side / 2 + 4, str(count), kind="on" if share > 0.5 else "strong")
    return cells


def _cells(counts: Counts, _: Sequence[str], corner: tuple[float, float, float]) -> str:
    """Draw the cells of many labels, one path per shade."""
    left, top, side = corner
    levels = np.ceil(counts / np.maximum(counts.sum(1, keepdims=True), 1) * LEVELS).astype(int)
    paths: defaultdict[tuple[bool, int], list[str]] = defaultdict(list)
    for row, column in np.argwhere(counts).tolist():
        square = f"M{left + column * side:.1f} {top + row * side:.1f}h{side:.1f}v{side:.1f}h-{side:.1f}z"
        paths[row == column, int(levels[row, column])].append(square)
    return "".join(
        f'<path class="{"fa" if right else "fb"}" fill-opacity="{0.25 + 0.75 * level / LEVELS:.2f}" d="{"".join(path)}"/>'
        for (right, level), path in sorted(paths.items())
    )


def _names(names: Sequence[str], corner: tuple[float, float, float]) -> Iterator[str]:
    """Yield the names along the matrix, or numbers for many labels."""
    left, top, side = corner
    k, most = len(names), int((left - 10) / LETTER)
    if k > NAMED:
        for i in range(0, k, 10 if k <= 100 else 20 if k <= 200 else k // 10):
            yield words(left - 5, top + (i + 0.5) * side + 4, str(i + 1), "end")
            yield words(left + (i + 0.5) * side, top - 6, str(i + 1))
        return
    for i, name in enumerate(names):
        middle, short = (i + 0.5) * side, name if len(name) <= most else name[: most - 1] + "…"
        yield words(left - 5, top + middle + 4, short, "end")
        yield f'<text transform="translate({left + middle + 4:.1f} {top - 5:.1f}) rotate(-90)">{escape(short)}</text>'


def label_map(points: NDArray[np.floating], names: Sequence[str], unseen: Collection[str] = ()) -> tuple[Markup, int]:
    """Plot labels at points ``[k, 2]``, unseen ones in another colour; also return the number of names without room."""
    points, names = points[:MAPPED], names[:MAPPED]
    low, high = points.min(0), points.max(0)
    share = (points - low) / np.maximum(high - low, 1e-12)
    width, height = LARGE_MAP if len(names) > MANY else MAP
    room = width - 2 * EDGE - 90, height - 2 * EDGE
    places = [(EDGE + 45 + x * room[0], EDGE + (1 - y) * room[1]) for x, y in share.tolist()]
    boxes = [(x - 4, y - 4, x + 4, y + 4) for x, y in places]
    dots, texts, missing = "", "", 0
    for (x, y), name in zip(places, names, strict=True):
        colour = COLOURS[name in unseen]
        dots += f'<circle class="f{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{escape(name)}</title></circle>'
        spot = _free_spot((x, y), name, boxes, (width, height))
        if spot is None:
            missing += 1
            continue
        boxes.append(spot)
        texts += words(spot[0], spot[3] - 3, name, "start")
    title = f"A map of {len(names)} labels by their embeddings"
    wide = (width * 0.8, width * 1.25)
    return frame(dots + texts, (width, height), title, "plot map", wide), missing


Box = tuple[float, float, float, float]


def _free_spot(point: tuple[float, float], name: str, boxes: Sequence[Box], size: tuple[int, int]) -> Box | None:
    """Return a free box for a name next to a point, or None."""
    x, y = point
    wide = LETTER * len(name)
    above, below, middle = y - 5 - LINE, y + 4, x - wide / 2
    side_boxes = [(x + 7, y - 7), (x - 7 - wide, y - 7), (middle, above - 2), (middle, below + 2)]
    corners = [(side, level) for side in (x + 5, x - 5 - wide) for level in (above, below)]
    for left, top in (*side_boxes, *corners):
        box = (left, top, left + wide, top + LINE)
        inside = box[0] >= 2 and box[1] >= 2 and box[2] <= size[0] - 2 and box[3] <= size[1] - 2
        if inside and all(
            box[2] <= box_taken[0] or box_taken[2] <= box[0] or box[3] <= box_taken[1] or box_taken[3] <= box[1]
            for box_taken in boxes
        ):
            return box
    return None
