"""Shards of pictures: tar and Parquet files, near and far, read as a stream; and written."""

import json
import tarfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from labelwise.data import load
from labelwise.images.catalogue import names_shards
from labelwise.images.dataset import Dataset
from labelwise.images.images import read_all
from labelwise.images.sharding import write_shards
from labelwise.images.sources.build import readable
from labelwise.images.sources.paths import list_shards
from labelwise.images.sources.rows import VARIABLE
from labelwise.images.sources.shards import ShardImages, shard_images
from labelwise.support.errors import DataError, UnsupportedError, UsageError
from tests.cli.folders import write_folders
from tests.conftest import blobs, squares
from tests.images.samples import png
from tests.images.tar_shards import numbered, write_numbered, write_tar


def greys(data: Dataset) -> dict[str, list[tuple[int, str]]]:
    """The grey of each picture and its label, by split."""
    return {
        name: sorted(
            zip(read_all(split.images, (3, 4, 4))[:, 0, 0, 0].tolist(), split.words(data.labels.names), strict=True)
        )
        for name, split in data.splits.items()
    }


def every(data: Dataset) -> list[tuple[int, str]]:
    return sorted(pair for part in greys(data).values() for pair in part)


NUMBERED = [(i, ("even", "odd")[i % 2]) for i in range(24)]


def test_numbers_of_labels_have_names_and_pictures_are_read_when_asked_for(tmp_path: Path) -> None:
    data = load(write_numbered(tmp_path / "a folder"), size=4)
    assert data.name == "a folder"
    assert not data.own_splits
    images = data.split("train").images
    assert isinstance(images, ShardImages)
    assert not images.known_readable().any()  # nothing was read yet
    assert every(data) == NUMBERED
    assert images.known_readable().all()


def test_what_shards_say_of_pictures(tmp_path: Path) -> None:
    members: dict[str, bytes] = {}
    for i in range(12):
        about: dict[str, Any] = {"label": ["owl", "été 鳥"][i % 2], "domain": "day", "group": f"g{i // 2}", "other": {}}
        about |= {"texts": [f"text {i}", "more"], "split": ["train", "test"][i // 8]}
        members |= {f"d/{i}.seg.png": png(i), f"d/{i}.json": json.dumps(about).encode()}
    data = load(write_tar(tmp_path / "x.tar", members), size=4)
    assert data.own_splits
    assert len(data.split("test")) == 4
    split = data.split("test")
    assert (split.domains[0], split.groups[0], split.texts[0]) == ("day", "g4", ("text 8", "more"))
    assert set(data.labels.names) == {"owl", "été 鳥"}
    assert split.files[0] == f"{tmp_path}/x.tar/d/8.seg.png"


def test_a_tar_of_class_folders_and_files_that_name_splits(tmp_path: Path) -> None:
    members = {f"birds/{'owl' if i % 2 else 'crow'}/{i}.png": png(i) for i in range(12)}
    for name in ("train-000.tar", "val-000.tar", "test_1.tar"):
        write_tar(tmp_path / "s" / name, members)
    data = load(tmp_path / "s", size=4)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 12, "val": 12, "test": 12}
    assert data.labels.names == ("crow", "owl")


def test_several_labels_and_none(tmp_path: Path) -> None:
    data = squares(30)
    write_shards(data, tmp_path / "s")
    again = load(tmp_path / "s", size=8)
    assert again.multilabel
    assert set(again.labels.names) == set(data.labels.names)
    bare = load(write_tar(tmp_path / "bare.tar", {f"{i}.png": png(i) for i in range(5)}), size=4)
    assert not any(split.labelled.any() for split in bare.splits.values())


def test_pictures_are_those_of_the_files(tmp_path: Path) -> None:
    """The same hashes, by which a classifier knows what it was trained on, and the same labels and splits."""
    data = blobs(per_label=9)
    folder = load(write_folders(tmp_path / "folder", data), size=8)
    shards = write_shards(folder, tmp_path / "shards", megabytes=0.02)
    again = load(tmp_path / "shards", size=8)
    assert shards.shards == len(list_shards(str(tmp_path / "shards"))) > 3
    assert shards.images == 36
    for name, split in folder.splits.items():
        other = again.splits[name]
        one, two = (
            {*zip(s.images.digests(), s.words(d.labels.names), strict=True)}
            for s, d in ((split, folder), (other, again))
        )
        assert one == two
    twice = write_shards(again, tmp_path / "twice")
    assert twice.images == 36


def test_shards_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = blobs(per_label=6)
    write_shards(data, tmp_path / "s")
    with pytest.raises(UsageError, match="exists already"):
        write_shards(data, tmp_path / "s")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(DataError, match="No space left"):
        write_shards(data, tmp_path / "t")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s"]


def test_a_bad_picture_is_left_out_and_named(tmp_path: Path) -> None:
    members = numbered(12) | {"0003.png": png(3)[:40], "0007.png": b"", "0008.cls": b""}
    write_tar(tmp_path / "x.tar", members)
    (tmp_path / "classnames.txt").write_text("even\nodd\n")
    data = load(tmp_path / "x.tar", size=4)
    with pytest.raises(DataError, match=r"0003\.png: it is not an image of a known format"):
        every(data)
    good = readable(data)
    assert every(good) == [pair for pair in NUMBERED[:12] if pair[0] not in (3, 7, 8)]
    assert sorted(one.file.rpartition("/")[2] for one in good.skipped) == ["0003.png", "0007.png", "0008.png"]
    with pytest.raises(DataError, match="2 of 11 images cannot be read"):
        load(tmp_path / "x.tar", size=4, strict=True)


def test_a_shard_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    write_numbered(tmp_path / "s", shards=1)
    data = load(tmp_path / "s", size=4)
    write_tar(tmp_path / "s" / "x-000.tar", numbered(9, 100))
    with pytest.raises(DataError, match="was changed while it was being used"):
        every(data)


@pytest.mark.skipif(not find_spec("pyarrow"), reason="pyarrow is not installed")
@pytest.mark.parametrize("kind", ["struct", "binary", "large"])
def test_parquet_files_with_pictures(tmp_path: Path, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    contents: list[Any] = [png(i) for i in range(24)]
    contents[5] = None
    cells = (
        [None if one is None else {"bytes": one, "path": None} for one in contents] if kind == "struct" else contents
    )
    kinds = {
        "binary": pa.binary(),
        "large": pa.large_binary(),
        "struct": pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    }
    columns = {"image": pa.array(cells, kinds[kind]), "label": pa.array([i % 2 for i in range(24)], pa.int64())}
    about = {"info": {"features": {"label": {"names": ["even", "odd"], "_type": "ClassLabel"}}}}
    table = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps(about)})
    (tmp_path / "data").mkdir()
    for part, split in enumerate(("train", "test")):
        file = tmp_path / "data" / f"{split}-00000-of-00001.parquet"
        pq.write_table(table.slice(part * 16, 16 - 8 * part), file, row_group_size=5)
    assert names_shards(tmp_path)
    data = readable(load(tmp_path, size=4))
    assert every(data) == [pair for pair in NUMBERED if pair[0] != 5]
    assert [pair[0] for pair in greys(data)["test"]] == list(range(16, 24))
    assert data.skipped[0].file.endswith("train-00000-of-00001.parquet/6")
    alone = load(tmp_path / "data" / "test-00000-of-00001.parquet", size=4)
    assert len(every(alone)) == 8


def in_memory(folder: Path, name: str) -> str:
    """Put the files of a folder into the store of fsspec that lies in memory."""
    import fsspec

    store = fsspec.filesystem("memory")
    for file in folder.iterdir():
        store.pipe(f"/{name}/{file.name}", file.read_bytes())
    return f"memory://{name}"


@pytest.mark.parametrize("pattern", ["", "/x-*.tar", "/x-{000..002}.tar"])
def test_addresses_of_a_store(tmp_path: Path, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store whole shards are copied; so many fit here that each copy goes when the next one comes."""
    monkeypatch.setenv(VARIABLE, "0.00001")
    where = in_memory(write_numbered(tmp_path / "s"), "bucket 1") + pattern
    assert every(load(where, size=4)) == NUMBERED
    assert every(load(f"file://{tmp_path}/s{pattern}", size=4)) == NUMBERED
    assert every(load(f"{tmp_path}/s{pattern}", size=4)) == NUMBERED
    names = list(shard_images(Path(where)).ids)  # a path keeps one slash of two
    assert names[0].endswith("bucket 1/x-000.tar/0000.png")


def test_addresses_that_name_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'There is nothing at "memory://nowhere/x.tar"'):
        load("memory://nowhere/x.tar")
    with pytest.raises(DataError, match="names no shard"):
        load("memory://nowhere")
    with pytest.raises(DataError, match="not a readable address"):
        load("nosuch://x/y.tar")
    (tmp_path / "x.tar.xz").write_bytes(b"")
    with pytest.raises(DataError, match="compressed in a way that is not read"):
        load(tmp_path / "x.tar.xz")
    with pytest.raises(DataError, match="nothing is downloaded"):
        load("https://example.org/birds.zip")
    with pytest.raises(DataError, match="a range goes up"):
        load("memory://a/{9..1}.tar")
    if not find_spec("s3fs"):
        with pytest.raises(UnsupportedError, match=r"labelwise\[remote\]"):
            load("s3://bucket/x.tar")


def test_a_stray_tar_makes_no_shards_of_a_folder_of_pictures(tmp_path: Path) -> None:
    folder = write_folders(tmp_path / "birds", blobs(per_label=6))
    write_tar(folder / "backup.tar", numbered(4))
    assert not names_shards(folder)
    assert len(load(folder, size=8).split("train")) == 8
