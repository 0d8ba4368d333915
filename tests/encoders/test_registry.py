"""Encoders by name: the graph of a published one is written to the user's cache once, and damage is repaired."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from labelwise.encoders import registry
from labelwise.encoders.registry import is_installed, open_encoder
from labelwise.images.view import View
from labelwise.support.errors import UsageError
from tests.encoders.samples import pixels, save_tiny

pytestmark = pytest.mark.skipif(not is_installed(), reason="needs the package of weights")
SMALL = (3, 32, 32)
SEEN = View(size=32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "encoders"


def test_a_published_encoder_is_written_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = open_encoder(shape=SMALL, view=SEEN)
    assert not folder.exists(), "to open it reads and writes nothing"
    wanted = encoder(pixels(1, SMALL))
    (file,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(registry, "write_graph", None)
    assert np.array_equal(open_encoder(shape=SMALL, view=SEEN)(pixels(1, SMALL)), wanted)
    assert list(folder.iterdir()) == [file]


@pytest.mark.parametrize("damage", ["cut off", "a bit", "empty", "replaced"])
def test_a_damaged_file_is_written_again(folder: Path, damage: str) -> None:
    wanted = open_encoder(shape=SMALL, view=SEEN)(pixels(1, SMALL))
    (file,) = folder.iterdir()
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    file.write_bytes({"cut off": content[:-9], "a bit": bytes(flipped), "empty": b"", "replaced": b"other"}[damage])
    assert np.array_equal(open_encoder(shape=SMALL, view=SEEN)(pixels(1, SMALL)), wanted)
    assert file.read_bytes() == content


def test_where_nothing_can_be_written_it_works_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    wanted = open_encoder(shape=SMALL, view=SEEN)(pixels(1, SMALL))
    for place in (str(tmp_path / "file"), "off"):
        monkeypatch.setenv("LABELWISE_CACHE", place)
        assert np.array_equal(open_encoder(shape=SMALL, view=SEEN)(pixels(1, SMALL)), wanted)


def test_the_id_follows_how_images_are_seen() -> None:
    ids = [
        open_encoder(shape=shape, view=view).id
        for shape in (SMALL, (1, 32, 32))
        for view in (SEEN, View(), View(mirror=True), View(crop=0.5), View(fit="stretch"))
    ]
    assert len(set(ids)) == len(ids)
    assert open_encoder(shape=SMALL, view=SEEN).id == ids[0]
    assert open_encoder().shape == (3, 224, 224)
    assert open_encoder(view=View(crop=0.875)).shape == (3, 256, 256)


@pytest.mark.parametrize("view", [View(), View(crop=24, mirror=True, size=48), View(fit="stretch")])
def test_a_reference_opens_the_same_encoder(view: View) -> None:
    for shape in (None, (3, 32, 32)):
        encoder = pickle.loads(pickle.dumps(open_encoder(shape=shape, view=view if shape else View())))
        assert encoder.reference is not None
        assert open_encoder(encoder.name, encoder.shape, encoder.reference).id == encoder.id


def test_names_that_are_none_say_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'Did you mean "efficientnet_lite0"'):
        open_encoder("eficientnet_lite0")
    with pytest.raises(UsageError, match="grey or colour"):
        open_encoder(shape=(4, 8, 8))
    file = str(save_tiny(tmp_path))
    assert open_encoder(file).name == "tiny"
    with pytest.raises(UsageError, match=r"takes images of shape \[3, 8, 8\]; given \[3, 9, 9\]"):
        open_encoder(file, (3, 9, 9))
