"""Where in an image the evidence for a label is, without gradients.

Where features are pooled from maps, this is Grad-CAM (Selvaraju et al., 2017): the maps, each weighted by the slope of the score with
respect to its feature. Of other encoders parts of the image are covered (Zeiler and Fergus, 2014): evidence is where the score falls.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from labelwise.core.head import Head, feature_slopes
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Encoder, Locates
from labelwise.images.images import ArrayImages
from labelwise.support.errors import UnsupportedError

GRID = 8  # places a side that are covered one after another
COVER = 2  # places a side that are covered at once

Array = npt.NDArray[Any]


def evidence(encoder: Encoder, head: Head, label_embeddings: Array, images: Array, weights: Array) -> Array:
    """Return where evidence for the sum of scores times weights ``[n, k]`` is in images ``[n, c, h, w]``.

    It is at least 0, at the size of the images ``[n, h, w]``, and 0 where the encoder does not look.
    """
    if len(encoder.shape) != 3:
        raise UnsupportedError(
            f"A heat map lies over an image, and this classifier takes {list(encoder.shape)}: features, or a sound. "
            "Explain answers of a classifier of images."
        )
    if not isinstance(encoder, Locates) or not encoder.has_maps:
        return np.stack(
            [_covered(encoder, head, label_embeddings, *pair) for pair in zip(images, weights, strict=True)]
        )
    features, maps = encoder.locate(images)
    slopes = feature_slopes(head, features, label_embeddings, weights)
    heat = np.maximum(np.einsum("nc,nchw->nhw", slopes, maps), 0).astype(np.float32)
    whole = np.zeros((len(images), *images.shape[2:]), np.float32)
    inside = whole[(slice(None), *encoder.window)]
    for place, one in zip(inside, heat, strict=True):
        place[:] = _resized(one, place.shape)
    return whole


def _covered(encoder: Encoder, head: Head, label_embeddings: Array, image: Array, weights: Array) -> Array:
    """Return how far the weighted score of an image ``[c, h, w]`` falls where the image is covered with its mean colour ``[h, w]``."""
    height, width = image.shape[1:]
    rows, columns = (np.linspace(0, side, GRID + 1).round().astype(int) for side in (height, width))
    views, mean = [image], image.mean((1, 2), keepdims=True).astype(np.uint8)
    for i in range(GRID - COVER + 1):
        for j in range(GRID - COVER + 1):
            view = image.copy()
            view[:, rows[i] : rows[i + COVER], columns[j] : columns[j + COVER]] = mean
            views.append(view)
    scores = head.score(head.embed(_features(encoder, np.stack(views))), label_embeddings) @ weights
    falls = (scores[0] - scores[1:]).reshape(GRID - COVER + 1, -1)
    sums, counts = np.zeros((GRID, GRID)), np.zeros((GRID, GRID))
    for i in range(COVER):
        for j in range(COVER):
            here = slice(i, GRID - COVER + 1 + i), slice(j, GRID - COVER + 1 + j)
            sums[here] += falls
            counts[here] += 1
    return _resized(np.maximum(sums / counts, 0).astype(np.float32), (height, width))


def _features(encoder: Encoder, images: Array) -> Array:
    return encode(encoder, ArrayImages(images), cache=False, progress=False).values


def _resized(heat: Array, shape: tuple[int, ...]) -> Array:
    """Return a map at a size, interpolated linearly."""
    return np.asarray(Image.fromarray(heat).resize((shape[1], shape[0]), Image.Resampling.BILINEAR))
