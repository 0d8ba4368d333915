"""A second fit on the same folder reads what the first kept: no picture is decoded, compared or encoded again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import ImageFile

import labelwise as lw
from labelwise.encoders.onnx import OnnxEncoder
from labelwise.images import digests, file_images
from labelwise.images.decode import decoding
from labelwise.images.decode.headers import fingerprint
from tests.cli.conftest import run as run
from tests.fitting.test_one_choice import folder_of, write_pictures
from tests.pixels_of import px


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """How many pictures are decoded, compared by a thumbnail, and encoded."""
    done = {"decoded": 0, "compared": 0, "encoded": 0}

    def encoded(encoder: OnnxEncoder, images: Any) -> Any:
        done["encoded"] += len(images)
        return encode(encoder, images)

    encode = OnnxEncoder.__call__
    monkeypatch.setattr(OnnxEncoder, "__call__", encoded)

    def decoded(self: ImageFile.ImageFile) -> Any:
        done["decoded"] += bool(self.tile)
        return load(self)

    def compared(image: Any) -> Any:
        done["compared"] += 1
        return fingerprint(image)

    load = ImageFile.ImageFile.load
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "a cache"))
    monkeypatch.setattr(digests, "FRESH", -1)  # a file just written counts as one written long ago
    monkeypatch.setattr(ImageFile.ImageFile, "load", decoded)
    for module in (decoding, file_images):
        monkeypatch.setattr(module, "fingerprint", compared)
    return done


def test_a_second_fit_does_nothing_again(run: Any, work: dict[str, int], tmp_path: Path) -> None:
    source = folder_of(tmp_path, "")
    count = len(list(source.rglob("*.png")))
    assert run("fit", source, "--out", tmp_path / "one.lw", "--device", "cpu")[0] == 0
    assert work["encoded"] == count, "a closed form trains on all images"
    assert work["decoded"] == work["compared"] == count
    code, _, err = run("evaluate", tmp_path / "one.lw", source, "--folds", 3)
    assert code == 0, err
    work["decoded"] = count  # pixels of the test pictures were needed once more
    assert run("fit", source, "--out", tmp_path / "two.lw", "--device", "cpu")[0] == 0
    assert run("evaluate", tmp_path / "two.lw", source, "--folds", 3)[0] == 0
    assert work == {"decoded": count, "compared": count, "encoded": count}


def test_lookalikes_across_splits_read_themselves_alone(work: dict[str, int], tmp_path: Path) -> None:
    from tests.conftest import blobs

    train, drawn = blobs(3, per_label=18), torch.Generator().manual_seed(0)
    part = train.split("train")
    noise = torch.randint(0, 256, px(part).shape, generator=drawn, dtype=torch.uint8)
    noise[:2] = px(part)[:2]  # two of many are in both
    other = replace(train, splits={"train": replace(part, images=noise)})
    write_pictures(tmp_path / "d" / "train", train, "train")
    write_pictures(tmp_path / "d" / "test", other, "train")
    lw.data.near_duplicates(lw.data.load(tmp_path / "d", size=16))
    work["decoded"] = 0
    twins = lw.data.near_duplicates(lw.data.load(tmp_path / "d", size=16))
    assert 2 <= len(twins) < len(part) / 2
    assert work["decoded"] == 0, "lookalikes are told by fingerprints that are kept"
