import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelwise.images.dataset import SPLITS
from labelwise.images.sources.array_data import arrays
from labelwise.images.sources.folders import ANSWER, NO_SUFFIX, folder
from labelwise.images.split.divide import resplit
from labelwise.images.split.make import Shares
from labelwise.support.errors import DataError, LabelwiseError, UsageError
from tests.images.samples import check_values, png, sizes, write
from tests.pixels_of import px

# Arrays


def test_arrays_are_divided_with_all_classes_in_all_splits() -> None:
    images = np.repeat(np.arange(60, dtype=np.uint8), 12).reshape(60, 2, 2, 3)
    data = arrays(images, np.arange(60) % 3, seed=1)
    assert sizes(data) == {"train": 42, "val": 6, "test": 12}
    assert data.shape == (3, 2, 2)
    assert data.labels.names == ("0", "1", "2")
    seen = [int(value) for split in data.splits.values() for value in px(split)[:, 0, 0, 0]]
    assert sorted(seen) == list(range(60))
    for split in data.splits.values():
        assert (px(split)[:, 0, 0, 0] % 3).tolist() == split.targets.tolist()
    again = arrays(images, np.arange(60) % 3, seed=1)
    assert all(torch.equal(px(data.split(s)), px(again.split(s))) for s in SPLITS)


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (np.zeros((9, 4, 5, 3), np.uint8), (3, 4, 5)),
        (torch.zeros(9, 3, 4, 5, dtype=torch.uint8), (3, 4, 5)),
        (np.zeros((9, 4, 5), np.uint8), (1, 4, 5)),
        (np.zeros((9, 4, 3), np.uint8), (1, 4, 3)),
        (np.ones((9, 4, 5, 1), np.float32), (1, 4, 5)),
        (np.zeros((9, 7)), (7,)),
        (torch.zeros(9, 7, dtype=torch.float16), (7,)),
    ],
)
def test_arrays_of_every_layout(images: Any, shape: tuple[int, ...]) -> None:
    data = arrays(images, ["owl", "okapi", "été"] * 3, shares=Shares(train=0.5, val=0.0, test=0.5))
    assert data.shape == shape
    assert data.labels.names == ("okapi", "owl", "été")
    assert list(data.splits) == ["train", "test"]
    assert px(data.split("train")).dtype == (torch.uint8 if len(shape) == 3 else torch.float32)


def test_names_give_the_order_of_labels() -> None:
    data = arrays(np.zeros((6, 2)), ["b", "a"] * 3, names=["b", "c", "a"])
    assert data.labels.names == ("b", "c", "a")
    assert sorted(data.split("train").targets.tolist()) == [0, 2]
    assert arrays(np.zeros((4, 2)), torch.tensor([0, 1, 0, 1]), names=("b", "a")).labels.names == ("b", "a")


def test_ready_splits_are_kept_and_val_is_taken_from_train() -> None:
    x, y = np.random.default_rng(0).random((40, 2)), np.arange(40) % 2
    data = arrays({"train": x[:30], "test": x[30:]}, {"test": y[30:], "train": y[:30]})
    assert sizes(data) == {"train": 28, "val": 2, "test": 10}
    assert torch.equal(px(data.split("test")), torch.from_numpy(x[30:]).float())
    assert data.split("test").targets.tolist() == y[30:].tolist()


X, Y = np.zeros((4, 8, 8, 3), np.uint8), [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("images", "targets", "names", "message"),
    [
        (X, [0, 1, 1], None, "There are 4 images but 3 targets; give one for each image"),
        (X, [0, 0, 0, 0], None, r'"arrays" has images of one label only \(0\). At least two are needed'),
        (X, [0, 1, 2, 3], ["a", "b"], "at most 1, as there are 2 names; given 0 to 3"),
        (X, [-1, 0, 1, 1], None, "must be at least 0; given -1 to 1"),
        (X, [0.0, 0.5, 1.0, 1.0], None, r"whole numbers or names, one for each image; given float64 \[4\]"),
        (X, [[0, 0], [1, 1]], None, r"given int64 \[2, 2\]"),
        (X, ["a", "b", "bb", "a"], ["a", "b"], 'Label "bb" is not among the names. Did you mean "b"'),
        (X, ["a", "b", "a", "b"], ["a", "b", "a"], "Label names must be unique; given more than once: a"),
        (X[0, 0, 0], Y, None, r"given \[3\]"),
        (np.zeros((4, 8, 8, 4), np.uint8), Y, None, r"1 channel .* given 4. Leave out transparency"),
        (np.full((4, 2), np.nan), Y, None, r"Row 0 of the features .* \(NaN or infinity\)"),
        (np.zeros((4, 64), np.uint8), Y, None, r"Features must be floats \[n, size\]; given uint8 \[4, 64\]. Images"),
        ({"train": X}, Y, None, "Give images and targets for the same splits"),
        ({"train": X}, {"test": Y}, None, "Give images and targets for the same splits"),
        ({"tran": X}, {"tran": Y}, None, 'unknown split "tran". Did you mean "train"'),
        ({"train": X}, {"train": [0]}, None, "There are 4 images but 1 targets in train"),
        ({"train": X, "test": X[:, :4]}, {"train": Y, "test": Y}, None, "images of one shape"),
        (
            {"train": X, "test": X},
            {"train": Y, "test": [0, 0, 1, 2]},
            None,
            "labels in test that train does not have: 2",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(images: Any, targets: Any, names: Any, message: str) -> None:
    with pytest.raises(LabelwiseError, match=message):
        arrays(images, targets, names=names)


def test_data_to_test_on_alone_need_no_train_split_and_one_label_will_do() -> None:
    data = arrays({"test": X}, {"test": [0, 0, 0, 0]})
    assert sizes(data) == {"test": 4}
    with pytest.raises(DataError, match=r'has no train split. It has: test. Name what to train on "train"'):
        data.split("train")


def test_data_say_whether_they_name_their_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not arrays(X, Y).own_splits
    assert arrays(X, Y, shares=Shares(train=0.5, val=0.0, test=0.5)).own_splits, "the division was asked for"
    assert arrays({"train": X}, {"train": Y}).own_splits
    write(tmp_path / "late" / "test", {"a": 2, "b": 2})
    write(tmp_path / "plain", {"a": 5, "b": 5})
    late, plain = folder(tmp_path / "late"), folder(tmp_path / "plain")
    assert (sizes(late), late.own_splits, plain.own_splits) == ({"test": 4}, True, False)
    assert resplit(plain, {"test": [0]}).own_splits
    monkeypatch.setenv("LABELWISE_MEMORY_MB", "0")
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "cache"))
    assert not folder(tmp_path / "plain").own_splits, "pictures decoded to disk lie in the order of splits"


# Folders


def test_class_folders_become_labels(tmp_path: Path) -> None:
    root = write(tmp_path / "birds", {"Barn_Owl": 10, "owl": 10, "été 鳥": 10, "Owl": 3})
    (root / "__MACOSX").mkdir()
    (root / "owl" / "more").mkdir()
    (root / "owl" / "more" / "x.png").write_bytes(png(60))
    (root / "sheet.png").write_bytes(png(0))
    data = folder(root, size=4)
    assert data.name == "birds"
    assert data.labels.names == ("Barn_Owl", "Owl", "owl", "été 鳥")
    assert data.shape == (3, 4, 4)
    assert sizes(data) == {"train": 23, "val": 4, "test": 7}
    check_values(data, ["Barn_Owl", "owl", "été 鳥", "Owl"])
    assert data.split("train").files[0].endswith("png")
    assert [(Path(each.file).name, each.reason) for each in data.skipped] == [
        ("sheet.png", "it is outside the label folders")
    ]
    with pytest.raises(DataError, match=r"are outside the label folders: .*sheet.png"):
        folder(root, strict=True)


@pytest.mark.parametrize("word", ["val", "valid", "Validation"])
def test_split_folders_are_kept(tmp_path: Path, word: str) -> None:
    for name, count in {"train": 5, word: 2, "test": 3}.items():
        write(tmp_path / name, {"a": count, "b": count})
    data = folder(tmp_path, size=4)
    assert sizes(data) == {"train": 10, "val": 4, "test": 6}
    for name, split in data.splits.items():
        assert all(Path(file).parts[-3] == (word if name == "val" else name) for file in split.files)
    check_values(data, ["a", "b"])


def test_val_is_taken_from_train_where_there_is_none(tmp_path: Path) -> None:
    write(tmp_path / "train", {"a": 20, "b": 10, "c": 1})
    write(tmp_path / "test", {"a": 3, "b": 3})
    data = folder(tmp_path, size=4)
    assert sizes(data) == {"train": 28, "val": 3, "test": 6}
    assert sorted(data.split("val").targets.tolist()) == [0, 0, 1]


def test_a_railway_train_is_a_label(tmp_path: Path) -> None:
    assert folder(write(tmp_path, {"bus": 4, "train": 4}), size=4).labels.names == ("bus", "train")


def test_unreadable_pictures_and_empty_classes_are_listed(tmp_path: Path) -> None:
    write(tmp_path, {"a": 4, "b": 4, "empty": 0, "ruined": 1})
    (tmp_path / "ruined" / "0.png").write_bytes(b"no picture")
    (tmp_path / "a" / "cut.png").write_bytes(png(1, side=64)[:-30])
    data = folder(tmp_path, size=4)
    assert data.labels.names == ("a", "b")
    found = {Path(each.file).relative_to(tmp_path).as_posix(): each.reason for each in data.skipped}
    assert list(found) == ["a/cut.png", "ruined/0.png", "empty", "ruined"]
    assert "damaged or cut off" in found["a/cut.png"]
    assert found["empty"] == found["ruined"] == "no readable image"
    with pytest.raises(DataError, match=r"2 of 10 images cannot be read.*a/cut.png: it is damaged"):
        folder(tmp_path, strict=True)


def test_an_empty_class_is_an_error_where_too_few_remain(tmp_path: Path) -> None:
    write(tmp_path, {"a": 4, "okapi": 0})
    with pytest.raises(DataError, match=r"has images of one label only \(a\)\. At least two are needed"):
        folder(tmp_path)
    write(tmp_path, {"c": 4})
    assert folder(tmp_path).labels.names == ("a", "c")
    with pytest.raises(DataError, match="no readable image of: okapi"):
        folder(tmp_path, strict=True)


def test_folders_that_cannot_be_used_are_refused_in_words(tmp_path: Path) -> None:
    def refused(message: str, at: Path) -> None:
        with pytest.raises(DataError, match=message):
            folder(at)

    refused(r'Cannot list the folder ".*gone": No such file', tmp_path / "gone")
    (tmp_path / "x.csv").touch()
    refused(r'x.csv" is a file, not a folder. Read it with data.table', tmp_path / "x.csv")
    (tmp_path / "void").mkdir()
    refused('void" is empty. Make one folder in it for each label', tmp_path / "void")
    write(tmp_path, {"flat": 3})
    refused(
        r'flat" holds 3 images but no label folders. .*\("flat/owl/0.png"\), or list them in a CSV', tmp_path / "flat"
    )
    (tmp_path / "flat" / "seen.csv").touch()
    refused(r"no label folders. Or fit its table: labelwise fit .*flat/seen.csv", tmp_path / "flat")
    refused(r"one label only \(owl\). At least two are needed", write(tmp_path / "one", {"owl": 3}))
    refused("has no image in its label folders: a, b", write(tmp_path / "none", {"a": 0, "b": 0}))
    write(tmp_path / "more" / "train", {"a": 2, "b": 2})
    write(tmp_path / "more" / "test", {"a": 2, "okapi": 2})
    refused("labels in test that train does not have: okapi. Add training images", tmp_path / "more")
    (tmp_path / "more" / "notes").mkdir()
    refused(r"holds splits \(test, train\) and other folders \(notes\)", tmp_path / "more")
    write(tmp_path / "two" / "val", {"a": 2})
    write(tmp_path / "two" / "valid", {"a": 2})
    refused("are the same split. Keep one of them", tmp_path / "two")


def test_names_that_look_the_same_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {unicodedata.normalize(form, "hibou été"): 2 for form in ("NFC", "NFD")})
    if len(list(tmp_path.iterdir())) == 1:
        pytest.skip("this file system holds them to be one name")
    with pytest.raises(DataError, match=r"have the same name, .* except for spaces or Unicode spellings. Rename one"):
        folder(tmp_path)


def test_an_impossible_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="asked for -1x-1"):
        folder(write(tmp_path, {"a": 2, "b": 2}), size=-1)


def test_a_described_label_needs_no_training_picture(tmp_path: Path) -> None:
    write(tmp_path / "train", {"a": 2, "b": 2})
    write(tmp_path / "test", {"a": 2, "okapi": 2})
    with pytest.raises(DataError, match=r"okapi\. Add training images of them, describe them \(labels\.csv"):
        folder(tmp_path)
    (tmp_path / "labels.csv").write_text("label,text\na,red\nb,blue\nokapi,striped legs\n")
    data = folder(tmp_path)
    assert data.labels.names == ("a", "b", "okapi")
    assert set(data.split("test").targets.tolist()) == {0, 2}
    assert 2 not in data.split("train").targets.tolist()


def test_files_without_a_suffix_and_folders_of_answers_are_reported(tmp_path: Path) -> None:
    root = write(tmp_path / "birds", {"owl": 4, "wren": 4, "unknown": 2, "Unsure": 1})
    (root / "owl" / "n9151jpg").write_bytes(png(7))
    (root / "owl" / "README").write_text("Photos of owls")
    data = folder(root, size=4)
    assert data.labels.names == ("owl", "wren")
    assert sum(sizes(data).values()) == 8
    assert {(Path(each.file).name, each.reason) for each in data.skipped} == {
        ("n9151jpg", NO_SUFFIX),
        ("unknown", ANSWER),
        ("Unsure", ANSWER),
    }
