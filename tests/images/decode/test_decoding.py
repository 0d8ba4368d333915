import io
import os
import struct
import sys
import threading
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from labelwise.images.as_images import as_batch
from labelwise.images.decode.decoding import Frame, UnreadableError
from labelwise.images.sources.paths import list_images
from labelwise.support.errors import DataError, UsageError
from tests.images.samples import decode, encoded, noise, read_picture

HALVES = np.zeros((8, 8), np.uint8)
HALVES[:, 4:] = 200


def png_header(width: int, height: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def halves(picture: Tensor) -> tuple[list[int], list[int]]:
    """The colour of the left and of the right half, which must each be of one colour."""
    left, right = picture[:, :, :4].flatten(1), picture[:, :, 4:].flatten(1)
    assert bool((left == left[:, :1]).all())
    assert bool((right == right[:, :1]).all())
    return left[:, 0].tolist(), right[:, 0].tolist()


def test_a_square_of_the_right_size_comes_back_unchanged() -> None:
    pixels = noise(8, 8)
    found = read_picture(encoded(Image.fromarray(pixels)), 8)
    assert found.dtype == torch.uint8
    assert found.tolist() == pixels.transpose(2, 0, 1).tolist()


@pytest.mark.parametrize(("height", "width"), [(32, 48), (48, 32), (33, 99), (8, 13), (20, 20)])
def test_short_side_is_resized_and_the_centre_kept(height: int, width: int) -> None:
    image = Image.fromarray(noise(height, width))
    scale = 16 / min(height, width)
    whole = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left, top = (whole.width - 16) // 2, (whole.height - 16) // 2
    slow = np.asarray(whole.crop((left, top, left + 16, top + 16))).transpose(2, 0, 1).astype(float)
    found = read_picture(encoded(image), 16).numpy()
    inner = (slice(None), slice(2, -2), slice(2, -2))  # a filter sees past the edge of a crop
    assert np.abs(found - slow)[inner].max() <= 1


def test_large_jpeg_is_decoded_at_a_fraction_in_the_right_place() -> None:
    smooth = Image.fromarray(noise(6, 9)).resize((900, 601), Image.Resampling.BICUBIC)
    data = encoded(smooth, "JPEG", quality=95)
    slow = read_picture(encoded(Image.open(io.BytesIO(data)).convert("RGB")), 32).float()
    assert float((read_picture(data, 32).float() - slow).abs().mean()) < 1
    grey = read_picture(encoded(smooth.convert("L")), 32, channels=1).float()
    assert float((read_picture(data, 32, channels=1).float() - grey).abs().mean()) < 1.5


def palette(transparent: bool) -> bytes:
    image = Image.fromarray((HALVES > 0).astype(np.uint8)).convert("P")
    image.putpalette([10, 20, 30, 200, 100, 50] + [0] * 762)
    return encoded(image, transparency=1) if transparent else encoded(image)


def layers(mode: str, *values: int) -> Image.Image:
    """A picture whose left half is zero everywhere and whose right half has these values."""
    return Image.merge(mode, [Image.fromarray(np.where(HALVES > 0, v, 0).astype(np.uint8)) for v in values])


def frames(kind: str, **settings: object) -> bytes:
    first, second = layers("RGB", 255, 0, 0), Image.new("RGB", (8, 8), "blue")
    return encoded(first, kind, save_all=True, append_images=[second], **settings)


WHITE, BLACK, RED = [255] * 3, [0] * 3, [255, 0, 0]
DEEP = np.where(HALVES > 0, 51400, 257).astype(np.uint16)
WIDE = np.where(HALVES > 0, 3000, 1000).astype(np.int32)
MODES: dict[str, tuple[Callable[[], bytes], list[int], list[int]]] = {
    "grey": (lambda: encoded(Image.fromarray(HALVES)), BLACK, [200] * 3),
    "one bit": (lambda: encoded(Image.fromarray(HALVES > 0)), BLACK, WHITE),
    "palette": (lambda: palette(False), [10, 20, 30], [200, 100, 50]),
    "palette with transparency": (lambda: palette(True), [10, 20, 30], WHITE),
    "grey with alpha": (lambda: encoded(layers("LA", 80, 255)), WHITE, [80] * 3),
    "colour with alpha": (lambda: encoded(layers("RGBA", 10, 20, 30, 255)), WHITE, [10, 20, 30]),
    "half transparent": (lambda: encoded(layers("RGBA", 0, 0, 0, 51)), WHITE, [204] * 3),
    "transparent colour": (lambda: encoded(layers("RGB", 9, 9, 9), transparency=(9, 9, 9)), BLACK, WHITE),
    "cmyk tiff": (lambda: encoded(layers("CMYK", 0, 255, 255, 0), "TIFF"), WHITE, RED),
    "16-bit png": (lambda: encoded(Image.fromarray(DEEP)), [1] * 3, [200] * 3),
    "16-bit tiff": (lambda: encoded(Image.fromarray(DEEP), "TIFF"), [1] * 3, [200] * 3),
    "16-bit big endian": (lambda: encoded(Image.fromarray(DEEP.astype(">u2")), "TIFF"), [1] * 3, [200] * 3),
    "32-bit int": (lambda: encoded(Image.fromarray(WIDE), "TIFF"), BLACK, WHITE),
    "32-bit int in bytes": (lambda: encoded(Image.fromarray(HALVES.astype(np.int32)), "TIFF"), BLACK, [200] * 3),
    "float": (lambda: encoded(Image.fromarray(WIDE.astype(np.float32)), "TIFF"), BLACK, WHITE),
    "float in bytes": (lambda: encoded(Image.fromarray(HALVES.astype(np.float32)), "TIFF"), BLACK, [200] * 3),
    "float up to one": (lambda: encoded(Image.fromarray(HALVES / np.float32(400)), "TIFF"), BLACK, [128] * 3),
    "gif": (lambda: frames("GIF"), BLACK, RED),
    "webp": (lambda: frames("WEBP", lossless=True), BLACK, RED),
    "apng": (lambda: frames("PNG"), BLACK, RED),
    "tiff pages": (lambda: frames("TIFF"), BLACK, RED),
}


@pytest.mark.parametrize("name", MODES)
def test_every_mode_has_the_right_values(name: str) -> None:
    make, left, right = MODES[name]
    assert halves(read_picture(make(), 8)) == (left, right)


def test_cmyk_and_ycck_jpegs_are_not_inverted() -> None:
    plain = encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95)
    # The same red ink in YCCK: luma and chroma of its complement, and the marker that says so.
    other = bytearray(encoded(Image.new("CMYK", (16, 16), (76, 84, 255, 0)), "JPEG", quality=95))
    other[other.index(b"Adobe") + 11] = 2
    for data in (plain, bytes(other)):
        assert Image.open(io.BytesIO(data)).mode == "CMYK"
        assert (read_picture(data, 4).float() - torch.tensor([255.0, 0, 0])[:, None, None]).abs().max() < 6


def test_grey_is_the_luma_of_colour() -> None:
    image = Image.fromarray(noise(8, 8))
    assert read_picture(encoded(image), 8, channels=1).tolist() == [np.asarray(image.convert("L")).tolist()]


UPRIGHT = {
    1: None, 2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_270,
}  # fmt: skip


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "I;16"])
@pytest.mark.parametrize("size", [(80, 48), (301, 200), (199, 301)])
def test_a_turned_image_gives_what_it_gives_upright(mode: str, size: tuple[int, int]) -> None:
    """To the bit, also where the crop cannot be symmetric."""
    rng = np.random.default_rng(0)
    deep = mode == "I;16"
    values = rng.integers(0, 65536 if deep else 256, (9, 7) if deep else (9, 7, 3), np.uint16 if deep else np.uint8)
    image = Image.fromarray(values).resize(size, Image.Resampling.NEAREST)
    image = image if deep else image.convert(mode)
    for fit in ("crop", "stretch"):
        frame = Frame(32, 32, 3, fit=fit)
        wanted = decode(encoded(image, "PNG"), frame)
        for orientation, turn in UPRIGHT.items():
            exif = Image.Exif()
            exif[0x0112] = orientation
            stored = image if turn is None else image.transpose(turn)
            assert np.array_equal(decode(encoded(stored, "PNG", exif=exif), frame), wanted), orientation


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pixels_are_turned_as_exif_says(kind: str, orientation: int) -> None:
    image = Image.fromarray(noise(3, 5)).resize((80, 48), Image.Resampling.NEAREST)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(image, kind, exif=exif, **({"quality": 95} if kind == "JPEG" else {"lossless": True}))
    slow = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    assert slow.size == ((80, 48) if orientation < 5 else (48, 80))
    expected = read_picture(encoded(slow), 48)
    assert (read_picture(data, 48).float() - expected.float()).abs().max() <= 1
    wide = as_batch(Image.open(io.BytesIO(data)), (3, slow.height, slow.width))[0]
    assert wide.tolist() == np.asarray(slow).transpose(2, 0, 1).tolist()


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_very_wide_picture_is_read(kind: str) -> None:
    pixels = np.zeros((40, 20_000), np.uint8)
    pixels[:, 9_990:10_010] = 250
    found = read_picture(encoded(Image.fromarray(pixels), kind), 16)
    assert found.shape == (3, 16, 16)
    assert found[:, :, 6:10].min() > 180
    assert found[:, :, :2].max() < 40


def test_a_line_of_pixels_is_not_blown_up() -> None:
    assert bool((read_picture(encoded(Image.new("L", (1_000_000, 1), 7)), 32) == 7).all())


def cut(kind: str) -> bytes:
    data = encoded(Image.fromarray(noise(64, 64)), kind)
    return data[: len(data) // 2]


BROKEN = {
    "cut jpeg": (cut("JPEG"), "damaged or cut off .*Replace it or remove it"),
    "cut png": (cut("PNG"), "damaged or cut off"),
    "cut webp": (cut("WEBP"), "damaged"),
    "cut gif": (cut("GIF"), "damaged or cut off"),
    "cut tiff": (encoded(Image.fromarray(noise(64, 64)), "TIFF")[:5000], "damaged"),
    "corrupt png": (cut("PNG")[:200] + b"\xff" * 500, "damaged"),
    "text": (b"this is no picture", "not an image of a known format, or its beginning is damaged. Replace it"),
    "a program": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image of a known format"),
    "empty": (b"", r"it is empty \(0 bytes\). Replace it or remove it"),
    "no width": (
        b"BM" + struct.pack("<IIIIIIHHIIIIII", 54, 0, 54, 40, 0, 9, 1, 24, 0, 0, 0, 0, 0, 0),
        "no pixels|damaged",
    ),
    "bomb": (
        png_header(40_000, 30_000),
        r"too many pixels \(40000x30000 = 1200000000; the limit is 100000000\). Make it smaller",
    ),
    "large": (png_header(12_000, 12_000), r"too many pixels \(12000x12000 = 144000000; the limit is 100000000\)"),
    "not finite": (encoded(Image.fromarray(np.full((8, 8), np.nan, np.float32)), "TIFF"), "not finite numbers"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_errors_in_words_and_without_warnings(name: str, tmp_path: Path) -> None:
    content, message = BROKEN[name]
    file = tmp_path / "owl.jpg"
    file.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=message) as caught:
            read_picture(file, 8)
    assert str(caught.value).startswith(f"1 of 1 images cannot be read. {file}: ")
    assert caught.value.__context__ is None


def test_missing_folder_and_forbidden_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"owl.jpg: there is no such file. Check the path"):
        read_picture(tmp_path / "owl.jpg", 8)
    with pytest.raises(UnreadableError, match=r"it is a folder. Give the images in it"):
        decode(tmp_path, Frame(8, 8, 3))
    (tmp_path / "ring.jpg").symlink_to(tmp_path / "ring.jpg")
    with pytest.raises(DataError, match=r"it cannot be opened \(Too many levels of symbolic links\). Check the path"):
        read_picture(tmp_path / "ring.jpg", 8)
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(DataError, match="it is a named pipe, not a file"):
        read_picture(tmp_path / "pipe.jpg", 8)
    (tmp_path / "shut.jpg").write_bytes(b"x")

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", forbidden)  # rights do not bind every user
    with pytest.raises(DataError, match=r"permission to read it is denied. Change its permissions"):
        read_picture(tmp_path / "shut.jpg", 8)


def test_limit_on_pixels_can_be_set() -> None:
    data = encoded(Image.fromarray(noise(20, 30)))
    assert decode(data, Frame(8, 8, 3, 600)).shape == (3, 8, 8)
    with pytest.raises(UnreadableError, match="30x20 = 600; the limit is 599"):
        decode(data, Frame(8, 8, 3, 599))


@pytest.mark.parametrize(("size", "channels", "message"), [(8, 2, "1 channel .* asked for 2"), (0, 3, "asked for 0x0")])
def test_impossible_frames_are_refused(size: int, channels: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_picture(encoded(Image.fromarray(HALVES)), size, channels=channels)


def test_warnings_are_back_after_threads_have_read(tmp_path: Path) -> None:
    data = encoded(Image.fromarray(noise(64, 64)))
    before = list(warnings.filters)
    threads = [threading.Thread(target=lambda: [read_picture(data, 8) for _ in range(30)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before


HEIC_HEAD = b"\0\0\0\x18ftypheic\0\0\0\0"


@pytest.mark.parametrize("name", ["owl.heic", "owl.HEIF", "called.jpg"])
def test_a_heic_picture_names_the_package_that_reads_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    (tmp_path / name).write_bytes(HEIC_HEAD + bytes(99))
    for content in (tmp_path / name, HEIC_HEAD):
        with pytest.raises(UnreadableError, match=r'pillow-heif reads: pip install "labelwise\[heic\]"'):
            decode(content, Frame(8, 8, 3))


def test_the_reader_of_heic_is_opened_when_the_first_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(Image, "OPEN", {**Image.OPEN})
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    opener: Any = (lambda *_: Image.new("RGB", (9, 9), "red"), lambda prefix: prefix[4:8] == b"ftyp")

    def register() -> None:
        calls.append("opened")
        Image.OPEN["HEIF"] = opener

    fake = ModuleType("pillow_heif")
    monkeypatch.setattr(fake, "register_heif_opener", register, raising=False)
    monkeypatch.setitem(sys.modules, "pillow_heif", fake)
    monkeypatch.setattr(Image, "ID", [*Image.ID, "HEIF"])
    decode(encoded(Image.new("RGB", (9, 9)), "PNG"), Frame(8, 8, 3))
    assert not calls
    for _ in range(2):
        assert decode(HEIC_HEAD, Frame(8, 8, 3))[:, 0, 0].tolist() == [255, 0, 0]
    assert calls == ["opened"]


def test_real_heic_pictures_are_read(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    image = Image.fromarray(noise(64, 48)).resize((480, 640))
    heif.from_pillow(image).save(tmp_path / "owl.heic", quality=95)
    pixels = decode(tmp_path / "owl.heic", Frame(32, 32, 3)).astype(int)
    assert abs(pixels - decode(encoded(image, "PNG"), Frame(32, 32, 3))).mean() < 4


@pytest.mark.parametrize(("name", "words"), [("a.CR2", r"a raw image of a camera \(CR2\)"), ("a.psd", r"\(PSD\)")])
def test_pictures_that_nothing_here_reads_are_told_by_their_name(name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(encoded(Image.new("RGB", (9, 9)), "TIFF"))
    assert list_images(tmp_path) == [tmp_path / name]
    with pytest.raises(UnreadableError, match=f"{words}, which is not read. Export it as JPEG or PNG"):
        decode(tmp_path / name, Frame(8, 8, 3))
