"""Cover each training image with squares, for papers that resize by the short side and do not crop."""

import io
from collections.abc import Sequence
from dataclasses import replace

from PIL import Image, ImageOps

from labelwise.images.decode.decoding import File, open_content
from labelwise_papers.benchmarks.protocols import Protocol
from labelwise_papers.benchmarks.records import Records

WINDOWS = (0.0, 0.5, 1.0)  # where along the long side a window lies


def wide(protocol: Protocol) -> Protocol:
    """Return a protocol with three squares of the short side for each training image, one group: start, middle and end of the long side.

    Random crops of these lie anywhere along the image. A test image stays one, of which the middle is kept.
    """

    def divide(records: Records, seed: int) -> Records:
        whole = protocol(records, seed)
        files: Sequence[File] = whole.pictures  # none is pixels yet
        pictures: list[bytes] = []
        rows: list[int] = []
        for row, (file, split) in enumerate(zip(files, whole.splits, strict=True)):
            with open_content(file) as stream:
                windows = cut_windows(stream.read()) if split == "train" else [stream.read()]
            pictures += windows
            rows += [row] * len(windows)
        return replace(replace(whole, pictures=[], groups=whole.files).select(rows), pictures=pictures)

    return divide


def cut_windows(content: bytes) -> list[bytes]:
    """Return the windows of an image as contents of files; what is no image comes back unchanged, and reading it says so."""
    try:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB")
    except OSError:
        return [content] * len(WINDOWS)
    return [_square(image, place) for place in WINDOWS]


def _square(image: Image.Image, place: float) -> bytes:
    side = min(image.size)
    left, top = (round(place * (length - side)) for length in image.size)
    content = io.BytesIO()
    image.crop((left, top, left + side, top + side)).save(content, "BMP")
    return content.getvalue()
