"""Features of a data set are written whole or not at all."""

from dataclasses import replace
from pathlib import Path

import pytest

from labelwise.fitting.encoding import write_features
from labelwise.images.dataset import Dataset
from labelwise.images.sources.packs import pack
from labelwise.support.errors import StoreError
from tests.conftest import blobs
from tests.pixels_of import px


def features(per_label: int) -> Dataset:
    data = blobs(per_label=per_label)
    return replace(
        data, splits={name: replace(part, images=px(part).flatten(1).float()) for name, part in data.splits.items()}
    )


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "blobs.npz"
    write_features(features(6), file)
    before = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("labelwise.support.writable.os.fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        write_features(features(9), file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["blobs.npz"]
    assert len(pack(file).split("train")) == 8


def test_groups_are_written_and_splits_that_nobody_named_are_not(tmp_path: Path) -> None:
    data = features(6)
    part = data.split("train")
    groups = tuple(f"burst {i // 2}" for i in range(len(part)))
    splits = {**data.splits, "train": replace(part, groups=groups)}
    write_features(replace(data, splits=splits), tmp_path / "own.npz")
    assert pack(tmp_path / "own.npz").split("train").groups == groups
    write_features(replace(data, splits=splits, own_val=False), tmp_path / "val.npz")
    again = pack(tmp_path / "val.npz")
    assert not again.own_val
    assert len(again.split("test")) == len(data.split("test"))
    write_features(replace(data, splits=splits, own_splits=False), tmp_path / "none.npz")
    assert not pack(tmp_path / "none.npz").own_splits
