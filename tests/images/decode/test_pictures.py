import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from labelwise.images.decode.pictures import as_batch, list_pictures, read_files
from labelwise.support.errors import DataError, LabelwiseWarning, UsageError
from tests.images.samples import encoded, noise, read_picture


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
    with pytest.raises(DataError, match=r"2 of 20 pictures cannot be read. .*3.png: it is not a picture"):
        read_files(paths, (3, 4, 4), strict=True)
    with pytest.raises(DataError, match=r"5 of 5 pictures cannot be read. .* And 2 more"):
        read_files([b"no picture"] * 5, (3, 4, 4))


def test_listing_is_sorted_and_leaves_out_what_is_hidden(tmp_path: Path) -> None:
    names = ["b/2.JPG", "a.png", "b/10.jpeg", ".hidden.png", "b/._1.jpg", "__MACOSX/1.png", ".git/1.png"]
    for name in [*names, "Thumbs.db", ".DS_Store", "notes.txt", "b/äöü 鳥.webp"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "loop").symlink_to(tmp_path)
    with pytest.warns(LabelwiseWarning, match="loop.* is a link to a folder that is read already"):
        found = [path.relative_to(tmp_path).as_posix() for path in list_pictures(tmp_path)]
    assert found == ["a.png", "b/10.jpeg", "b/2.JPG", "b/äöü 鳥.webp"]
    with pytest.raises(DataError, match=r'Cannot list the folder ".*gone": No such file'):
        list_pictures(tmp_path / "gone")


PIXELS = noise(8, 8)
FIRST = torch.from_numpy(PIXELS).permute(2, 0, 1)


@pytest.mark.parametrize(
    "given",
    [
        PIXELS,
        PIXELS[None],
        FIRST,
        FIRST[None],
        FIRST.float() / 255,
        (PIXELS / 255).astype(np.float64),
        PIXELS.astype(np.int64),
        PIXELS.astype(">u2"),
        PIXELS[:, ::-1][:, ::-1],
        np.dstack([PIXELS, np.full((8, 8), 255, np.uint8)]),
        Image.fromarray(PIXELS),
        encoded(Image.fromarray(PIXELS)),
        [PIXELS],
        (FIRST,),
        [Image.fromarray(PIXELS)],
        iter([encoded(Image.fromarray(PIXELS))]),
    ],
)
def test_whatever_holds_the_same_pixels_is_the_same_batch(given: Any) -> None:
    found = as_batch(given, (3, 8, 8))
    assert found.dtype == torch.uint8
    assert found.tolist() == [FIRST.tolist()]


def test_paths_and_mixed_lists_keep_their_order(tmp_path: Path) -> None:
    file = tmp_path / "été 鳥.png"
    file.write_bytes(encoded(Image.new("RGB", (20, 30), (1, 2, 3))))
    assert as_batch(file, (3, 4, 6)).shape == (1, 3, 4, 6)
    assert as_batch([str(file), file], (1, 4, 4)).tolist() == as_batch(str(file), (1, 4, 4)).repeat(2, 1, 1, 1).tolist()
    mixed = as_batch([file, PIXELS, FIRST[:1], Image.new("L", (9, 9), 7)], (3, 8, 8))
    assert mixed[0, :, 0, 0].tolist() == [1, 2, 3]
    assert mixed[1].tolist() == FIRST.tolist()
    assert mixed[2].tolist() == FIRST[:1].repeat(3, 1, 1).tolist()
    assert mixed[3, :, 0, 0].tolist() == [7, 7, 7]


def test_arrays_are_resized_and_recoloured_as_files_are() -> None:
    pixels = noise(20, 31)
    for shape in ((3, 8, 8), (1, 8, 8)):
        expected = read_picture(encoded(Image.fromarray(pixels)), 8, channels=shape[0])
        assert as_batch(pixels, shape).tolist() == [expected.tolist()]
        assert as_batch(np.stack([pixels, pixels]), shape)[1].tolist() == expected.tolist()
    grey = as_batch(torch.from_numpy(pixels[:, :, 0]), (1, 8, 8))
    assert grey.tolist() == [read_picture(encoded(Image.fromarray(pixels[:, :, 0])), 8, channels=1).tolist()]


def test_shape_decides_what_could_be_read_in_two_ways() -> None:
    three = torch.arange(3 * 8 * 8, dtype=torch.uint8).reshape(3, 8, 8)
    assert as_batch(three, (1, 8, 8)).tolist() == three[:, None].tolist()  # three grey pictures
    assert as_batch(three, (3, 8, 8)).tolist() == [three.tolist()]  # one in colour
    assert as_batch(noise(3, 8, 3), (3, 8, 3)).shape == (1, 3, 8, 3)
    assert as_batch(torch.zeros(2, 5, 4, 4, dtype=torch.uint8), (5, 4, 4)).shape == (2, 5, 4, 4)
    assert as_batch(np.zeros((6, 9, 9), np.uint8), (3, 8, 8)).shape == (6, 3, 8, 8)
    one_bit = as_batch(np.eye(8, dtype=bool), (1, 8, 8))
    assert one_bit.tolist() == [[(np.eye(8, dtype=np.uint8) * 255).tolist()]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "No picture was given; give at least one"),
        (np.zeros((0, 8, 8, 3), np.uint8), r"the array is empty, \[0, 8, 8, 3\]"),
        (np.zeros((2, 8, 8, 7), np.uint8), r"with 1, 3 or 4 channels, or \[n, height, width\]; given \[2, 8, 8, 7\]"),
        (np.zeros(8, np.uint8), r"given \[8\]"),
        (torch.zeros(1, 1, 3, 8, 8), r"given \[1, 1, 3, 8, 8\]"),
        (torch.full((3, 8, 8), 255.0), r"must lie in \[0, 1\]; given 255 to 255: divide by 255\?"),
        (torch.full((3, 8, 8), -2.0), "given -2 to -2: give them as they were before normalisation"),
        (torch.full((3, 8, 8), torch.nan), r"not a finite number \(NaN or infinity\)"),
        (np.full((8, 8, 3), 256), r"Pixels must lie in 0..255; given 256 to 256. Scale them"),
        (np.full((8, 8, 3), "a"), "Pixels must be numbers; given an array of <U1"),
        (7, "A picture is a path, a PIL image, an array or a tensor; given int: 7"),
        ([PIXELS, None], "Picture 1: A picture is a path, .* given NoneType"),
    ],
)
def test_what_is_no_picture_is_refused(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        as_batch(given, (3, 8, 8))


def test_channels_that_cannot_be_converted_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"takes images of shape \[5, 8, 8\]; given \[3, 8, 8\]"):
        as_batch(PIXELS, (5, 8, 8))
    with pytest.raises(UsageError, match="asked for 5"):
        as_batch(Image.fromarray(PIXELS), (5, 8, 8))
    with pytest.raises(DataError, match=r"1 of 1 pictures cannot be read. .*gone.png: there is no such file"):
        as_batch(tmp_path / "gone.png", (3, 8, 8))
    with pytest.raises(DataError, match=r"Cannot use this picture \(mode RGB\): it has no pixels \(0x4\)"):
        as_batch(Image.new("RGB", (0, 4)), (3, 8, 8))


def test_features_become_rows_of_floats() -> None:
    rows = [[1.0, 2.0], [3.0, 4.0]]
    ways: list[Any] = [rows, np.array(rows), torch.tensor(rows), [np.array(row) for row in rows], np.array(rows, int)]
    for given in ways:
        found = as_batch(given, (2,))
        assert found.dtype == torch.float32
        assert found.tolist() == rows
    assert as_batch(np.array([1, 2]), (2,)).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((4, 3)), r"takes features, numbers \[n, 2\]; given \[4, 3\]"),
        (np.array([[0, 1], [np.nan, 1]]), r"Row 1 of the features .* \(NaN or infinity\)"),
        ("owl.jpg", r"numbers \[n, 2\]; given str"),
        (Image.new("L", (2, 2)), r"numbers \[n, 2\]; given Image"),
        ([], r"given \[1, 0\]"),
    ],
    ids=["shape", "nan", "path", "picture", "empty"],
)
def test_what_is_no_feature_is_refused(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        as_batch(given, (2,))
