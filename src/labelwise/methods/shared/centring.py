"""Embeddings around their mean, of unit length, and in the directions in which they vary most."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from labelwise.methods.shared.caption_relevance import CaptionRelevance
from labelwise.methods.shared.head import Array, Centre

FLOOR = 0.1  # of the mean variance, added to that of each direction in a ``Flattening``


class Centring(nn.Module):
    """Rows of unit length around the mean of the rows it was fitted to; ``power`` below 1 evens out large entries."""

    mean: Tensor

    def __init__(self, size: int, power: float = 1.0) -> None:
        super().__init__()
        self.power = power
        self.register_buffer("mean", torch.zeros(size))

    @torch.no_grad()
    def fit(self, rows: Tensor) -> None:
        """Take the mean of these rows ``[n, size]``."""
        self.mean.copy_(self._evened(rows.double()).mean(0))

    def forward(self, rows: Tensor) -> Tensor:
        """Return centred rows of unit length ``[n, size]``."""
        return normalize(self._evened(rows) - self.mean.to(rows.dtype), dim=1)

    def centre(self) -> Centre:
        """Return the same without torch."""
        return Centre(mean=_array(self.mean), power=self.power)

    def _evened(self, rows: Tensor) -> Tensor:
        if self.power == 1.0:
            return rows
        # The root has no slope at zero, where rectified features often are.
        return normalize(rows.sign() * ((rows.abs() + 1e-6) ** self.power - 1e-6**self.power), dim=1)


class Flattening(Centring):
    """Rows of unit length around their mean, in which directions that many rows share weigh less.

    ``flat`` is the power of the variance in a direction by which it is divided. Where rows stand for texts, and images have texts of
    their own, directions first weigh by what images tell of them. What lies in no direction of the rows it was fitted to is dropped.
    Until it is fitted it is a ``Centring``.
    """

    turn: Tensor  # [size, size]

    def __init__(self, size: int, power: float = 1.0) -> None:
        super().__init__(size, power)
        self.flat = 0.125
        self.register_buffer("turn", torch.eye(size))

    @torch.no_grad()
    def fit(self, rows: Tensor, relevance: CaptionRelevance | None = None) -> None:
        """Take the mean and the directions of these rows ``[n, size]``, and what images tell."""
        super().fit(rows)
        unit = super().forward(rows.double())
        told = (
            torch.eye(len(self.turn)).to(unit)
            if relevance is None
            else relevance.weights(self._evened(relevance.texts))
        )
        unit = normalize(unit @ told, dim=1)
        values, axes = torch.linalg.eigh(unit.T @ unit)
        values = values / (values.sum() / min(rows.shape)).clamp_min(1e-12)
        scale = torch.where(values > 1e-6, (values.clamp_min(0) + FLOOR) ** -self.flat, 0)
        self.turn.copy_(told @ (axes * scale) @ axes.T)

    def forward(self, rows: Tensor) -> Tensor:
        """Return centred rows of unit length ``[n, size]``."""
        return normalize(super().forward(rows) @ self.turn.to(rows.dtype), dim=1)

    def centre(self) -> Centre:
        """Return the same without torch."""
        return replace(super().centre(), turn=_array(self.turn))


class PCA(Centring):
    """Rows of unit length around their mean, less all that lies in other directions than those in which they vary most.

    Rows get unit length first, too. Until it is fitted to rows of more numbers than directions it is a ``Centring``.
    """

    directions: Tensor  # orthonormal columns [size, most]; zeros where there are none to choose

    def __init__(self, size: int, most: int) -> None:
        super().__init__(size)
        self.most, self.chosen = most, False
        self.register_buffer("directions", torch.zeros(size, most if most < size else 0))
        self.register_load_state_dict_post_hook(PCA._loaded)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def fit(self, rows: Tensor) -> None:
        """Take the mean and the main directions of these rows ``[n, size]``."""
        self.chosen = self.directions.numel() > 0
        unit = normalize(rows.double(), dim=1)
        super().fit(unit if self.chosen else rows)
        if self.chosen:
            centred = unit - unit.mean(0)
            self.directions.copy_(torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -self.most :])

    def forward(self, rows: Tensor) -> Tensor:
        """Return centred rows of unit length ``[n, size]``."""
        if not self.chosen:
            return super().forward(rows)
        main = self.directions.to(rows.dtype)
        return normalize((normalize(rows, dim=1) - self.mean.to(rows.dtype)) @ main @ main.T, dim=1)

    def centre(self) -> Centre:
        """Return the same without torch."""
        return replace(super().centre(), directions=_array(self.directions)) if self.chosen else super().centre()

    def _loaded(self, _: object) -> None:
        self.chosen = not self.directions.is_meta and bool(self.directions.any())


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy().copy()
