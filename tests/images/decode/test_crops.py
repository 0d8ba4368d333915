from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from labelwise.images.as_images import as_images
from labelwise.images.decode.crops import Box, Crop, crop_address, parse_crop
from labelwise.images.decode.decoding import FINGERPRINTED, Frame, UnreadableError
from labelwise.images.decode.headers import fingerprint
from labelwise.images.decode.workers import crew
from labelwise.images.file_images import FileImages, decode_both
from labelwise.images.file_images import decode as decode_stored
from labelwise.images.images import Unreadable, read_all
from tests.images.samples import noise

PIXELS: Box = (10, 20, 40, 40, False)
PERCENT: Box = (12.5, 20.0, 50.0, 40.0, True)  # of 80 by 100 pixels: the same box


def photo(folder: Path, kind: str = "png", height: int = 100, width: int = 80, quality: int = 75) -> Path:
    file = folder / f"a photo.{kind}"
    Image.fromarray(noise(height // 4, width // 4).repeat(4, 0).repeat(4, 1)).save(file, quality=quality)
    return file


@pytest.mark.parametrize("box", [PIXELS, PERCENT, (0.33333, 1, 2.5, 99, True), (0, 0, 7, 7.25, False)])
def test_an_address_says_the_whole_box(box: Box) -> None:
    address = crop_address("photos/x#1.jpg", box)
    crop = parse_crop(address)
    assert crop is not None
    assert crop.file == "photos/x#1.jpg"
    assert crop.box == pytest.approx(box)


def test_a_box_that_covers_the_image_is_no_crop() -> None:
    assert crop_address("x.jpg", (0, 0, 100, 100, True)) == crop_address("x.jpg", None) == "x.jpg"
    assert all(
        "#" in crop_address("x.jpg", (*half, True)) for half in ((0, 0, 50, 100), (50, 0, 50, 100), (0, 50, 100, 50))
    )
    assert parse_crop("x.jpg#xywh=1,2,3") is None
    assert parse_crop("x.jpg#box3") is None


@pytest.mark.parametrize("box", [PIXELS, PERCENT])
def test_a_crop_reads_as_the_part_that_was_cut_out(tmp_path: Path, box: Box) -> None:
    file = photo(tmp_path)
    cut = tmp_path / "cut.png"
    Image.open(file).crop((10, 20, 50, 60)).save(cut)
    crop, whole = as_images([crop_address(str(file), box)]), as_images([cut])
    assert np.array_equal(read_all(crop, (3, 16, 16)), read_all(whole, (3, 16, 16)))
    pixels, looks = decode_both(Crop(str(file), box), Frame(16, 16, 3))
    assert np.array_equal(pixels, read_all(whole, (3, 16, 16))[0])
    assert np.array_equal(looks, fingerprint(decode_stored(str(cut), FINGERPRINTED)))
    (worked,) = crew().decode([str(file)], Frame(16, 16, 3, box=box))
    assert np.array_equal(worked, pixels)


def test_a_long_box_is_widened_rather_than_cut(tmp_path: Path) -> None:
    file = photo(tmp_path)
    long, wide = crop_address(str(file), (35, 20, 10, 40, False)), crop_address(str(file), (20, 20, 40, 40, False))
    images = as_images([long, wide])
    first, second = read_all(images, (3, 16, 16))
    assert np.array_equal(first, second)
    first, second = read_all(images, (3, 16, 16), "stretch")
    assert not np.array_equal(first, second)  # exactly the box


@pytest.mark.parametrize("box", [(600, 900, 160, 160, False), (30.0, 45.0, 8.0, 8.0, True)])
def test_a_small_box_of_a_large_jpeg_keeps_its_detail(tmp_path: Path, box: Box) -> None:
    file = photo(tmp_path, "jpg", 2000, 2000, quality=95)
    left, top, width, height = (int(20 * each) if box[4] else int(each) for each in box[:4])
    with Image.open(file) as image:
        image.crop((left, top, left + width, top + height)).save(tmp_path / "cut.png")
    read = read_all(as_images([crop_address(str(file), box), tmp_path / "cut.png"]), (3, 96, 96)).astype(int)
    assert abs(read[0] - read[1]).mean() < 1


def test_boxes_are_those_of_the_upright_image(tmp_path: Path) -> None:
    file = photo(tmp_path)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    with Image.open(file) as image:
        image.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    for box in (PIXELS, PERCENT):
        images = as_images([crop_address(str(each), box) for each in (file, tmp_path / "turned.png")])
        first, second = read_all(images, (3, 16, 16))
        assert np.array_equal(first, second)


def test_each_box_has_a_digest_of_its_own_that_a_copy_shares(tmp_path: Path) -> None:
    file = photo(tmp_path)
    copy = tmp_path / "copy.png"
    copy.write_bytes(file.read_bytes())
    whole, one, two, other = FileImages(
        [file, crop_address(str(file), PIXELS), crop_address(str(copy), PIXELS), crop_address(str(file), PERCENT)]
    ).digests()
    assert one == two
    assert len({whole, one, other}) == 3


@pytest.mark.parametrize("box", [(90, 10, 5, 5, False), (10, 10, 0, 5, False), (100.0, 0, 10, 10, True)])
def test_a_box_without_pixels_is_a_reason(tmp_path: Path, box: Box) -> None:
    (image,) = as_images([crop_address(str(photo(tmp_path)), box)]).read([0], (3, 8, 8))
    assert isinstance(image, Unreadable)
    assert "box" in image.reason


def test_a_box_that_reaches_over_the_edge_is_cut_there(tmp_path: Path) -> None:
    file = str(photo(tmp_path))
    first, second = read_all(
        as_images([crop_address(file, (-10, 20, 50, 40, False)), crop_address(file, (0, 20, 40, 40, False))]),
        (3, 16, 16),
    )
    assert np.array_equal(first, second)
    with pytest.raises(UnreadableError, match="no such file"):
        decode_stored(Crop("gone.jpg", PIXELS), Frame(8, 8, 3))
