"""Explain: Grad-CAM of a label's score shows which parts of an image are evidence for the label."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from labelwise.core.arrays import Array
from labelwise.core.classifier import Classifier
from labelwise.core.head import Head, feature_slopes
from labelwise.core.scores import Scores
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Encoder, Locates
from labelwise.images.images import ArrayImages
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.support.settings import brief

GRID = 8  # positions per side, covered one after another
COVER = 2  # size of the cover


def evidence(encoder: Encoder, head: Head, label_embeddings: Array, images: Array, weights: Array) -> Array:
    """Return a map of the evidence for the weighted scores ``[n, k]`` in images ``[n, c, h, w]``.

    It is at least 0, at the size of the images ``[n, h, w]``, and 0 where the encoder does not look.
    """
    if len(encoder.shape) != 3:
        raise UnsupportedError(
            f"A heat map needs a classifier of images; this one takes {list(encoder.shape)} (features or sounds)."
        )
    if not isinstance(encoder, Locates) or not encoder.has_maps:
        return np.stack(
            [_occlusion_map(encoder, head, label_embeddings, *pair) for pair in zip(images, weights, strict=True)]
        )
    features, maps = encoder.locate(images)
    slopes = feature_slopes(head, features, label_embeddings, weights)
    heat = np.maximum(np.einsum("nc,nchw->nhw", slopes, maps), 0).astype(np.float32)
    full_maps = np.zeros((len(images), *images.shape[2:]), np.float32)
    inside = full_maps[(slice(None), *encoder.window)]
    for place, heat_map in zip(inside, heat, strict=True):
        place[:] = _resize(heat_map, place.shape)
    return full_maps


def _occlusion_map(encoder: Encoder, head: Head, label_embeddings: Array, image: Array, weights: Array) -> Array:
    """Return the drop of the weighted score of an image ``[c, h, w]`` where its mean colour covers it ``[h, w]``."""
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
            patch = slice(i, GRID - COVER + 1 + i), slice(j, GRID - COVER + 1 + j)
            sums[patch] += falls
            counts[patch] += 1
    return _resize(np.maximum(sums / counts, 0).astype(np.float32), (height, width))


def _features(encoder: Encoder, images: Array) -> Array:
    return encode(encoder, ArrayImages(images), cache=False, progress=False).values


def _resize(heat: Array, shape: tuple[int, ...]) -> Array:
    """Resize a map by linear interpolation."""
    return np.asarray(Image.fromarray(heat).resize((shape[1], shape[0]), Image.Resampling.BILINEAR))


TINY = 1e-12
FOR, AGAINST = ("orange", (255, 130, 0)), ("blue", (20, 90, 255))  # colours of two labels set against each other
# of a heat map, from cold to hot
HEAT = ((0, 0, 4), (31, 12, 72), (85, 15, 109), (136, 34, 106), (186, 54, 85), (227, 89, 51), (249, 140, 10), (249, 201, 50), (252, 255, 164))  # fmt: skip


@dataclass(frozen=True, eq=False)
class Explanation:
    """The heat map of one label."""

    label: str  # the label asked about
    probability: float  # of a yes to it
    heat: NDArray[np.float32]  # [h, w] in [0, 1]; large for evidence for the label
    image: NDArray[np.uint8]  # the image as the encoder sees it, bytes [h, w, 3]
    against: str | None = None  # the contrasted label, if any
    # [h, w] in [0, 1], large for evidence for the contrasted label; both on one scale
    heat_against: NDArray[np.float32] | None = None

    __repr__ = brief

    @property
    def lines(self) -> tuple[str, ...]:
        """The meaning of the overlay's colours, one line per label."""
        if self.against is None:
            return (f"evidence for {self.label}",)
        return f"why {self.label} ({FOR[0]}),", f"not {self.against} ({AGAINST[0]})"

    @property
    def title(self) -> str:
        """The same text in one line."""
        return " ".join(self.lines)

    def overlay(self, side: int = 384) -> Image.Image:
        """Return the image under the heat map, with ``side`` pixels on the longer side; two labels get two colours."""
        height, width = self.heat.shape
        size = (round(side * width / max(height, width)), round(side * height / max(height, width)))
        photo = Image.fromarray(self.image).resize(size, Image.Resampling.BICUBIC)
        blend, level = np.asarray(photo, np.float32), _level(self.heat, size)
        if self.heat_against is None:
            layers = [(level, heat_colours(level[..., 0]))]
        else:
            layers = [(level, np.array(FOR[1])), (_level(self.heat_against, size), np.array(AGAINST[1]))]
        for share, colour in layers:
            blend = (blend * (1 - 0.65 * share) + colour * 0.65 * share).astype(np.float32)
        return Image.fromarray(blend.clip(0, 255).astype(np.uint8))


def heat_colours(level: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return colours ``[h, w, 3]`` for levels in [0, 1]: black, purple, orange, light yellow."""
    steps = np.linspace(0, 1, len(HEAT))
    return np.stack([np.interp(level, steps, channel) for channel in np.transpose(HEAT)], -1)


def _level(heat: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    """Return a heat map resized to pixels ``[h, w, 1]``."""
    small = Image.fromarray((heat * 255).astype(np.uint8)).resize(size, Image.Resampling.BICUBIC)
    return np.asarray(small, np.float32)[..., None] / np.float32(255)


def explain(scores: Scores, label: str | None = None, against: str | None = None) -> Explanation:
    """Return the heat map of one image for a label, by default the best one, optionally in contrast to another."""
    classifier, images = scores.classifier, scores.images
    if len(scores) != 1 or images is None:
        raise UsageError(f"explain takes one image; given {len(scores)}. Call it once per image.")
    column = int(scores.best[0]) if label is None else classifier.labels.index(classifier.labels.meant(label))
    name, probability = classifier.labels.names[column], float(scores.yes[0, column])
    pixels = classifier.batch(images)
    if against is None:
        heat = heat_maps(classifier, pixels, np.array([column]))[0]
        return Explanation(name, probability, heat, _to_uint8(pixels[0]))
    contrast = classifier.labels.index(classifier.labels.meant(against))
    if contrast == column:
        raise UsageError(f'The contrasted label must differ; given "{name}" twice.')
    against = classifier.labels.names[contrast]
    pair = np.array([column, contrast])
    maps = _local_maps(classifier, np.repeat(pixels, 2, 0), pair, pair[::-1])
    first, second = maps / max(float(maps.max()), TINY)
    return Explanation(name, probability, first, _to_uint8(pixels[0]), against, second)


def _to_uint8(image: Array) -> NDArray[np.uint8]:
    """Return an image as colour bytes ``[h, w, 3]``."""
    return np.ascontiguousarray(np.broadcast_to(image[:3], (3, *image.shape[1:])).transpose(1, 2, 0))


def heat_maps(classifier: Classifier, images: Array, columns: Array, *, from_zero: bool = False) -> Array:
    """Return Grad-CAM ``[n, h, w]`` in [0, 1] for label ``columns[i]`` of image i, at the images' size; 0 outside the view's crop.

    The gradient of the asked score with respect to the features, which are the mean of feature maps, weighs these maps; what
    is positive in their sum speaks for the label. Where scores are distances, all of them shrink together as an image
    looks more like any image with a text, so the score is taken against the mean of all labels. Each map is scaled from its lowest
    value, or ``from_zero``, to its highest.
    """
    maps = _local_maps(classifier, images, columns)
    encoder = classifier.encoder
    inside = maps[(slice(None), *encoder.window)] if isinstance(encoder, Locates) else maps
    high = inside.max((1, 2), keepdims=True)
    low = 0.0 if from_zero else inside.min((1, 2), keepdims=True)
    inside[:] = (inside - low) / np.maximum(high - low, TINY)
    return maps


def _local_maps(classifier: Classifier, images: Array, columns: Array, others: Array | None = None) -> Array:
    """Return the evidence ``[n, h, w]`` for label ``columns[i]`` over ``others[i]`` in image i, at least 0, at the images' size."""
    head, rows = classifier.head, np.arange(len(images))
    weights = np.zeros((len(images), len(classifier.labels)))
    weights[rows, columns] = 1
    if others is not None:
        weights[rows, others] = -1
    elif head.penalty == "scale":
        weights -= 1 / weights.shape[1]
    return evidence(classifier.encoder, head, classifier.label_embeddings, images, weights)
