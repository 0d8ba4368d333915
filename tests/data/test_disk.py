import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from labelwise.data.batches import Share, ShuffledBatches
from labelwise.data.dataset import Split
from labelwise.data.disk import decode_to_disk, fits_in_memory
from labelwise.data.pictures import read_files
from labelwise.errors import DataError

SHAPE = (3, 12, 10)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    made = np.random.default_rng(0)
    files = []
    for i in range(30):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(made.integers(0, 256, (20 + i, 24, 3), dtype=np.uint8)).save(files[-1])
    for bad in (0, 7, 8, 29):
        files[bad].write_text("not a picture")
    return files


def test_mapped_pictures_equal_those_in_memory(paths: list[Path], tmp_path: Path) -> None:
    mapped, kept, skipped = decode_to_disk(paths, SHAPE, folder=tmp_path / "cache", workers=2)
    held, also_kept, also_skipped = read_files(paths, SHAPE)
    assert torch.equal(mapped, held)
    assert kept == also_kept == [i for i in range(30) if i not in (0, 7, 8, 29)]
    assert skipped == also_skipped
    assert (tmp_path / "cache").stat().st_mode
    assert sum(f.stat().st_size for f in (tmp_path / "cache").glob("*.bytes")) == held.numel()


def test_decoded_once_until_a_picture_changes(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    decode_to_disk(paths, SHAPE, folder=cache, workers=1)

    def never(*_: object) -> list[str | None]:
        raise AssertionError("decoded again")

    with monkeypatch.context() as patched:
        patched.setattr("labelwise.data.disk._decode_all", never)
        again, _, _ = decode_to_disk(paths, SHAPE, folder=cache)
        assert len(again) == 26
        with pytest.raises(AssertionError, match="decoded again"):
            decode_to_disk(paths, (3, 12, 12), folder=cache)
    os.utime(paths[3], (1, 1))
    Image.new("RGB", (30, 30), (9, 9, 9)).save(paths[3])
    changed, kept, _ = decode_to_disk(paths, SHAPE, folder=cache, workers=1)
    assert int(changed[kept.index(3)].float().mean()) == 9


def test_an_interrupted_decode_is_not_taken_for_a_whole_one(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    with monkeypatch.context() as patched:
        patched.setattr("labelwise.data.disk._close_gaps", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            decode_to_disk(paths, SHAPE, folder=cache, workers=1)
    images, kept, _ = decode_to_disk(paths, SHAPE, folder=cache, workers=1)
    assert torch.equal(images, read_files(paths, SHAPE)[0])
    assert len(kept) == 26


def test_nothing_readable_and_no_room_are_errors(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="None of 2 pictures can be read"):
        decode_to_disk([paths[0], paths[7]], SHAPE, folder=tmp_path / "cache", workers=1)
    with pytest.raises(DataError, match="Make room"):
        decode_to_disk(paths, (3, 10**5, 10**5), folder=tmp_path / "cache", workers=1)


def test_memory_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELWISE_MEMORY_MB", "1")
    assert fits_in_memory(300, (3, 32, 32))
    assert not fits_in_memory(400, (3, 32, 32))


def test_batches_of_a_mapped_split(paths: list[Path], tmp_path: Path) -> None:
    images, _, _ = decode_to_disk(paths, SHAPE, folder=tmp_path / "cache", workers=1)
    split = Split(images=images, targets=torch.arange(26) % 3)
    assert split.select(range(26)).images.data_ptr() == images.data_ptr(), "selecting everything must not copy"
    for batch in ShuffledBatches(split=split, size=5).epoch(0, 0, Share()):
        torch.testing.assert_close(batch.images, images[batch.rows].float() / 255)
