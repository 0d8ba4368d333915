"""encode(): the same image has the same bits, and is read and encoded once."""

import os
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from labelwise.encoders.encode import ImagesWithFeatures, encode
from labelwise.encoders.encoder import Precomputed
from labelwise.encoders.registry import is_installed, open_encoder
from labelwise.images.file_images import FileImages
from labelwise.images.images import ArrayImages, FeatureRows, Images
from labelwise.images.view import View
from labelwise.support import processes
from labelwise.support.cache import FILE
from labelwise.support.errors import LabelwiseWarning
from tests.encoders.samples import CountedImages, pixels, tiny_encoder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / FILE


def photos(folder: Path, count: int) -> list[str]:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(count):
        coarse = rng.integers(0, 256, (6, 8, 3), np.uint8)
        Image.fromarray(coarse).resize((80, 60), Image.Resampling.BICUBIC).save(folder / f"{i:03}.jpg")
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.mark.skipif(not is_installed(), reason="needs the package of weights")
def test_the_same_image_has_the_same_bits_whatever_comes_with_it(tmp_path: Path) -> None:
    encoder = open_encoder(shape=(3, 64, 64), view=View(size=64))
    paths = photos(tmp_path / "photos", 100)
    alone = encode(encoder, FileImages(paths[7:8]), cache=False).values[0]
    order = np.random.default_rng(1).permutation(100)
    ways = {
        "in a folder": encode(encoder, FileImages(paths), cache=False, workers=1).values[7],
        "by four threads": encode(encoder, FileImages(paths), cache=False, workers=4).values[7],
        "shuffled": encode(encoder, FileImages([paths[i] for i in order]), cache=False).values[order.tolist().index(7)],
        "alone after others": encode(encoder, FileImages(paths[7:8]), cache=False).values[0],
        "to the cache": encode(encoder, FileImages(paths)).values[7],
        "from the cache": encode(encoder, FileImages(paths)).values[7],
        "alone from the cache": encode(encoder, FileImages(paths[7:8])).values[0],
        "by another session": encode(open_encoder(shape=(3, 64, 64), view=View(size=64)), FileImages(paths[:9]), cache=False).values[7],
    }  # fmt: skip
    assert alone.any()
    assert {way: row.tobytes() == alone.tobytes() for way, row in ways.items()} == dict.fromkeys(ways, True)


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_the_order_of_the_images(workers: int, tmp_path: Path) -> None:
    encoder, images = tiny_encoder(tmp_path), pixels(700)
    features = encode(encoder, ArrayImages(images), workers=workers)
    assert np.array_equal(features.values, encoder(images))
    assert features.rows.tolist() == list(range(700))
    assert features.rows.dtype == np.int64
    assert features.ids[3] == "image 3"
    assert features.encoder_id == encoder.id
    assert len(features) == 700


def test_images_of_the_same_content_are_read_once(tmp_path: Path) -> None:
    one, two = pixels(2)
    images = CountedImages(np.stack([one, two, one, one]))
    features = encode(tiny_encoder(tmp_path), images)
    assert images.read_rows == [0, 1]
    assert np.array_equal(features.values[[0, 0, 0]], features.values[[0, 2, 3]])
    assert not np.array_equal(features.values[0], features.values[1])
    assert features.digests[0] == features.digests[2] != features.digests[1]


def test_what_the_cache_has_is_not_read(tmp_path: Path) -> None:
    encoder, images = tiny_encoder(tmp_path), pixels(6)
    first = encode(encoder, ArrayImages(images[:4]))
    counted = CountedImages(images)
    again = encode(encoder, counted)
    assert counted.read_rows == [4, 5]
    assert np.array_equal(again.values[:4], first.values)
    other = CountedImages(images)
    encode(tiny_encoder(tmp_path, mirror=True), other)
    assert other.read_rows == [0, 1, 2, 3, 4, 5], "another encoder has other features"
    counted = CountedImages(images)
    encode(encoder, counted, cache=False)
    assert len(counted.read_rows) == 6


def test_files_known_by_their_stamp_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = photos(tmp_path / "photos", 4)
    for path in paths:
        os.utime(path, (1e9, 1e9))
    monkeypatch.setattr("labelwise.images.digests.FRESH", 1e8)
    time.sleep(0.15)  # a file that changed just now may change again
    encoder = tiny_encoder(tmp_path)
    first = encode(encoder, FileImages(paths))
    monkeypatch.setattr("labelwise.images.digests.open_regular", None)
    assert np.array_equal(encode(encoder, FileImages(paths)).values, first.values)


def test_unreadable_images_are_left_out_with_their_reason(tmp_path: Path) -> None:
    paths = photos(tmp_path / "photos", 3)
    Path(paths[1]).write_bytes(b"no image")
    features = encode(tiny_encoder(tmp_path), FileImages([*paths, str(tmp_path / "none.jpg")]))
    assert features.rows.tolist() == [0, 2]
    assert features.ids == [paths[0], paths[2]]
    assert features.values.shape == (2, 5)
    assert [(one.file, one.reason[:18]) for one in features.skipped] == [
        (paths[1], "it is not an image"),
        (str(tmp_path / "none.jpg"), "there is no such f"),
    ]


def test_feature_rows_pass_through(cache: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    features = encode(Precomputed(4), FeatureRows(rows))
    assert np.array_equal(features.values, rows)
    assert features.encoder_id == "features/4"
    assert not cache.exists()


def test_no_image_has_no_features(tmp_path: Path) -> None:
    features = encode(tiny_encoder(tmp_path), ArrayImages(pixels(3)).select([]))
    assert features.values.shape == (0, 5)
    assert features.rows.shape == (0,)


@pytest.mark.parametrize("bad", [b"short", np.full(5, np.nan, np.float32).tobytes()])
def test_entries_that_are_no_features_are_computed_again(bad: bytes, cache: Path, tmp_path: Path) -> None:
    encoder, images = tiny_encoder(tmp_path), ArrayImages(pixels(3))
    wanted = encode(encoder, images).values
    with sqlite3.connect(cache) as db:
        db.execute("UPDATE entries SET value = ?", (bad,))
    db.close()
    assert np.array_equal(encode(encoder, images).values, wanted)
    assert np.array_equal(encode(encoder, images).values, wanted)


def test_a_cache_that_cannot_be_written_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "file"))
    encoder = tiny_encoder(tmp_path)
    for seed in range(3):
        assert len(encode(encoder, ArrayImages(pixels(600, seed=seed)))) == 600
    assert [str(one.message)[:28] for one in recwarn if one.category is LabelwiseWarning] == [
        "Features cannot be cached in"
    ]


def test_an_encoder_may_take_several_images_at_a_time(tmp_path: Path) -> None:
    inner = tiny_encoder(tmp_path)
    sizes: list[int] = []

    class Batched:
        id, name, shape, fit, width, runtime, batch = "batched", "batched", inner.shape, inner.fit, 5, "none", 4

        def __call__(self, images: Any) -> Any:
            sizes.append(len(images))
            return inner(images)

    images = pixels(10)
    assert np.array_equal(encode(Batched(), ArrayImages(images), workers=2).values, inner(images))
    assert sorted(sizes) == [2, 4, 4]


@pytest.mark.parametrize("count", [1, 3])
def test_a_process_takes_as_many_threads_as_it_was_given(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_THREADS", [0])
    processes.set_threads(count)
    used: set[int] = set()

    class Watched(CountedImages):
        def read(self, rows: Any, shape: tuple[int, ...], fit: Any = "crop") -> Any:
            used.add(threading.get_ident())
            time.sleep(0.01)
            return super().read(rows, shape, fit)

    encode(tiny_encoder(tmp_path), Watched(pixels(12)))
    assert len(used) == count


class Interrupted:
    """An encoder that is interrupted at its n-th image, as by Ctrl-C, and takes its time from then on; 0: never."""

    id, name, shape, fit, width, runtime = "slow", "slow", (3, 8, 8), "crop", 1, "none"

    def __init__(self, at: int = 0) -> None:
        self.at, self.images, self.lock = at, 0, threading.Lock()

    def __call__(self, images: Any) -> Any:
        with self.lock:
            self.images += len(images)
            late = 0 < self.at <= self.images
            if self.images == self.at:
                os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.02 * late)
        return images.reshape(len(images), -1)[:, :1].astype(np.float32)


def test_what_was_encoded_before_an_interruption_is_kept() -> None:
    images = ArrayImages(pixels(200))
    first: Any = Interrupted(at=110)
    again: Any = Interrupted()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            encode(first, images, workers=2, progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert 110 <= first.images < 190
    assert len(encode(again, images, workers=2, progress=False)) == 200
    assert again.images <= 200 - 50


def test_images_whose_features_are_known_are_not_read_again(tmp_path: Path) -> None:
    paths = photos(tmp_path / "photos", 4)
    Path(paths[1]).write_bytes(b"no image")
    encoder, files = tiny_encoder(tmp_path), FileImages(paths)
    features = encode(encoder, files, cache=False)
    known = ImagesWithFeatures.readable(files, features)
    assert isinstance(known, Images)
    assert list(known.ids) == [paths[0], paths[2], paths[3]]
    for path in paths:
        Path(path).unlink()
    assert np.array_equal(encode(encoder, known).values, features.values)
    some = encode(encoder, known.select([2, 0]))
    assert np.array_equal(some.values, features.values[[2, 0]])
    assert list(some.ids) == [paths[3], paths[0]]
    assert some.rows.tolist() == [0, 1]
    assert len(encode(tiny_encoder(tmp_path, mirror=True), known, cache=False).skipped) == 3, (
        "another encoder asks anew"
    )
