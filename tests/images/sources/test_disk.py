import errno
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from labelwise.images.dataset import Split
from labelwise.images.decode.decoding import Frame, decode
from labelwise.images.decode.pictures import read_files
from labelwise.images.sources import disk
from labelwise.images.sources.disk import decode_to_disk, fits_in_memory
from labelwise.support.errors import DataError
from labelwise.train.batches import ShuffledBatches
from labelwise.train.data import TensorSplit
from tests.epochs import batches_of

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
    assert held.numel() < largest(tmp_path / "cache").stat().st_size < held.numel() + 2000, (
        "the bytes, and a record of what they are"
    )


def test_decoded_once_until_a_picture_changes(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    decode_to_disk(paths, SHAPE, folder=cache, workers=1)

    def never(*_: object) -> list[str | None]:
        raise AssertionError("decoded again")

    with monkeypatch.context() as patched:
        patched.setattr("labelwise.images.sources.disk._decode_all", never)
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
        patched.setattr(
            "labelwise.images.sources.disk._close_gaps", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            decode_to_disk(paths, SHAPE, folder=cache, workers=1)
        assert not [f for f in cache.iterdir() if f.suffix != ".lock"]
    images, kept, _ = decode_to_disk(paths, SHAPE, folder=cache, workers=1)
    assert torch.equal(images, read_files(paths, SHAPE)[0])
    assert len(kept) == 26


def largest(folder: Path) -> Path:
    """The file of decoded pictures."""
    return max(folder.iterdir(), key=lambda file: file.stat().st_size)


def at_once(work: Callable[[int], None], count: int) -> list[int | None]:
    """Run the work in several processes that begin together, and return their exit codes."""
    forks = multiprocessing.get_context("fork")
    barrier = forks.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        work(number)

    processes = [forks.Process(target=run, args=(number,)) for number in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


def test_of_several_processes_one_writes_and_all_have_the_right_rows(tmp_path: Path) -> None:
    paths, decoded = [tmp_path / f"{i}.png" for i in range(50)], tmp_path / "decoded"
    for i, path in enumerate(paths):
        Image.new("RGB", (9, 9), (i, 5 * i, 0)).save(path)
    paths[17].write_text("not a picture")
    expected, kept, _ = read_files(paths, SHAPE)

    def work(number: int) -> None:
        def counted(path: Path, frame: Frame) -> npt.NDArray[np.uint8]:
            with decoded.open("a") as file:
                file.write(".")
            return decode(path, frame)

        vars(disk)["decode_safely"] = counted  # in this process and its workers
        images, mine, skipped = decode_to_disk(paths, SHAPE, folder=tmp_path / "cache", workers=1 + number % 2)
        assert torch.equal(images, expected)
        assert mine == kept
        assert [each.file for each in skipped] == [str(paths[17])]

    assert at_once(work, 4) == [0] * 4
    assert len(decoded.read_text()) == 50, "the others waited"
    again, mine, skipped = decode_to_disk(paths, SHAPE, folder=tmp_path / "cache")
    assert torch.equal(again, expected)
    assert mine == kept
    assert len(skipped) == 1


def test_a_killed_writer_leaves_nothing_that_is_taken_for_a_whole(paths: list[Path], tmp_path: Path) -> None:
    """Also where an earlier run had written it, and a user has removed the large file to make room."""
    cache = tmp_path / "cache"
    decode_to_disk(paths, SHAPE, folder=cache, workers=1)
    largest(cache).unlink()

    def killed(_: int) -> None:
        vars(disk)["_close_gaps"] = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        decode_to_disk(paths, SHAPE, folder=cache, workers=1)

    assert at_once(killed, 1) == [-signal.SIGKILL]
    images, kept, _ = decode_to_disk(paths, SHAPE, folder=cache, workers=1)
    assert torch.equal(images, read_files(paths, SHAPE)[0])
    assert len(kept) == 26
    assert not list(cache.glob(".*.part"))


def test_a_cache_of_version_0_1_is_not_used(paths: list[Path], tmp_path: Path) -> None:
    """Its rows may be shifted by a picture that could not be read; nothing in it tells."""
    cache, expected = tmp_path / "cache", read_files(paths, SHAPE)[0]
    digest = blake2b(repr(SHAPE).encode(), digest_size=12)
    for path in paths:
        about = path.stat()
        digest.update(f"{path.resolve()}\n{about.st_size}\n{about.st_mtime_ns}\n".encode())
    cache.mkdir()
    old = [cache / f"{digest.hexdigest()}.{suffix}" for suffix in ("bytes", "json")]
    old[0].write_bytes(expected.roll(1, 0).numpy().tobytes())
    old[1].write_text(json.dumps(["it is damaged." if i in (0, 7, 8, 29) else None for i in range(30)]))
    images, kept, _ = decode_to_disk(paths, SHAPE, folder=cache, workers=1)
    assert torch.equal(images, expected)
    assert len(kept) == 26
    assert not any(file.exists() for file in old), "they would lie there for good"


@pytest.mark.parametrize("damage", ["cut", "row", "grown", "zeros", "empty", "of others"])
def test_a_damaged_file_is_written_anew(damage: str, paths: list[Path], tmp_path: Path) -> None:
    cache, expected = tmp_path / "cache", read_files(paths, SHAPE)[0]
    decode_to_disk(paths, SHAPE, folder=cache, workers=1)
    file = largest(cache)
    whole = file.read_bytes()
    if damage == "of others":  # as many pictures, in another order
        decode_to_disk(paths[::-1], SHAPE, folder=tmp_path / "other", workers=1)
        largest(tmp_path / "other").rename(file)
    else:
        row = SHAPE[0] * SHAPE[1] * SHAPE[2]
        changed = {"cut": whole[:-1], "row": whole[row:], "grown": bytes(row) + whole, "zeros": bytes(len(whole))}
        file.write_bytes(changed.get(damage, b""))
    images, kept, _ = decode_to_disk(paths, SHAPE, folder=cache, workers=1)
    assert torch.equal(images, expected)
    assert len(kept) == 26
    assert file.read_bytes() == whole


def test_the_date_of_a_picture_alone_makes_a_new_file(paths: list[Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache with spaces"
    decode_to_disk(paths, SHAPE, folder=cache, workers=2)
    about, size = paths[3].stat(), paths[3].stat().st_size
    paths[3].write_bytes(paths[4].read_bytes()[: size - 1].ljust(size, b" "))
    os.utime(paths[3], ns=(about.st_atime_ns, about.st_mtime_ns + 10**9))
    images, kept, _ = decode_to_disk(paths, SHAPE, folder=cache, workers=2)
    held, also_kept, _ = read_files(paths, SHAPE)
    assert torch.equal(images, held)
    assert kept == also_kept


def test_a_name_that_is_not_utf_8(paths: list[Path], tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png"))
    images, kept, _ = decode_to_disk([paths[1], paths[2].rename(odd)], SHAPE, folder=tmp_path / "cache", workers=1)
    assert kept == [0, 1]
    assert torch.equal(images, read_files([paths[1], odd], SHAPE)[0])


def test_a_folder_that_cannot_be_locked_is_told(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("labelwise.images.sources.disk.fcntl.lockf", refuse)
    with pytest.raises(DataError, match=r"cannot be locked.*No locks available.*LABELWISE_CACHE"):
        decode_to_disk(paths, SHAPE, folder=tmp_path / "cache", workers=1)


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
    for batch in batches_of(ShuffledBatches(split=TensorSplit.of(split), size=5), 0):
        torch.testing.assert_close(batch.images, images[batch.rows].float() / 255)
