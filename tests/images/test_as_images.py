from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from labelwise.images.as_images import as_batch, as_images
from labelwise.support.errors import DataError, UsageError
from tests.images.samples import encoded, noise, read_picture
from tests.images.tar_shards import numbered, write_tar

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
    assert found.dtype == np.uint8
    assert found.tolist() == [FIRST.tolist()]


def test_paths_and_mixed_lists_keep_their_order(tmp_path: Path) -> None:
    file = tmp_path / "été 鳥.png"
    file.write_bytes(encoded(Image.new("RGB", (20, 30), (1, 2, 3))))
    assert as_batch(file, (3, 4, 6)).shape == (1, 3, 4, 6)
    assert as_batch([str(file), file], (1, 4, 4)).tolist() == as_batch(str(file), (1, 4, 4)).repeat(2, 0).tolist()
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
        ([], "Give at least one image"),
        (np.zeros((0, 8, 8, 3), np.uint8), r"the array is empty, \[0, 8, 8, 3\]"),
        (np.zeros((2, 8, 8, 7), np.uint8), r"with 1, 3 or 4 channels, or \[n, height, width\]; given \[2, 8, 8, 7\]"),
        (np.zeros(8, np.uint8), r"given \[8\]"),
        (torch.zeros(1, 1, 3, 8, 8), r"given \[1, 1, 3, 8, 8\]"),
        (torch.full((3, 8, 8), 255.0), r"must be in \[0, 1\]; given 255 to 255: divide by 255\?"),
        (torch.full((3, 8, 8), -2.0), "given -2 to -2: give them as they were before normalisation"),
        (torch.full((3, 8, 8), torch.nan), r"not a finite number \(NaN or infinity\)"),
        (np.full((8, 8, 3), 256), r"Pixels must be in 0..255; given 256 to 256. Scale them"),
        (np.full((8, 8, 3), "a"), "Pixels must be numbers; given an array of <U1"),
        (7, "An image is a path, bytes, a PIL image, an array or a tensor; given int: 7"),
        ([PIXELS, None], "Image 1: An image is a path, .* given NoneType"),
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
    with pytest.raises(DataError, match=r"1 of 1 images cannot be read. .*gone.png: there is no such file"):
        as_batch(tmp_path / "gone.png", (3, 8, 8))
    with pytest.raises(DataError, match=r"image 0: it has no pixels \(0x4\)"):
        as_batch(Image.new("RGB", (0, 4)), (3, 8, 8))


def test_features_become_rows_of_floats() -> None:
    rows = [[1.0, 2.0], [3.0, 4.0]]
    ways: list[Any] = [rows, np.array(rows), torch.tensor(rows), [np.array(row) for row in rows], np.array(rows, int)]
    for given in ways:
        found = as_batch(given, (2,))
        assert found.dtype == np.float32
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


def test_a_folder_and_a_column_of_paths_are_images(tmp_path: Path) -> None:
    for name in ("b.png", "a.png"):
        (tmp_path / name).write_bytes(encoded(Image.fromarray(PIXELS)))
    folder = as_images(tmp_path)
    assert [Path(name).name for name in folder.ids] == ["a.png", "b.png"]
    assert folder.shape is None
    column = np.array([str(tmp_path / "b.png")], dtype=object)
    assert as_batch(column, (3, 8, 8)).tolist() == as_batch(folder.select([1]), (3, 8, 8)).tolist()
    assert as_images(folder) is folder
    assert as_images(np.ones((4, 2))).shape == (2,)  # features
    assert as_images(np.ones((4, 2), np.uint8)).shape == (1, 4, 2)  # a grey picture


def test_a_shard_and_folders_among_paths_are_images(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.png").write_bytes(encoded(Image.fromarray(PIXELS)))
    shard = write_tar(tmp_path / "x.tar", numbered(2))
    images = as_images([tmp_path / "a", shard, str(tmp_path / "a" / "one.png")])
    assert [Path(name).name for name in images.ids] == ["one.png", "0000.png", "0001.png", "one.png"]
    assert as_batch(images, (3, 8, 8))[0].tolist() == as_batch(images, (3, 8, 8))[3].tolist()
    assert as_images(shard).ids == images.ids[1:3]
    (tmp_path / "b").mkdir()
    with pytest.raises(DataError, match=r"No image found in .*b"):
        as_images(tmp_path / "b")
