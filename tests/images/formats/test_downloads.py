"""Downloads of GBIF and iNaturalist: photos that are here are recognised by their names, and the taxonomy is known of the labels."""

import gzip
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import labelwise as lw
from labelwise.images.dataset import Dataset
from labelwise.images.formats.annotations import rows_of
from labelwise.images.formats.answers import read_answers
from labelwise.images.formats.find import find_annotations
from labelwise.images.formats.taxonomy import binomial, lineages
from labelwise.images.images import Skipped
from labelwise.support.errors import DataError
from tests.images.formats.written import photos, write_csv, write_json

# species, genus, family, order, class
SPECIES = (
    ("Passer domesticus", "Passer", "Passeridae", "Passeriformes", "Aves"),
    ("Passer montanus", "Passer", "Passeridae", "Passeriformes", "Aves"),
    ("Spinus spinus", "Spinus", "Fringillidae", "Passeriformes", "Aves"),
    ("Lynx lynx", "Lynx", "Felidae", "Carnivora", "Mammalia"),
)
BIRDS = ("Passeriformes", "Aves")
PARENTS = {
    "Lynx lynx": ("Lynx", "Felidae", "Carnivora", "Mammalia"),
    "Passer domesticus": ("Passer", "Passeridae", *BIRDS),
    "Passer montanus": ("Passer", "Passeridae", *BIRDS),
    "Spinus spinus": ("Spinus", "Fringillidae", *BIRDS),
}
RANKS = ("species", "genus", "family", "order", "class")
IDS = [f"40000{i}" for i in range(8)]
LABEL = {one: SPECIES[i % 4][0] for i, one in enumerate(IDS)}
TERM = "http://rs.tdwg.org/dwc/terms/"


def taxon(i: int) -> Sequence[str]:
    return SPECIES[i % 4]


def lines(file: Path, header: Sequence[str], rows: Sequence[Sequence[object]], end: str = "") -> Path:
    """Tabs, and no quotes around anything."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join("\t".join(map(str, row)) for row in (header, *rows)) + "\n"
    file.with_name(file.name + end).write_bytes(gzip.compress(text.encode()) if end else text.encode())
    return file


def address(one: str) -> str:
    return f"https://inaturalist-open-data.s3.amazonaws.com/photos/9{one}/original.jpeg?1"


def gbif(home: Path) -> Path:
    """As GBIF writes it: fields that begin with a quote, ranks without a cell, one observation known as a genus only."""
    header = ("gbifID", "scientificName", "taxonRank", "kingdom", "verbatim", *RANKS)
    rows = [(one, f"{taxon(i)[0]} L.", "SPECIES", "Animalia", '"a', *taxon(i)) for i, one in enumerate(IDS)]
    rows.append(("499999", "Passer Brisson", "GENUS", "Animalia", "", "", *SPECIES[0][1:]))
    lines(home / "occurrence.txt", header, rows)
    media = [(one, "StillImage", address(one)) for one in IDS]
    lines(home / "multimedia.txt", ("gbifID", "type", "identifier"), media)
    photos(home / "photos", [f"{one}.png" for one in (*IDS, "499999", "777777")])
    return home


def gbif_archive(home: Path) -> Path:
    """The same with ``meta.xml``, other names of the tables, no header, and only what Darwin Core itself names."""
    rows = [(one, *taxon(i)[0].split(), *taxon(i)[2:]) for i, one in enumerate(IDS)]
    terms = ("genus", "specificEpithet", "family", "order", "class")
    write_csv(home / "my data.csv", rows[0], rows[1:])
    write_csv(home / "media.csv", ("id", "accessURI"), [(one, f"https://a.org/{one}.jpg") for one in IDS])
    fields = "".join(f'<field index="{i}" term="{TERM}{term}"/>' for i, term in enumerate(terms, 1))
    (home / "meta.xml").write_text(
        '<archive xmlns="http://rs.tdwg.org/dwc/text/"><core fieldsTerminatedBy="," '
        f'fieldsEnclosedBy="&quot;" ignoreHeaderLines="0"><files><location>my data.csv</location></files><id index="0"/>{fields}'
        '</core><extension rowType="http://rs.tdwg.org/ac/terms/Multimedia" fieldsTerminatedBy="," ignoreHeaderLines="1">'
        '<files><location>media.csv</location></files><coreid index="0"/>'
        '<field index="1" term="http://rs.tdwg.org/ac/terms/accessURI"/></extension></archive>'
    )
    photos(home / "img", [f"{LABEL[one]}/{one}.png" for one in IDS])
    return home


def gbif_simple(home: Path) -> Path:
    rows = [(one, *taxon(i), "x") for i, one in enumerate(IDS)]
    photos(home, [f"{LABEL[one]} {one}.png" for one in IDS])
    return lines(home / "0001234-2026.csv", ("gbifID", *RANKS, "scientificName"), rows)


def gbif_hashes(home: Path) -> Path:
    """Photos called by a hash of their address, as gbif-dl does."""
    gbif(home)
    for one in (home / "photos").iterdir():
        one.rename(one.with_name(hashlib.sha1(address(one.stem).encode()).hexdigest() + ".png"))
    return home


def inaturalist(home: Path) -> Path:
    header = ("id", "url", "image_url", "description", "scientific_name", "common_name", "taxon_species_name")
    rows = [
        (
            one,
            "u",
            address(one).replace("original", "medium"),
            'two\nlines, "quoted"',
            f"{taxon(i)[0]} minor",
            "x",
            *taxon(i),
        )
        for i, one in enumerate(IDS)
    ]
    write_csv(home / "observations-12.csv", (*header, *(f"taxon_{rank}_name" for rank in RANKS[1:])), rows)
    photos(home / "photos", [f"9{one}/original.png" for one in IDS])
    return home


def inaturalist_file(home: Path) -> Path:
    """Two photos of each observation, called by its number."""
    inaturalist(home)
    for one in IDS:
        (home / "photos" / f"9{one}" / "original.png").rename(home / f"{one}_1.png")
    photos(home, [f"{one}_2.png" for one in IDS])
    return home / "observations-12.csv"


def open_dataset(home: Path, end: str = "") -> Path:
    uuids = [hashlib.md5(one.encode()).hexdigest() for one in IDS]
    header = ("photo_uuid", "photo_id", "observation_uuid", "extension", "license")
    rows = [(f"p{one}", f"9{one}", uuid, "jpg", "CC0") for one, uuid in zip(IDS, uuids, strict=True)]
    lines(home / "photos.csv", header, [*rows, ("px", "123456", "x", "jpg", "CC0")], end)
    columns = ("observation_uuid", "taxon_id", "quality_grade")
    lines(home / "observations.csv", columns, [(u, 100 + i % 4, "research") for i, u in enumerate(uuids)], end)
    taxa: dict[tuple[str, ...], tuple[int, str, str]] = {}
    for path in SPECIES:
        for level in reversed(range(5)):
            number = 100 + SPECIES.index(path) if level == 0 else 10 + len(taxa)
            taxa.setdefault(path[level:], (number, RANKS[level], path[level]))
    lineage: list[tuple[object, ...]] = []
    for place, (number, rank, name) in reversed(taxa.items()):  # groups come after what they hold
        above = [taxa[place[level:]][0] for level in reversed(range(1, len(place)))]
        lineage.append((number, "/".join(map(str, above)), rank, name, "true"))
    lines(home / "taxa.csv", ("taxon_id", "ancestry", "rank", "name", "active"), lineage, end)
    photos(home / "photos", [f"9{one}.png" for one in IDS])
    return home


def competition(home: Path) -> Path:
    images = [{"id": i, "file_name": f"train/{LABEL[one]}/{one}.png"} for i, one in enumerate(IDS)]
    notes = [{"id": i, "image_id": i, "category_id": i % 4} for i in range(len(IDS))]
    categories = [
        {"id": i, "name": path[0], "kingdom": "Animalia", **dict(zip(RANKS[1:], path[1:], strict=True))}
        for i, path in enumerate(SPECIES)
    ]
    write_json(home / "train_mini.json", {"images": images, "annotations": notes, "categories": categories})
    photos(home, [str(image["file_name"]) for image in images])
    return home


FORMS: dict[str, Callable[[Path], Path]] = {
    "GBIF": gbif,
    "GBIF, meta.xml": gbif_archive,
    "GBIF, simple": gbif_simple,
    "GBIF, hashes": gbif_hashes,
    "iNaturalist": inaturalist,
    "iNaturalist, file": inaturalist_file,
    "iNaturalist, open": open_dataset,
    "iNaturalist, open, packed": lambda home: open_dataset(home, ".gz"),
    "iNaturalist, competition": competition,
}


def answers(data: Dataset) -> set[tuple[str, str]]:
    """Each photo and its label, by the numbers in its path."""
    return {
        (
            next((one for one in IDS if one in file or hashlib.sha1(address(one).encode()).hexdigest() in file), file),
            word,
        )
        for split in data.splits.values()
        for file, word in zip(split.files, split.words(data.labels.names), strict=True)
    }


@pytest.mark.parametrize("write", FORMS.values(), ids=FORMS)
def test_photos_have_their_species_and_labels_their_groups(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    data = lw.data.load(write(tmp_path / "a download"), group="none")
    assert answers(data) == set(LABEL.items())
    assert dict(zip(data.labels.names, data.labels.parents or (), strict=True)) == PARENTS
    assert sum(map(len, data.splits.values())) == len(IDS) * (2 if write is inaturalist_file else 1)


def test_the_label_page_imports_species(tmp_path: Path) -> None:
    for write in (gbif, inaturalist_file):
        place = write(tmp_path / write.__name__)
        species = {one: label for file, label in read_answers(place).items() for one in IDS if one in file}
        assert species == LABEL


def test_photos_of_one_observation_are_a_group_and_what_is_known_as_a_group_only_is_left_out(tmp_path: Path) -> None:
    rows = rows_of(find_annotations(inaturalist_file(tmp_path / "x")))
    assert sorted(rows.groups) == sorted([*IDS, *IDS])
    (part,) = find_annotations(gbif(tmp_path / "y"))
    rows = rows_of([part])
    assert not rows.groups
    where = str(tmp_path / "y" / "photos" / "499999.png")
    assert rows.skipped == (Skipped(file=where, reason='it is known as "Passer" only, which holds other labels.'),)


def test_an_export_without_columns_for_groups_has_the_genus_and_the_iconic_taxon(tmp_path: Path) -> None:
    rows = [(one, address(one), taxon(i)[0], taxon(i)[4]) for i, one in enumerate(IDS)]
    write_csv(tmp_path / "observations.csv", ("id", "image_url", "scientific_name", "iconic_taxon_name"), rows)
    photos(tmp_path, [f"9{one}.png" for one in IDS])
    parents = lw.data.load(tmp_path / "observations.csv").labels.parents
    assert parents == (("Lynx", "Mammalia"), ("Passer", "Aves"), ("Passer", "Aves"), ("Spinus", "Aves"))


def test_photos_elsewhere_are_found_by_root_and_none_is_an_error_that_says_how(tmp_path: Path) -> None:
    home = gbif(tmp_path / "a download")
    (home / "photos").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="--data-root FOLDER"):
        lw.data.load(home)
    assert answers(lw.data.load(home, root=tmp_path / "elsewhere")) == set(LABEL.items())


def test_a_name_that_several_observations_share_identifies_none(tmp_path: Path) -> None:
    home = gbif(tmp_path / "x")
    (home / "photos" / f"{IDS[0]}.png").rename(home / "photos" / "original.jpeg")
    assert answers(lw.data.load(home, group="none")) == {pair for pair in LABEL.items() if pair[0] != IDS[0]}


def test_what_a_person_says_of_labels_comes_first(tmp_path: Path) -> None:
    home = gbif(tmp_path / "x")
    write_csv(home / "labels.csv", ("label", "parent"), [(name, "animal") for name in PARENTS])
    assert lw.data.load(home).labels.parents == (("animal",),) * 4


def test_a_table_of_a_person_stays_a_table(tmp_path: Path) -> None:
    photos(tmp_path, [f"{one}.png" for one in IDS])
    rows = [(one, address(one), f"{one}.png", "ab"[i % 2], "x") for i, one in enumerate(IDS)]
    table = write_csv(tmp_path / "x.csv", ("id", "image_url", "path", "label", "scientific_name"), rows)
    assert lw.data.load(table).labels.names == ("a", "b")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("meta.xml", '<archive><core/>http://rs.tdwg.org/dwc/</archive>', "a Darwin Core archive|is empty"),
        ("meta.xml", '<!DOCTYPE x><archive a="rs.tdwg.org/dwc/"/>', "document type"),
        ("meta.xml", '<a b="rs.tdwg.org/dwc/"><core><id index="0"/><location>../secret.csv</location></core></a>', "outside the folder"),
        ("meta.xml", '<a b="rs.tdwg.org/dwc/"><core fieldsTerminatedBy="ab"><id index="0"/><location>x.csv</location></core></a>', "not well-formed"),
        ("occurrence.txt", "id\tspecies\n1\tx\n", '"gbifid"'),
        ("observations.csv", "id,image_url,scientific_name\n1,2,3,4\n", "has 4 fields"),
        ("taxa.csv.gz", "no gzip", "not a gzip file"),
    ],
)  # fmt: skip
def test_a_damaged_download_is_an_error_for_people(name: str, content: str, words: str, tmp_path: Path) -> None:
    photos(tmp_path, ["1234.png"])
    (tmp_path / "x.csv").write_text("1\n")
    if name == "taxa.csv.gz":
        open_dataset(tmp_path, ".gz")
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=words):
        lw.data.load(tmp_path)


def test_groups_are_a_tree_whatever_the_tables_say() -> None:
    paths = lineages(
        {
            "a": ("Oenanthe", "Apiaceae", "Plantae"),
            "b": ("Oenanthe", "Muscicapidae", "Animalia"),
            "c": ("Erithacus", "", "Animalia"),
            "d": ("Erithacus", "Muscicapidae", "Animalia"),
            "e": ("Animalia", "e", ""),
            "f": (),
        }
    )
    labels = lw.Labels(names=tuple(paths), parents=tuple(paths.values()))
    assert paths["c"] == paths["d"] == ("Erithacus", "Muscicapidae", "Animalia")
    assert paths["a"][0] == "Oenanthe (Apiaceae)"
    assert labels.parents is not None
    assert paths["f"] == ()
    assert lineages({"a": ("x", "y"), "b": ("x", "y")}) == {"a": (), "b": ()}


@pytest.mark.parametrize(
    ("name", "species"),
    [("Aglais urticae \xd7 io", "Aglais urticae"), ("Quercus \xd7 rosacea", "Quercus \xd7 rosacea"), ("Passer", "Passer"), ("Été belle x", "Été belle")],
)  # fmt: skip
def test_the_species_in_a_name(name: str, species: str) -> None:
    assert binomial(name) == species


def test_a_classifier_answers_with_a_group_of_a_download(tmp_path: Path) -> None:
    classifier = lw.fit(lw.data.load(gbif(tmp_path / "a download"), group="none"))
    lw.save(classifier, tmp_path / "x.lw")
    assert lw.load(tmp_path / "x.lw").labels.parents == tuple(PARENTS.values())
