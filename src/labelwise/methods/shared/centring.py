"""Embeddings around their mean, of unit length."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from labelwise.methods.shared.head import Array, Centre


class Centring(nn.Module):
    """Rows of unit length around the mean of the rows it was fitted to; ``power`` below 1 evens out large entries."""

    mean: Tensor

    def __init__(self, size: int, power: float = 1.0) -> None:
        super().__init__()
        self.power = power
        self.register_buffer("mean", torch.zeros(size))

    @torch.no_grad()
    def fit(self, rows: Tensor) -> None:
        """Fit the mean to rows ``[n, size]``."""
        self.mean.copy_(self.even(rows.double()).mean(0))

    def forward(self, rows: Tensor) -> Tensor:
        """Return centred rows of unit length ``[n, size]``."""
        return normalize(self.even(rows) - self.mean.to(rows.dtype), dim=1)

    def centre(self) -> Centre:
        """Return the NumPy equivalent."""
        return Centre(mean=array(self.mean), power=self.power)

    def even(self, rows: Tensor) -> Tensor:
        """Apply the signed power and scale rows to unit length; a power of 1 changes nothing."""
        if self.power == 1.0:
            return rows
        # The root has no slope at zero, where rectified features often are.
        return normalize(rows.sign() * ((rows.abs() + 1e-6) ** self.power - 1e-6**self.power), dim=1)


def array(tensor: Tensor) -> Array:
    """Copy a tensor to an array."""
    return tensor.detach().cpu().numpy().copy()
