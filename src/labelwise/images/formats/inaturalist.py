"""iNaturalist: the CSV file that "Export observations" gives, and the tables of the Open Dataset, also packed (``photos.csv.gz``).

Labels are species. The groups that hold them are the columns ``taxon_genus_name`` and so on, or the ancestry in the table of taxa;
without either, the genus in the name and the iconic taxon.
"""

from collections.abc import Mapping
from pathlib import Path

from labelwise.images.describe.knowledge_files import RANKS
from labelwise.images.formats.downloads import Download, Photos, Taxon, names_in
from labelwise.images.formats.taxonomy import binomial, ranks_of
from labelwise.images.sources.delimited import fields

PATTERNS = ("observations*.csv",)  # how exports are called
TABLES = ("photos", "observations", "taxa")  # of the Open Dataset
SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")


def accepts(columns: set[str]) -> bool:
    """Return whether a table with these columns is an export of observations."""
    return {"id", "image_url", "scientific_name"} <= columns


def open_tables(folder: Path) -> list[Path]:
    """Return the tables of photos, observations and taxa in a folder; none where one of them is missing."""
    places = [[folder / f"{name}{suffix}" for suffix in SUFFIXES] for name in TABLES]
    tables = [next((file for file in each if file.is_file()), None) for each in places]
    return [file for file in tables if file] if all(tables) else []


def read(file: Path) -> Download:
    """Return the observations of an export with the photos below its folder."""
    words = "an export of iNaturalist"
    return Download(source=file, home=file.parent, records=(), words=words, read=lambda photos: _export(file, photos))


def read_open(tables: list[Path]) -> Download:
    """Return the observations of the Open Dataset with the photos below its folder."""
    words, home = "the Open Dataset of iNaturalist", tables[0].parent
    return Download(source=tables[0], home=home, records=(), words=words, read=lambda photos: _open(tables, photos))


def _export(file: Path, photos: Photos) -> dict[str, Taxon]:
    taxa: dict[str, Taxon] = {}
    for _, row in fields(file, "id", "scientific_name", "image_url"):
        if photos.match(row["id"], filter(None, (row["id"], row.get("uuid", ""), *names_in(row["image_url"])))):
            species = row.get("taxon_species_name", "").strip()
            taxa[row["id"]] = Taxon(species or binomial(row["scientific_name"].strip()), _ranks(row))
    return taxa


def _ranks(row: Mapping[str, str]) -> tuple[str, ...]:
    """Return the groups of a row; of an export without columns for them, the genus in the name and the iconic taxon."""
    if any(row.get(f"taxon_{rank}_name") for rank in RANKS):
        return ranks_of(row, "taxon_{}_name")
    name = row["scientific_name"].strip()
    genus = name.partition(" ")[0] if binomial(name) != name or name.count(" ") == 1 else ""
    return ranks_of({"genus": genus, "class": row.get("iconic_taxon_name", "")})


def _open(tables: list[Path], photos: Photos) -> dict[str, Taxon]:
    """Return the taxa of observations with a photo here; tables that are larger than memory are gone through row by row."""
    table, observations, taxa = tables
    wanted: dict[str, str] = {}
    for _, row in fields(table, "photo_id", "observation_uuid", separator="\t", quoted=False):
        one = row["observation_uuid"]
        if photos.match(one, filter(None, (row["photo_id"], row.get("photo_uuid", ""), one))):
            wanted[one] = ""
    for _, row in fields(observations, "observation_uuid", "taxon_id", separator="\t", quoted=False):
        if row["observation_uuid"] in wanted:
            wanted[row["observation_uuid"]] = row["taxon_id"]
    known = _taxa(taxa, set(wanted.values()))
    return {one: known[taxon] for one, taxon in wanted.items() if taxon in known}


def _taxa(table: Path, wanted: set[str]) -> dict[str, Taxon]:
    """Return some taxa with the groups above them, which may be anywhere in the table."""
    ancestry = {
        row["taxon_id"]: [*row["ancestry"].replace("\\", "/").split("/"), row["taxon_id"]]
        for _, row in fields(table, "taxon_id", "ancestry", "rank", "name", separator="\t", quoted=False)
        if row["taxon_id"] in wanted
    }
    above = {one for path in ancestry.values() for one in path}
    names = {
        row["taxon_id"]: (row["rank"].casefold(), row["name"].strip())
        for _, row in fields(table, "taxon_id", "rank", "name", separator="\t", quoted=False)
        if row["taxon_id"] in above
    }
    known: dict[str, Taxon] = {}
    for taxon, path in ancestry.items():
        groups = dict(names[one] for one in path if one in names)
        known[taxon] = Taxon(groups.get("species") or names[taxon][1], ranks_of(groups))
    return known
