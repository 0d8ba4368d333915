"""Tar files made to harm: nothing is unpacked, only regular members count, and no header takes more memory than headers do."""

import io
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from labelwise.data import load
from labelwise.images.sources.build import readable
from labelwise.images.sources.tar_files import read_tar
from labelwise.support.errors import DataError
from tests.images.samples import png
from tests.images.tar_shards import numbered, write_tar
from tests.pixels_of import px


def add(tar: tarfile.TarFile, name: str, content: bytes = b"", **settings: object) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for what, value in settings.items():
        setattr(entry, what, value)
    tar.addfile(entry, io.BytesIO(content))


def test_only_regular_members_count(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(png(200))
    file = tmp_path / "x.tar"
    with tarfile.open(file, "w") as tar:
        for name, content in numbered(6).items():
            add(tar, name, content)
        for i, kind in enumerate((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)):
            add(tar, f"l{i}.png", type=kind, linkname=str(tmp_path / "secret.png"))
            add(tar, f"l{i}.cls", b"0")
        add(tar, "d", type=tarfile.DIRTYPE)
        add(tar, "../../outside.png", png(7))
        add(tar, "../../outside.cls", b"1")
        add(tar, "__MACOSX/._0.png", b"x")
    before = sorted(tmp_path.iterdir())
    data = readable(load(file, size=4))
    greys = sorted(grey for split in data.splits.values() for grey in px(split)[:, 0, 0, 0].tolist())
    assert greys == [0, 1, 2, 3, 4, 5]
    assert sum("link or a device" in one.reason for one in data.skipped) == 4
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("size", [2**33, 2**62, 513])
def test_a_member_that_claims_to_be_larger_than_the_shard(tmp_path: Path, size: int) -> None:
    whole = write_tar(tmp_path / "x.tar", numbered(6)).read_bytes()
    entry = tarfile.TarInfo("z.png")
    entry.size = size
    (tmp_path / "x.tar").write_bytes(whole[:-10240] + entry.tobuf(tarfile.GNU_FORMAT) + b"\x89PNG")
    shard = read_tar(str(tmp_path / "x.tar"))
    assert len(shard.samples) <= 6
    assert any("ends in the middle" in one.reason for one in shard.skipped) or size == 513


def test_a_long_header_is_refused_before_it_is_read(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, 2**28
    file = tmp_path / "x.tar"
    with file.open("wb") as stream:
        stream.write(entry.tobuf(tarfile.GNU_FORMAT))
        stream.truncate(2**28 + 4096)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="is not a tar file, or it is damaged"):
            read_tar(str(file))
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_names_twice_and_what_is_said_of_a_picture(tmp_path: Path) -> None:
    members = numbered(4)
    file = tmp_path / "x.tar"
    with tarfile.open(file, "w") as tar:
        for name, content in (*members.items(), *list(members.items())[:2]):
            add(tar, name, content)
        for key, about in (("deep", b"[" * 100_000), ("wide", b" " * 2**21), ("bytes", b"\xff\xfe"), ("list", b"[1]")):
            add(tar, f"{key}.png", png(1))
            add(tar, f"{key}.json", about)
    shard = read_tar(str(file))
    assert len(shard.samples) == 4
    assert sorted(one.file.rpartition("/")[2] for one in shard.skipped) == [
        "0000.png",
        "bytes.png",
        "deep.png",
        "list.png",
        "wide.png",
    ]
