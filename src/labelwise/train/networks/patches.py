"""A one-layer network computed in seconds without training: image patches compared with a dictionary of patches.

What is learned without gradients or labels (``find_patches``): a dictionary of patches (Coates and Ng, 2011), and a linear map
that keeps what stays the same when an image is changed a little. In between, patches are pooled: those count that differ from the rim of the
image, so that it helps where images show one thing, near the middle.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelwise.support.errors import DataError, UsageError
from labelwise.support.settings import setting
from labelwise.train.augment import Augment
from labelwise.train.model import as_float
from labelwise.train.networks.backbone import Backbone
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.tensors import BatchRng, kmeans

SIDE, STRIDE = 4, 2  # patch side and stride in pixels
EMBEDDING_SIZE = 40
RIM = 0.75  # the surroundings: patches farther from the middle, in half sides
REACH = 0.58  # weight radius of patches, in half sides
ROWS, ROW_WIDTH = (-1 / 3, 0.0, 1 / 3), 0.2  # heights of pooling, top to bottom
CONTRAST = 8.0  # down-weighting of patches similar to the surroundings
SURROUNDINGS = 0.35  # share of the surroundings to subtract
SMALLEST = 1e-6
IMAGES, PATCHES, STEPS = 300, 12_000, 12  # patches and iterations for the dictionary
PRINCIPAL = 200  # directions to keep
FLOOR, RIDGE = 0.01, 0.05  # regularisation, relative to the largest and the mean variance
PIECE = 64


class PatchNet(Backbone):
    """Dictionary activations of patches, pooled at three heights without the surroundings, and mapped to 40 numbers.

    ``width`` is how many patches the dictionary has.
    """

    def __init__(self, shape: tuple[int, ...], width: int = 200) -> None:
        super().__init__(EMBEDDING_SIZE)
        if min(shape[1:]) < 2 * SIDE:
            raise UsageError(f'The backbone "patches" takes images of {2 * SIDE} pixels a side or more; given {shape}.')
        size = min(EMBEDDING_SIZE, shape[0] * SIDE * SIDE)
        # filters from patches to f numbers [f, c, 4, 4]
        self.filters = nn.Parameter(torch.randn(size, shape[0], SIDE, SIDE).div_(SIDE))
        self.shift = nn.Parameter(torch.zeros(size))  # bias [f]
        self.dictionary = nn.Parameter(torch.randn(width, size))  # dictionary of patches in filter space [width, f]
        # mean of pooled activations [3 * width]
        self.around = nn.Parameter(torch.zeros(len(ROWS) * width))
        # map to the output [3 * width, 40]
        self.directions = nn.Parameter(torch.randn(len(ROWS) * width, EMBEDDING_SIZE))

    def patches(self, x: Tensor) -> Tensor:
        """Return the filter responses of each patch ``[n, p, f]``."""
        return F.conv2d(x, self.filters, self.shift, STRIDE).flatten(2).mT

    def maps(self, x: Tensor) -> Tensor:
        """Return how much closer each patch is to a dictionary entry than average ``[n, width, h, w]``."""
        places = [(side - SIDE) // STRIDE + 1 for side in x.shape[2:]]
        far = torch.cdist(self.patches(x), self.dictionary)
        return (far.mean(2, keepdim=True) - far).clamp_min(0).mT.reshape(x.shape[0], -1, *places)

    def activations(self, maps: Tensor) -> Tensor:
        """Pool activations at three heights ``[n, 3 * width]``, minus the surroundings."""
        y, x = (torch.linspace(-1, 1, side, device=maps.device) for side in maps.shape[2:])
        down, across = (grid.flatten() for grid in torch.meshgrid(y, x, indexing="ij"))
        activations = maps.flatten(2).mT  # [n, p, width]
        rim = activations[:, torch.maximum(down.abs(), across.abs()) > RIM].mean(1)
        like = (F.normalize(activations, dim=2) @ F.normalize(rim, dim=1)[:, :, None])[..., 0]
        counts = torch.exp(-CONTRAST * like - (down.square() + across.square()) / REACH**2)
        rows = torch.stack([torch.exp(-(((down - row) / ROW_WIDTH) ** 2)) for row in ROWS])
        weights = counts[:, None] * rows
        means = weights / weights.sum(2, keepdim=True) @ activations
        return (means - SURROUNDINGS * rim[:, None]).clamp_min(SMALLEST).sqrt().flatten(1)

    def pool(self, maps: Tensor) -> Tensor:
        """Return embeddings ``[n, 40]``."""
        return (self.activations(maps) - self.around) @ self.directions


@dataclass(frozen=True, kw_only=True)
class Patches:
    """Settings of an encoder of patches."""

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
    """Fit an encoder of patches to images; its embeddings are uncorrelated with variance 1.

    Images are bytes ``[n, c, h, w]``; the seed is that of the dictionary and of the changes.
    """
    settings_used = settings or Patches()
    if len(images) <= EMBEDDING_SIZE:
        raise DataError(f"Patches are found on more than {EMBEDDING_SIZE} images; given {len(images)}. Add images.")
    shape = tuple(images.shape[1:])
    network = PatchNet(shape, settings_used.width).requires_grad_(False)
    encoder = ImageEncoder(network, shape)
    encoder.fit_normalisation(images)
    generator = torch.Generator().manual_seed(seed)
    _fit_dictionary(encoder, network, images[torch.randperm(len(images), generator=generator)[:IMAGES]], generator)
    rngs = [BatchRng.from_seed(seed + 1 + view, len(images)) for view in range(2)]
    changed_features = [_pooled_features(encoder, network, settings_used.augment(images, rng)) for rng in rngs]
    _fit_directions(network, _pooled_features(encoder, network, images), changed_features)
    return encoder.eval().requires_grad_(True)


def _fit_dictionary(encoder: ImageEncoder, network: PatchNet, images: Tensor, generator: torch.Generator) -> None:
    """Set the filters to whitened principal directions of patches, and the dictionary to cluster centres."""
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


def _pooled_features(encoder: ImageEncoder, network: PatchNet, images: Tensor) -> Tensor:
    """Return pooled activations ``[n, q]``."""
    parts = torch.split(images, PIECE)
    return torch.cat([network.activations(network.maps(encoder.prepare(as_float(part)))) for part in parts])


def _fit_directions(network: PatchNet, features: Tensor, changed_features: list[Tensor]) -> None:
    """Set the directions to those that vary most over images, relative to two changed copies of an image.

    From activations of images ``[n, q]``, and of two changed copies of each.
    """
    x = features.double()
    mean = x.mean(0)
    first = torch.linalg.svd(x - mean, full_matrices=False).Vh[:PRINCIPAL].T
    differences = (changed_features[0] - changed_features[1]).double() @ first / 2**0.5
    noise = differences.T @ differences / len(x)
    noise += RIDGE * noise.trace() / len(noise) * torch.eye(len(noise), dtype=torch.float64)
    values, vectors = torch.linalg.eigh(noise)
    equal = first @ (vectors / values.clamp_min(1e-12).sqrt())  # copies of an image differ by 1 in every direction
    embeddings = (x - mean) @ equal
    values, vectors = torch.linalg.eigh(embeddings.T @ embeddings / len(x))
    network.around.copy_(mean)
    network.directions.copy_(equal @ (vectors[:, -EMBEDDING_SIZE:] / values[-EMBEDDING_SIZE:].clamp_min(1e-12).sqrt()))
