"""Draw the ideas of the explanation pages as SVG, without other packages: ``python tools/diagrams.py [FOLDER]``.

Each function of ``DIAGRAMS`` returns the elements of one picture. ``docs/pictures/idea-NAME.svg`` holds what it draws; a test compares them.
"""

import math
import random
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path

INK, PALE, BLUE, ORANGE, GREEN, GREY = "#1f2937", "#f3f4f6", "#2563eb", "#d97706", "#059669", "#9ca3af"
WIDTH, HEIGHT = 720, 250
HEAD = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" font-size="14">'
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
    f'<path d="M0 0 8 4 0 8z" fill="{INK}"/></marker></defs>'
    f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#ffffff"/>'
)
Point = tuple[float, float]
Drawing = list[str]


def text(at: Point, words: str, colour: str = INK, anchor: str = "middle", style: str = "") -> str:
    """Return words centred on a point, or beginning there (``start``)."""
    return f'<text x="{at[0]:g}" y="{at[1]:g}" fill="{colour}" text-anchor="{anchor}" {style}>{escape(words)}</text>'


def box(at: Point, words: str, colour: str = INK, width: float = 96) -> str:
    """Return a rectangle around a point, with words in it."""
    x, y = at
    frame = f'<rect x="{x - width / 2:g}" y="{y - 18:g}" width="{width:g}" height="36" rx="6" fill="{PALE}" stroke="{colour}" stroke-width="1.5"/>'
    return frame + text((x, y + 5), words, colour)


def arrow(start: Point, end: Point, colour: str = INK, style: str = "") -> str:
    """Return an arrow between two points."""
    tip = "" if "none" in style else 'marker-end="url(#tip)"'
    return f'<path d="M{start[0]:g} {start[1]:g}L{end[0]:g} {end[1]:g}" stroke="{colour}" stroke-width="1.5" fill="none" {tip} {style.replace("none", "")}/>'


def dot(at: Point, colour: str, radius: float = 5) -> str:
    """Return a filled circle."""
    return f'<circle cx="{at[0]:g}" cy="{at[1]:g}" r="{radius:g}" fill="{colour}"/>'


def star(at: Point, colour: str, radius: float = 10) -> str:
    """Return a star with five points."""
    corners = (
        (at[0] + r * math.sin(i * math.pi / 5), at[1] - r * math.cos(i * math.pi / 5))
        for i, r in enumerate([radius, radius * 0.45] * 5)
    )
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon points="{points}" fill="{colour}" stroke="#ffffff"/>'


def cloud(at: Point, colour: str, count: int, spread: Point, seed: int) -> Drawing:
    """Return dots around a point."""
    draw = random.Random(seed)
    return [
        dot((round(draw.gauss(at[0], spread[0])), round(draw.gauss(at[1], spread[1]))), colour, 4) for _ in range(count)
    ]


def closed_form() -> Drawing:
    """Draw the mean of few examples, pulled towards what is expected of a label."""
    ring = '<ellipse cx="{}" cy="{}" rx="62" ry="40" fill="none" stroke="{}" stroke-dasharray="4 3"/>'
    few, prior, belief = (560.0, 70.0), (395.0, 165.0), (500.0, 105.0)
    return [
        *cloud((110, 85), BLUE, 22, (26, 15), 1), ring.format(110, 85, BLUE), star((110, 85), BLUE),
        text((120, 30), "many images: the mean", BLUE),
        *cloud((200, 160), GREEN, 22, (24, 13), 2), ring.format(200, 160, GREEN), star((200, 160), GREEN),
        *[dot(at, ORANGE) for at in ((535, 60), (590, 55), (555, 95))],
        star(few, GREY), text((585, 34), "mean of three images", ORANGE),
        star(prior, GREY), text((395, 200), "expected mean of any label", GREY),
        arrow((548, 77), (512, 98), GREY), arrow((404, 159), (489, 111), GREY), star(belief, ORANGE, 13),
        text((530, 130), "posterior mean", ORANGE, "start"),
        text((360, 238), "All labels share one covariance W (dashed). One formula gives every mean."),
    ]  # fmt: skip


def indicator() -> Drawing:
    """Draw the question whether an image has a label, and the shortcut for all labels."""
    rows = [
        f'<rect x="520" y="{y}" width="84" height="18" fill="{c}" fill-opacity="0.25" stroke="{c}"/>'
        for y, c in zip((62, 86, 110, 134), (BLUE, ORANGE, GREEN, GREY), strict=True)
    ]
    names = [
        text((612, y), name, INK, "start")
        for y, name in zip((76, 100, 124, 148), ("robin", "wren", "owl", "..."), strict=True)
    ]
    return [
        box((62, 70), "image"), arrow((112, 70), (140, 70)), box((190, 70), "encoder E"),
        box((62, 160), "label y", BLUE), arrow((112, 160), (140, 160)), box((190, 160), "encoder", BLUE),
        arrow((240, 70), (290, 105)), arrow((240, 160), (290, 125)), text((262, 76), "z", INK, "start"), text((262, 160), "ψ", BLUE, "start"),
        dot((305, 115), INK, 15), text((305, 121), "\u2299", "#ffffff"), arrow((322, 115), (356, 115)), box((405, 115), "yes or no?"),
        text((220, 222), "The label is an input: one question for each pair"),
        *rows, *names, text((495, 121), "z ·"), text((565, 222), "All labels at once: one matrix product"),
    ]  # fmt: skip


def prototype() -> Drawing:
    """Draw prototypes, a new image and a pair of images, joined by one similarity."""
    at = {"robin": (90.0, 80.0), "wren": (230.0, 70.0), "owl": (150.0, 185.0)}
    colours = dict(zip(at, (BLUE, GREEN, ORANGE), strict=True))
    query = (180.0, 110.0)
    drawing = [
        part for i, (name, place) in enumerate(at.items()) for part in cloud(place, colours[name], 9, (20, 13), 40 + i)
    ]
    drawing += [arrow(query, place, GREY, 'stroke-dasharray="4 3" none') for place in at.values()]
    drawing += [star(place, colours[name], 12) for name, place in at.items()]
    drawing += [
        dot(query, INK, 7),
        text((192, 132), "image", INK, "start"),
        text((110, 34), "prototype: a running mean", BLUE),
    ]
    questions = (
        ("which label?", "S(image, prototype)"), ("a new label?", "its mean becomes a prototype"),
        ("the same label?", "S(image, image) is large"), ("which images are alike?", "largest S in a gallery"),
    )  # fmt: skip
    for i, (question, answer) in enumerate(questions):
        y = 60 + 42 * i
        drawing += [text((300, y), question, BLUE, "start"), text((488, y), answer, INK, "start")]
    return [*drawing, text((360, 238), "One learned similarity S answers four questions.")]


def grid(corner: Point, order: tuple[int, ...], colour: str) -> Drawing:
    """Return a table of similarities of four things, in some order, as squares."""
    alike = ((9, 7, 2, 1), (7, 9, 3, 1), (2, 3, 9, 5), (1, 1, 5, 9))
    return [
        f'<rect x="{corner[0] + 26 * j:g}" y="{corner[1] + 26 * i:g}" width="25" height="25" fill="{colour}" fill-opacity="{alike[a][b] / 10}"/>'
        for i, a in enumerate(order) for j, b in enumerate(order)
    ]  # fmt: skip


def zero_label() -> Drawing:
    """Draw clusters and names as two tables of similarities to be matched."""
    names = ("cat", "dog", "car", "truck")
    return [
        *cloud((60, 70), GREY, 8, (11, 9), 1), *cloud((105, 110), GREY, 8, (11, 9), 2), *cloud((50, 160), GREY, 8, (11, 9), 3),
        *cloud((110, 180), GREY, 8, (11, 9), 4), text((85, 30), "images, no labels"), arrow((140, 125), (185, 125)),
        *grid((200, 75), (2, 0, 3, 1), ORANGE), text((252, 60), "clusters: how alike?", ORANGE),
        *[text((213 + 26 * i, 196), f"{i + 1}", ORANGE) for i in range(4)],
        arrow((320, 125), (370, 125), INK, 'marker-start="url(#tip)"'), text((345, 112), "match"),
        *grid((415, 75), (0, 1, 2, 3), BLUE), text((467, 60), "names: how alike?", BLUE),
        *[text((410, 93 + 26 * i), name, BLUE, "end", 'font-size="11"') for i, name in enumerate(names)],
        arrow((535, 125), (570, 125)), *[text((580, 90 + 26 * i), f"{name} = cluster {k}", INK, "start") for i, (name, k) in enumerate(zip(names, (2, 4, 1, 3), strict=True))],
        text((360, 238), "The order of the names that makes the two tables alike names the clusters."),
    ]  # fmt: skip


def clarel() -> Drawing:
    """Draw images and sentences in one space, each retrieving the other."""
    pairs = (
        ((470.0, 80.0), (520.0, 65.0), BLUE),
        ((590.0, 120.0), (630.0, 145.0), GREEN),
        ((460.0, 175.0), (510.0, 190.0), ORANGE),
    )
    drawing = [
        box((70, 85), "image"), arrow((120, 85), (160, 85)), box((215, 85), "image encoder", INK, 110), arrow((272, 85), (395, 105)),
        box((70, 165), "sentence"), arrow((120, 165), (160, 165)), box((215, 165), "text encoder", INK, 110), arrow((272, 165), (395, 145)),
        f'<rect x="400" y="30" width="290" height="185" rx="12" fill="{PALE}"/>', text((545, 50), "one space", GREY),
    ]  # fmt: skip
    for image, sentence, colour in pairs:
        drawing += [
            dot(image, colour, 7),
            star(sentence, colour, 9),
            arrow(image, sentence, colour, 'stroke-dasharray="3 3" marker-start="url(#tip)"'),
        ]
    drawing += [
        dot((612, 70), INK, 7),
        text((622, 75), "image", INK, "start"),
        star((612, 92), INK, 9),
        text((622, 97), "sentence", INK, "start"),
    ]
    return [
        *drawing,
        text(
            (360, 238),
            "Each image finds its sentence and each sentence its image. A label is the mean of its sentences.",
        ),
    ]


def izf() -> Drawing:
    """Draw the flow: features become attributes and a free part, and back."""
    return [
        box((90, 120), "features v", INK, 120), arrow((155, 112), (245, 112)), arrow((245, 128), (155, 128)),
        f'<path d="M250 75 390 95 390 145 250 165z" fill="{PALE}" stroke="{INK}" stroke-width="1.5"/>', text((320, 125), "invertible flow"),
        arrow((395, 105), (455, 75)), arrow((455, 165), (395, 135)), box((530, 70), "attributes ĉ", BLUE, 140), box((530, 170), "free part z", GREY, 140),
        text((610, 60), "classify:", BLUE, "start"), text((610, 80), "near c of y?", BLUE, "start"),
        text((610, 160), "generate:", GREEN, "start"), text((610, 180), "draw z", GREEN, "start"),
        text((200, 100), "classify", BLUE), text((200, 150), "generate", GREEN),
        text((360, 238), "Forwards it compares an image with the attributes of a label; backwards it imagines one."),
    ]  # fmt: skip


DIAGRAMS: dict[str, Callable[[], Drawing]] = {
    "closed-form": closed_form, "indicator": indicator, "prototype": prototype, "zero-label": zero_label, "clarel": clarel, "izf": izf,
}  # fmt: skip


def write_diagrams(folder: Path) -> None:
    """Write every diagram into a folder."""
    for name, draw in DIAGRAMS.items():
        (folder / f"idea-{name}.svg").write_text(f"{HEAD}{''.join(draw())}</svg>\n", encoding="utf-8")


if __name__ == "__main__":
    write_diagrams(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs/pictures")
