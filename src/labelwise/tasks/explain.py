"""Explain: which parts of a picture speak for the asked label? Grad-CAM of that label's score."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from labelwise.capabilities import LOCATE
from labelwise.classifier import Classifier
from labelwise.errors import UnsupportedError, UsageError
from labelwise.model import Locates, as_float, cannot
from labelwise.scores import Scores
from labelwise.settings import brief


@dataclass(frozen=True, eq=False)
class Explanation:
    """A heat map for one label."""

    label: str  # the label that was asked about
    probability: float  # of a yes to it
    heat: NDArray[np.float32]  # [h, w] in [0, 1]; large where the picture speaks for the label
    picture: NDArray[np.uint8]  # what the model saw, bytes [h, w, 3]

    __repr__ = brief

    def overlay(self, side: int = 384) -> Image.Image:
        """Return the picture with the heat map laid over it, its longer side ``side`` pixels."""
        from matplotlib import colormaps

        height, width = self.heat.shape
        size = (round(side * width / max(height, width)), round(side * height / max(height, width)))
        picture = Image.fromarray(self.picture).resize(size, Image.Resampling.BICUBIC)
        heat = Image.fromarray((self.heat * 255).astype(np.uint8)).resize(size, Image.Resampling.BICUBIC)
        level = np.asarray(heat, np.float32)[..., None] / 255
        colour = colormaps["inferno"](level[..., 0])[..., :3] * 255
        mixed = np.asarray(picture, np.float32) * (1 - 0.65 * level) + colour * 0.65 * level
        return Image.fromarray(mixed.clip(0, 255).astype(np.uint8))


def explain(scores: Scores, label: str | None = None) -> Explanation:
    """Return the heat map of one picture for a label; None asks about the label that fits best."""
    classifier, images = scores.classifier, scores.images
    if len(scores) != 1 or images is None:
        raise UsageError(f"Explain takes one picture at a time, not its embedding alone; given {len(scores)}.")
    column = int(scores.best) if label is None else classifier.labels.index(label)
    heat = heat_maps(classifier, images, torch.tensor([column]))[0]
    picture = images[0][:3].expand(3, -1, -1).permute(1, 2, 0)
    name, probability = classifier.labels.names[column], float(scores.yes[0, column])
    return Explanation(name, probability, heat.cpu().numpy(), picture.contiguous().cpu().numpy())


def heat_maps(classifier: Classifier, images: Tensor, columns: Tensor) -> Tensor:
    """Return Grad-CAM ``[n, h, w]`` in [0, 1] of the score of label ``columns[i]`` for image i, at the images' size; 0 outside the view's crop.

    The gradient of the asked score with respect to the last feature maps, averaged over space, weighs the maps; what
    is positive in their sum speaks for the label. Where scores are distances, all of them shrink together as a picture
    looks more like any picture with a text, so the score is taken against the mean of all labels.
    """
    model = classifier.model
    if not isinstance(model, Locates):
        raise cannot(model, f"{LOCATE}: it has no feature maps")
    if len(classifier.shape) != 3:
        raise UnsupportedError(
            f"A heat map lies over a picture, and this classifier takes {list(classifier.shape)}: features, or a sound. "
            "Explain answers of a classifier of pictures."
        )
    pixels = as_float(images.to(model.device))
    heat = _heat(classifier, model.feature_maps(pixels), columns)
    if classifier.view.mirror:
        heat = heat + _heat(classifier, model.feature_maps(pixels.flip(3)), columns).flip(3)
    window = (slice(None), *classifier.view.window(*pixels.shape[2:]))
    whole = torch.zeros_like(pixels[:, 0])
    heat = interpolate(heat, size=whole[window].shape[1:], mode="bilinear", align_corners=False)[:, 0]
    low, high = heat.amin((1, 2), keepdim=True), heat.amax((1, 2), keepdim=True)
    whole[window] = (heat - low) / (high - low).clamp_min(1e-12)
    return whole


def _heat(classifier: Classifier, maps: Tensor, columns: Tensor) -> Tensor:
    """Return what speaks for a label in feature maps ``[n, c, h, w]``: their sum by weight ``[n, 1, h, w]``."""
    model = classifier.model
    assert isinstance(model, Locates)
    with torch.enable_grad():
        maps = maps.detach().requires_grad_()
        scores = model.score(model.pool_maps(maps).float(), classifier.label_embeddings)
        if model.penalty == "scale":
            scores = scores - scores.mean(1, keepdim=True)
        asked = scores.gather(1, columns.to(scores.device)[:, None])
        (gradient,) = torch.autograd.grad(asked.sum(), maps)
    weights = gradient.mean((2, 3), keepdim=True)
    return (weights * maps.detach()).sum(1, keepdim=True).relu()
