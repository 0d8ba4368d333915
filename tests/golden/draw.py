"""The small fixed data that golden files are about: drawn once, kept in ``data/``, and read from there by every test."""

import csv
import shutil
import wave
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]
SPLITS = ("train", "val", "test")
COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1)}
FORMS = ("square", "disc", "cross")
KINDS = tuple(f"{colour} {form}" for form in FORMS for colour in COLOURS)
SHAPES = KINDS[:6]  # of the pack of pictures
DESCRIBED = KINDS[:8]
UNSEEN = ("blue square", "red cross")
GRADES = ("very dark", "dark", "middling", "bright", "very bright")
ATTRIBUTES = (*COLOURS, *FORMS)


def draw(folder: Path) -> None:
    """Write all data anew."""
    shutil.rmtree(folder, ignore_errors=True)
    draws = np.random.default_rng(20)
    _write_shapes(folder, draws)
    _write_photos(folder, draws)
    _write_several(folder, draws)
    _write_grades(folder, draws)
    _write_described(folder, draws)
    _write_features(folder, draws)
    _write_other_files(folder, draws)


def shape(kind: str, side: int, draws: np.random.Generator) -> Pixels:
    """Return a picture ``[side, side, 3]`` of a coloured form somewhere on a dark ground, with noise."""
    colour, form = kind.split()
    reach = side // 4
    down, right = draws.integers(reach, side - reach, 2)
    rows, columns = np.mgrid[:side, :side]
    away, aside = np.abs(rows - down), np.abs(columns - right)
    inside = {
        "square": np.maximum(away, aside) <= reach - 1,
        "disc": away**2 + aside**2 <= reach**2,
        "cross": (np.minimum(away, aside) == 0) & (np.maximum(away, aside) <= reach),
    }[form]
    whole = draws.integers(0, 9, (side, side, 3)) * 10
    whole += inside[..., None] * np.array(COLOURS[colour]) * int(draws.integers(90, 160))
    return whole.astype(np.uint8)


def stripes(side: int, draws: np.random.Generator) -> Pixels:
    """Return a picture that is none of the forms."""
    bright = (np.arange(side) // 2 % 2 * 200)[:, None, None]
    return np.asarray(bright + draws.integers(0, 5, (side, side, 3)) * 10, dtype=np.uint8)


def _write_shapes(folder: Path, draws: np.random.Generator) -> None:
    """Write pictures of six labels, 16 pixels a side, with splits of their own."""
    folder.mkdir(parents=True)
    rows = [(kind, split) for split, count in zip(SPLITS, (10, 6, 4), strict=True) for kind in SHAPES * count]
    _pack(
        folder / "shapes.npz",
        images=np.stack([shape(kind, 16, draws) for kind, _ in rows]),
        labels=np.array([kind for kind, _ in rows]),
        split=np.array([split for _, split in rows]),
        files=np.array([f"{split}/{number:03d}.png" for number, (_, split) in enumerate(rows)]),
    )


def _write_photos(folder: Path, draws: np.random.Generator) -> None:
    """Write picture files: some to ask about, a gallery, examples of a new label, strange ones, one that is damaged."""
    for number, kind in enumerate((*SHAPES, *SHAPES[:2])):
        _png(folder / "photos" / f"{number} {kind}.png", shape(kind, 16, draws))
    for number, kind in enumerate(SHAPES * 2):
        _png(folder / "gallery" / kind.split()[1] / f"{kind.split()[0]}-{number}.png", shape(kind, 16, draws))
    for number in range(4):
        _png(folder / "green-cross" / f"{number}.png", shape("green cross", 16, draws))
    for number in range(3):
        _png(folder / "strange" / f"{number}.png", stripes(16, draws))
    _png(folder / "damaged" / "whole.png", shape("red disc", 24, draws))
    (folder / "damaged" / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    pairs = [("photos/0 red square.png", "photos/6 red square.png"), ("photos/0 red square.png", "strange/0.png")]
    _csv(folder / "pairs.csv", ["first", "second"], [*pairs, ("photos/3 red disc.png", "photos/4 green disc.png")])


def _write_several(folder: Path, draws: np.random.Generator) -> None:
    """Write pictures of 8 pixels in which each of three coloured squares is there or not."""
    truths = draws.random((72, 3)) < 0.45
    images = draws.integers(0, 10, (72, 8, 8, 3)) * 10
    for row, colour in np.argwhere(truths):
        down, right = draws.integers(0, 5, 2)
        images[row, down : down + 3, right : right + 3, colour] += 140
    split = np.array(["train"] * 36 + ["val"] * 18 + ["test"] * 18)
    _pack(
        folder / "several.npz", images=images.astype(np.uint8), labels=truths, classes=np.array([*COLOURS]), split=split
    )
    for row in (60, 61, 62):
        _png(folder / "squares" / f"{row}.png", images[row].astype(np.uint8))


def _write_grades(folder: Path, draws: np.random.Generator) -> None:
    """Write pictures of 8 pixels, darker and brighter, and the order of these labels."""
    grade = np.tile(np.arange(5), 17)
    images = draws.integers(0, 12, (85, 8, 8, 3)) * 10 + (grade * 22 + draws.integers(0, 30, 85))[:, None, None, None]
    images = images.clip(0, 255).astype(np.uint8)
    split = np.array(["train"] * 40 + ["val"] * 25 + ["test"] * 20)
    (folder / "grades").mkdir()
    _pack(folder / "grades" / "grades.npz", images=images, labels=np.array(GRADES)[grade], split=split)
    (folder / "grades" / "order.txt").write_text("\n".join(GRADES) + "\n")
    for row in range(65, 70):
        _png(folder / "grades" / "pictures" / f"{row}.png", images[row])


def _write_described(folder: Path, draws: np.random.Generator) -> None:
    """Write pictures of 8 pixels whose labels have sentences and attributes; two labels have test pictures alone."""
    for split, count in (("train", 6), ("test", 3)):
        for kind in (kind for kind in DESCRIBED if split == "test" or kind not in UNSEEN):
            for number in range(count):
                _png(folder / "described" / split / kind / f"{number}.png", shape(kind, 8, draws))
    _write_knowledge(folder / "described")


def _write_knowledge(folder: Path) -> None:
    rows = []
    for kind in DESCRIBED:
        colour, form = kind.split()
        said = [int(each in (colour, form)) for each in ATTRIBUTES]
        rows.append([kind, f"a {kind}", f"this {form} is {colour}", *said])
    _csv(folder / "labels.csv", ["label", "text", "text_1", *ATTRIBUTES], rows)


def _write_features(folder: Path, draws: np.random.Generator) -> None:
    """Write features that follow from the attributes of a label, as a table."""
    way = draws.normal(size=(6, 10))
    rows = []
    for split, count in (("train", 8), ("test", 4)):
        for kind in (kind for kind in DESCRIBED * count if split == "test" or kind not in UNSEEN):
            given = np.array([each in kind.split() for each in ATTRIBUTES], dtype=float)
            rows.append([kind, split, *(f"{x:.4f}" for x in given @ way + 0.7 * draws.normal(size=10))])
    _csv(folder / "features" / "features.csv", ["label", "split", *(f"f{i}" for i in range(10))], rows)
    _write_knowledge(folder / "features")


def _write_other_files(folder: Path, draws: np.random.Generator) -> None:
    """Write one small file of every other kind that is read: packs, tables, arrays, sounds."""
    kinds = [kind for kind in SHAPES[:3] for _ in range(6)]
    pictures = [shape(kind, 16, draws) for kind in kinds]
    named = [(f"pictures/{i}.png", picture) for i, picture in enumerate(pictures)]
    other = folder / "other"
    for name, picture in named:
        _png(other / name, picture)
    about = {
        "label": kinds,
        "domain": [("day", "night")[i // 2 % 2] for i in range(18)],
        "group": [f"film {i // 2}" for i in range(18)],
    }
    texts = [f"a picture of a {kind}" for kind in kinds]
    rows = [[name, *cells, text] for (name, _), *cells, text in zip(named, *about.values(), texts, strict=True)]
    _csv(other / "table.csv", ["path", *about, "text"], rows)
    _csv(other / "domains.csv", ["path", "label", "domain"], [row[:3] for row in rows])
    _parquet(other / "table.parquet", {"path": [name for name, _ in named], **about, "text": texts})
    several = [";".join(("red", "large")[: i % 3]) for i in range(18)]
    _csv(
        other / "several.csv",
        ["path", "labels"],
        [[name, said] for (name, _), said in zip(named, several, strict=True)],
    )
    encoded = [_encoded(picture) for picture in pictures]
    offsets = np.cumsum([0, *map(len, encoded)])
    content = np.frombuffer(b"".join(encoded), np.uint8)
    _pack(other / "encoded.npz", data=content, offsets=offsets, labels=np.array(kinds))
    numbers, places = draws.normal(size=(18, 4)).round(3), np.repeat(np.arange(3), 6)
    names = np.array(SHAPES[:3])
    _pack(other / "packed-features.npz", features=numbers.astype(np.float32), labels=places, classes=names)
    _pack(other / "foreign-features.npz", x=numbers, y=places.astype(float), names=names, splits=np.arange(18) % 3)
    np.save(other / "rows.npy", numbers.astype(np.float32))
    _csv(other / "rows.csv", ["label", "split"], [[kind, SPLITS[i % 3]] for i, kind in enumerate(kinds)])
    for label, hertz in (("high", 900), ("low", 300)):
        for number in range(4):
            _wav(other / "sounds" / label / f"{number}.wav", hertz + 20 * number)


def _png(file: Path, pixels: Pixels) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_encoded(pixels))


def _encoded(pixels: Pixels) -> bytes:
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _wav(file: Path, hertz: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    wanted = np.sin(np.arange(400) * hertz * 2 * np.pi / 8000) * 9000
    with wave.open(str(file), "wb") as stream:
        stream.setnchannels(1)
        stream.setsampwidth(2)
        stream.setframerate(8000)
        stream.writeframes(wanted.astype("<i2").tobytes())


def _pack(file: Path, **columns: NDArray[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, allow_pickle=False, **columns)


def _csv(file: Path, head: list[str], rows: list[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([head, *rows])


def _parquet(file: Path, columns: dict[str, list[str]]) -> None:
    import_module("pyarrow.parquet").write_table(import_module("pyarrow").table(columns), file)
