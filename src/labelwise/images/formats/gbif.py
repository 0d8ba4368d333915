"""Darwin Core archives as GBIF and others write them: ``meta.xml`` names a table of occurrences and one of their media.

Without ``meta.xml``, the tables are ``occurrence.txt`` and ``multimedia.txt``, whose first rows name their columns; so does
the simple download of GBIF, a single table. Labels are species.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

from labelwise.images.formats.downloads import Download, Photos, Taxon, names_in
from labelwise.images.formats.taxonomy import binomial, ranks_of
from labelwise.images.formats.xml_files import read_xml
from labelwise.images.sources.delimited import fields, records
from labelwise.images.sources.paths import locate
from labelwise.support.files import open_regular

META, OCCURRENCES, MEDIA = "meta.xml", "occurrence.txt", "multimedia.txt"
WORDS = "a Darwin Core archive"
SPECIES = ("", "species", "subspecies", "variety", "form", "hybrid")  # ranks whose names begin with that of a species
_ESCAPES = {r"\t": "\t", r"\n": "\n"}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of an archive."""

    file: Path
    columns: Mapping[int, str] | None = None  # in small letters; None: as its first row says
    first: int = 1  # the number of the first row after the header
    separator: str = "\t"
    quoted: bool = False

    def rows(self) -> Iterator[Mapping[str, str]]:
        """Yield the cells of each row by column."""
        if self.columns is None:
            yield from (row for _, row in fields(self.file, "gbifid", separator=self.separator, quoted=self.quoted))
            return
        for number, cells in records(self.file, separator=self.separator, quoted=self.quoted):
            if number >= self.first:
                yield {name: cells[place].strip() for place, name in self.columns.items() if place < len(cells)}


def is_archive(folder: Path) -> bool:
    """Return whether a folder holds a Darwin Core archive."""
    if (folder / OCCURRENCES).is_file():
        return True
    if not (folder / META).is_file():
        return False
    with open_regular(folder / META, None) as stream:
        return b"rs.tdwg.org/dwc/" in stream.read(4096)


def accepts(columns: set[str]) -> bool:
    """Return whether a table with these columns is a simple download of GBIF."""
    return {"gbifid", "species", "family"} <= columns


def read(folder: Path) -> Download:
    """Return the occurrences of an archive with the photos below its folder."""
    core, media = _tables(folder)
    return _download(core, media, folder)


def read_simple(file: Path) -> Download:
    """Return the occurrences of a simple download with the photos below its folder."""
    return _download(Table(file=file), None, file.parent)


def _download(core: Table, media: Table | None, home: Path) -> Download:
    return Download(
        source=core.file, home=home, records=(), words=WORDS, read=lambda photos: _read(core, media, photos)
    )


def _read(core: Table, media: Table | None, photos: Photos) -> dict[str, Taxon]:
    wanted, taxa = set[str](), dict[str, Taxon]()
    for row in media.rows() if media else ():
        if photos.match(_id(row), names_in(row.get("identifier") or row.get("accessuri", ""))):
            wanted.add(_id(row))
    for row in core.rows():
        other = row.get("occurrenceid", "").rpartition("/")[2]
        if photos.match(_id(row), filter(None, (_id(row), other, row.get("catalognumber", "")))) or _id(row) in wanted:
            taxa[_id(row)] = Taxon(_label(row), ranks_of(row))
    return taxa


def _id(row: Mapping[str, str]) -> str:
    return row.get("gbifid") or row.get("id") or row["coreid"]


def _label(row: Mapping[str, str]) -> str:
    """Return the species of a row, or the nearest group where it is of no species."""
    genus, epithet, name = (row.get(column, "") for column in ("genus", "specificepithet", "scientificname"))
    if row.get("species") or (genus and epithet):
        return row.get("species") or f"{genus} {epithet}"
    if row.get("taxonrank", "").casefold() in SPECIES and binomial(name) != name:
        return binomial(name)
    return next(filter(None, ranks_of(row)), name)


def _tables(folder: Path) -> tuple[Table, Table | None]:
    """Return the table of occurrences and that of media."""
    if not (folder / META).is_file():
        named = Table(file=folder / MEDIA)
        return Table(file=folder / OCCURRENCES), named if named.file.is_file() else None
    root = read_xml(folder / META)
    core, *others = [(one, _table(folder, one)) for one in root if _tag(one) in ("core", "extension")]
    media = [table for one, table in others if one.get("rowType", "").rpartition("/")[2] in ("Multimedia", "Image")]
    return core[1], next((table for table in media if table.file.is_file()), None)


def _table(folder: Path, one: Element) -> Table:
    """Return a table as ``meta.xml`` describes it."""
    columns = {int(each.attrib["index"]): _tag(each) for each in one if _tag(each) in ("id", "coreid")}
    for each in one:
        if _tag(each) == "field" and "index" in each.attrib:
            columns[int(each.attrib["index"])] = each.attrib["term"].rpartition("/")[2].casefold()
    name = next((each.text or "" for each in one.iter() if _tag(each) == "location"), "")
    separator = one.get("fieldsTerminatedBy", ",")
    return Table(
        file=Path(locate(name.strip(), [folder], folder, f'"{folder / META}": ')),
        columns=columns,
        first=int(one.get("ignoreHeaderLines", "0")) + 1,
        separator=_ESCAPES.get(separator, separator),
        quoted=one.get("fieldsEnclosedBy", '"') != "",
    )


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]
