"""YOLO: a text file of boxes for each image, ``labels/train/1.txt`` of ``images/train/1.jpg``; ``data.yaml`` or ``classes.txt`` names the labels.

A line is the number of a label and centre, width and height as shares of the image, or the corners of an outline. Folders of the
classification layout (``train/owl/1.jpg``) need no reader: they are label folders.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from labelwise.images.decode.crops import Box, shares
from labelwise.images.formats.annotations import Annotations, Record
from labelwise.images.sources.paths import SPELLINGS, list_images
from labelwise.support.errors import DataError
from labelwise.support.files import MAX_TEXT, read_regular, read_text

PATTERNS = ("data.yaml", "dataset.yaml", "data.yml", "*.yaml", "*.yml", "classes.txt", "labels/classes.txt")
_NAMES = re.compile(rb"^(?:\xef\xbb\xbf)?names:", re.MULTILINE)
_ENTRY = re.compile(r"\s+(?:(\d+)\s*:|-)(.*)")
_ITEM = re.compile(r"""\s*('[^']*'|"[^"]*"|[^,]+)""")


def accepts(file: Path) -> bool:
    """Return whether a file names the labels of a YOLO data set."""
    named = file.name == "classes.txt" or _NAMES.search(read_regular(file, MAX_TEXT))
    return bool(named) and any(_home(file).glob("**/labels"))


def read(file: Path) -> Annotations:
    """Return the boxes of all images below the folder of ``data.yaml``."""
    home, names = _home(file), _names(file)
    records: list[Record] = []
    for image in list_images(home):
        labels = _labels_file(image.relative_to(home))
        if labels is not None and (home / labels).is_file():
            records += _records(home / labels, image.relative_to(home), names)
    return Annotations(source=file, home=home, records=tuple(records), folders=("",))


def _home(file: Path) -> Path:
    return file.parent.parent if file.parent.name == "labels" else file.parent


def _labels_file(image: Path) -> Path | None:
    """Return the file of the boxes of an image: the last folder ``images`` in its path is ``labels``."""
    parts = list(image.parts)
    if "images" not in parts[:-1]:
        return None
    place = len(parts) - 2 - parts[-2::-1].index("images")
    return Path(*parts[:place], "labels", *parts[place + 1 : -1], f"{image.stem}.txt")


def _records(file: Path, image: Path, names: Mapping[int, str]) -> Iterator[Record]:
    split = next((SPELLINGS[part] for part in map(str.casefold, image.parts[:-1]) if part in SPELLINGS), "")
    lines = [line.split() for line in read_text(file).splitlines() if line.strip()]
    for line in lines:
        number = int(line[0])
        if number not in names:
            raise DataError(f'"{file}" has the label number {number}, and {len(names)} labels have names.')
        numbers = [float(word) for word in line[1:]]
        yield Record(file=image.as_posix(), labels=(names[number],), box=_box(numbers), split=split)
    if not lines:
        yield Record(file=image.as_posix(), labels=(), split=split)


def _box(numbers: list[float]) -> Box:
    """Return a box from centre, width and height (and a confidence), or from the corners of an outline."""
    if len(numbers) in (4, 5):
        x, y, width, height = numbers[:4]
        return shares((x - width / 2, y - height / 2, width, height))
    if len(numbers) < 6 or len(numbers) % 2:
        raise ValueError(f"a line has {len(numbers)} numbers after the label, and 4 are a box")
    across, down = numbers[::2], numbers[1::2]
    return shares((min(across), min(down), max(across) - min(across), max(down) - min(down)))


def _names(file: Path) -> dict[int, str]:
    """Return the labels by number: lines of ``classes.txt``, or the entry ``names`` of a YAML file."""
    text = read_text(file, encoding="utf-8-sig")
    if file.suffix == ".txt":
        return dict(enumerate(line.strip() for line in text.splitlines() if line.strip()))
    lines = text.splitlines()
    start = [line.startswith("names:") for line in lines].index(True)
    inline = lines[start].partition(":")[2].partition(" #")[0].strip()
    if inline:
        return dict(enumerate(_inline(inline)))
    names: dict[int, str] = {}
    for line in lines[start + 1 :]:
        match = _ENTRY.fullmatch(f" {line}" if line.startswith("-") else line)
        if match is None and line.strip() and not line.lstrip().startswith("#"):
            break
        if match:
            names[int(match[1]) if match[1] else len(names)] = _plain(match[2].partition(" #")[0])
    return names


def _inline(text: str) -> list[str]:
    """Return the words of a list in one line: ``['owl', "barn owl", wren]``."""
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError(f"names are no list: {text:.60}")
    return [_plain(word) for word in _ITEM.findall(text[1:-1]) if word.strip()]


def _plain(word: str) -> str:
    return word.strip().strip("'\"")
