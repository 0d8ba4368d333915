"""Read the images of a fit once: as features if the encoder is frozen, otherwise as pixels of the shape that the method takes."""

from dataclasses import replace

import torch

from labelwise.fitting.choice import encoder_of, shape_for
from labelwise.images.dataset import Dataset, Split
from labelwise.images.images import ArrayImages, FeatureRows, Skipped, skipped_lines
from labelwise.images.sources.build import readable
from labelwise.images.view import Fit
from labelwise.train.method import Method, Run
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.torch_encoder import encode_images
from labelwise.train.pixels import readable_pixels
from labelwise.train.train_data import EncodedImages


def read_for(method: Method, data: Dataset, run: Run, device: torch.device) -> Dataset:
    """Return data with training and validation images read; unreadable ones are left out and reported."""
    shape, fit = shape_for(method, data), method.view.fit
    data = readable(data, ("train", "val"), shape)
    encoder = encoder_of(method)
    trains = getattr(method, "adversarial", None) is not None or getattr(method, "tune", None) is not None
    is_frozen = encoder.frozen and len(shape) == 3 and not trains
    network = encoder.build(shape, method.view).to(device) if is_frozen else None
    if network is not None and not network.fixed:  # its features depend on all training images
        network = None
    splits, before = dict(data.splits), len(data.skipped)
    for name in ("train", "val"):
        if name in splits:
            splits[name], skipped = _read(splits[name], shape, fit, network)
            data = replace(data, skipped=(*data.skipped, *skipped))
    if run.tell is not None:
        for line in skipped_lines(data.skipped[before:]):
            run.tell(f"Skipped {line}")
    return replace(data, splits=splits)


def _read(
    split: Split, shape: tuple[int, ...], fit: Fit, network: ImageEncoder | None
) -> tuple[Split, tuple[Skipped, ...]]:
    """Return a split with its images read, as features if there is a frozen network, else as pixels; and the skipped images."""
    if isinstance(split.images, EncodedImages | FeatureRows) or not len(split):
        return split, ()
    if network is not None:
        encoded = encode_images(network, split.images)
        split = split.select(encoded.rows)
        features = torch.from_numpy(encoded.values).to(network.mean.device)
        return replace(split, images=EncodedImages(split.images, features, shape)), encoded.skipped
    values, skipped = readable_pixels(split.images, shape, fit)
    split = split.select([row for row in range(len(split)) if row not in skipped])
    if isinstance(split.images, ArrayImages) and split.images.shape == shape:
        return split, ()
    return replace(split, images=ArrayImages(values.numpy(), split.images.ids, split.images.digests())), tuple(
        skipped.values()
    )
