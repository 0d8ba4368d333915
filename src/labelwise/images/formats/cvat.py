"""CVAT for images 1.1: one XML file with tags for whole images, and boxes and outlines in them."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from labelwise.images.decode.crops import Box
from labelwise.images.formats.annotations import Annotations, Record, home_of
from labelwise.images.formats.xml_files import read_xml
from labelwise.images.sources.paths import SPELLINGS
from labelwise.support.files import open_regular

PATTERNS = ("annotations.xml",)


def is_cvat(file: Path) -> bool:
    """Return whether an XML file annotates many images."""
    with open_regular(file, None) as stream:
        return b"<annotations>" in stream.read(1024)


def read(file: Path) -> Annotations:
    """Read the records of the file."""
    records = tuple(record for image in read_xml(file).iter("image") for record in _records(image))
    return Annotations(source=file, home=home_of(file), records=records)


def _records(image: Element) -> Iterator[Record]:
    name, split = image.attrib["name"], SPELLINGS.get(image.get("subset", "").casefold(), "")
    tags = tuple(tag.attrib["label"] for tag in image.iter("tag"))
    shapes = [*image.iter("box"), *image.iter("polygon")]
    for shape in shapes:
        yield Record(file=name, labels=(shape.attrib["label"],), box=_box(shape), split=split)
    if not shapes:
        yield Record(file=name, labels=tags or None, split=split)


def _box(shape: Element) -> Box:
    if shape.tag == "box":
        left, top, right, bottom = (float(shape.attrib[side]) for side in ("xtl", "ytl", "xbr", "ybr"))
    else:
        points = [tuple(map(float, point.split(","))) for point in shape.attrib["points"].split(";")]
        (left, top), (right, bottom) = map(min, zip(*points, strict=True)), map(max, zip(*points, strict=True))
    return left, top, right - left, bottom - top, False
