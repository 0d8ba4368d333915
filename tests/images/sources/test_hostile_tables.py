"""A thousand tables that people and programs get wrong: each is read correctly or refused in words, never otherwise."""

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from labelwise.images.dataset import Dataset
from labelwise.images.sources.image_tables import table
from labelwise.support.errors import DataError
from tests.images.sources.slow_tables import Reading, number, read
from tests.pixels_of import px

PICTURES = [f"p{i}.png" for i in range(8)]
ANY = (
    "", " ", "x", "owl", '"', 'a"b', "a\nb", "\r", "\0", "\ufeff", "é", "e\u0301", "a" * 5000, "b" * 140_000, "=1+1", "\\",
    "NULL", "None", "0", "\udfff", "a;b", "a,b", "a\tb",
)  # fmt: skip
CELLS = {
    "path": (
        "/etc/passwd",
        "../p0.png",
        "sub/../p0.png",
        "..",
        ".",
        "gone.png",
        "p0.png",
        "./p1.png",
        "IN/p2.png",
        "~",
    ),
    "split": ("train", "test", "Valid", "tset", "validation "),
    "group": ("g0", "g1", "g2", "g3"),
    "labels": ("", "owl;été", "été; owl ", "owl;;été", "owl;owl", ";", "owl; ", "e\u0301t\u00e9;owl", "kiwi;owl"),
    "f0": ("nan", "inf", "-1e39", "1_0", "0x1", "1,5", "٣", "1e-400", " 7 ", "1e5"),
}
NAMES = (
    "path",
    "label",
    "labels",
    "split",
    "f0",
    "f1",
    "f2",
    "f9",
    "feature_x",
    "text",
    "text_1",
    "group",
    "domain",
    "",
)
EXTRAS = ("labels", "split", "group", "domain", "text", "text_1", "note")
KINDS = (
    "cell",
    "cell",
    "cell",
    "name",
    "drop",
    "twice",
    "extra",
    "short",
    "repeat",
    "blank",
    "byte",
    "cut",
    "conflict",
)

DAMAGE = (b"\xff", b"\xe9", b"\0", b'"')

Change = tuple[str, int, int, int]
mutation = st.tuples(st.sampled_from(KINDS), st.integers(0, 11), st.integers(0, 7), st.integers(0, 99))


@dataclass(frozen=True)
class Spelling:
    """How a table is written down."""

    separator: str
    end: str
    mark: bool
    quotes: bool
    last_end: bool


spellings = st.builds(
    Spelling,
    separator=st.sampled_from(",;\t"),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.booleans(),
    quotes=st.booleans(),
    last_end=st.booleans(),
)


def build(folder: Path, pictures: bool, extras: list[str], changes: list[Change], how: Spelling) -> bytes:
    label = ["labels"] if "labels" in extras else ["label"]
    names = [*(["path"] if pictures else ["f1", "f0"]), *label, *(name for name in extras if name != "labels")]
    rows = []
    for i in range(8):
        cells = {"path": PICTURES[i], "f0": f"{i / 8}", "f1": f"-{i}e-3", "label": ("owl", "été")[i % 2]}
        cells |= {"labels": ("owl", "été", "owl;été", "")[i % 4]}
        cells |= {"split": ("train", "train", "test", "test", "val", "val", "train", "train")[i]}
        cells |= {"group": f"g{i // 2}" if i < 6 else "", "domain": "ab"[i // 4], "text": f"a; {i}", "text_1": ""}
        rows.append([cells.get(name, "note") for name in names])
    lines = [names, *rows]
    for change in changes:
        apply(lines, folder, *change)
    content = write(lines, how)
    for kind, i, j, _ in changes:
        at = (i * 8 + j) * 7 % (len(content) + 1)
        if kind in ("cut", "byte"):
            content = content[:at] + (b"" if kind == "cut" else DAMAGE[j % 4] + content[at:])
    return content


def apply(lines: list[list[str]], folder: Path, kind: str, i: int, j: int, value: int) -> None:
    """Make a table wrong in one way."""
    row = lines[i % len(lines)]
    j %= max(len(row), 1)
    match kind:
        case "cell" if row and i:
            name = lines[0][j] if j < len(lines[0]) else ""
            pool = (*CELLS.get("f0" if name == "f1" else name, ANY), *(ANY if value % 3 == 0 else ()))
            row[j] = pool[value % len(pool)].replace("IN/", f"{folder}/")
        case "name":
            lines[0][j % len(lines[0])] = NAMES[(i * 8 + j) % len(NAMES)]
        case "drop":
            for other in lines:
                del other[j : j + 1]
        case "twice":
            for other in lines:
                other.extend(other[j : j + 1])
        case "extra":
            row.append(ANY[value % len(ANY)])
        case "short":
            del row[-1:]
        case "repeat":
            lines.append(list(row))
        case "conflict":
            lines.append([*row[:1], *row[-1:], *row[1:-1]])
        case "blank":
            lines.insert(max(1, i), [""] * j)
    if not lines[0]:
        lines[0] = ["path"]


def write(lines: list[list[str]], how: Spelling) -> bytes:
    def cell(value: str) -> str:
        special = any(c in value for c in (how.separator, '"', "\n", "\r"))
        return '"' + value.replace('"', '""') + '"' if how.quotes or special else value

    text = how.end.join(how.separator.join(cell(value) for value in line) for line in lines)
    return ("\ufeff" * how.mark + text + how.end * how.last_end).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    (root / "sub").mkdir()
    for i, name in enumerate(PICTURES):
        Image.new("L", (2, 2), 30 * i).save(root / name)
    return root


@settings(max_examples=5 * settings().max_examples, suppress_health_check=list(HealthCheck))
@given(
    pictures=st.sampled_from([True, False, False]),
    extras=st.lists(st.sampled_from(EXTRAS), unique=True, max_size=3),
    changes=st.lists(mutation, max_size=3),
    how=spellings,
)
def test_tables_are_read_right_or_refused_in_words(
    folder: Path, pictures: bool, extras: list[str], changes: list[Change], how: Spelling
) -> None:
    content = build(folder, pictures, extras, changes, how)
    (folder / "birds.csv").write_bytes(content)
    slow = read(content, folder)
    try:
        data = table(folder / "birds.csv", size=2)
    except DataError as error:
        check_error(str(error), slow, folder)
        return
    assert not slow.faults, "a fault was not seen"
    check_rows(data, slow, folder)


def check_error(text: str, slow: Reading, folder: Path) -> None:
    """The error names a row and column that are at fault; or the table, where a fault is not of one cell."""
    assert "birds" in text or "images cannot be read" in text  # which lists them by name
    about = text.replace(str(folder), "")
    rows = [int(i) for i in re.findall(r"^Rows? (\d+)(?: and (\d+))?", about) for i in i if i]
    column = re.search(r'column "([^"]*)"', about)
    if slow.broken:
        assert rows or column or re.search(r"\bline \d+| is empty\.", about), text
        return
    if slow.faults:
        if rows:
            assert {row for row, _ in slow.faults} & set(rows), (text, slow.faults)
        if column:
            assert any(name == column[1] for _, name in slow.faults), (text, slow.faults)
        if not rows and not column:
            assert (None, None) in slow.faults, (text, slow.faults)
        return
    assert not rows, (text, "no row is at fault")
    rows_here = readable(slow, folder)
    labels = Counter(name for row in rows_here for name in ([row.get("label")] if "labels" not in row else named(row)))
    if "of one label only" in text or "at least two labels" in text or "no readable image" in text:
        assert len(labels) < 2
    elif "images cannot be read" in text:
        assert not rows_here
    elif "no train split" in text:
        assert "train" not in {row["split"] for row in readable(slow, folder)}
    elif "labels in" in text or "groups for" in text:
        assert any(row.get("split") or row.get("group") for row in slow.rows)
    else:
        pytest.fail(f"refused without a reason: {text}")


def named(row: dict[str, str]) -> list[str]:
    """The labels of a row, of which several may be true."""
    return [name for name in row["labels"].split(";") if name]


def readable(slow: Reading, folder: Path) -> list[dict[str, str]]:
    return [row for row in slow.rows if "path" not in row or os.path.isfile(folder / row["path"])]


def check_rows(data: Dataset, slow: Reading, folder: Path) -> None:
    """Every row is in the data set with all that the table says about it, and nothing else is."""
    wanted, got, homes = Counter[object](), Counter[object](), {}
    for row in readable(slow, folder):
        texts = tuple(row[name] for name in ("text", "text_1", "text_2") if row.get(name))
        key = os.path.normpath(folder / row["path"]) if "path" in row else tuple(number(row[n]) for n in slow.features)
        wanted[key, row.get("label", row.get("labels")), row.get("domain", ""), row.get("group", ""), texts] += 1
    for name, split in data.splits.items():
        for i, target in enumerate(split.targets.tolist()):
            label: str | None
            if split.multilabel:
                label = ";".join(sorted(name for name, yes in zip(data.labels.names, target, strict=True) if yes))
            else:
                label = data.labels.names[target] if target >= 0 else None
            key = split.files[i] if split.files else tuple(px(split)[i].tolist())
            about = [getattr(split, what)[i] if getattr(split, what) else "" for what in ("domains", "groups")]
            got[(key, label, *about, split.texts[i] if split.texts else ())] += 1
            homes[key] = name
            if split.files:
                assert int(px(split)[i, 0, 0, 0]) == 30 * PICTURES.index(Path(split.files[i]).name)
    if "path" in slow.rows[0]:  # a picture is in once, however often the table names it
        wanted = Counter(set(wanted))
    assert got == wanted
    for row in readable(slow, folder):
        if "path" in row and row.get("split"):
            home = homes[os.path.normpath(folder / row["path"])]
            assert home == row["split"] or (row["split"], home) == ("train", "val")
