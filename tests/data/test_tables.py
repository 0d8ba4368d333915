from pathlib import Path

import pytest

from labelwise.data.tables import table
from labelwise.errors import DataError
from tests.data.samples import check_values, sizes, write


def listed(root: Path, text: str, encoding: str = "utf-8") -> Path:
    write(root / "pictures", {"a": 6, "b": 6})
    (root / "birds.csv").write_bytes(text.encode(encoding))
    return root / "birds.csv"


def rows(separator: str = ",", end: str = "\n", splits: tuple[str, ...] = ()) -> str:
    lines = [separator.join(("Path", " label", "note", *(["split"] if splits else [])))]
    for name, label in (("a", "barn owl"), ("b", "été; 鳥")):
        for i in range(6):
            fields = [f"pictures/{name}/{i}.png", f'"{label}"', '"x\ny"']
            lines.append(separator.join([*fields, splits[i % len(splits)]] if splits else fields))
    return end.join(lines) + end


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_tables_of_every_spelling(tmp_path: Path, separator: str, end: str, encoding: str) -> None:
    data = table(listed(tmp_path, rows(separator, end), encoding), size=4)
    assert data.name == "birds"
    assert data.labels.names == ("barn owl", "été; 鳥")
    assert sizes(data) == {"train": 8, "val": 2, "test": 2}
    check_values(data, ["barn owl", "été; 鳥"])


def test_splits_of_a_table_are_kept(tmp_path: Path) -> None:
    data = table(listed(tmp_path, rows(splits=("train", "Validation", "test"))), size=4)
    assert sizes(data) == {"train": 4, "val": 4, "test": 4}
    assert sorted(Path(file).name for file in data.split("val").files) == ["1.png", "1.png", "4.png", "4.png"]
    assert sizes(table(listed(tmp_path / "blank", rows(splits=("", ""))), size=4)) == {"train": 8, "val": 2, "test": 2}


def test_missing_files_of_a_table_are_listed(tmp_path: Path) -> None:
    repeated = "pictures/gone.png,barn owl,\npictures/nowhere.png,okapi,\npictures/a/0.png,barn owl,\n"
    file = listed(tmp_path, rows() + repeated)
    data = table(file, size=4)
    assert sum(sizes(data).values()) == 12
    assert [Path(each.file).name for each in data.skipped] == ["gone.png", "nowhere.png", 'label "okapi"']
    assert data.skipped[0].reason == "there is no such file. Check the path."
    with pytest.raises(DataError, match=r"2 of 14 pictures cannot be read. .*gone.png: there is no such file"):
        table(file, strict=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r'birds.csv" is empty. Its first row must name the columns: path, label'),
        ("path,label\n\n", r"has no rows below its header"),
        ("path,labels\na,b\n", r'has no column "label". Did you mean "labels"\? Its columns: path, labels'),
        ("file,label\na,b\n", r'has no column "path". Its columns: file, label'),
        ("path,label,label\na,b,c\n", r'has more than one column "label"'),
        ("path,label\na.png,owl\nb.png, \n", r'Row 3 of ".*birds.csv": the column "label" is empty. Fill it'),
        ("path,label\n\n,owl\n", r'Row 3 of .*: the column "path" is empty'),
        ("path,label\na.png\n", r'Row 2 of .*: the column "label" is empty'),
        ("path,label\na.png,owl,barn\n", r"Row 2 of .* has 3 fields, the header 2. Put fields that hold a separator"),
        (
            "path,label,split\na.png,owl,tset\n",
            r'Row 2 of .*, column "split": unknown split "tset". Did you mean "test"',
        ),
        ("path,label,split\na.png,owl,test\nb.png,owl,\n", r'Row 3 of .*, column "split": unknown split ""'),
        (
            "path,label\na.png,owl\na.png,okapi\n",
            r'Rows 2 and 3 .* same picture, "a.png", .* labels: "owl" and "okapi"',
        ),
        ("path,label,split\na.png,owl,train\na.png,owl,test\n", r'different splits: "train" and "test". Keep one'),
        ('path,label\n"a.png,owl\n', r"is not well-formed: line 2: unexpected end of data"),
        ("path,label\npictures/a/0.png,owl\n", r'"birds" has pictures of one label only \(owl\)'),
        ("path,label\nx.png,owl\ny.png,okapi\n", r"2 of 2 pictures cannot be read"),
    ],
)
def test_tables_that_are_wrong_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        table(listed(tmp_path, text))


def test_tables_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'is not UTF-8 text. Save it as "CSV UTF-8"'):
        table(listed(tmp_path, "path,label\nété.png,owl\n", "latin-1"))
    with pytest.raises(DataError, match=r'Cannot read the table ".*gone.csv": No such file'):
        table(tmp_path / "gone.csv")
