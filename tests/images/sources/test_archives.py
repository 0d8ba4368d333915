"""Zip and tar files of label folders are read as the folders are."""

import io
import tarfile
import tracemalloc
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelwise as lw
from labelwise.images.as_images import as_images
from labelwise.images.dataset import Dataset
from labelwise.images.images import Unreadable, read_all
from labelwise.images.sources import archives
from labelwise.support.errors import DataError
from tests.images.samples import write
from tests.images.tar_shards import write_tar

LAYOUTS = {
    "labels": {"a": ["0.png", "1.png", "2.png"], "b": ["0.png", "1.png", "2.png"]},
    "splits": {"train/a": ["0.png", "1.png"], "train/b": ["0.png", "1.png"], "test/a": ["2.png"], "test/b": ["2.png"]},
    "one more folder": {"my birds/a": ["0.png", "1.png", "2.png"], "my birds/b/day 1": ["0.png", "1.png", "2.png"]},
}


def members(root: Path, layout: Mapping[str, list[str]]) -> dict[str, bytes]:
    """The files of a layout, of which each is that of the plain folders."""
    write(root, {"a": 3, "b": 3})
    label = {folder: next(part for part in folder.split("/") if part in "ab") for folder in layout}
    return {
        f"{folder}/{name}": (root / label[folder] / name).read_bytes()
        for folder, names in layout.items()
        for name in names
    }


def zipped(file: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file


def pairs(data: Dataset) -> dict[str, set[tuple[bytes, str]]]:
    return {
        name: {
            (pixels.tobytes(), word)
            for pixels, word in zip(read_all(split.images, (3, 5, 6)), split.words(data.labels.names), strict=True)
        }
        for name, split in data.splits.items()
    }


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_is_read_as_its_folders_are(tmp_path: Path, layout: Mapping[str, list[str]], kind: str) -> None:
    files = members(tmp_path / "plain", layout)
    for name, content in files.items():
        place = tmp_path / "x" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    archive = tmp_path / f"the data.{kind}"
    write_tar(archive, files) if kind == "tar" else zipped(archive, files)
    root = tmp_path / "x" / "my birds" if "my birds" in str(layout) else tmp_path / "x"
    data, folder = lw.data.load(archive, group="none"), lw.data.load(root, group="none")
    assert data.labels.names == folder.labels.names == ("a", "b")
    own, expected = pairs(data), pairs(folder)
    assert set.union(*own.values()) == set.union(*expected.values())
    if data.own_splits:
        assert own["test"] == expected["test"]
    first = data.splits["train"].files[0]
    assert np.array_equal(read_all(as_images(first), (3, 5, 6)), read_all(data.splits["train"].images, (3, 5, 6))[:1])
    assert len(as_images(archive)) == 6


def test_names_that_lead_out_and_members_that_lie_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = members(tmp_path / "plain", LAYOUTS["labels"])
    bad = {
        "../c/3.png": b"x",
        "/etc/4.png": b"x",
        "a/.hidden.png": b"x",
        "__MACOSX/a/0.png": b"x",
        "readme.txt": b"x",
        "5.png": b"x",
    }
    data = lw.data.load(zipped(tmp_path / "x.zip", {**files, **bad}))
    assert sum(map(len, data.splits.values())) == 6
    assert {Path(one.file).name: one.reason.partition(".")[0] for one in data.skipped} == {
        "3.png": "its name leads out of the archive",
        "4.png": "its name leads out of the archive",
        "5.png": "it is outside the label folders",
    }
    monkeypatch.setattr(archives, "MAX_BYTES", 60)
    with pytest.raises(DataError):
        lw.data.load(tmp_path / "x.zip")


def test_a_damaged_member_is_a_reason_and_a_damaged_archive_an_error(tmp_path: Path) -> None:
    file = zipped(tmp_path / "x.zip", members(tmp_path / "plain", LAYOUTS["labels"]))
    content = bytearray(file.read_bytes())
    place = content.index(b"a/0.png") + len("a/0.png") + 12
    content[place] ^= 255
    file.write_bytes(content)
    (image,) = as_images(f"{file}/a/0.png").read([0], (3, 5, 6))
    assert isinstance(image, Unreadable)
    (image,) = as_images(f"{file}/a/none.png").read([0], (3, 5, 6))
    assert isinstance(image, Unreadable)
    file.write_bytes(b"PK\x03\x04 no zip file")
    with pytest.raises(DataError, match="not a zip file"):
        lw.data.load(file)


def test_nothing_is_unpacked_to_disk(tmp_path: Path) -> None:
    file = zipped(tmp_path / "x.zip", members(tmp_path / "plain", LAYOUTS["labels"]))
    before = sorted(tmp_path.rglob("*"))
    read_all(as_images(file), (3, 8, 8))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_zip_file_survives_the_trip_to_another_process(tmp_path: Path) -> None:
    import pickle

    images = as_images(zipped(tmp_path / "x.zip", members(tmp_path / "plain", LAYOUTS["labels"])))
    again = pickle.loads(pickle.dumps(images))
    assert np.array_equal(read_all(again, (3, 5, 6)), read_all(images, (3, 5, 6)))


def test_a_tar_file_without_label_folders_stays_without_labels(tmp_path: Path) -> None:
    files = members(tmp_path / "plain", LAYOUTS["labels"])
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name, content in files.items():
            about = tarfile.TarInfo(name.replace("/", "-"))
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    assert lw.data.load(tmp_path / "x.tar").labels.names == ("unlabelled",)


def test_members_are_read_one_at_a_time_and_the_list_of_members_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All members were in memory together: 2 MB of zeros took 2 GB; and the list was read again for each image."""
    lists, size = list[str](), 2**20
    file = zipped(tmp_path / "zeros.zip", {f"{label}/{i}.png": bytes(size) for label in "ab" for i in range(5)})
    images = as_images(file)

    class Counted(zipfile.ZipFile):
        def __init__(self, file: Any) -> None:
            lists.append("")
            super().__init__(file)

    monkeypatch.setattr(archives, "ZipFile", Counted)
    tracemalloc.start()
    try:
        images.digests()
        for row in range(len(images)):
            assert isinstance(images.read([row], (3, 8, 8))[0], Unreadable)
        assert tracemalloc.get_traced_memory()[1] < 5 * size
    finally:
        tracemalloc.stop()
    assert len(lists) == 1
