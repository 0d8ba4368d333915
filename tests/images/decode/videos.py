"""Small videos for tests."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np


def picture(number: int) -> np.ndarray:
    """Return a picture that says its number, and which side is up."""
    pixels = np.full((24, 32, 3), 30, np.uint8)
    pixels[:12] = (number * 40 % 256, 200 - number % 8 * 25, 90)
    return pixels


def write_video(file: Path, pictures: Sequence[np.ndarray], rate: int = 2, codec: str = "ffv1") -> Path:
    """Write a video of these pictures; without loss if its codec is ffv1."""
    av = import_module("av")
    file.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(file), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "bgr0" if codec == "ffv1" else "yuv420p"
        for each in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(each, format="rgb24")))
        container.mux(stream.encode(None))
    return file
