import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from labelwise.support.errors import DataError
from labelwise_papers.benchmarks.download import check_room, unpack


def tar(file: Path, *members: tuple[str, bytes | None, bytes]) -> Path:
    """A tar archive of (name, content, type); a link points to its content."""
    with tarfile.open(file, "w:gz") as made:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = (content or b"").decode()
                made.addfile(info)
            else:
                info.size = len(content or b"")
                made.addfile(info, io.BytesIO(content or b""))
    return file


def everything(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_tar_and_zip_are_unpacked_beside_what_is_there(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "set").mkdir(parents=True)
    (home / "set/old.txt").write_text("old")
    plain = tarfile.REGTYPE
    members = (("set", None, tarfile.DIRTYPE), ("set/a/1.txt", b"one", plain), ("./top.txt", b"two", plain))
    unpack(tar(tmp_path / "a.tgz", *members), home)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as made:
        made.writestr("set/a/2.txt", "three")
    unpack(tmp_path / "b.zip", home)
    assert everything(home) == ["set/a/1.txt", "set/a/2.txt", "set/old.txt", "top.txt"]
    assert (home / "set/a/1.txt").read_text() == "one"
    assert [path.name for path in home.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    "name", ["../out.txt", "a/../../out.txt", "/tmp/labelwise-out.txt", "..\\out.txt", "C:/out.txt"]
)
def test_a_member_that_leads_out_is_refused_and_nothing_is_unpacked(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    packed = tar(tmp_path / "a.tar.gz", ("good.txt", b"x", tarfile.REGTYPE), (name, b"x", tarfile.REGTYPE))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as made:
        made.writestr("good.txt", "x")
        made.writestr(name, "x")
    for archive in (packed, tmp_path / "b.zip"):
        with pytest.raises(DataError, match="leads out of the folder"):
            unpack(archive, home)
        assert everything(home) == []
    assert not (tmp_path / "out.txt").exists()
    assert not Path("/tmp/labelwise-out.txt").exists()


@pytest.mark.parametrize(
    ("kind", "target"),
    [(tarfile.SYMTYPE, b"/etc"), (tarfile.SYMTYPE, b"good.txt"), (tarfile.LNKTYPE, b"../x"), (tarfile.CHRTYPE, b"")],
    ids=["outward link", "inward link", "hard link", "device"],
)
def test_links_and_devices_are_refused(kind: bytes, target: bytes, tmp_path: Path) -> None:
    packed = tar(tmp_path / "a.tar.gz", ("good.txt", b"x", tarfile.REGTYPE), ("bad", target, kind))
    with pytest.raises(DataError, match='"bad" is a link or a device'):
        unpack(packed, tmp_path / "home")
    assert everything(tmp_path / "home") == []


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as made:
        info = zipfile.ZipInfo("bad")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(info, "/etc")
    with pytest.raises(DataError, match="is a link or a device"):
        unpack(tmp_path / "b.zip", tmp_path / "home")


def test_a_cut_off_archive_leaves_nothing(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 4000
    whole = tar(tmp_path / "a.tar.gz", *[(f"{i}.txt", noise, tarfile.REGTYPE) for i in range(9)]).read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(DataError, match=r"damaged|Cannot unpack"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "home")
    assert everything(tmp_path / "home") == []


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path) -> None:
    check_room(tmp_path, 1)
    with pytest.raises(DataError, match=r"its disk has .* MB left"):
        check_room(tmp_path, 10**18)
