"""The fingerprint of an image, by which lookalikes are known: its grey thumbnail of 16 by 16 pixels, of mean zero and length one.

It is made of the image at one shape and fit, whatever size somebody reads the image at: so what looks alike never depends on that.
"""

import numpy as np
from numpy.typing import NDArray

SHAPE = (3, 224, 224)  # of the image that a fingerprint is made of
SIDE = 16
Print = NDArray[np.float32]
Places = NDArray[np.float64]


def fingerprint(image: NDArray[np.uint8]) -> Print:
    """Return the grey thumbnail of an image ``[c, h, w]``, of mean zero and length one ``[a]``; zeros for a single grey."""
    grey = image.sum(0, dtype=np.int64) / np.float64(len(image))
    flat = area(grey, SIDE, SIDE).ravel()
    flat = flat - flat.mean()
    size = float(np.sqrt((flat**2).sum()))
    return np.asarray(flat / size if size > SIDE else flat * 0, np.float32)  # a shade of grey on average


def area(grey: Places, height: int, width: int) -> Places:
    """Return an image ``[h, w]`` at another size: the mean of the pixels that each new one covers, as far as they touch it."""
    sums = np.pad(grey.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    (top, bottom), (left, right) = _edges(grey.shape[0], height), _edges(grey.shape[1], width)
    boxes = sums[bottom][:, right] - sums[top][:, right] - sums[bottom][:, left] + sums[top][:, left]
    return np.asarray(boxes / ((bottom - top)[:, None] * (right - left)))


def _edges(size: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each of ``count`` parts of a side begins and ends."""
    at = np.arange(count)
    return at * size // count, -(-(at + 1) * size // count)
