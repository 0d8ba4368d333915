"""An image is decoded once in a command, whatever size it is read at; and what looks alike does not depend on that size."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.encoders.registry import is_installed
from labelwise.images import digests, file_images
from labelwise.images.decode.decoding import FINGERPRINTED, Frame
from labelwise.images.decode.headers import fingerprint
from labelwise.images.file_images import decode_both
from labelwise.images.sources import paths
from labelwise.methods import Encoder, Softmax
from tests.cli.conftest import run as run
from tests.images.decodes import count_decodes
from tests.images.samples import decode

SCRATCH = ("--method", "softmax", "--set", "epochs=1", "--encoder", "none")
CASES = {
    "as usual": (),
    "larger": ("--size", 260),
    "another view": ("--set", "view.size=40", "--set", "view.crop=0.8", "--set", "view.fit=stretch"),
    "from scratch": SCRATCH,
}


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """JPEG files of two labels, 15 each, large enough to be decoded at a fraction of their size; files written long ago."""
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "user cache"))
    monkeypatch.setattr(digests, "FRESH", -1)
    rng = np.random.default_rng(0)
    for i in range(30):
        coarse = rng.integers(0, 256, (7, 9, 3), dtype=np.uint8)
        file = tmp_path / "photos" / ("owl", "wren")[i % 2] / f"{i}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(coarse).resize((480, 460 + i), Image.Resampling.BICUBIC).save(file)
    return tmp_path / "photos"


@pytest.mark.skipif(not is_installed(), reason="needs the package of weights")
@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_a_cold_fit_decodes_each_photo_once(
    words: tuple[object, ...], photos: Path, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = count_decodes(monkeypatch)
    code, _, err = run("fit", photos, "--out", tmp_path / "m.lw", *words)
    assert code == 0, err
    # Of a large JPEG at more than 224 pixels, the fingerprint needs another scale.
    assert set(Counter(decoded).values()) == ({2} if words == CASES["larger"] else {1})
    assert len(set(decoded)) == 30
    decoded.clear()
    code, _, err = run("evaluate", tmp_path / "m.lw", photos)
    assert code == 0, err
    if words == SCRATCH:
        assert set(Counter(decoded).values()) == {1}
        assert 0 < len(decoded) < 10, "test images, whose features nobody needed before"
    else:
        assert not decoded, "a closed form is fitted to all images, so their features are known"


def given_to(monkeypatch: pytest.MonkeyPatch, home: Any, name: str) -> list[Any]:
    """Return a list to which the argument of each call of a function is added."""
    given, real = list[Any](), getattr(home, name)

    def call(argument: Any) -> Any:
        given.append(argument)
        return real(argument)

    monkeypatch.setattr(home, name, call)
    return given


@pytest.mark.skipif(not is_installed(), reason="needs the package of weights")
def test_a_fit_looks_for_shards_lists_labels_and_hashes_photos_once(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = given_to(monkeypatch, os, "scandir")
    scanned = given_to(monkeypatch, paths, "_in_folder")
    hashed = given_to(monkeypatch, file_images, "content_digest")
    lw.fit(photos, run=lw.Run(device="cpu"))
    assert scanned == [photos]
    assert sorted(Counter(hashed).values()) == [1] * 30
    walks = Counter(map(str, listed))
    assert walks[str(photos / "wren")] == 1
    assert walks[str(photos / "owl")] == 2, "once to see whether there are images, or sounds"


@pytest.mark.parametrize("method", ["softmax", Softmax(encoder=Encoder(backbone="convnet", width=4), epochs=1)])
def test_a_cold_fit_in_python_decodes_each_photo_once(
    method: Any, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = count_decodes(monkeypatch)
    more: dict[str, Any] = {"epochs": 1, "encoder": "none"} if isinstance(method, str) else {}
    lw.fit(photos, method, lw.Run(device="cpu"), **more)
    assert set(Counter(decoded).values()) == {1}
    assert len(decoded) == 30


@pytest.mark.parametrize(
    "frame",
    [FINGERPRINTED, Frame(32, 32, 3), Frame(224, 224, 3, fit="stretch"), Frame(300, 300, 3), Frame(64, 64, 1)],
    ids=str,
)
@pytest.mark.parametrize(
    ("kind", "size"),
    [("png", (40, 30)), ("png", (480, 470)), ("jpeg", (40, 30)), ("jpeg", (480, 470)), ("jpeg", (2000, 1900))],
)
def test_pixels_and_fingerprint_are_those_of_two_decodes(
    kind: str, size: tuple[int, int], frame: Frame, tmp_path: Path
) -> None:
    coarse = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(tmp_path / f"x.{kind}")
    pixels, prints = decode_both(tmp_path / f"x.{kind}", frame)
    assert np.array_equal(pixels, decode(tmp_path / f"x.{kind}", frame))
    assert np.array_equal(prints, fingerprint(decode(tmp_path / f"x.{kind}", FINGERPRINTED)))


def test_groups_do_not_depend_on_the_size(photos: Path) -> None:
    for i, file in enumerate(sorted(photos.rglob("*.jpg"))[:8]):
        Image.open(file).save(file.with_name(f"copy {i}.jpg"), quality=30)
    whole = [lw.data.pool(lw.data.load(photos, size=size)) for size in (None, 24, 300)]
    assert sum(map(bool, whole[0].groups)) >= 16
    assert whole[0].groups == whole[1].groups == whole[2].groups
    assert whole[0].files == whole[1].files == whole[2].files
