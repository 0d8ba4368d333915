"""A learned similarity S(a, b) of two embeddings, in torch for training; ``head.PairScore`` predicts.

The first layer on a concatenation splits, W [a, b] = W1 a + W2 b, so each embedding passes through it once. Only
leaky(u + v) of two hidden vectors is computed for each pair.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, leaky_relu, linear, normalize
from torch.utils.checkpoint import checkpoint

from labelwise.methods.prototype.head import SLOPE
from labelwise.support.errors import UsageError

Kind = Literal["learned", "cosine", "both"]
Symmetric = Literal["none", "max", "mean"]
Score = Callable[[Tensor, Tensor], Tensor]  # the outputs of ``first`` and ``second`` to a part of S
KEPT = 2**25  # hidden values of pairs in memory at a time; beyond, the backward pass recomputes them


@dataclass(frozen=True, kw_only=True)
class SimilaritySettings:
    """Which similarity."""

    # `learned`: a network on both embeddings; `cosine`: a learned scale and offset; `both`: their sum, where the network
    # learns the residual of the cosine
    kind: Kind = "learned"
    symmetric: Symmetric = "none"  # how S(a, b) and S(b, a) are combined; `none` keeps S(a, b)
    hidden: int = 512  # the size of a hidden layer
    layers: int = 1  # one hidden layer, or two
    dropout: float = 0.25  # before the output

    def __post_init__(self) -> None:
        if self.hidden < 1 or self.layers not in (1, 2) or not 0 <= self.dropout < 1:
            raise UsageError(
                "A similarity has 1 or 2 layers of at least 1 hidden unit, and a dropout from 0 to below 1; "
                f"given {self.layers} of {self.hidden}, dropout {self.dropout}."
            )
        for name, allowed in (("kind", get_args(Kind)), ("symmetric", get_args(Symmetric))):
            if getattr(self, name) not in allowed:
                raise UsageError(
                    f'"{name}" of a similarity is one of {", ".join(allowed)}; given {getattr(self, name)}.'
                )


class Similarity(nn.Module):
    """S(a, b) of every pair of two lists of embeddings, larger is more similar; a prototype is a, an example b.

    ``first`` and ``second`` precompute the part of S that depends on one embedding:
    ``pairs(first(a), second(b))`` is ``forward(a, b)``.
    """

    def __init__(self, size: int, settings: SimilaritySettings) -> None:
        super().__init__()
        self.size, self.settings = size, settings
        self.learned, self.cosine = settings.kind != "cosine", settings.kind != "learned"
        if self.cosine:
            self.scale, self.offset = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(-5.0))
        if not self.learned:
            return
        h = settings.hidden
        self.input = nn.Linear(2 * size, h)
        self.middle = nn.Linear(h, h) if settings.layers == 2 else None
        self.output = nn.Linear(h, 1)

    @property
    def first_size(self) -> int:
        """The output size of ``first``."""
        return self._hidden_size + (self.size if self.cosine else 0)

    @property
    def _hidden_size(self) -> int:
        """The number of columns of ``first`` that feed the network."""
        return self.settings.hidden * (1 if self.settings.symmetric == "none" else 2) if self.learned else 0

    def first(self, embeddings: Tensor) -> Tensor:
        """Precompute the part ``[n, e]`` of S that depends on the first embeddings ``[n, d]``."""
        return self._needed((0, 1), embeddings)

    def second(self, embeddings: Tensor) -> Tensor:
        """Precompute the part ``[m, e]`` of S that depends on the second embeddings ``[m, d]``."""
        return self._needed((1, 0), embeddings)

    def pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """Return S of every pair ``[n, m]`` from the outputs of ``first`` and ``second``.

        Extra memory is bounded: only one tile of hidden vectors exists at a time.
        """
        return self._sum(self._scores, lambda a, b: a @ b.T, first, second)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return S of every pair ``[n, m]`` of embeddings ``[n, d]`` and ``[m, d]``."""
        return self.pairs(self.first(a), self.second(b))

    def _sum(self, learned_score: Score, cosine: Score, first: Tensor, second: Tensor) -> Tensor:
        """Return the sum of the network's and the cosine's scores."""
        e = self._hidden_size
        if not self.cosine:
            return self._each_way(learned_score, first, second)
        with torch.autocast(first.device.type, enabled=False):
            scaled_cosine = self.scale * cosine(first[:, e:].float(), second[:, e:].float()) + self.offset
        return (
            scaled_cosine + self._each_way(learned_score, first[:, :e], second[:, :e])
            if self.learned
            else scaled_cosine
        )

    def _needed(self, halves: tuple[int, int], embeddings: Tensor) -> Tensor:
        """Return what embeddings add to the hidden layer, as the half of its input that comes first here, and their direction."""
        parts = []
        if self.learned:
            weights = self.input.weight.split(self.size, 1)  # type: ignore[no-untyped-call]
            used_halves = halves[:1] if self.settings.symmetric == "none" else halves
            parts = [linear(embeddings, weights[half], None if half else self.input.bias) for half in used_halves]
        if self.cosine:
            parts.append(normalize(embeddings.float(), dim=1))
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]

    def _each_way(self, score: Score, first: Tensor, second: Tensor) -> Tensor:
        """Return S(a, b), combined with S(b, a) if ``symmetry`` asks for it."""
        if self.settings.symmetric == "none":
            return score(first, second)
        h = self.settings.hidden
        forward, backward = score(first[:, :h], second[:, :h]), score(first[:, h:], second[:, h:])
        return torch.maximum(forward, backward) if self.settings.symmetric == "max" else (forward + backward) / 2

    def _scores(self, u: Tensor, v: Tensor) -> Tensor:
        """Return S ``[n, m]`` of hidden vectors ``[n, h]`` and ``[m, h]`` whose sums are the first hidden layer."""
        room = max(1, KEPT // max(1, len(v) * u.shape[1]))
        if len(u) <= room or torch.compiler.is_exporting():  # parts would fix the number of images
            return self._of_all(u, v)
        of_part = self._of_all
        if torch.is_grad_enabled():
            of_part = partial(checkpoint, self._of_all, use_reentrant=False)
        return torch.cat([of_part(part, v) for part in torch.split(u, room)])

    def _of_all(self, u: Tensor, v: Tensor) -> Tensor:
        """Return S ``[n, m]`` from the hidden vectors of all pairs at once."""
        return self._of_sums(u[:, None] + v)

    def _of_sums(self, sums: Tensor) -> Tensor:
        """Return S ``[...]`` of the first hidden layer ``[..., h]`` before its activation."""
        activations = leaky_relu(sums, SLOPE)
        if self.middle is not None:
            activations = leaky_relu(self.middle(activations), SLOPE)
        return self.output(dropout(activations, self.settings.dropout, self.training))[..., 0]  # type: ignore[no-any-return]
