import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from labelwise.images.describe.labels import Labels, normal_name, unfit_name
from labelwise.support.errors import DataError, UsageError
from labelwise_papers.benchmarks.xlsa17 import ZeroShotData, read_gzsl_pack, read_xlsa17, write_xlsa17
from tests.pixels_of import px

NAMES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=9)
    .map(normal_name).filter(lambda name: unfit_name(name) is None),
    min_size=5, max_size=9, unique=True,
)  # fmt: skip


def made(names: list[str], seed: int, extra: bool = True) -> ZeroShotData:
    """Random features; the last two classes are unseen."""
    draw, k = np.random.default_rng(seed), len(names)
    drawn = np.concatenate([np.arange(k), np.arange(k), draw.integers(0, k, 20)])
    targets = torch.from_numpy(draw.permutation(drawn))
    unseen = torch.isin(targets, torch.tensor([k - 2, k - 1]))
    first = torch.tensor([int((targets == i).nonzero()[0]) for i in range(k - 2)])
    seen = torch.isin(torch.arange(len(targets)), first, invert=True) & ~unseen
    rows = {"trainval": seen.nonzero()[:, 0].flip(0), "test_seen": first, "test_unseen": unseen.nonzero()[:, 0]}
    return ZeroShotData(
        name="birds",
        features=torch.from_numpy(draw.standard_normal((len(targets), 4), dtype=np.float32)),
        targets=targets,
        labels=Labels(names=tuple(names), vectors=torch.from_numpy(draw.random((k, 3), dtype=np.float32))),
        rows=rows,
        attribute_names=("black bill", "long::tail", "été") if extra else (),
        files=tuple(f"images/{i} é.jpg" for i in range(len(targets))) if extra else (),
    )


@settings(max_examples=15)
@given(NAMES, st.integers(0, 99), st.booleans())
def test_written_and_read_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], seed: int, extra: bool
) -> None:
    data = made(names, seed, extra)
    folder = tmp_path_factory.mktemp("xlsa") / "birds"
    write_xlsa17(folder, data)
    again = read_xlsa17(folder)
    assert again.name == data.name
    assert np.array_equal(again.features, data.features)
    assert np.array_equal(again.targets, data.targets)
    assert again.labels.names == data.labels.names
    assert np.array_equal(vectors(again), vectors(data))
    assert {part: rows.tolist() for part, rows in again.rows.items()} == {p: r.tolist() for p, r in data.rows.items()}
    assert (again.attribute_names, again.files) == (data.attribute_names, data.files)
    assert np.array_equal(vectors(read_xlsa17(folder, vectors="original_att")), vectors(data))


def vectors(data: ZeroShotData) -> torch.Tensor:
    assert data.labels.vectors is not None
    return torch.as_tensor(data.labels.vectors)


@settings(max_examples=20)
@given(NAMES, st.integers(0, 99))
def test_written_files_are_as_other_codes_expect(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], seed: int
) -> None:
    data = made(names, seed)
    folder = tmp_path_factory.mktemp("xlsa")
    write_xlsa17(folder, data)
    n, k = len(data.targets), len(names)
    images, splits = loadmat(folder / "res101.mat"), loadmat(folder / "att_splits.mat")
    assert images["features"].shape == (4, n)
    assert images["labels"].shape == (n, 1)
    assert images["labels"].dtype == np.float64
    assert (images["labels"][:, 0] == data.targets + 1).all()
    assert images["image_files"].shape == (n, 1)
    assert images["image_files"][2, 0][0] == "images/2 é.jpg"
    assert splits["att"].shape == splits["original_att"].shape == (3, k)
    assert [str(cell[0][0]) for cell in splits["allclasses_names"]] == list(data.labels.names)
    for part, rows in data.rows.items():
        assert splits[f"{part}_loc"].dtype == np.float64
        assert splits[f"{part}_loc"].tolist() == [[i + 1] for i in rows.tolist()]
    image = int(splits["trainval_loc"][0, 0]) - 1  # as the usual scripts index
    label = int(images["labels"][image, 0]) - 1
    assert np.allclose(splits["att"].T[label], vectors(data)[data.targets[image]].numpy())


@given(st.integers(0, 99), st.integers(0, 5))
def test_the_data_set_keeps_classes_apart(seed: int, count: int) -> None:
    data = made([f"class {i}" for i in range(9)], seed)
    parts = data.dataset(count, seed).splits
    classes = {name: set(split.targets.tolist()) for name, split in parts.items()}
    assert len(classes.get("val", ())) == count
    assert not classes["train"] & classes.get("val", set())
    assert classes["train"] | classes.get("val", set()) == set(range(7))
    assert classes["test"] == set(range(9))
    train = {tuple(row) for name in ("train", "val") if name in parts for row in px(parts[name]).tolist()}
    assert train == {tuple(row) for row in data.features[data.rows["trainval"]].tolist()}
    assert not train & {tuple(row) for row in px(parts["test"]).tolist()}
    for split in parts.values():
        for file, target in zip(split.files, split.targets.tolist(), strict=True):
            assert int(data.targets[int(file[7:].split()[0])]) == target


def test_seen_and_unseen_classes() -> None:
    data = made([f"class {i}" for i in range(9)], 0)
    assert data.dataset().skipped == ()  # every image is read
    assert data.seen == tuple(f"class {i}" for i in range(7))
    assert data.unseen == ("class 7", "class 8")
    with pytest.raises(UsageError, match=r"7 seen classes; .* val can have 0 to 5 of them. Given 6"):
        data.dataset(6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainval_loc": [1, 2, 99]}, r'"trainval_loc" must hold whole numbers from 1 to \d+; given 1.0 to 99.0'),
        ({"trainval_loc": [0, 1]}, r'"trainval_loc" must hold whole numbers from 1'),
        ({"trainval_loc": [1.5]}, r'"trainval_loc" must hold whole numbers'),
        ({"test_seen_loc": [3, 3]}, r'"test_seen_loc" names an image twice'),
        ({"test_seen_loc": None}, r'has no field "test_seen_loc". Did you mean "test_.*seen_loc"'),
        ({"att": None}, r'has no field "att"'),
        ({"att": np.full((3, 9), np.nan)}, r'"att" is not a finite number in row 1, column 1'),
        ({"att": np.zeros((3, 4))}, r'has 4 columns of "att" but 9 names'),
        ({"att": np.array(["a"])}, r'"att" must be a matrix of numbers'),
        ({"allclasses_names": np.zeros((9, 1))}, r'"allclasses_names" must hold names'),
        ({"test_unseen_loc": "trainval_loc"}, r'"trainval_loc" and "test_unseen_loc" share \d+ images'),
    ],
    ids=["high", "zero", "half", "twice", "no part", "no att", "nan", "few", "text", "names", "shared"],
)
def test_wrong_splits_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    write_xlsa17(tmp_path, made([f"class {i}" for i in range(9)], 0))
    held = {name: value for name, value in loadmat(tmp_path / "att_splits.mat").items() if not name.startswith("__")}
    held |= {name: held[value] if isinstance(value, str) else value for name, value in change.items()}
    savemat(tmp_path / "att_splits.mat", {name: value for name, value in held.items() if value is not None})
    with pytest.raises(DataError, match=message):
        read_xlsa17(tmp_path)


def test_pieces_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    data = made([f"class {i}" for i in range(9)], 0)
    swapped = {**data.rows, "test_seen": data.rows["test_unseen"][:1], "test_unseen": data.rows["test_unseen"][1:]}
    with pytest.raises(DataError, match=r"classes of test_seen_loc have no training image: class [78]"):
        replace(data, rows=swapped)
    moved = {**data.rows, "trainval": np.concatenate([data.rows["trainval"], data.rows["test_unseen"][:1]])}
    with pytest.raises(DataError, match=r"classes of test_unseen_loc have training images: class [78]"):
        replace(data, rows=moved | {"test_unseen": data.rows["test_unseen"][1:]})
    with pytest.raises(DataError, match=r'"labels" must number the 9 classes'):
        replace(data, targets=data.targets + 1)
    with pytest.raises(DataError, match=r"no such file"):
        read_xlsa17(tmp_path)
    (tmp_path / "res101.mat").write_bytes(b"text" * 50)
    with pytest.raises(DataError, match=r"is not a .mat file, or it is damaged"):
        read_xlsa17(tmp_path)


PACKS = os.environ.get("LABELWISE_DATA", "")


@pytest.mark.parametrize(
    ("name", "splits", "seen", "unseen", "size"),
    [
        ("CUB", "att_splits.mat", 150, 50, 312),
        ("CUB", "sent_splits.mat", 150, 50, 1024),
        ("FLO", "att_splits.mat", 82, 20, 1024),
    ],
)
def test_real_packs(name: str, splits: str, seen: int, unseen: int, size: int) -> None:
    if not (Path(PACKS) / f"{name.lower()}_res50.npz").is_file() or not PACKS:
        pytest.skip("LABELWISE_DATA does not hold these features")
    data = read_gzsl_pack(PACKS, name, splits=splits)
    assert (len(data.seen), len(data.unseen)) == (seen, unseen)
    assert vectors(data).shape == (seen + unseen, size)
    if name == "CUB":  # names and vectors were put in the order of the labels
        assert [int(label[:3]) for label in data.labels.names] == list(range(1, 201))
        column = loadmat(Path(PACKS) / "gzsl_splits" / name / splits)
        at = [str(cell[0][0]) for cell in column["allclasses_names"]].index(data.labels.names[7])
        assert np.allclose(vectors(data)[7].numpy(), column["att"][:, at])


def test_a_missing_pack_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'Cannot read ".*cub_res50.npz"'):
        read_gzsl_pack(tmp_path, "CUB")
