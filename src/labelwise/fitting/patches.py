"""An image encoder in seconds, without labels or gradients: a dictionary of patches, and what changes of an image leave alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.methods.zero_label.clusters import kmeans
from labelwise.support.errors import DataError, UsageError
from labelwise.support.settings import setting
from labelwise.train.augment import Augment
from labelwise.train.model import as_float
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.patches import EMBEDDING_SIZE, PatchNet
from labelwise.train.rng import BatchRng

IMAGES, PATCHES, STEPS = 300, 12_000, 12  # that the dictionary is made of, and how long it is looked for
PRINCIPAL = 200  # directions of pooled activations that are kept
FLOOR, RIDGE = 0.01, 0.05  # shares of the largest variance and of the mean variance that are added
PIECE = 64


@dataclass(frozen=True, kw_only=True)
class Patches:
    """How to find an encoder of patches."""

    width: int = setting(200, "Patches in the dictionary.")
    augment: Augment = setting(
        Augment(scale=(0.6, 1.0), flip=True, brightness=0.3, contrast=0.1, saturation=0.1, hue=0.02),
        "What should not change an embedding much; colours stay.",
    )

    def __post_init__(self) -> None:
        if self.width < EMBEDDING_SIZE:
            raise UsageError(f"The dictionary needs at least {EMBEDDING_SIZE} patches; given {self.width}.")


@torch.no_grad()
def find_patches(images: Tensor, settings: Patches | None = None, *, seed: int = 0) -> ImageEncoder:
    """Return an encoder found for these images; its embeddings are uncorrelated and have a variance of 1 over them.

    Images are bytes ``[n, c, h, w]``; the seed is that of the dictionary and of the changes.
    """
    how = settings or Patches()
    if len(images) <= EMBEDDING_SIZE:
        raise DataError(f"Patches are found on more than {EMBEDDING_SIZE} images; given {len(images)}. Add images.")
    shape = tuple(images.shape[1:])
    network = PatchNet(shape, how.width).requires_grad_(False)
    encoder = ImageEncoder(network, shape)
    encoder.fit_normalisation(images)
    generator = torch.Generator().manual_seed(seed)
    _fit_dictionary(encoder, network, images[torch.randperm(len(images), generator=generator)[:IMAGES]], generator)
    rngs = [BatchRng.seeded(seed + 1 + view, len(images)) for view in range(2)]
    changed = [_pooled(encoder, network, how.augment(images, rng)) for rng in rngs]
    _fit_directions(network, _pooled(encoder, network, images), changed)
    return encoder.eval().requires_grad_(True)


def _fit_dictionary(encoder: ImageEncoder, network: PatchNet, images: Tensor, generator: torch.Generator) -> None:
    """Set the filters to the principal directions of patches, each of variance 1, and the dictionary to their clusters."""
    side = network.filters.shape[-1]
    ready = encoder.prepare(as_float(images))
    every = torch.nn.functional.unfold(ready, side, stride=side // 2).mT.flatten(0, 1)
    some = every[torch.randperm(len(every), generator=generator)[:PATCHES]]
    mean = some.mean(0)
    values, vectors = torch.linalg.eigh((some - mean).T @ (some - mean) / len(some))
    size = len(network.filters)
    rows = (vectors[:, -size:] / (values[-size:] + FLOOR * values[-1]).clamp_min(1e-12).sqrt()).T
    network.filters.copy_(rows.view_as(network.filters))
    network.shift.copy_(-rows @ mean)
    clusters = kmeans((some - mean) @ rows.T, len(network.dictionary), generator, starts=1, steps=STEPS)
    network.dictionary.copy_(clusters.centres)


def _pooled(encoder: ImageEncoder, network: PatchNet, images: Tensor) -> Tensor:
    """Return pooled activations ``[n, q]``."""
    parts = torch.split(images, PIECE)
    return torch.cat([network.pooled(network.maps(encoder.prepare(as_float(part)))) for part in parts])


def _fit_directions(network: PatchNet, pooled: Tensor, changed: list[Tensor]) -> None:
    """Set the directions to those that vary most over images, against what two changed copies of an image differ by.

    From activations of images ``[n, q]``, and of two changed copies of each.
    """
    x = pooled.double()
    mean = x.mean(0)
    first = torch.linalg.svd(x - mean, full_matrices=False).Vh[:PRINCIPAL].T
    apart = (changed[0] - changed[1]).double() @ first / 2**0.5
    noise = apart.T @ apart / len(x)
    noise += RIDGE * noise.trace() / len(noise) * torch.eye(len(noise), dtype=torch.float64)
    values, vectors = torch.linalg.eigh(noise)
    equal = first @ (vectors / values.clamp_min(1e-12).sqrt())  # copies of an image differ by 1 in every direction
    embeddings = (x - mean) @ equal
    values, vectors = torch.linalg.eigh(embeddings.T @ embeddings / len(x))
    network.around.copy_(mean)
    network.directions.copy_(equal @ (vectors[:, -EMBEDDING_SIZE:] / values[-EMBEDDING_SIZE:].clamp_min(1e-12).sqrt()))
