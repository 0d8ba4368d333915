"""A network of one layer that is found, not trained: small patches compared with a dictionary of patches.

What is learned without gradients or labels (``methods.patches``): a dictionary of patches (Coates and Ng, 2011), and a linear map
that keeps what stays the same when an image is changed a little. In between, patches are pooled: those count that differ from the rim of the
image, so that it helps where images show one thing, near the middle.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelwise.support.errors import UsageError
from labelwise.train.networks.backbone import Backbone

SIDE, STRIDE = 4, 2  # of a patch, and from one to the next, in pixels
EMBEDDING_SIZE = 40
RIM = 0.75  # patches farther from the middle, in halves of the side, are the surroundings
REACH = 0.58  # how far from the middle patches count, likewise
ROWS, ROW_WIDTH = (-1 / 3, 0.0, 1 / 3), 0.2  # where patches are pooled, from top to bottom
CONTRAST = 8.0  # how much patches count less that look like the surroundings
SURROUNDINGS = 0.35  # share of the surroundings that is taken off
SMALLEST = 1e-6


class PatchNet(Backbone):
    """Dictionary activations of patches, pooled at three heights without the surroundings, and mapped to 40 numbers.

    ``width`` is how many patches the dictionary has.
    """

    def __init__(self, shape: tuple[int, ...], width: int = 200) -> None:
        super().__init__(EMBEDDING_SIZE)
        if min(shape[1:]) < 2 * SIDE:
            raise UsageError(f'The backbone "patches" takes images of {2 * SIDE} pixels a side or more; given {shape}.')
        size = min(EMBEDDING_SIZE, shape[0] * SIDE * SIDE)
        # makes a patch into f numbers [f, c, 4, 4]
        self.filters = nn.Parameter(torch.randn(size, shape[0], SIDE, SIDE).div_(SIDE))
        self.shift = nn.Parameter(torch.zeros(size))  # added to these [f]
        self.dictionary = nn.Parameter(torch.randn(width, size))  # patches, as these numbers [width, f]
        # what is taken from pooled activations [3 * width]
        self.around = nn.Parameter(torch.zeros(len(ROWS) * width))
        # what they are then mapped with [3 * width, 40]
        self.directions = nn.Parameter(torch.randn(len(ROWS) * width, EMBEDDING_SIZE))

    def patches(self, x: Tensor) -> Tensor:
        """Return each patch as numbers ``[n, p, f]``."""
        return F.conv2d(x, self.filters, self.shift, STRIDE).flatten(2).mT

    def maps(self, x: Tensor) -> Tensor:
        """Return by how much each patch is nearer to a dictionary patch than to the mean one ``[n, width, h, w]``."""
        places = [(side - SIDE) // STRIDE + 1 for side in x.shape[2:]]
        far = torch.cdist(self.patches(x), self.dictionary)
        return (far.mean(2, keepdim=True) - far).clamp_min(0).mT.reshape(len(x), -1, *places)

    def pooled(self, maps: Tensor) -> Tensor:
        """Return the activations at three heights ``[n, 3 * width]``, the surroundings taken off."""
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
        return (self.pooled(maps) - self.around) @ self.directions
