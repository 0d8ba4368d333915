"""Processor milliseconds from a JPEG file of a phone to 224 x 224 pixels: Pillow, as the library uses it, beside other decoders.

    python benchmarks/decoders.py PHOTOS [--count 60] [--rounds 3] [--json FILE]

Each decodes at the smallest scale that is still large enough (an eighth of 3000 x 2000), where it can, and Pillow resizes. Those that are not installed are
passed over. The rest of what a first run does with a file (reading, its digest, the look at its header) and the network are measured, too. The least of the
rounds counts, on one thread.
"""

import argparse
import hashlib
import io
import json
import platform
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIDE, SCALE = 224, 8
Array = Any


def pillow(content: bytes) -> Array:
    with Image.open(io.BytesIO(content)) as image:
        image.draft(None, (SIDE, SIDE))
        return np.asarray(image)


def pillow_whole(content: bytes) -> Array:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


def simplejpeg(content: bytes) -> Array:
    return import_module("simplejpeg").decode_jpeg(
        content, min_height=SIDE, min_width=SIDE, fastdct=True, fastupsample=True
    )


def opencv(content: bytes) -> Array:
    cv2 = import_module("cv2")
    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_REDUCED_COLOR_8)[:, :, ::-1]


def vips(content: bytes) -> Array:
    return import_module("pyvips").Image.new_from_buffer(content, "", shrink=SCALE).numpy()


def kornia(content: bytes) -> Array:
    module = import_module("kornia_rs")
    decoder = getattr(module, "ImageDecoder", None) or module.io.ImageDecoder
    return decoder().decode(content)


def imagecodecs(content: bytes) -> Array:
    return import_module("imagecodecs").jpeg8_decode(content)


def turbojpeg(content: bytes) -> Array:
    return turbo().decode(content, scaling_factor=(1, SCALE), pixel_format=0)


def turbo() -> Any:
    return import_module("turbojpeg").TurboJPEG()


DECODERS: dict[str, Callable[[bytes], Array]] = {
    "Pillow": pillow,
    "simplejpeg (libjpeg-turbo)": simplejpeg,
    "OpenCV (libjpeg-turbo)": opencv,
    "PyTurboJPEG": turbojpeg,
    "libvips": vips,
    "kornia-rs (zune), at full size": kornia,
    "imagecodecs (libjpeg-turbo), at full size": imagecodecs,
    "Pillow, at full size": pillow_whole,
}


def resized(pixels: Array) -> Array:
    """Return the middle of a picture of any size at 224 x 224."""
    height, width = pixels.shape[:2]
    short = min(height, width)
    left, top = (width - short) / 2, (height - short) / 2
    box = (left, top, left + short, top + short)
    return np.asarray(
        Image.fromarray(np.ascontiguousarray(pixels)).resize((SIDE, SIDE), Image.Resampling.BILINEAR, box)
    )


def cost(work: Callable[[bytes], object], contents: list[bytes], rounds: int) -> float:
    """Return the least processor milliseconds a file."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for content in contents:
            work(content)
        times.append(time.process_time() - start)
    return 1000 * min(times) / len(contents)


def other_work(files: list[Path], contents: list[bytes], rounds: int) -> dict[str, float]:
    """Return what else a first run does with each photo, and the whole as the library does it."""
    from labelwise.encoders.registry import open_encoder
    from labelwise.images.decode.decoding import Frame, check_header
    from labelwise.images.file_images import decode

    frame, paths = Frame(SIDE, SIDE, 3), dict(zip(contents, files, strict=True))
    encoder = open_encoder()
    images = np.random.default_rng(0).integers(0, 256, (32, 3, SIDE, SIDE), np.uint8)
    encoder(images)
    return {
        "reading a file": cost(lambda content: paths[content].read_bytes(), contents, rounds),
        "its digest (blake2b)": cost(lambda content: hashlib.blake2b(content).digest(), contents, rounds),
        "the look at its header": cost(lambda content: check_header(io.BytesIO(content), frame), contents, rounds),
        "labelwise, from file to pixels": cost(lambda content: decode(paths[content], frame), contents, rounds),
        "the network": cost(lambda _: encoder(images), [b""], rounds) / len(images),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    files = sorted(options.photos.rglob("*.jpg"))[:: max(1, len(list(options.photos.rglob("*.jpg"))) // options.count)]
    contents = [file.read_bytes() for file in files]
    ours, times = resized(pillow(contents[0])).astype(int), {}
    for name, decode in DECODERS.items():
        try:
            apart = float(np.abs(resized(decode(contents[0])).astype(int) - ours).mean())
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}"[:150])
            continue
        times[name] = cost(lambda content, decode=decode: resized(decode(content)), contents, options.rounds)  # type: ignore[misc]
        print(
            f"{name:44}{times[name]:7.2f} ms  {times['Pillow'] / times[name]:.2f}x  {apart:.2f} levels apart",
            flush=True,
        )
    times |= other_work(files, contents, options.rounds)
    for name, ms in times.items():
        print(f"{name:44}{ms:7.2f} ms")
    mega = sum(map(len, contents)) / len(contents) / 1e6
    about = f"{len(contents)} photos of {mega:.1f} MB, {platform.machine()}"
    if options.json:
        options.json.write_text(json.dumps({"about": about, "ms": times}, indent=1) + "\n")


if __name__ == "__main__":
    main()
