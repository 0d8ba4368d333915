"""Pascal VOC: an XML file for each image in ``Annotations/``, or next to its image; splits in ``ImageSets/Main``, or a folder for each."""

from collections.abc import Iterator
from pathlib import Path

from labelwise.images.formats.annotations import Annotations, Record, files_named, home_of, shaped
from labelwise.images.formats.xml_files import read_xml, text_of
from labelwise.images.sources.paths import SPELLINGS
from labelwise.support.files import open_regular, read_text

FOLDERS = ("JPEGImages", "", "images")
WORDS = "a Pascal VOC annotation"


def files_in(folder: Path) -> list[Path]:
    """Return the annotation files of a folder; none where it is no Pascal VOC data."""
    splits = [home for home in sorted(folder.iterdir()) if home.name.casefold() in SPELLINGS]  # of Roboflow
    for homes in ([folder / "Annotations"], [folder / "annotations"], [folder], splits):
        files = [file for home in homes for file in files_named(home, "*.xml")]
        if files and is_voc(files[0]):
            return files
    return []


def is_voc(file: Path) -> bool:
    """Return whether an XML file annotates one image."""
    with open_regular(file, None) as stream:
        return b"<annotation>" in stream.read(1024)


def read(files: list[Path]) -> Annotations:
    """Read the annotation files of a folder."""
    several = len({file.parent for file in files}) > 1
    home = files[0].parent.parent if several else home_of(files[0])
    splits = _splits(home / "ImageSets" / "Main")
    records: list[Record] = []
    for file in files:
        split = SPELLINGS[file.parent.name.casefold()] if several else splits.get(file.stem, "")
        with shaped(file, WORDS):
            records += _records(file, split, f"{file.parent.name}/" if several else "")
    own = "" if home == files[0].parent else files[0].parent.name
    return Annotations(source=files[0].parent, home=home, records=tuple(records), folders=(*FOLDERS, own))


def _records(file: Path, split: str, folder: str) -> Iterator[Record]:
    root = read_xml(file)
    image = folder + (root.findtext("filename") or f"{file.stem}.jpg")
    image = image if Path(image).suffix else f"{image}.jpg"
    boxes = root.findall("object")
    for one in boxes:
        left, top, right, bottom = (float(text_of(one, f"bndbox/{side}")) for side in ("xmin", "ymin", "xmax", "ymax"))
        # corners are pixels counted from 1, both inside the box
        box = (left - 1, top - 1, right - left + 1, bottom - top + 1, False)
        yield Record(file=image, labels=(text_of(one, "name"),), box=box, split=split)
    if not boxes:
        yield Record(file=image, labels=(), split=split)


def _splits(folder: Path) -> dict[str, str]:
    """Return the split of each image, by its name without suffix."""
    splits: dict[str, str] = {}
    for name in ("train", "val", "test"):
        file = folder / f"{name}.txt"
        if file.is_file():
            splits |= dict.fromkeys(read_text(file).split(), SPELLINGS[name])
    return splits
