"""Progressive JPEGs at an eighth of their size: fewer scans are read, and every pixel is the same."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from labelwise.images.decode import decoding
from labelwise.images.decode.decoding import Frame, decode_stream
from labelwise.images.decode.progressive import without_details

FRAME = Frame(24, 24, 3)


@pytest.fixture(autouse=True)
def small_fingerprints(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth of a small photo is enough then."""
    monkeypatch.setattr(decoding, "SHAPE", (3, 96, 96))


def photo(width: int = 1100, height: int = 803, mode: str = "RGB", seed: int = 0, **options: Any) -> bytes:
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize((width, height))
    noisy = np.asarray(small, np.int16) + rng.integers(-40, 40, (height, width, 3))
    stream = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).convert(mode).save(
        stream, "JPEG", **{"progressive": True, **options}
    )
    return stream.getvalue()


@pytest.mark.parametrize("sampling", [0, 1, 2])
@pytest.mark.parametrize("channels", [1, 3])
def test_no_pixel_changes(sampling: int, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = Frame(24, 24, channels)
    for seed, (width, height) in enumerate([(1100, 803), (801, 1234), (1024, 800)]):
        content = photo(width, height, subsampling=sampling, quality=[60, 85, 98][seed], seed=seed)
        assert len(without_details(content)) < 0.75 * len(content)
        lighter = decode_stream(io.BytesIO(content), frame)
        with monkeypatch.context() as patch:
            patch.setattr(decoding, "without_details", bytes)
            whole = decode_stream(io.BytesIO(content), frame)
        assert np.array_equal(lighter, whole)


def test_what_is_not_needed_at_an_eighth_alone_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def count(content: bytes) -> bytes:
        calls.append(len(content))
        return content

    monkeypatch.setattr(decoding, "without_details", count)
    decode_stream(io.BytesIO(photo(progressive=False)), FRAME)
    decode_stream(io.BytesIO(photo(300, 300)), FRAME)
    assert not calls
    decode_stream(io.BytesIO(photo()), FRAME)
    assert len(calls) == 1


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_kinds_of_jpeg_stay_as_they_are(mode: str) -> None:
    for content in (photo(mode=mode), photo(progressive=False), b"", b"\xff\xd8", b"no image", photo()[:-2]):
        assert without_details(content) == content


def test_orientation_and_what_follows_stay() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    content = photo(exif=exif)
    assert without_details(content + b"more").endswith(b"more")
    assert decode_stream(io.BytesIO(content), Frame(24, 32, 3)).shape == (3, 24, 32)
    with Image.open(io.BytesIO(without_details(content))) as image:
        assert image.getexif()[0x0112] == 6


def test_a_file_that_ends_early_fails_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    content = photo()
    rng = np.random.default_rng(0)
    for end in rng.integers(0, len(content), 40).tolist():
        faults = []
        for cut in (without_details, bytes):
            monkeypatch.setattr(decoding, "without_details", cut)
            try:
                faults.append(decode_stream(io.BytesIO(content[:end]), FRAME).tobytes())
            except Exception as error:  # whatever a decoder raises
                faults.append(repr(type(error)).encode())
        assert faults[0] == faults[1]
