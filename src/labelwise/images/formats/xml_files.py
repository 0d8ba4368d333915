"""XML of unknown origin: parsed without document types, entities or deep nesting, which can blow up memory or read other files."""

from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from labelwise.support.errors import DataError
from labelwise.support.files import check_size, read_regular

DEPTH = 32  # annotations nest four deep
ELEMENT = 150  # bytes of memory that an element takes, and each of its attributes, about


def read_xml(file: Path) -> Element:
    """Return the root of an XML file."""
    content = read_regular(file)
    check_size(file, 4 * len(content) + ELEMENT * (content.count(b"<") + content.count(b"=")))
    builder, depth = TreeBuilder(), 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEPTH:
            raise DataError(f'"{file}" nests elements more than {DEPTH} deep, which no annotation does.')
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*_: object) -> None:
        raise DataError(f'"{file}" has a document type (DOCTYPE), which could hide other files. Remove that line.')

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.Parse(content, True)
    return builder.close()


def text_of(element: Element, path: str) -> str:
    """Return the text of an element below another one; raise ``ValueError`` if it is missing."""
    text = (element.findtext(path) or "").strip()
    if not text:
        raise ValueError(f"<{path}> is missing or empty")
    return text
