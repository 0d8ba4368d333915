import os
from pathlib import Path

import pytest
from PIL import Image

from labelwise.images.sources.paths import list_images
from labelwise.support.errors import DataError, LabelwiseWarning
from tests.images.samples import encoded, read_files


def test_many_are_read_in_order_and_the_unreadable_named(tmp_path: Path) -> None:
    paths = []
    for i in range(20):
        paths.append(tmp_path / f"{i}.png")
        paths[-1].write_bytes(b"no picture" if i in (3, 11) else encoded(Image.new("L", (9, 9), i)))
    opened = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    images, kept, skipped = read_files([*paths, tmp_path / "gone.png"], (1, 4, 4))
    assert kept == [i for i in range(20) if i not in (3, 11)]
    assert images[:, 0, 0, 0].tolist() == kept
    assert images.shape == (18, 1, 4, 4)
    assert [Path(each.file).name for each in skipped] == ["3.png", "11.png", "gone.png"]
    assert "known format" in skipped[0].reason
    assert "no such file" in skipped[2].reason
    if opened:
        assert len(os.listdir("/proc/self/fd")) == opened
    wide, *_ = read_files(paths, (3, 2, 6))
    assert wide.shape == (18, 3, 2, 6)
    with pytest.raises(DataError, match=r"2 of 20 images cannot be read. .*3.png: it is not an image"):
        read_files(paths, (3, 4, 4), strict=True)
    with pytest.raises(DataError, match=r"5 of 5 images cannot be read. .* And 2 more"):
        read_files([b"no picture"] * 5, (3, 4, 4))


def test_listing_is_sorted_and_leaves_out_what_is_hidden(tmp_path: Path) -> None:
    names = ["b/2.JPG", "a.png", "b/10.jpeg", ".hidden.png", "b/._1.jpg", "__MACOSX/1.png", ".git/1.png"]
    for name in [*names, "Thumbs.db", ".DS_Store", "notes.txt", "b/äöü 鳥.webp"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "loop").symlink_to(tmp_path)
    with pytest.warns(LabelwiseWarning, match="loop.* is a link to a folder that is already read"):
        found = [path.relative_to(tmp_path).as_posix() for path in list_images(tmp_path)]
    assert found == ["a.png", "b/10.jpeg", "b/2.JPG", "b/äöü 鳥.webp"]
    with pytest.raises(DataError, match=r'Cannot list the folder ".*gone": No such file'):
        list_images(tmp_path / "gone")
