import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelwise.images.catalogue import load
from labelwise.images.dataset import Dataset
from labelwise.images.sources.packs import features
from labelwise.support.errors import DataError
from tests.images.samples import sizes
from tests.pixels_of import px

X = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)
NAMES = ["owl", "okapi", "été", "鳥"]
Y = np.arange(40) % 4
SPLIT = np.array(["train"] * 24 + ["val"] * 8 + ["test"] * 8)


def check(data: Dataset, x: np.ndarray = X) -> None:
    """Every row is there once, with its label."""
    seen = []
    for split in data.splits.values():
        for image, target in zip(px(split).numpy(), split.targets.tolist(), strict=True):
            row = int(np.flatnonzero((x.astype(np.float32) == image).all(1))[0])
            assert data.labels.names[target] == NAMES[Y[row]]
            seen.append(row)
    assert sorted(seen) == list(range(len(x)))


def packed(root: Path, **held: Any) -> Path:
    np.savez(root / "birds.npz", **held)
    return root / "birds.npz"


def beside(root: Path, x: np.ndarray, **columns: Any) -> Path:
    np.save(root / "birds.npy", x)
    lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
    (root / "birds.csv").write_text("\n".join(lines), encoding="utf-8")
    return root / "birds.npy"


@pytest.mark.parametrize("key", ["features", "embeddings", "x", "X", "f"])
@pytest.mark.parametrize("labels", ["labels", "y", "targets"])
def test_packs_of_other_tools(tmp_path: Path, key: str, labels: str) -> None:
    data = features(packed(tmp_path, **{key: X, labels: Y, "classes": NAMES, "other": np.zeros(3)}))
    assert data.name == "birds"
    assert sizes(data) == {"train": 28, "val": 4, "test": 8}
    check(data)
    check(features(packed(tmp_path, **{key: X, labels: np.array(NAMES)[Y]})))
    check(features(packed(tmp_path, **{key: X, labels: Y[:, None].astype(float), "names": NAMES})))


@given(
    kind=st.sampled_from(["<f2", ">f4", "<f4", "<f8", ">f8", "|i1", "|u1", "<i4", ">i8"]),
    n=st.integers(12, 30),
    size=st.integers(1, 9),
    fortran=st.booleans(),
    npz=st.booleans(),
)
def test_every_kind_of_number_is_read(
    tmp_path_factory: pytest.TempPathFactory, kind: str, n: int, size: int, fortran: bool, npz: bool
) -> None:
    root = tmp_path_factory.mktemp("kinds")
    x = (np.arange(n)[:, None] + np.arange(size) * 3).astype(kind)
    x = np.asfortranarray(x) if fortran else x
    names = np.array(["a", "b", "c"])[np.arange(n) % 3]
    file = packed(root, x=x, labels=names) if npz else beside(root, x, label=names)
    data = features(file)
    rows = {int(image[0]): image.tolist() for split in data.splits.values() for image in px(split)}
    assert rows == {i: [float(value) for value in x[i]] for i in range(n)}
    assert {px(split).dtype for split in data.splits.values()} == {torch.float32}


def test_an_array_beside_a_csv(tmp_path: Path) -> None:
    names = np.array(NAMES)[Y]
    files = [f"{i}.png" for i in range(40)]
    data = features(beside(tmp_path, X, path=files, label=names, split=SPLIT))
    assert sizes(data) == {"train": 24, "val": 8, "test": 8}
    check(data)
    assert data.split("test").files == tuple(files[32:])
    assert np.array_equal(px(data.split("val")).numpy(), X[24:32])
    check(features(beside(tmp_path, X.astype(np.float64), label=names)))
    before = np.load(tmp_path / "birds.npy").copy()
    check(features(beside(tmp_path, X, label=names)))
    assert np.array_equal(np.load(tmp_path / "birds.npy"), before), "the file itself is never changed"


def test_a_pack_of_another_tool_is_data_and_keys_of_our_own_come_first(tmp_path: Path) -> None:
    check(load(packed(tmp_path, X=X, y=Y, class_names=NAMES)))
    check(load(packed(tmp_path, features=X, labels=Y, classes=NAMES, x=X[:3], targets=Y[:3])))
    pictures = np.zeros((40, 5, 5, 3), np.uint8)
    assert load(packed(tmp_path, images=pictures, labels=Y, f=np.ones(40))).shape == (3, 5, 5)


def test_features_without_labels(tmp_path: Path) -> None:
    for file in (packed(tmp_path, f=X), beside(tmp_path, X, path=[f"{i}.png" for i in range(40)])):
        data = features(file)
        assert sum(sizes(data).values()) == 40
        assert {int(t) for split in data.splits.values() for t in split.targets} == {-1}


def test_features_of_a_pack_are_held_once(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((20_000, 64))
    for given_x in (x, x.astype(np.float32), np.asfortranarray(x)):
        file = packed(tmp_path, features=given_x, labels=np.arange(20_000) % 5)
        tracemalloc.start()
        features(file)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * x.nbytes // 2, "twice the features as float32"


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"images": X}, r'birds.npz": it has no features \(features, .* It holds: images'),
        ({"x": X, "f": X}, r"it holds x, f, which mean the same. Keep one"),
        ({"x": X, "y": Y, "targets": Y}, r"it holds targets, y, which mean the same"),
        ({"x": X, "y": Y[:7]}, r"There are 40 images but 7 targets"),
        ({"x": X, "y": Y, "split": SPLIT[:7]}, r"40 images but 7 splits"),
        ({"x": X, "y": Y, "split": np.full(40, 9)}, r'"split" must be 0 train and 1 test, .* given \[9\]'),
        ({"x": X, "y": Y + 0.5}, r"Labels must be whole numbers or names"),
        ({"x": X[0], "y": Y}, r"features must be numbers \[n, size\]; given float32 \[5\]"),
        ({"x": X[:0], "y": Y[:0]}, r"features must be numbers \[n, size\]; given float32 \[0, 5\]"),
        ({"x": np.full((40, 5), "a"), "y": Y}, r"features must be numbers .* given <U1"),
        ({"x": np.full((40, 5), np.nan), "y": Y}, r"Row 0 of the features .* not a finite number"),
        ({"x": np.full((40, 5), 1e300), "y": Y}, r"Row 0 of the features .* not a finite number"),
        ({"x": X, "y": np.array([{}] * 40, object)}, r"holds Python objects, which are not read"),
    ],
    ids=[
        "none",
        "two",
        "two labels",
        "few labels",
        "few splits",
        "split",
        "half",
        "flat",
        "zero",
        "text",
        "nan",
        "big",
        "obj",
    ],
)
def test_wrong_packs_are_refused(tmp_path: Path, held: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        features(packed(tmp_path, **held))


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = beside(tmp_path, X, label=np.array(NAMES)[Y][:39])
    with pytest.raises(DataError, match=r'birds.npy" has 40 rows of features but ".*birds.csv" has 39 rows'):
        features(file)
    (tmp_path / "birds.csv").unlink()
    with pytest.raises(DataError, match=r'Cannot read the table ".*birds.csv": No such file'):
        features(file)
    with pytest.raises(DataError, match=r'Cannot read ".*gone.npz": No such file'):
        features(tmp_path / "gone.npz")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, X)
    bad, beside_bad = tmp_path / "bad.npz", tmp_path / "bad.npy"
    (tmp_path / "bad.csv").write_text("label\n" + "\n".join(np.array(NAMES)[Y]), encoding="utf-8")
    for cut in (0, 5, 60, 130, len(array.getvalue()) - 1):
        content = array.getvalue()[:cut]
        with zipfile.ZipFile(bad, "w") as archive:
            archive.writestr("x.npy", content)
        beside_bad.write_bytes(content)
        for file in (bad, beside_bad):
            with pytest.raises(DataError, match=r"is damaged \("):
                features(file)
    bad.write_bytes(b"text")
    with pytest.raises(DataError, match=r"is not an .npz file, or it is damaged"):
        features(bad)
