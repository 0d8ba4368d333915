import tracemalloc
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelwise as lw
from labelwise.images.dataset import UNLABELLED
from labelwise.images.sources.image_tables import table
from labelwise.support.errors import DataError, UnsupportedError
from tests.images.samples import check_values, sizes, write
from tests.pixels_of import px


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


@pytest.mark.parametrize("word", ["path", "File", "filename", "image"])
def test_the_column_of_files_has_several_names(tmp_path: Path, word: str) -> None:
    data = table(listed(tmp_path, rows().replace("Path", word, 1)), size=8)
    assert all(file.endswith(".png") for split in data.splits.values() for file in split.files)


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
    with pytest.raises(DataError, match=r"2 of 14 images cannot be read. .*gone.png: there is no such file"):
        table(file, strict=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r'birds.csv" is empty. Its first row must name the columns: path, label'),
        ("path,label\n\n", r"has no rows below its header"),
        ("path,lable\na,b\n", r'has no column "label". Did you mean "lable"\? Its columns: path, lable'),
        ("path,label,labels\na,b,c\n", r'has both a column "label" and a column "labels". Keep "label" where each'),
        ("path,labels\na.png,owl;;barn\n", r'Row 2 of .*, column "labels": "owl;;barn": a name is empty. Write names'),
        ("path,labels\na.png,owl; owl\n", r'Row 2 of .*, column "labels": "owl; owl": a name is there twice'),
        ("path,labels\na.png,\nb.png,\n", r'column "labels" is empty in every row'),
        ("path,labels\npictures/a/0.png,owl\npictures/a/1.png,\n", r"one label|at least two labels"),
        (
            "path,labels\na.png,owl\na.png,owl;kiwi\n",
            r"Rows 2 and 3 .* same image, .* different labels: \"owl\" and \"kiwi;owl\"",
        ),
        ("where,label\na,b\n", r'has no column "path". Its columns: where, label. Rename the column of image files'),
        ("path,label,label\na,b,c\n", r'has more than one column "label"'),
        ("path,label\na.png,owl\nb.png, \n", r'Row 3 of ".*birds.csv", column "label": it is empty. Fill it'),
        ("path,label\n\n,owl\n", r'Row 3 of .*, column "path": it is empty'),
        ("path,label\na.png\n", r'Row 2 of .*, column "label": it is empty'),
        ("path,label\na.png,owl,barn\n", r"Row 2 of .* has 3 fields, the header 2. Put fields that hold a separator"),
        (
            "path,label,split\na.png,owl,tset\n",
            r'Row 2 of .*, column "split": unknown split "tset". Did you mean "test"',
        ),
        ("path,label,split\na.png,owl,test\nb.png,owl,\n", r'Row 3 of .*, column "split": unknown split ""'),
        ("path,label\na.png,owl\na.png,okapi\n", r'Rows 2 and 3 .* same image, "a.png", .* labels: "owl" and "okapi"'),
        ("path,label,split\na.png,owl,train\na.png,owl,test\n", r'different splits: "train" and "test". Keep one'),
        ('path,label\n"a.png,owl\n', r"is not well-formed: line 2: unexpected end of data"),
        ("path,label\npictures/a/0.png,owl\n", r'"birds" has images of one label only \(owl\)'),
        (
            "path,label\nx.png,owl\ny.png,okapi\n",
            r"2 of 2 images cannot be read. .* Paths in a table start at its folder; --data-root",
        ),
    ],
)
def test_tables_that_are_wrong_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        table(listed(tmp_path, text))


def test_tables_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'is not UTF-8 text \(line 2\). Save it as "CSV UTF-8"'):
        table(listed(tmp_path, "path,label\nété.png,owl\n", "latin-1"))
    with pytest.raises(DataError, match=r'Cannot read the table ".*gone.csv": No such file'):
        table(tmp_path / "gone.csv")


def features_csv(file: Path, x: np.ndarray, labels: list[str], more: dict[str, list[str]] | None = None) -> Path:
    columns = {"label": labels} | (more or {}) | {f"f{j}": [f"{v:.9g}" for v in x[:, j]] for j in range(x.shape[1])}
    lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def drawn(n: int, size: int) -> tuple[np.ndarray, list[str]]:
    x = np.random.default_rng(0).standard_normal((n, size), dtype=np.float32)
    return x, [f"label {i % 3}" for i in range(n)]


def test_features_of_a_table_are_the_same_numbers(tmp_path: Path) -> None:
    x, labels = drawn(60, 12)
    data = table(features_csv(tmp_path / "birds.csv", x, labels))
    assert data.shape == (12,)
    assert data.labels.names == ("label 0", "label 1", "label 2")
    assert sizes(data) == {"train": 42, "val": 6, "test": 12}
    seen = set()
    for split in data.splits.values():
        for image, target in zip(px(split).numpy(), split.targets.tolist(), strict=True):
            row = int(np.flatnonzero((x == image).all(1))[0])
            assert labels[row] == data.labels.names[target]
            seen.add(row)
    assert len(seen) == 60


def test_features_are_ordered_by_their_numbers_or_as_they_stand(tmp_path: Path) -> None:
    rows = "\n".join(f"{i}.5,{i},owl,{-i}\n{i}.5,{i},okapi,{-i}" for i in range(9))
    file = tmp_path / "birds.csv"
    file.write_text(f"f2,F0,label,f1\n{rows}", encoding="utf-8")
    image = px(table(file).split("train"))[-1]
    assert image.tolist() == [image[0], -image[0], image[0] + 0.5]
    file.write_text(f"feature_b,feature_a,label,feature_10\n{rows}", encoding="utf-8")
    image = px(table(file).split("train"))[-1]
    assert image.tolist() == [image[1] + 0.5, image[1], -image[1]]


def test_what_a_table_says_about_each_picture_is_kept(tmp_path: Path) -> None:
    lines = ["path,label,domain,text_2,text,split,text_10"]
    for i in range(6):
        for name in "ab":
            home = ("train", "val", "test")[i % 3]
            lines.append(
                f"pictures/{name}/{i}.png,{name},cam {i % 2},{name}{i} two,{name}{i},{home},{'ten' if i else ''}"
            )
    data = table(listed(tmp_path, "\n".join(lines)), size=4)
    for split in data.splits.values():
        for file, domain, texts in zip(split.files, split.domains, split.texts, strict=True):
            name, i = Path(file).parent.name, int(Path(file).stem)
            assert domain == f"cam {i % 2}"
            assert texts == (f"{name}{i}", f"{name}{i} two", *(["ten"] if i else []))


def test_groups_are_never_divided(tmp_path: Path) -> None:
    x, labels = drawn(60, 2)
    groups = [f"g{i // 4}" if i < 56 else "" for i in range(60)]
    data = table(features_csv(tmp_path / "birds.csv", x, labels, {"group": groups}))
    homes: dict[str, set[str]] = {}
    for name, split in data.splits.items():
        for group in split.groups:
            homes.setdefault(group, set()).add(name)
    assert len(homes) == 15
    assert all(len(home) == 1 for group, home in homes.items() if group)
    given = {"group": groups, "split": ["train" if i < 40 else "test" for i in range(60)]}
    data = table(features_csv(tmp_path / "birds.csv", x, labels, given))
    assert not set(data.split("train").groups) & set(data.split("val").groups)
    given["split"][1] = "test"
    with pytest.raises(DataError, match=r'"birds": group "g0" is in train and in test'):
        table(features_csv(tmp_path / "birds.csv", x, labels, given))


def test_tables_without_labels(tmp_path: Path) -> None:
    text = "path,text\n" + "".join(f"pictures/{name}/{i}.png,\n" for name in "ab" for i in range(6))
    data = table(listed(tmp_path, text), size=4)
    assert data.labels.names == (UNLABELLED,)
    assert sum(sizes(data).values()) == 12
    assert {int(t) for split in data.splits.values() for t in split.targets} == {-1}
    (tmp_path / "birds.csv").write_text(text.replace("text", "weather"), encoding="utf-8")
    with pytest.raises(DataError, match=r'no column "label". Its columns: path, weather. Rename .* remove .* weather'):
        table(tmp_path / "birds.csv")


def test_the_column_of_labels_may_have_another_usual_name(tmp_path: Path) -> None:
    text = "Filename,Species,Observer\n" + "".join(
        f"pictures/{name}/{i}.png,{name},Ann\n" for name in "ab" for i in range(6)
    )
    assert table(listed(tmp_path, text), size=4).labels.names == ("a", "b")
    (tmp_path / "birds.csv").write_text(text.replace("Observer", "Class"), encoding="utf-8")
    with pytest.raises(DataError, match=r'no column "label"'):
        table(tmp_path / "birds.csv")
    (tmp_path / "birds.csv").write_text(text.replace("Observer", "Label").replace("0.png,a,Ann", "0.png,a,Bo"), "utf-8")
    assert table(tmp_path / "birds.csv", size=4).labels.names == ("Ann", "Bo"), "a column of that very name is the one"


def test_paths_stay_in_the_folder_of_the_table(tmp_path: Path) -> None:
    lines = [f"{name}/{i}.png,{name}" for name in "ab" for i in range(6)]
    write(tmp_path / "pictures", {"a": 6, "b": 6})
    (tmp_path / "lists").mkdir()
    for start in ("../pictures/", f"{tmp_path}/pictures/"):
        file = tmp_path / "lists" / "birds.csv"
        file.write_text("path,label\n" + "\n".join(start + line for line in lines), encoding="utf-8")
        with pytest.raises(
            DataError, match=r'Row 2 of .*, column "path": .* is outside the folder .*--data-root FOLDER'
        ):
            table(file, size=4)
        check_values(table(file, size=4, outside=True), ["a", "b"])
        check_values(table(file, size=4, root=tmp_path), ["a", "b"])
        with pytest.raises(DataError, match=r"is outside the folder .*--data-root FOLDER"):
            table(file, size=4, root=tmp_path / "lists")
    file.write_text("path,label\n" + "\n".join(lines), encoding="utf-8")
    check_values(lw.data.load(file, size=4, root=tmp_path / "pictures"), ["a", "b"])
    inside = tmp_path / "birds.csv"
    inside.write_text("path,label\n" + "\n".join(start + line for line in lines), encoding="utf-8")
    assert sum(sizes(table(inside, size=4)).values()) == 12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f0,label\n1,a\nx,b\n", r'Row 3 of .*, column "f0": "x" is not a finite number'),
        ("f0,label\n1,a\nNaN,b\n", r'Row 3 of .*, column "f0": "NaN" is not a finite number'),
        ("f0,label\n1e39,a\n1,b\n", r'Row 2 of .*, column "f0": "1e39" is not a finite number'),
        ("f0,f1,label\n1,,a\n", r'Row 2 of .*, column "f1": it is empty'),
        ("label,f0\na\n", r'Row 2 of .*, column "f0": it is empty'),
        ("f0,f2,label\n1,2,a\n", r'has the feature 2 but not all before it \(column "f2"\)'),
        ("f0,f00,label\n1,2,a\n", r'has the feature 0 twice \(column "f00?"\)'),
        ("f0,feature_x,label\n1,2,a\n", r'features of two kinds: column "f0" and "feature_'),
        ("feature_x,feature_x,label\n1,2,a\n", r'more than one column "feature_x"'),
        ("path,label\na\0.png,owl\n", r"holds a NUL character \(line 2\)"),
        ("path,label\n" + "a" * 140_000 + ",owl\n", r"not well-formed: line 2: field larger than field limit"),
    ],
    ids=["text", "nan", "overflow", "empty", "short", "gap", "twice", "kinds", "named twice", "nul", "huge"],
)
def test_wrong_features_and_fields_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "birds.csv").write_bytes(text.encode())
    with pytest.raises(DataError, match=message):
        table(tmp_path / "birds.csv")


def test_features_of_a_table_are_held_once(tmp_path: Path) -> None:
    x, labels = drawn(8_000, 64)
    file = features_csv(tmp_path / "birds.csv", x, labels)
    tracemalloc.start()
    data = table(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    bases = {id(split.images.base) for split in data.splits.values()}
    assert len(bases) == 1, "splits are rows of one array"
    assert peak < 2.2 * x.nbytes


def write_parquet(file: Path, columns: dict[str, Any]) -> Path:
    import_module("pyarrow.parquet").write_table(import_module("pyarrow").table(columns), file)
    return file


needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")


@pytest.mark.skipif(find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r'needs pyarrow.*pip install "labelwise\[parquet\]"'):
        table(tmp_path / "birds.parquet")


@needs_pyarrow
def test_a_parquet_table_gives_what_the_csv_table_gives(tmp_path: Path) -> None:
    x, labels = drawn(60, 40)
    more = {"group": [f"g{i // 4}" for i in range(60)], "text": [f"a, {i}" * (i % 2) for i in range(60)]}
    columns: dict[str, Any] = {f"f{j}": x[:, j] for j in reversed(range(40))}
    ours = table(write_parquet(tmp_path / "birds.parquet", columns | {"Label": labels} | more))
    quoted = more | {"text": [f'"{text}"' for text in more["text"]]}
    theirs = table(features_csv(tmp_path / "birds.csv", x, labels, quoted))
    for name, split in ours.splits.items():
        assert np.array_equal(px(split), px(theirs.split(name)))
        assert np.array_equal(split.targets, theirs.split(name).targets)
        assert (split.groups, split.texts) == (theirs.split(name).groups, theirs.split(name).texts)
    write(tmp_path / "pictures", {"a": 6, "b": 6})
    paths = [f"pictures/{name}/{i}.png" for name in "ab" for i in range(6)]
    data = table(
        write_parquet(tmp_path / "p.pq", {"path": [*paths, None], "label": [*[0] * 6, *[7] * 6, None]}), size=4
    )
    assert data.labels.names == ("0", "7")
    check_values(data, ["0", "7"])


@needs_pyarrow
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"path": ["a", "b"], "label": [1.0, 2.0]}, r'Row 1 of .*, column "label": 1.0 is neither text nor a whole'),
        ({"path": ["a", "b"], "label": ["x", None]}, r'Row 2 of .*, column "label": it is empty'),
        ({"path": ["a", "b\0"], "label": ["x", "y"]}, r'Row 2 of .*, column "path": it holds a NUL'),
        ({"f0": [1.0, None], "label": ["x", "y"]}, r'Row 2 of .*, column "f0" is empty or is not a finite number'),
        ({"f0": ["1", "2"], "label": ["x", "y"]}, r'column "f0" holds string. Features are numbers'),
        ({"where": ["a", "b"], "label": ["x", "y"]}, r'has no column "path"'),
        ({"path": ["a"], "label": [["x"]]}, r"Row 1 of .*, column \"label\": \['x'\] is neither"),
    ],
    ids=["floats", "null", "nul", "null feature", "text feature", "no path", "list"],
)
def test_wrong_parquet_tables_are_refused(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        table(write_parquet(tmp_path / "birds.parquet", columns))


@needs_pyarrow
def test_parquet_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file"):
        table(tmp_path / "gone.parquet")
    content = write_parquet(tmp_path / "birds.parquet", {"path": ["a"], "label": ["x"]}).read_bytes()
    for damaged in (b"", b"text", content[:-9], content[:40] + bytes(40) + content[80:]):
        (tmp_path / "bad.parquet").write_bytes(damaged)
        with pytest.raises(DataError, match=r"not a Parquet file, or it is damaged|cannot be read"):
            table(tmp_path / "bad.parquet")


def test_a_column_says_how_much_images_count(tmp_path: Path) -> None:
    lines = rows().rstrip().split("\nx")[0].replace('"x\ny"', "x").splitlines()
    file = listed(
        tmp_path, "\n".join([lines[0] + ",Sample_Weight", lines[1] + ",2.5", *(f"{one}," for one in lines[2:])])
    )
    data = table(file, size=4)
    weights = {name: weight for s in data.splits.values() for name, weight in zip(s.files, s.weights, strict=True)}
    assert sorted(weights.values()) == [1.0] * 11 + [2.5]
    for wrong in ("-1", "many", "nan", "inf"):
        file.write_text(file.read_text().replace(",2.5", f",{wrong}"))
        with pytest.raises(
            DataError, match=f'Row 2 .*"sample_weight": a weight is a number of at least 0; given "{wrong}"'
        ):
            table(file, size=4)
        file.write_text(file.read_text().replace(f",{wrong}\n", ",2.5\n", 1))
