"""Any ONNX file with a card is an encoder: how images are seen, and what is said of files that are none."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelwise.encoders.encoder import Encoder, Locates, Precomputed
from labelwise.encoders.graph import Graph
from labelwise.encoders.onnx import Card, open_onnx, open_session
from labelwise.support.errors import DataError, StoreError, UsageError
from labelwise.support.settings import from_plain
from tests.encoders.samples import SHAPE, card_text, pixels, save_tiny, tiny_encoder, tiny_graph


def test_an_image_alone_has_the_same_bits_as_among_others(tmp_path: Path) -> None:
    encoder, images = tiny_encoder(tmp_path), pixels(5)
    together = encoder(images)
    assert together.dtype == np.float32
    assert together.shape == (5, 5)
    assert encoder.width == 5
    for i in range(5):
        assert np.array_equal(encoder(images[i : i + 1])[0], together[i])
    assert encoder(images[:0]).shape == (0, 5)
    assert isinstance(encoder, Encoder)
    assert isinstance(Precomputed(3), Encoder)


def test_crop_and_mirror_are_done_before_the_graph(tmp_path: Path) -> None:
    large = pixels(3, (3, 12, 10))
    cut = np.ascontiguousarray(large[:, :, 2:10, 1:9])
    plain = tiny_encoder(tmp_path)
    (tmp_path / "seen").mkdir()
    seen = tiny_encoder(tmp_path / "seen", shape=(3, 12, 10), crop=8, mirror=True, maps="maps")
    wanted = (plain(cut) + plain(np.ascontiguousarray(cut[..., ::-1]))) / 2
    np.testing.assert_allclose(seen(large), wanted, rtol=1e-5)
    assert isinstance(seen, Locates)
    assert seen.window == (slice(2, 10), slice(1, 9))
    np.testing.assert_allclose(seen.locate(large)[1].mean((2, 3)), wanted, rtol=1e-3, atol=1e-3)
    with pytest.raises(UsageError, match="no feature maps"):
        plain.locate(cut)[1]
    (tmp_path / "wrong").mkdir()
    wrong = tiny_encoder(tmp_path / "wrong", maps="features")
    with pytest.raises(UsageError, match="its 5 features need a map each"):
        wrong.locate(cut)


def test_mean_and_std_are_taken_where_the_card_names_them(tmp_path: Path) -> None:
    normal = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}
    encoder = open_onnx(save_tiny(tmp_path, tiny_graph(bytes_in=False), **normal))
    (tmp_path / "bytes").mkdir()
    slow = tiny_encoder(tmp_path / "bytes")
    images = pixels(2)
    grey = np.full((1, *SHAPE), 0, np.uint8)
    mean, std = (np.array(normal[name])[:, None, None] for name in ("mean", "std"))
    numbers = ((images / 255 - mean) / std).astype(np.float32)
    by_hand = open_session(tiny_graph(bytes_in=False)).run(["features"], {"images": numbers})[0]
    np.testing.assert_allclose(encoder(images), by_hand, rtol=1e-4, atol=1e-5)
    assert not np.allclose(encoder(grey), slow(grey))


def test_the_id_follows_the_file_and_how_images_are_seen(tmp_path: Path) -> None:
    one = tiny_encoder(tmp_path).id
    assert tiny_encoder(tmp_path, name="another", licence="MIT", source="here").id == one
    assert tiny_encoder(tmp_path, mirror=True).id != one
    assert tiny_encoder(tmp_path, fit="stretch").id != one
    assert open_onnx(save_tiny(tmp_path, tiny_graph(seed=1))).id != one


def test_a_copy_for_another_process_gives_the_same(tmp_path: Path) -> None:
    encoder, images = tiny_encoder(tmp_path), pixels(2)
    wanted = encoder(images)
    assert np.array_equal(pickle.loads(pickle.dumps(encoder))(images), wanted)


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({"shape": [3, 8]}, "shape of an encoder's input"),
        ({"shape": [3, 0, 8]}, "shape of an encoder's input"),
        ({"shape": [3, 10**9, 10**9]}, "shape of an encoder's input"),
        ({"shape": "large"}, "shape"),
        ({"mean": [0.5, 0.5, 0.5]}, "mean and std"),
        ({"mean": [0, 0, 0], "std": [0, 1, 1]}, "mean and std"),
        ({"crop": 9}, "crop"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_card_that_makes_no_sense_is_an_error(card: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=words):
        tiny_encoder(tmp_path, **card)


def test_files_that_are_no_encoders_are_errors(tmp_path: Path) -> None:
    file = save_tiny(tmp_path)
    for content in ("[1]", "{", '{"name": ' * 100_000):
        file.with_suffix(".json").write_text(content)
        with pytest.raises(StoreError, match="cannot be read"):
            open_onnx(file)
    file.with_suffix(".json").unlink()
    with pytest.raises(StoreError, match=r"no .*tiny.json.*with a card"):
        open_onnx(file)
    os.mkfifo(file.with_suffix(".json"))
    with pytest.raises(StoreError, match="named pipe"):
        open_onnx(file)


def test_a_damaged_graph_and_wrong_names_are_said_on_first_use(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot open tiny"):
        open_onnx(save_tiny(tmp_path, tiny_graph()[:-80]))(pixels(1))
    with pytest.raises(StoreError, match="inputs images and the outputs features, maps"):
        open_onnx(save_tiny(tmp_path, input="x"))(pixels(1))
    with pytest.raises(StoreError, match="keeps its weights in another file"):
        open_onnx(save_tiny(tmp_path, tiny_graph() + b"\x0a\x08location\x12\x01x"))(pixels(1))


@pytest.mark.parametrize("order", [1, -1])
def test_weights_in_another_file_are_never_read(order: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the fields that name the file come in another order than writers put them."""
    graph = Graph(SHAPE, {"features": (4,)}, bytes_in=True)
    place = (b"\x0a\x08location", b"\x12\x06secret")[::order]
    entry = b"".join(place)
    head = b"\x08\xc0\x01\x08\x04\x10\x01B\x01w"  # [192, 4] of float32, called w
    graph.tensors.append(head + b"\x6a" + bytes([len(entry)]) + entry + b"\x70\x01")
    graph.add("Cast", ["images"], "pixels", {"to": 1})
    graph.add("MatMul", [graph.add("Flatten", ["pixels"], "x", {"axis": 1}), "w"], "features")
    (tmp_path / "secret").write_bytes(np.ones((192, 4), np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=r"another file|External data path does not exist"):
        open_onnx(save_tiny(tmp_path, graph.file()))(pixels(1))


def _of_pixels(kind: str, **attributes: Any) -> bytes:
    graph = Graph(SHAPE, {"features": (192,)}, bytes_in=True)
    graph.add("Flatten", [graph.add("Cast", ["images"], "pixels", {"to": 1})], "x", {"axis": 1})
    graph.add(kind, ["x", "x"] if kind in ("Div", "Concat") else ["x"], "features", attributes)
    return graph.file()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_of_pixels("Div"), "not finite"),  # 0 / 0
        (_of_pixels("Concat", axis=0), r"makes float32 \[2, 192\] of one image"),
        (_of_pixels("ReduceSum", keepdims=0), r"makes float32 \[\] of one image"),
    ],
)
def test_what_a_graph_makes_is_checked(content: bytes, words: str, tmp_path: Path) -> None:
    encoder = open_onnx(save_tiny(tmp_path, content))
    with pytest.raises((DataError, StoreError), match=words):
        encoder(np.zeros((2, *SHAPE), np.uint8))


def test_a_graph_that_takes_too_much_memory_is_an_error(tmp_path: Path) -> None:
    graph = Graph(SHAPE, {"features": (192,)}, bytes_in=True)
    graph.add("ConstantOfShape", [graph.constant("size", np.array([10**14]))], "zeros")
    graph.add("Flatten", [graph.add("Cast", ["images"], "pixels", {"to": 1})], "x", {"axis": 1})
    graph.add("Add", ["x", graph.add("ReduceSum", ["zeros"], "sum", {"keepdims": 0})], "features")
    with pytest.raises(DataError, match="cannot run tiny"):
        open_onnx(save_tiny(tmp_path, graph.file()))(pixels(1))


def test_images_of_another_shape_or_kind_are_refused(tmp_path: Path) -> None:
    encoder = tiny_encoder(tmp_path)
    for images in (pixels(1, (3, 8, 9)), pixels(1).astype(np.float32), pixels(1)[0]):
        with pytest.raises(UsageError, match=r"takes uint8 \[n, 3, 8, 8\]; given"):
            encoder(images)


def test_a_card_is_read_as_it_was_written() -> None:
    card = Card(name="a", shape=(3, 8, 8), crop=0.5, mirror=True, mean=(0.1, 0.2, 0.3), std=(1.0, 1.0, 1.0))
    assert from_plain(Card, json.loads(card_text(card))) == card
