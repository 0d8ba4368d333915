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
