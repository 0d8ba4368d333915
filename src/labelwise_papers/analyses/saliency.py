"""Saliency: the share of pixels that a heat map of the true label marks."""

from typing import Any

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.encoders.encoder import Locates
from labelwise.support.errors import DataError, UnsupportedError, UsageError
from labelwise.support.text import caption
from labelwise.tasks.explain import explain, heat_maps


def salient_share(
    classifier: Classifier,
    images: Tensor,
    targets: Tensor,
    *,
    level: float = 0.5,
    batch: int = 64,
    from_zero: bool = False,
) -> dict[str, Any]:
    """Return the share of pixels that are salient for the true label of their image, averaged over images.

    A pixel is salient where the heat map (Grad-CAM), from 0 to 1 within each image, exceeds ``level``; ``from_zero`` divides the
    map by its highest value alone. What the view crops away does not count. Images without a label (-1) are left out. Also the
    standard deviation over images (``spread``), and the share of images where nothing speaks for the label (``blank``).
    """
    if not 0 <= level < 1:
        raise UsageError(f"The level of a salient pixel lies from 0 to below 1; given {level}.")
    known = targets >= 0
    shares = pixel_shares(classifier, images[known.to(images.device)], targets[known], level, batch, from_zero)
    figures = {"share": shares.mean(), "spread": shares.std(correction=0), "blank": (shares == 0).double().mean()}
    return {"images": len(shares), "level": level, **{name: float(value) for name, value in figures.items()}}


def pixel_shares(
    classifier: Classifier, images: Tensor, targets: Tensor, level: float, batch: int, from_zero: bool = False
) -> Tensor:
    """Return the share of what the network sees of each image that is salient ``[n]`` under the label at ``targets [n]``."""
    if len(classifier.shape) != 3:
        raise UnsupportedError("This model takes precomputed features, not images, so it has no salient pixels.")
    if not len(images):
        raise DataError("There is no labelled image to look at.")
    assert isinstance(classifier.encoder, Locates)
    window, parts = classifier.encoder.window, []
    for pictures, columns in zip(torch.split(images, batch), torch.split(targets, batch), strict=True):
        heat = torch.from_numpy(heat_maps(classifier, pictures.numpy(), columns.numpy(), from_zero=from_zero))
        parts.append((heat[(slice(None), *window)] > level).double().mean((1, 2)).cpu())
    return torch.cat(parts)


def draw_saliency(classifier: Classifier, images: Tensor, targets: Tensor, *, level: float = 0.5) -> Any:
    """Return a figure of some images ``[n, c, h, w]`` under their heat maps; a line encloses what is salient."""
    from matplotlib.figure import Figure

    shares = pixel_shares(classifier, images, targets, level, 64)
    columns = min(4, len(images))
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(2.3 * columns, 2.6 * rows), layout="constrained", facecolor="white")
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for place in places:
        place.axis("off")
    for place, image, target, share in zip(places, images, targets.tolist(), shares.tolist(), strict=False):
        why = explain(classifier.scores(image[None].numpy()), classifier.labels.names[target])
        height, width = why.heat.shape
        place.imshow(why.overlay(), extent=(0, width, height, 0))
        if share:
            across, down = torch.arange(width) + 0.5, torch.arange(height) + 0.5
            place.contour(across, down, why.heat, [level], colors="white", linewidths=1)
        place.set_title(f"{caption(why.label)}\n{100 * share:.1f} % salient", fontsize=8, color="#222222")
    return figure
