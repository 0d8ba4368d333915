"""Under torchrun each process reads its share of the pictures, results stay those of one process, and a killed process is no loss."""

import json
import os
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from labelwise.data import load
from labelwise.images.as_images import Uploads
from labelwise.images.sharding import write_shards
from labelwise.support.files import read_tensors
from labelwise.train.distribution import process_group
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.torch_encoder import encode_images
from tests.cli.folders import write_folders
from tests.conftest import blobs
from tests.train.shares_script import SIDE
from tests.train.shares_script import fits as fit_all
from tests.train.spread_script import apart


def counts(folder: Path, rank: int = 0) -> dict[str, int]:
    """How many pictures a process decoded for each fit."""
    found: dict[str, int] = json.loads((folder / f"counts-{rank}.json").read_text())
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same 180 pictures as a folder and as shards, a third of them to train on."""
    home = tmp_path_factory.mktemp("shares")
    data = blobs(per_label=45)
    write_folders(home / "folder", data)
    write_shards(load(home / "folder", size=SIDE, group="none"), home / "shards", megabytes=0.03)
    return home


@pytest.fixture(scope="module")
def fits(source: Path) -> Path:
    """What one process and two made of it, each in three fits one after another."""
    for world in (1, 2):
        (source / "fits" / str(world)).mkdir(parents=True)
        apart(world, fit_all, source, source / "fits" / str(world))
    return source / "fits"


def test_each_process_decodes_its_share(fits: Path) -> None:
    alone = counts(fits / "1")
    assert alone["folder"] == 180
    assert alone["shards"] == 120  # training and validation images, in one pass
    for rank in range(2):
        shared = counts(fits / "2", rank)
        assert all(shared[name] == alone[name] // 2 for name in ("folder", "shards", "trained"))


def test_shares_make_the_same_classifiers(fits: Path) -> None:
    for case in ("folder", "shards", "trained"):
        one, two = (read_tensors(fits / world / case)[0] for world in "12")
        assert torch.equal(one["hashes"], two["hashes"])
        wrong = [name for name in one if not torch.allclose(one[name], two[name], rtol=1e-3, atol=1e-4, equal_nan=True)]
        assert not wrong, case
    folder, shards = (read_tensors(fits / "1" / case)[0] for case in ("folder", "shards"))
    assert torch.equal(folder["hashes"], shards["hashes"])  # the same images, whatever they lie in


def test_a_killed_process_changes_nothing(source: Path, fits: Path, tmp_path: Path) -> None:
    """torchrun starts both anew; they go on in the middle of an epoch, with the same batches."""
    apart(2, fit_all, source, tmp_path, True, restarts=2)
    calm, shaken = (read_tensors(each / "trained")[0] for each in (fits / "2", tmp_path))
    assert all(torch.equal(calm[name], shaken[name]) for name in calm)
    assert (
        counts(tmp_path)["trained batches"] < counts(fits / "2")["trained batches"]
    )  # it went on, and did not begin anew


def encode_with_holes(out: Path) -> None:
    """Write what a process has of features of 11 images, two of which cannot be read."""
    torch.manual_seed(0)
    shape = (3, SIDE, SIDE)
    encoder = ImageEncoder(build_backbone("convnet", shape, 4), shape).eval()
    contents: list[bytes] = []
    for i in range(11):
        stream = BytesIO()
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(stream, "PNG")
        contents.append(b"no image" if i in (2, 9) else stream.getvalue())
    with process_group(torch.device("cpu")):
        features = encode_images(encoder, Uploads(contents))
    skipped = [one.file for one in features.skipped]
    np.savez(out / f"{os.environ.get('RANK', '0')}.npz", values=features.values, rows=features.rows, skipped=skipped)


def test_processes_that_encode_a_share_each_have_all_features(tmp_path: Path) -> None:
    for world in (1, 2):
        (tmp_path / str(world)).mkdir()
        apart(world, encode_with_holes, tmp_path / str(world))
    one = np.load(tmp_path / "1" / "0.npz")
    assert one["rows"].tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 10]
    assert len(one["skipped"]) == 2
    for rank in (0, 1):
        two = np.load(tmp_path / "2" / f"{rank}.npz")
        assert all(np.array_equal(one[name], two[name]) for name in ("values", "rows", "skipped"))
