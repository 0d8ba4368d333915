"""Pictures that cost time or memory: refused by their header, or decoded by a worker that is ended for it."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelwise.images import file_images
from labelwise.images.decode import decoding, workers
from labelwise.images.decode.decoding import Frame, UnreadableError
from labelwise.images.decode.headers import read_header
from labelwise.images.decode.workers import Crew, crew
from tests.hostile.pictures import BEYOND, chunk, encoded, exif_bomb, in_gif, in_jpeg, in_png, scan_bomb, segment
from tests.images.samples import decode, noise

FRAME = Frame(16, 16, 3)
SMALL = encoded(Image.fromarray(noise(40, 30)), "PNG")


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_beyond_a_limit_is_refused_at_once(name: str) -> None:
    make, word = BEYOND[name]
    content = make()
    began = time.process_time()
    with pytest.raises(UnreadableError, match=word):
        decode(content, FRAME)
    assert time.process_time() - began < 0.2


PICTURE = Image.fromarray(noise(33, 47))
GOOD = {
    "jpeg": encoded(PICTURE, "JPEG"),
    "jpeg, progressive": encoded(PICTURE, "JPEG", progressive=True),
    "jpeg, grey": encoded(PICTURE.convert("L"), "JPEG", progressive=True),
    "jpeg, cmyk": encoded(PICTURE.convert("CMYK"), "JPEG"),
    "jpeg, restarts": encoded(PICTURE, "JPEG", restart_marker_blocks=1),
    "jpeg, with a profile and EXIF": encoded(
        PICTURE, "JPEG", icc_profile=bytes(200_000), exif=b"Exif\0\0" + b"\xff\xda" * 99
    ),
    "jpeg, padded": in_jpeg(b"\xff" * 100 + segment(0xFE, b"\xff\xda" * 999)),
    "jpeg, with a film after its end": encoded(PICTURE, "JPEG") + b"\xff\xda\0\x02" * 999,
    "png": encoded(PICTURE, "PNG"),
    "png, many chunks": in_png(chunk(b"tEXt", b"a\0b") * 900),
    "apng": encoded(PICTURE, "PNG", save_all=True, append_images=[PICTURE] * 20),
    "webp": encoded(PICTURE, "WEBP"),
    "webp, lossless": encoded(PICTURE, "WEBP", lossless=True),
    "webp, with a profile": encoded(PICTURE, "WEBP", icc_profile=bytes(999)),
    "webp, animated": encoded(PICTURE, "WEBP", save_all=True, append_images=[PICTURE.rotate(9)] * 9),
    "gif": encoded(PICTURE, "GIF"),
    "gif, with a comment": in_gif(b"!\xfe" + (b"\xff" + b"x" * 255) * 3000 + b"\0"),
    "gif, animated": encoded(PICTURE, "GIF", save_all=True, append_images=[PICTURE.rotate(9)] * 9),
    "bmp": encoded(PICTURE, "BMP"),
}


@pytest.mark.parametrize("name", GOOD)
def test_headers_of_good_pictures_say_what_pillow_says(name: str) -> None:
    stream = io.BytesIO(GOOD[name])
    header = read_header(stream)
    assert stream.tell() == 0
    with Image.open(stream) as image:
        assert (header.format, header.width, header.height) == (image.format, *image.size)
        progressive = bool(image.info.get("progressive"))
        grey = image.mode == "L"
    assert header.scans == ((6 if grey else 10) if progressive else 1)
    assert header.seconds is not None
    assert header.seconds < 0.05
    assert decode(GOOD[name], FRAME).shape == FRAME.shape


@pytest.mark.parametrize("name", GOOD)
def test_headers_cut_off_anywhere_are_left_to_the_decoder(name: str) -> None:
    for length in (*range(2, 64), 200, 600):
        read_header(io.BytesIO(GOOD[name][:length]))


def test_a_worker_gives_what_decoding_here_gives() -> None:
    pictures = list(GOOD.values())
    for picture, pixels in zip(pictures, crew().decode(pictures, FRAME), strict=True):
        assert not isinstance(pixels, str)
        np.testing.assert_array_equal(pixels, decode(picture, FRAME))


def test_a_worker_is_without_torch() -> None:
    worker = workers.DecodeWorker(low=False)
    try:
        assert len(list(worker.decode([SMALL], FRAME))) == 1
        assert "libtorch" not in Path(f"/proc/{worker._process.pid}/maps").read_text()
    finally:
        worker.end()


def test_one_that_takes_too_long_ends_its_worker_and_spoils_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    loose = "from labelwise.images.decode import headers, workers; headers.SCANS = 10**9; workers.LEAST_SECONDS = workers.TIMES = 0; "
    monkeypatch.setattr(workers, "BOOT", workers.BOOT.replace("from labelwise", f"{loose}from labelwise", 1))
    team = Crew(os.getpid())
    began = time.process_time()
    answers = list(team.decode([SMALL, scan_bomb(20_000), SMALL[:60], SMALL], Frame(16, 16, 3, 1_000_000)))
    assert time.process_time() - began < 1
    assert str(answers[1]) == workers.TOO_LONG
    assert "damaged" in str(answers[2])
    for pixels in (answers[0], answers[3]):
        np.testing.assert_array_equal(np.asarray(pixels), decode(SMALL, FRAME))
    team.close()


def test_a_worker_that_is_killed_is_replaced() -> None:
    team = Crew(os.getpid())
    team.prepare(1)
    os.kill(team._idle[False][0]._process.pid, signal.SIGKILL)
    assert [*team.decode([SMALL], FRAME)] == [workers.BROKEN], "it was alone, so that it was the one"
    os.kill(team._idle[False][0]._process.pid, signal.SIGKILL)
    for pixels in team.decode([SMALL, SMALL], FRAME):  # neither alone
        np.testing.assert_array_equal(np.asarray(pixels), decode(SMALL, FRAME))
    team.close()


@pytest.mark.parametrize("message", [b"+12", b"-\0\0\1\0why", b"x", b"-", b"\x80\x04"])
def test_what_no_worker_says_is_a_worker_lost(message: bytes) -> None:
    with pytest.raises(ValueError):
        list(workers._unpack(bytearray(message), FRAME))


def test_memory_of_a_worker_is_limited() -> None:
    team = Crew(os.getpid())
    small = Frame(16, 16, 3, 1_000_000)
    team.prepare(1)
    hungry = encoded(
        Image.new("1", (30_000, 8_000)), "TIFF", compression="group4"
    )  # 240 million pixels, if nobody looked
    answers = list(team.decode([exif_bomb(), hungry, SMALL], small))
    assert "too many pixels" in str(answers[1])
    np.testing.assert_array_equal(np.asarray(answers[2]), decode(SMALL, FRAME))
    (worker,) = team._idle[False]
    status = Path(f"/proc/{worker._process.pid}/status").read_text()
    assert int(status.split("VmHWM:")[1].split()[0]) < 200_000, "kB at most at any time"
    assert "torch" not in Path(f"/proc/{worker._process.pid}/maps").read_text()
    team.close()


def test_large_pictures_are_decoded_by_a_worker_and_small_ones_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Crew] = []

    def counted() -> Crew:
        asked.append(crew())
        return asked[0]

    monkeypatch.setattr(file_images, "crew", counted)
    file = tmp_path / "one.jp2"
    file.write_bytes(encoded(PICTURE, "JPEG2000"))
    np.testing.assert_array_equal(file_images.decode(file, FRAME), decode(file, FRAME))
    assert len(asked) == 1, "its header is not read here"
    file_images.decode(SMALL, FRAME)
    assert len(asked) == 1
    monkeypatch.setattr(decoding, "HERE", 0.0)
    np.testing.assert_array_equal(file_images.decode(SMALL, FRAME), decode(SMALL, FRAME))
    assert len(asked) == 2
    with pytest.raises(UnreadableError, match="known format"):
        file_images.decode(b"no picture", FRAME)


def test_workers_end_with_whoever_started_them() -> None:
    code = (
        "import sys; from labelwise.images.decode.workers import crew; crew().prepare(1); "
        "print(crew()._idle[False][0]._process.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    end = time.monotonic() + 20
    while _alive(pid):
        assert time.monotonic() < end, "it lives on"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
