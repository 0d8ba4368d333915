"""Annotations in archives are read as those in folders are, whatever the archive holds besides."""

import io
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

import labelwise as lw
from labelwise.images.as_images import as_images
from labelwise.images.images import Unreadable, read_all
from labelwise.support import files
from labelwise.support.errors import DataError
from tests.images.formats import test_boxes, test_camtrap, test_downloads, test_whole_images
from tests.images.formats.written import LABELS, NAMES, answers, cut_out, label_of, photos, pixels, whole

Writer = Callable[[Path], Path]
WHOLE: dict[str, Writer] = {name: write for name, write in test_whole_images.FORMATS.items() if name != "YOLO"}
KINDS = (".zip", ".tar", ".tar.gz", ".tgz")


def pack(home: Path, archive: Path, names: Iterable[str] | None = None, top: str = "") -> Path:
    """Put the files of a folder into an archive."""
    every = sorted(str(one.relative_to(home)) for one in home.rglob("*") if one.is_file())
    chosen = every if names is None else sorted(names)
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for name in chosen:
                packed.write(home / name, top + name)
        return archive
    with tarfile.open(archive, "w" if archive.suffix == ".tar" else "w:gz") as tar:
        for name in chosen:
            tar.add(home / name, top + name)
    return archive


@pytest.mark.parametrize(("place", "write"), [*enumerate(WHOLE.values())], ids=WHOLE)
def test_labels_come_back_from_an_archive(tmp_path: Path, place: int, write: Writer) -> None:
    """Each format in one kind of archive, every other one below a folder."""
    write(tmp_path / "home")
    archive = pack(tmp_path / "home", tmp_path / f"my export{KINDS[place % 4]}", top="some data/" * (place % 2))
    data = lw.data.load(archive)
    assert answers(data) == whole()
    assert data.labels.names == LABELS
    assert not data.skipped
    first = data.splits["train"].files[0]
    assert np.array_equal(read_all(as_images(first), (3, 8, 8)), read_all(data.splits["train"].images, (3, 8, 8))[:1])


@pytest.mark.parametrize("kind", [".zip", ".tgz"])
@pytest.mark.parametrize("form", ["COCO", "YOLO", "Pascal VOC"])
def test_boxes_come_back_from_an_archive(tmp_path: Path, form: str, kind: str) -> None:
    test_boxes.FORMATS[form](tmp_path / "home")
    data = lw.data.load(pack(tmp_path / "home", tmp_path / f"my export{kind}"))
    home = next((tmp_path / "home").rglob(NAMES[0])).parent
    assert pixels(data) == cut_out(tmp_path, home)
    first = data.splits["train"]
    again = as_images(first.files[0])
    assert np.array_equal(read_all(again, (3, 8, 8)), read_all(first.images, (3, 8, 8))[:1])
    assert list(again.digests()) == list(first.images.digests())[:1]
    assert len(set(first.images.digests())) == len(first.files)


def test_the_archive_of_gbif_has_its_photos_next_to_it(tmp_path: Path) -> None:
    home = test_downloads.gbif(tmp_path / "home")
    archive = pack(home, tmp_path / "0001234.zip", ["occurrence.txt", "multimedia.txt"])
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="No photo of") as error:
        lw.data.load(archive, root=tmp_path / "none")
    assert "labelwise-" not in str(error.value)
    (home / "photos").rename(tmp_path / "photos")
    data = lw.data.load(archive, group="none")
    assert test_downloads.answers(data) == set(test_downloads.LABEL.items())
    assert data.labels.parents == tuple(test_downloads.PARENTS.values())


def test_camera_traps_in_an_archive_keep_their_events(tmp_path: Path) -> None:
    columns = ("mediaID", "eventID", "observationType", "scientificName")
    rows: list[tuple[object, ...]] = [(f"m{i}", f"e{i}", "animal", label_of(name)) for i, name in enumerate(NAMES)]
    data = lw.data.load(pack(test_camtrap.package(tmp_path / "home", columns, rows), tmp_path / "x.zip"), group="none")
    assert answers(data) == whole()


def test_nothing_stays_on_disk_and_what_leads_out_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    test_whole_images.coco(tmp_path / "home")
    archive = pack(tmp_path / "home", tmp_path / "x.tar")
    with tarfile.open(archive, "a") as tar:
        for name, kind in (("../out.json", tarfile.REGTYPE), ("/etc/out.json", tarfile.REGTYPE), ("link.json", tarfile.SYMTYPE), ("hard.json", tarfile.LNKTYPE), ("pipe.json", tarfile.FIFOTYPE), ("device.json", tarfile.CHRTYPE)):  # fmt: skip
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            tar.addfile(entry)
    before = sorted(tmp_path.rglob("*"))
    assert answers(lw.data.load(archive)) == whole()
    assert sorted(tmp_path.rglob("*")) == before


def test_an_image_that_is_not_in_the_archive_is_a_reason(tmp_path: Path) -> None:
    test_whole_images.coco(tmp_path / "home")
    (tmp_path / "home" / "images" / NAMES[0]).unlink()
    for kind in (".zip", ".tar"):
        data = lw.data.load(pack(tmp_path / "home", tmp_path / f"x{kind}"))
        assert [Path(one.file).name for one in data.skipped] == [NAMES[0]]


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path / "home")
    (tmp_path / "home" / "annotations.json").write_bytes(bytes(6_000_000))
    archives = [pack(tmp_path / "home", tmp_path / f"x{kind}") for kind in (".zip", ".tgz")]
    monkeypatch.setenv(files.VARIABLE, "0.004")
    for archive in archives:
        with pytest.raises(DataError, match="of memory"):
            lw.data.load(archive)


@pytest.mark.parametrize(
    ("names", "words"),
    [(["a", "a/b.json"], "annotations that can be read|no image|names no image"), (["x" * 300 + ".json"], "no file can be called"), (["a.json", "a.json/b.json"], "no file can be called")],
)  # fmt: skip
def test_names_that_no_folder_can_hold_are_an_error(tmp_path: Path, names: list[str], words: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        for name in names:
            packed.writestr(name, b"[]")
    with pytest.raises(DataError, match=words):
        lw.data.load(tmp_path / "x.zip")


def test_a_damaged_table_is_named_by_its_place_in_the_archive(tmp_path: Path) -> None:
    photos(tmp_path / "home")
    (tmp_path / "home" / "metadata.csv").write_text("file_name,label\na,b,c\n")
    with pytest.raises(DataError, match=r"x\.zip/metadata\.csv"):
        lw.data.load(pack(tmp_path / "home", tmp_path / "x.zip"))


def test_a_packed_tar_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    for content in (b"", b"no gzip", b"\x1f\x8b\x08\0\0\0\0\0"):
        (tmp_path / "x.tgz").write_bytes(content)
        with pytest.raises(DataError, match=r"damaged|holds no image"):
            lw.data.load(tmp_path / "x.tgz")


def test_an_image_cut_off_in_a_packed_tar_file_is_a_reason(tmp_path: Path) -> None:
    photos(tmp_path / "home", [f"{label}/{name}" for label in "ab" for name in NAMES])
    archive = pack(tmp_path / "home", tmp_path / "x.tgz")
    (image,) = as_images(f"{archive}/a/{NAMES[0]}").read([0], (3, 8, 8))
    assert not isinstance(image, Unreadable)
    assert len(as_images(archive)) == 12
    whole_file = archive.read_bytes()
    archive.write_bytes(whole_file[: len(whole_file) // 2])
    with pytest.raises(DataError, match="damaged"):
        as_images(archive)


def test_a_shard_whose_members_describe_images_stays_one(tmp_path: Path) -> None:
    """Its members are called .json, but none is an annotation of another tool."""
    photos(tmp_path / "home", [f"{i}.png" for i in range(4)])
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for i in range(4):
            tar.add(tmp_path / "home" / f"{i}.png", f"{i}.png")
            about = b'{"label": "%s"}' % (b"a", b"b")[i % 2 : i % 2 + 1][0]
            entry = tarfile.TarInfo(f"{i}.json")
            entry.size = len(about)
            tar.addfile(entry, io.BytesIO(about))
    assert lw.data.load(tmp_path / "x.tar").labels.names == ("a", "b")
