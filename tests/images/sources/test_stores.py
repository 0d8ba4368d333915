"""Shards in a store: written, checked, trained on and asked about at an address of S3, served by moto on this machine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from labelwise.images.sources.paths import list_shards
from tests.cli.conftest import run as run

s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed: addresses of S3 are not tried")
moto = pytest.importorskip("moto.server", reason="moto is not installed: there is no S3 to try addresses on")
dataset = pytest.importorskip("pyarrow.dataset")
COLOURS = ("blue", "green", "red")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty bucket of a store on this machine."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    words = {"ENDPOINT_URL": f"http://{host}:{port}", "ACCESS_KEY_ID": "any", "SECRET_ACCESS_KEY": "any"}
    for name, value in (words | {"DEFAULT_REGION": "us-east-1"}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"birds-{port}"  # all servers of a process hold the same buckets
    s3fs.S3FileSystem().mkdir(name)
    yield f"s3://{name}"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of 36 pictures of three colours."""
    rng = np.random.default_rng(0)
    for channel, name in enumerate(reversed(COLOURS)):
        (tmp_path / "some photos" / name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 100, (16, 16, 3), dtype=np.uint8)
            pixels[..., channel] += 150
            Image.fromarray(pixels).save(tmp_path / "some photos" / name / f"{i}.png")
    return tmp_path / "some photos"


def test_shards_of_a_store_from_end_to_end(bucket: str, photos: Path, tmp_path: Path, run: Any) -> None:
    """Slow: a classifier is fitted, and processes of a job are started, each of which opens the store itself."""
    there, model = f"{bucket}/shards/v 1", tmp_path / "m.lw"
    code, text, told = run("data", "shard", photos, "--out", there, "--megabytes", "0.02", "--json")
    assert code == 0, told
    assert json.loads(text)["pictures"] == 36
    assert len(list_shards(there)) == json.loads(text)["shards"] > 1
    code, _, told = run("data", "shard", photos, "--out", there)
    assert code == 2
    assert "exists already" in told
    fit = ("--out", model, "--method", "softmax", "--encoder", "none", "--set", "epochs=1", "--device", "cpu")
    code, _, told = run("fit", there, *fit)
    assert code == 0, told
    code, text, told = run("evaluate", model, there, "--json")
    assert code == 0, told
    answers = {}
    for source, out in ((there, "far.parquet"), (photos, "near.parquet")):
        code, text, told = run("classify", model, source, "--out", tmp_path / out, "--workers", "1", "--json")
        assert code == 0, told
        assert json.loads(text)["unread"] == 0
        rows = dataset.dataset(tmp_path / out).to_table().to_pylist()
        answers[out] = sorted((row["answer"], round(row["probability"], 5)) for row in rows)
    assert answers["far.parquet"] == answers["near.parquet"]


def test_what_is_not_there_is_told(bucket: str, photos: Path, tmp_path: Path, run: Any) -> None:
    for words in (("data", "check", f"{bucket}/none"), ("fit", f"{bucket}/none", "--out", tmp_path / "m.lw")):
        code, _, told = run(*words)
        assert code
        assert "names no shard" in " ".join(told.split())
    code, _, told = run("data", "shard", photos, "--out", "s3://no-such-bucket/x")
    assert code
    assert "Traceback" not in told


def test_what_could_not_be_written_whole_leaves_nothing(
    bucket: str, photos: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sent = s3fs.S3FileSystem._put_file, []

    async def fails(self: Any, *args: Any, **more: Any) -> Any:
        sent.append(args)
        if len(sent) == 3:
            raise OSError("the network is gone")
        return await real(self, *args, **more)

    monkeypatch.setattr(s3fs.S3FileSystem, "_put_file", fails)
    s3fs.S3FileSystem.clear_instance_cache()  # an instance keeps the methods that it was made with
    code, _, told = run("data", "shard", photos, "--out", f"{bucket}/half", "--megabytes", "0.01")
    assert code
    assert "the network is gone" in " ".join(told.split())
    assert len(sent) == 3
    assert not list_shards(f"{bucket}/half")
