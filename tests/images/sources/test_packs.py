import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelwise.images.dataset import SPLITS
from labelwise.images.sources.packs import features, pack
from labelwise.images.split.split_files import write_split
from labelwise.support.errors import DataError
from tests.images.samples import check_values, png, sizes
from tests.pixels_of import px

X, Y = np.zeros((4, 8, 8, 3), np.uint8), [0, 0, 1, 1]


def packed(root: Path, **held: Any) -> Path:
    np.savez_compressed(root / "birds.npz", **held)
    return root / "birds.npz"


LABELS = np.arange(12) % 2
FILES = [png(40 * (i % 2) + i) for i in range(12)]
ENCODED: dict[str, Any] = {
    "data": np.frombuffer(b"".join(FILES), np.uint8),
    "offsets": np.cumsum([0, *map(len, FILES)]),
    "labels": LABELS.astype(np.uint8),
    "classes": np.array(["owl", "été"]),
}


def test_packs_of_arrays(tmp_path: Path) -> None:
    images = np.repeat(LABELS * 40, 20).reshape(12, 4, 5).astype(np.uint8)
    data = pack(packed(tmp_path, images=images, labels=LABELS, classes=["owl", "été"], split=[0] * 8 + [1] * 4))
    assert data.labels.names == ("owl", "été")
    assert sizes(data) == {"train": 6, "val": 2, "test": 4}
    assert data.shape == (1, 4, 5)
    check_values(data, ["owl", "été"])
    assert pack(packed(tmp_path, images=images, labels=LABELS), size=3).shape == (1, 3, 3)
    data = pack(packed(tmp_path, features=np.random.default_rng(0).random((12, 6)), labels=LABELS))
    assert data.shape == (6,)
    assert data.labels.names == ("0", "1")
    assert sizes(data) == {"train": 8, "val": 2, "test": 2}


@pytest.mark.parametrize("numbers", [True, False])
def test_packs_of_encoded_pictures(tmp_path: Path, numbers: bool) -> None:
    split = np.array([0] * 6 + [1] * 2 + [2] * 4)
    data = pack(packed(tmp_path, **ENCODED, split=split if numbers else np.array(SPLITS)[split]))
    assert sizes(data) == {"train": 6, "val": 2, "test": 4}
    assert data.shape == (3, 5, 5)
    check_values(data, ["owl", "été"])
    assert px(data.split("test"))[:, 0, 0, 0].tolist() == [8, 49, 10, 51]
    assert pack(packed(tmp_path, **ENCODED), size=7).shape == (3, 7, 7)


def test_damaged_pictures_of_a_pack_are_listed(tmp_path: Path) -> None:
    data = ENCODED["data"].copy()
    data[ENCODED["offsets"][3] : ENCODED["offsets"][4]] = 0
    found = pack(packed(tmp_path, **(ENCODED | {"data": data, "split": np.array([0] * 8 + [1] * 4)})))
    assert [each.file for each in found.skipped] == ["image 3"]
    assert sizes(found) == {"train": 5, "val": 2, "test": 4}
    check_values(found, ["owl", "été"])


@pytest.mark.parametrize("encoded", [True, False])
def test_files_of_a_pack_stay_with_their_pictures(tmp_path: Path, encoded: bool) -> None:
    names = np.array([f"{'ab'[i % 2]}/é {i}.png" for i in range(12)])
    held = ENCODED | {"data": ENCODED["data"].copy()}
    held["data"][ENCODED["offsets"][3] : ENCODED["offsets"][4]] = 0  # picture 3 is damaged
    if not encoded:
        values = 40 * LABELS + np.arange(12)
        held = {"images": np.repeat(values, 20).reshape(12, 4, 5).astype(np.uint8), "labels": LABELS}
    data = pack(packed(tmp_path, **held, files=names))
    for split in data.splits.values():
        first = px(split)[:, 0, 0, 0].tolist()
        assert split.files == tuple(names[value - 40 * (value >= 40)] for value in first)
    named = sorted(file for split in data.splits.values() for file in split.files)
    assert named == sorted(np.delete(names, 3) if encoded else names)
    write_split(data, tmp_path / "split.csv")
    assert {line.split(",")[0] for line in (tmp_path / "split.csv").read_text("utf-8").splitlines()[1:]} == {*named}


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"images": X}, 'it lacks labels; it needs "labels" and one of "images", .* It holds: images'),
        ({"labels": LABELS, "pixels": X}, "it has no images; .* It holds: labels, pixels"),
        ({"labels": LABELS, "x": X}, r"features must be numbers \[n, size\]; given uint8"),
        ({"labels": LABELS, "data": ENCODED["data"]}, "it lacks offsets"),
        ({"labels": Y, "images": X, "features": np.zeros((4, 2))}, "it has images, features"),
        ({"labels": LABELS, "images": X}, "There are 4 images but 12 targets"),
        ({"labels": Y, "images": X[..., [0, 0]]}, r"1, 3 or 4 channels, .* given \[4, 8, 8, 2\]"),
        ({"labels": Y, "images": X, "classes": ["a"]}, "at most 0, as there are 1 names"),
        ({"labels": Y, "images": X, "classes": ["a", "a"]}, "must be unique; given more than once: a"),
        ({"labels": Y, "images": X, "split": [0, 1]}, "4 images but 2 splits"),
        ({"labels": Y, "images": X, "files": ["a", "b"]}, r'"files" must be 4 names, .* given <U1 \[2\]'),
        ({"labels": Y, "images": X, "files": Y}, r'"files" must be 4 names, .* given int64 \[4\]'),
        (
            {"labels": Y, "images": X, "split": [0, 1, 2, 7]},
            r'"split" must be 0 train and 1 test, .* given \[0, 1, 2, 7\]',
        ),
        (
            {"labels": Y, "images": X, "split": ["train", "train", "train", "tst"]},
            'Row 3 of "split": unknown split "tst"',
        ),
        ({"labels": Y, "features": np.full((4, 2), np.inf)}, r"Row 0 of the features .* \(NaN or infinity\)"),
        (ENCODED | {"offsets": ENCODED["offsets"][:-1]}, r'"offsets" 13 whole numbers, .* given uint8 .* int64 \[12\]'),
        (ENCODED | {"offsets": ENCODED["offsets"][::-1]}, '"offsets" must rise from 0 to at most'),
        (ENCODED | {"data": ENCODED["data"][:50]}, '"offsets" must rise from 0 to at most 50'),
        (ENCODED | {"data": ENCODED["data"] * 0}, "none of its images can be read"),
        (
            {"labels": np.array([{}, 1, 2, 3], object), "images": X},
            "holds Python objects, which are not read. Save plain",
        ),
    ],
)
def test_packs_that_are_wrong_are_refused(tmp_path: Path, held: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        pack(packed(tmp_path, **held))


def test_packs_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'Cannot read ".*gone.npz": No such file'):
        pack(tmp_path / "gone.npz")
    good = packed(
        tmp_path, images=np.random.default_rng(0).integers(0, 256, (4, 8, 8), np.uint8), labels=Y
    ).read_bytes()
    bad = tmp_path / "bad.npz"
    for content in (b"", b"text", good[: len(good) // 2]):
        bad.write_bytes(content)
        with pytest.raises(DataError, match=r'bad.npz" is not an .npz file, or it is damaged'):
            pack(bad)
    with zipfile.ZipFile(tmp_path / "birds.npz") as archive:
        at = archive.getinfo("images.npy").header_offset + 100
    bad.write_bytes(good[:at] + bytes(255 - byte for byte in good[at : at + 40]) + good[at + 40 :])
    with pytest.raises(DataError, match=r'bad.npz" is damaged \('):
        pack(bad)


def test_features_with_keys_of_other_tools(tmp_path: Path) -> None:
    held: dict[str, Any] = {
        "x": np.arange(24.0).reshape(12, 2),
        "y": LABELS[:, None].astype(float),
        "class_names": ["owl", "été"],
    }
    data = features(packed(tmp_path, **held, splits=["train"] * 8 + ["test"] * 4))
    assert data.labels.names == ("owl", "été")
    assert sizes(data) == {"train": 6, "val": 2, "test": 4}
    assert px(data.split("test")).tolist() == held["x"][8:].tolist()


def test_files_of_features_stay_with_their_rows(tmp_path: Path) -> None:
    names = [f"{i}.png" for i in range(12)]
    data = features(packed(tmp_path, features=np.arange(24.0).reshape(12, 2), labels=LABELS, files=names))
    for split in data.splits.values():
        assert split.files == tuple(f"{int(first) // 2}.png" for first in px(split)[:, 0].tolist())


def test_a_pack_of_features_may_go_without_labels(tmp_path: Path) -> None:
    data = pack(packed(tmp_path, features=np.arange(24.0).reshape(12, 2)))
    assert data.labels.names == ("unlabelled",)
    assert {int(target) for split in data.splits.values() for target in split.targets} == {-1}
