"""A picture is encoded once in a user's life: not again by the next verb."""

from json import loads
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from labelwise.encoders.onnx import OnnxEncoder
from labelwise.encoders.registry import is_installed
from labelwise.images import digests
from labelwise.reporting import case
from labelwise.support.cache import _CONNECTION
from tests.cli.folders import write_folders
from tests.conftest import blobs

METHOD = ["--method", "softmax", "--set", "epochs=5", "--device", "cpu"]
SHARED = ["--encoder", "efficientnet_lite0", "--set", "view.size=32"]
pytestmark = pytest.mark.skipif(not is_installed(), reason="needs the package of weights")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "user cache"))
    monkeypatch.setattr(digests, "FRESH", -1)  # files written just now count as old ones
    return write_folders(tmp_path / "my photos", blobs(per_label=15))


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return how many pictures the network encoded and how many files were decoded."""
    counts = {"encoded": 0, "decoded": 0}
    encode, load = OnnxEncoder.__call__, ImageFile.ImageFile.load

    def encoding(self: OnnxEncoder, images: Any) -> Any:
        counts["encoded"] += len(images)
        return encode(self, images)

    def loading(self: ImageFile.ImageFile) -> Any:
        counts["decoded"] += bool(self.tile)
        return load(self)

    monkeypatch.setattr(OnnxEncoder, "__call__", encoding)
    monkeypatch.setattr(ImageFile.ImageFile, "load", loading)
    return counts


def fit_words(photos: Path, out: Path) -> list[object]:
    return ["fit", photos, "--out", out, *METHOD, *SHARED]


def test_no_verb_encodes_or_decodes_what_another_did(
    run: Any, photos: Path, tmp_path: Path, work: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, total = tmp_path / "m.lw", len(list(photos.rglob("*.png")))
    code, _, err = run(*fit_words(photos, model))
    assert code == 0, err
    assert 0 < work["encoded"] <= total
    code, first, err = run("classify", model, photos, "--json")
    assert code == 0, err
    assert work["encoded"] == total
    decoded = work["decoded"]
    for words in (
        ["evaluate", model, photos],
        ["outliers", model, photos],
        ["classify", model, photos],
        ["retrieve", model, next(photos.rglob("*.png")), "--gallery", photos],
        fit_words(photos, tmp_path / "again.lw"),
    ):
        code, _, err = run(*words)
        assert code == 0, err
        probes = 2 * 8 if words[0] == "retrieve" else 0  # pictures of noise that tell whose gallery it is
        assert work["encoded"] <= total + probes, words
        assert work["decoded"] == decoded, words
        work["encoded"] = total
    monkeypatch.setattr(case, "_median_seconds", lambda *_: 1.0)  # which encodes some again on purpose
    code, _, err = run("report", model, photos, "--out", tmp_path / "report.html")
    assert code == 0, err
    assert work["encoded"] <= total + 10, "only images with a heat map are encoded"
    work["encoded"] = total
    code, anew, _ = run("--no-cache", "classify", model, photos, "--json")
    assert work["encoded"] == 2 * total
    for one, two in zip(loads(first)["predictions"], loads(anew)["predictions"], strict=True):
        assert (one["file"], one["label"]) == (two["file"], two["label"])
        assert one["probability"] == two["probability"]


def test_a_change_of_one_photo_encodes_one_photo(run: Any, photos: Path, tmp_path: Path, work: dict[str, int]) -> None:
    model = tmp_path / "m.lw"
    run(*fit_words(photos, model))
    run("classify", model, photos)
    work.update(encoded=0, decoded=0)
    Image.fromarray(np.full((8, 8, 3), 77, dtype=np.uint8)).save(next(photos.rglob("*.png")))
    assert run("classify", model, photos)[0] == 0
    assert work == {"encoded": 1, "decoded": 1}


def test_the_verb_tells_what_is_kept_and_clears_it(run: Any, photos: Path, tmp_path: Path) -> None:
    code, out, _ = run("cache", "--json")
    assert (code, loads(out)["encoders"], loads(out)["files"]) == (0, {}, 0)
    run(*fit_words(photos, tmp_path / "m.lw"))
    code, out, _ = run("cache", "--json")
    about = loads(out)
    assert about["file"].startswith(str(tmp_path / "user cache"))
    ((name, count),) = about["encoders"].items()
    assert name.startswith("efficientnet_lite0")
    assert 0 < count <= about["files"]
    code, out, _ = run("cache", "--clear")
    assert "Removed" in out
    assert loads(run("cache", "--json")[1])["encoders"] == {}


def test_a_damaged_cache_changes_no_answer(run: Any, photos: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.lw"
    run(*fit_words(photos, model))
    before = run("classify", model, photos, "--json")[1]
    _CONNECTION.close()  # each command has its own process
    (file,) = (tmp_path / "user cache").glob("*.sqlite")
    file.write_bytes(b"damaged" * 1000)
    code, after, err = run("classify", model, photos, "--json")
    assert (code, after) == (0, before)
    assert "is damaged" in err
    assert "recreated" in err


def test_without_a_place_to_write_all_goes_on(
    run: Any, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in the way").write_text("")
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "in the way"))
    code, _, err = run(*fit_words(photos, tmp_path / "m.lw"))
    assert code == 0
    assert "Features cannot be cached in" in err
