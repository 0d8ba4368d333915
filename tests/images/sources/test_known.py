"""Picture files that the cache knows are not read before a number of them is asked for, and are the same pictures."""

import copy
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from labelwise.images.decode import readable
from labelwise.images.decode.decoding import decode as decode_file
from labelwise.images.decode.pictures import read_files
from labelwise.images.lazy import LazyImages
from labelwise.images.sources import known
from labelwise.images.sources.files import at_side
from labelwise.images.sources.folders import folder
from labelwise.images.sources.known import read_known
from labelwise.images.split.hashes import image_hashes
from labelwise.support.errors import DataError

SHAPE = (3, 12, 10)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return ten pictures in two folders of labels, written long ago."""
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(known, "FRESH", -1)  # a file just written counts as one written long ago
    noise = np.random.default_rng(0)
    paths = [tmp_path / "birds" / f"label {i % 2}" / f"{i}.png" for i in range(10)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(path)
    return paths


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of files as they are decoded."""
    names: list[str] = []
    decode = decode_file

    def count(path: Any, frame: Any) -> Any:
        names.append(Path(path).name)
        return decode(path, frame)

    monkeypatch.setattr(readable, "decode_safely", count)
    return names


def test_known_pictures_are_not_decoded_and_are_the_same(files: list[Path], decoded: list[str]) -> None:
    plain, _, _ = read_files(files, SHAPE)
    first, rows, _ = read_known(files, SHAPE)
    assert len(decoded) == 20
    again, rows_again, skipped = read_known(files, SHAPE)
    assert (rows_again, skipped) == (rows, ())
    assert np.array_equal(image_hashes(again), image_hashes(plain))
    chosen = torch.cat([again[torch.tensor([7, 2])], again[8:], *torch.split(again[:4], 3)])
    assert isinstance(chosen, LazyImages)
    assert len(decoded) == 20
    wanted = torch.cat([plain[torch.tensor([7, 2])], plain[8:], plain[:4]])
    assert np.array_equal(chosen[:1], wanted[:1])
    assert len(decoded) == 21, "one row was asked for"
    assert np.array_equal(chosen.float(), wanted.float())
    assert np.array_equal(chosen, wanted)
    assert len(decoded) == 27, "7 files, each once"
    assert np.array_equal(first, plain)


def test_what_is_asked_of_known_pictures_is_what_plain_ones_say(files: list[Path]) -> None:
    plain, _, _ = read_files(files, SHAPE)
    for images in (read_known(files, SHAPE)[0], read_known(files, SHAPE)[0]):
        assert (images.shape, images.dtype, images.nbytes, images.device) == (
            plain.shape,
            plain.dtype,
            plain.nbytes,
            plain.device,
        )
        assert np.array_equal(images[3], plain[3])
        assert np.array_equal(images[:, 1:], plain[:, 1:])
        assert np.array_equal(images.movedim(1, 3), plain.movedim(1, 3))
        assert np.array_equal(images[torch.arange(10) % 2 == 0], plain[::2])
        assert np.array_equal(np.asarray(images), plain.numpy())
        assert np.array_equal(torch.cat([images, plain]), torch.cat([plain, plain]))
        assert np.array_equal(pickle.loads(pickle.dumps(images[2:5])), plain[2:5])
        assert np.array_equal(copy.deepcopy(images), plain)
        assert all(np.array_equal(one, two) for one, two in zip(images, plain, strict=True))
        assert float(images.float().mean()) == float(plain.float().mean())


def test_a_file_that_changes_moves_or_looks_alike_is_read_as_what_it_holds(
    files: list[Path], decoded: list[str]
) -> None:
    read_known(files, SHAPE)
    decoded.clear()
    about = files[3].stat()
    Image.fromarray(np.zeros((20, 20, 3), dtype=np.uint8)).save(files[3])
    os.utime(files[3], ns=(about.st_atime_ns, about.st_mtime_ns))  # its time is set back
    moved = files[4].with_name("moved.png")
    files[4].rename(moved)
    paths = [*files[:4], moved, *files[5:]]
    images, _, _ = read_known(paths, SHAPE)
    assert decoded == ["3.png"], "the one that moved has the content of before"
    assert np.array_equal(images, read_files(paths, SHAPE)[0])
    assert not images[3].any()


def test_another_size_or_fit_is_read_anew(files: list[Path]) -> None:
    read_known(files, SHAPE)
    assert np.array_equal(read_known(files, (3, 8, 16))[0], read_files(files, (3, 8, 16))[0])
    assert np.array_equal(
        read_known(files, (3, 8, 16), fit="squash")[0], read_files(files, (3, 8, 16), fit="squash")[0]
    )
    assert np.array_equal(read_known(files, (1, 12, 10))[0], read_files(files, (1, 12, 10))[0])


def test_unreadable_files_are_told_each_time(files: list[Path], tmp_path: Path) -> None:
    bad, gone = tmp_path / "bad.jpg", tmp_path / "gone.jpg"
    bad.write_text("no picture")
    paths = [files[0], bad, gone, tmp_path, *files[1:]]
    for _ in range(2):
        images, rows, skipped = read_known(paths, SHAPE)
        wanted, wanted_rows, wanted_skipped = read_files(paths, SHAPE)
        assert (rows, skipped) == (wanted_rows, wanted_skipped)
        assert np.array_equal(images, wanted)
        with pytest.raises(DataError, match="3 of 13 pictures cannot be read"):
            read_known(paths, SHAPE, strict=True)
    with pytest.raises(DataError, match="1 of 1 pictures"):
        read_known([bad], SHAPE)


def test_a_file_that_changes_while_it_is_used_is_an_error(files: list[Path]) -> None:
    read_known(files, SHAPE)
    images, _, _ = read_known(files, SHAPE)
    Image.fromarray(np.zeros((20, 20, 3), dtype=np.uint8)).save(files[3])
    assert np.array_equal(images[:3], read_files(files[:3], SHAPE)[0])
    with pytest.raises(DataError, match=r"3\.png.* was changed while it was being used"):
        images.float()


def test_a_file_written_just_now_is_known_by_its_content_alone(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, decoded: list[str]
) -> None:
    monkeypatch.setattr(known, "FRESH", 1e15)
    read_known(files, SHAPE)
    read_known(files, SHAPE)
    assert len(decoded) == 10
    shutil.copy(files[1], files[0])
    assert np.array_equal(read_known(files, SHAPE)[0], read_files(files, SHAPE)[0])


def test_a_folder_of_known_pictures_is_the_same_data(files: list[Path], decoded: list[str]) -> None:
    root = files[0].parent.parent
    first = folder(root, size=12)
    count = len(decoded)
    again = folder(root, size=12)
    assert len(decoded) == count
    for name, split in first.splits.items():
        assert again.splits[name].files == split.files
        assert np.array_equal(again.splits[name].targets, split.targets)
        assert np.array_equal(again.splits[name].images, split.images)
    squashed = at_side(again, fit="squash")
    assert np.array_equal(
        squashed.split("train").images, read_files(again.split("train").files, (3, 12, 12), fit="squash")[0]
    )
