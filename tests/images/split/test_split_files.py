from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labelwise.images.dataset import PER_IMAGE, SPLITS, Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.split.divide import pool, resplit
from labelwise.images.split.split_files import apply_split, write_split
from labelwise.support.errors import DataError, UsageError
from tests.pixels_of import px

NAME = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\\0") | st.sampled_from(',;"\n'))
FILE = st.builds("{}/{}x".format, st.sampled_from(["birds", "birds/owl", "/data/a b", "c,d"]), NAME)


def made(targets: dict[str, list[int]], files: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> Dataset:
    """Image i of all holds the value i."""
    splits, start = {}, 0
    for name, rows in targets.items():
        at = slice(start, start + len(rows))
        images = torch.arange(at.start, at.stop, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)
        splits[name] = Split(images=images, targets=torch.tensor(rows).long(), files=files[at], groups=groups[at])
        start = at.stop
    return Dataset(name="toys", labels=Labels(names=("owl", "été", 'a "b", c')), splits=splits)


def values(data: Dataset) -> dict[str, list[int]]:
    return {name: px(split)[:, 0, 0, 0].tolist() for name, split in data.splits.items()}


TOYS = made({"train": [0, 1, 2], "val": [1], "test": [-1, 0]}, tuple(f"/data/{x}.png" for x in "uvwxyz"))

# Pooling and dividing anew


def test_pool_holds_all_images_and_names_those_from_no_file() -> None:
    data = made({"test": [0, 1], "train": [2, 2, -1]})
    whole = pool(data)
    assert px(whole)[:, 0, 0, 0].tolist() == [2, 3, 4, 0, 1]
    assert whole.targets.tolist() == [2, 2, -1, 0, 1]
    assert whole.files == ("image 0", "image 1", "image 2", "image 3", "image 4")
    assert (whole.texts, whole.domains, whole.groups) == ((), (), ())


def test_pool_leaves_blank_what_only_some_splits_know() -> None:
    data = made({"train": [0, 1], "val": [], "test": [2]})
    known = replace(data.splits["test"], texts=(("small",),), domains=("zoo",), files=("a.png",))
    whole = pool(replace(data, splits={**data.splits, "test": known}))
    assert whole.texts == ((), (), ("small",))
    assert whole.domains == ("", "", "zoo")
    assert whole.files == ("image 0", "image 1", "a.png")


@given(st.lists(st.sampled_from([*SPLITS, "none"]), min_size=6, max_size=6))
def test_resplit_moves_whole_rows(where: list[str]) -> None:
    rows = {split: [i for i, s in enumerate(where) if s == split] for split in SPLITS if split in where}
    if not rows:
        return
    data = resplit(TOYS, dict(reversed(rows.items())))
    assert list(data.splits) == list(rows)
    assert values(data) == rows
    for split, part in data.splits.items():
        assert part.files == tuple(f"/data/{'uvwxyz'[i]}.png" for i in rows[split])
        assert part.targets.tolist() == [[0, 1, 2, 1, -1, 0][i] for i in rows[split]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"train": [0, 1], "test": [1, 2]}, "A row may be in one split only and once; given more than once: 1."),
        ({"train": [3, 3]}, "given more than once: 3."),
        ({"train": [0, 6]}, r"Rows must be in 0..5; given 0 to 6"),
        ({"train": [-1]}, r"Rows must be in 0..5; given -1 to -1"),
        ({"tran": [0]}, "Splits are called train, val and test; given: tran"),
        ({}, "Splits are called train, val and test; given: none"),
    ],
)
def test_resplit_refuses(rows: dict[str, list[int]], message: str) -> None:
    with pytest.raises((UsageError, DataError), match=message):
        resplit(TOYS, rows)


# Files


@given(st.lists(st.tuples(FILE, st.sampled_from(SPLITS), st.integers(-1, 2)), max_size=20, unique_by=lambda x: x[0]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_split_written_and_applied_is_the_same_split(tmp_path: Path, rows: list[tuple[str, str, int]]) -> None:
    rows = [("birds/first", "train", 0), *rows]
    ordered = [row for split in SPLITS for row in rows if row[1] == split]
    data = made(
        {
            split: [target for _, s, target in ordered if s == split]
            for split in SPLITS
            if split in {r[1] for r in rows}
        },
        tuple(file for file, _, _ in ordered),
        tuple(split for _, split, _ in ordered),
    )
    write_split(data, tmp_path / "split.csv")
    mixed = resplit(data, {"val": torch.randperm(len(rows))})
    for given_data in (data, mixed):
        back = apply_split(given_data, tmp_path / "split.csv")
        assert list(back.splits) == list(data.splits)
        for name, split in data.splits.items():
            order = sorted(range(len(split)), key=lambda i: back.splits[name].files.index(split.files[i]))
            assert given_data is mixed or order == list(range(len(split)))
            assert np.array_equal(px(back.splits[name]), px(split)[order])
            assert np.array_equal(back.splits[name].targets, split.targets[order])
            for piece in PER_IMAGE:
                kept = getattr(split, piece)
                assert getattr(back.splits[name], piece) == (tuple(kept[i] for i in order) if kept else ())


def test_a_new_split_of_images_from_no_file_fits_the_data_as_they_were(tmp_path: Path) -> None:
    data = made({"train": [0, 1, 2, 0], "test": [1, 2]})
    again = resplit(data, {"train": [1, 3, 4], "val": [5], "test": [0, 2]})
    write_split(again, tmp_path / "split.csv")
    back = apply_split(data, tmp_path / "split.csv")
    assert values(back) == values(again) == {"train": [1, 3, 4], "val": [5], "test": [0, 2]}
    write_split(back, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_text() == (tmp_path / "split.csv").read_text()


def test_the_file_is_plain_and_survives_a_move_of_the_data(tmp_path: Path) -> None:
    data = made(
        {"train": [0, 2], "test": [-1]}, ("/a/birds/owl/1.png", "/a/birds/b/2.png", "/a/birds/3.png"), ("x", "", "y")
    )
    write_split(data, tmp_path / "split.csv")
    assert (tmp_path / "split.csv").read_text().splitlines() == [
        "file,label,split,group",
        "owl/1.png,owl,train,x",
        'b/2.png,"a ""b"", c",train,',
        "3.png,,test,y",
    ]
    moved = made({"train": [0], "val": [2, -1]}, ("new/owl/1.png", "new/b/2.png", "new/3.png"))
    assert values(apply_split(moved, tmp_path / "split.csv")) == {"train": [0, 1], "test": [2]}
    assert [path.name for path in tmp_path.iterdir()] == ["split.csv"]


GOOD = """file,label,split
u.png,owl,train
v.png,été,train
w.png,"a ""b"", c",train
x.png,été,val
y.png,,test
z.png,owl,test
"""


@pytest.mark.parametrize(
    "text",
    [
        "file,split\nz.png, Train\n\nv.png,validation\nw.png,VALID\nu.png,train\nx.png,val\ny.png,test\n",
        "\ufeffSplit;File;Note\ntrain;z.png;sharp\nval;v.png;\nval;w.png;\ntrain;u.png;\nval;x.png;\ntest;y.png;\n",
        "file\tsplit\r\nz.png\ttrain\r\nv.png\tval\r\nw.png\tval\r\nu.png\ttrain\r\nx.png\tval\r\ny.png\ttest\r\n",
    ],
)
def test_edited_files_of_every_spelling_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "split.csv").write_text(text, encoding="utf-8")
    assert values(apply_split(TOYS, tmp_path / "split.csv")) == {"train": [0, 5], "val": [1, 2, 3], "test": [4]}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("v.png", "vv.png", 'Row 3 of ".*split.csv": "toys" has no image "vv.png". Did you mean "v.png"'),
        ("v.png,été", "u.png,owl", 'Row 3 of ".*": "u.png" is in row 2 already. Keep one of them'),
        ("été,val", "été,vall", 'Row 5 of ".*": unknown split "vall". Did you mean "val"'),
        ("été,val", "été,", 'Row 5 of ".*": unknown split ""'),
        ("x.png,été,val\ny.png,,test\n", "", r'does not name 2 of the 6 images of "toys": x.png, y.png. Add a row'),
        ("v.png,été", "v.png,owl", 'Row 3 of ".*": "v.png" is labelled "owl" but in "toys" it is "été"'),
        ("file,label", "path,label", 'needs one column "file"; its columns: path, label, split'),
        ("label,split", "split,split", 'needs one column "split"; its columns: file, split, split'),
        ("u.png,owl,train", "u.png,owl", 'Row 2 of .* unknown split ""'),
        ("u.png,owl,train", "\n,,\nu.png,owl", 'Row 4 of .* unknown split ""'),
        ("u.png", '"u.png', 'The split ".*split.csv" is not well-formed'),
        (GOOD, "", 'needs one column "file"; its columns: none'),
    ],
)
def test_faults_are_named_with_their_row(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "split.csv"
    file.write_text(GOOD, encoding="utf-8")
    assert values(apply_split(TOYS, file)) == values(TOYS)
    assert old in GOOD
    file.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        apply_split(TOYS, file)


def test_file_names_that_are_not_utf_8_are_kept(tmp_path: Path) -> None:
    data = made({"train": [0, 1], "test": [2]}, ("/data/\udce9.png", "/data/é.png", "/data/z.png"))
    write_split(data, tmp_path / "split.csv")
    assert b"\n\xe9.png,owl,train" in (tmp_path / "split.csv").read_bytes()
    mixed = resplit(data, {"val": [2, 1, 0]})
    assert values(apply_split(mixed, tmp_path / "split.csv")) == {"train": [1, 0], "test": [2]}


def test_files_that_cannot_be_read_written_or_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'Cannot read the split ".*none.csv": No such file'):
        apply_split(TOYS, tmp_path / "none.csv")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r'Cannot write ".*split.csv": ".*/file" is a file'):
        write_split(TOYS, tmp_path / "file" / "split.csv")
    twice = made({"train": [0], "test": [0]}, ("a/b.png", "a/b.png"))
    with pytest.raises(DataError, match=r'"toys" has files more than once, so a split cannot name them: b.png'):
        write_split(twice, tmp_path / "split.csv")
