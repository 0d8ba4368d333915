"""Encode a data set by a torch backbone: on a GPU, with weights from ``pretrain``, or without an ONNX form."""

from dataclasses import replace

import torch

from labelwise.fitting.encoding import with_features
from labelwise.images.dataset import Dataset
from labelwise.support.errors import DataError, UsageError
from labelwise.train.distribution import choose_device
from labelwise.train.networks.encoder import Encoder, side_for
from labelwise.train.networks.torch_encoder import encode_images


def encode_dataset(dataset: Dataset, encoder: Encoder, device: str = "auto") -> Dataset:
    """Return the data with features ``[n, d]`` instead of pixels, float32 on the CPU.

    The encoder, a backbone with weights, is not trained; its "auto" is "efficientnet_lite0". The device is auto, cpu or cuda.
    """
    if dataset.features:
        raise DataError(f'"{dataset.name}" already has features ({dataset.features} per image). Give images.')
    if encoder.code_size is not None:
        raise UsageError(f"Features have the size that the backbone gives; leave out code_size {encoder.code_size}.")
    side = side_for(encoder)
    network = replace(encoder, frozen=True).build(dataset.shape or (3, side, side)).to(choose_device(device))
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return with_features(dataset, lambda images: encode_images(network, images))
