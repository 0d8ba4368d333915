"""A normalising flow: an invertible network between vectors of one size, with the log-determinant of its Jacobian."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, linear, relu

from labelwise.methods.izf.head import ATAN, CLAMP
from labelwise.support.errors import UsageError, listing, suggest
from labelwise.support.settings import check_range

Mixing = Literal["permutation", "lu"]
Activation = Literal["leaky_relu", "relu"]
START = 0.01  # standard deviation of every parameter at the start
MOST_BLOCKS = 1_000


@dataclass(frozen=True, kw_only=True)
class FlowSettings:
    """How a flow is built."""

    blocks: int = 5  # how often coordinates are mixed and then transformed
    hidden: int = 1024  # width of the one hidden layer of the networks in a block
    activation: Activation = "leaky_relu"  # of that layer, `leaky_relu` or `relu`
    # `permutation` is drawn once and stays; `lu` multiplies by a learnt matrix in front of it
    mixing: Mixing = "permutation"
    act_norm: bool = False  # each coordinate is shifted and scaled before it is mixed; see `Flow.initialise`
    # every parameter is drawn near 0; this also takes away what the blocks do to vectors, and puts coordinates back in
    # order at the end, so that the untrained flow is the identity
    identity: bool = False

    def __post_init__(self) -> None:
        check_range(self, "at least 1", "blocks", "hidden")
        if self.blocks > MOST_BLOCKS:
            raise UsageError(f"A flow has at most {MOST_BLOCKS} blocks; given {self.blocks}.")
        for name, kind in (("activation", Activation), ("mixing", Mixing)):
            value, allowed = getattr(self, name), get_args(kind)
            if value not in allowed:
                raise UsageError(f'A flow has no {name} "{value}".{suggest(value, allowed)} Known: {listing(allowed)}.')


class Flow(nn.Module):
    """An invertible map of vectors ``[n, size]``: blocks that mix coordinates and transform both halves.

    It computes in the precision of its parameters, also where autocast is on: an inverse needs the digits.
    """

    def __init__(self, size: int, settings: FlowSettings | None = None) -> None:
        super().__init__()
        if size < 2:
            raise UsageError(f"A flow transforms one half by the other and needs a size of at least 2; given {size}.")
        self.size = size
        self.settings = options = settings or FlowSettings()
        mixing = LUMixing if options.mixing == "lu" else Permutation
        self.blocks = nn.ModuleList(
            nn.ModuleList([*([ActNorm(size)] if options.act_norm else []), mixing(size), Coupling(size, options)])
            for _ in range(options.blocks)
        )
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=START)
        self.last: Permutation | None = None
        if options.identity:
            self.last = self._undone()

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return where the vectors ``[n, size]`` go, ``[n, size]``, and the log of |det Jacobian| there, ``[n]``."""
        with torch.autocast(v.device.type, enabled=False):
            v = self._check(v)
            log_det: Any = 0.0
            for step in self._chain():
                v, log_scale = step(v)
                log_det = log_det + log_scale
        return v, log_det

    def inverse(self, z: Tensor) -> Tensor:
        """Return the vectors ``[n, size]`` that ``forward`` takes to these."""
        with torch.autocast(z.device.type, enabled=False):
            z = self._check(z)
            for step in reversed(self._chain()):
                z = step.inverse(z)
        return z

    @torch.no_grad()
    def initialise(self, v: Tensor) -> None:
        """Set every shift and scale of ActNorm so that these vectors ``[n, size]`` leave it with mean 0 and deviation 1.

        Call it once, before training, with training vectors; without ``act_norm`` nothing happens. The state is in the
        parameters: a flow rebuilt from them needs no second call.
        """
        v = self._check(v)
        if len(v) < 2:
            raise UsageError(f"ActNorm needs at least two vectors to measure a deviation; given {len(v)}.")
        for step in self._chain():
            if isinstance(step, ActNorm):
                step.initialise(v)
            v, _ = step(v)

    @torch.no_grad()
    def _undone(self) -> "Permutation":
        """Make every step but the permutations do nothing, and return the permutation that undoes them."""
        for step in self._chain():
            idle = (step.by_first.out, step.by_second.out) if isinstance(step, Coupling) else (step,)
            for parameter in (parameter for part in idle for parameter in part.parameters()):
                parameter.zero_()
        order = torch.arange(self.size)
        for part in self.modules():
            order = order[part.order] if isinstance(part, Permutation) else order
        return Permutation(self.size, order.argsort())

    def _chain(self) -> list[Any]:
        steps = [step for block in self.blocks for step in block]  # type: ignore[attr-defined]
        return steps if self.last is None else [*steps, self.last]

    def _check(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[1] != self.size:
            raise UsageError(f"This flow takes vectors [n, {self.size}]; given {list(x.shape)}.")
        return x.to(next(self.parameters()).dtype)


class Permutation(nn.Module):
    """A random permutation of coordinates, stored with the weights."""

    order: Tensor
    back: Tensor

    def __init__(self, size: int, order: Tensor | None = None) -> None:
        super().__init__()
        order = torch.randperm(size) if order is None else order
        self.register_buffer("order", order)
        self.register_buffer("back", order.argsort())

    def forward(self, v: Tensor) -> tuple[Tensor, float]:
        """Return the vectors reordered, and the log-determinant 0."""
        return v.index_select(1, self.order), 0.0

    def inverse(self, z: Tensor) -> Tensor:
        """Return the vectors in their first order."""
        return z.index_select(1, self.back)


class LUMixing(nn.Module):
    """A permutation, then a product with a learnt matrix L U: L has a diagonal of ones, U one of positive numbers.

    The strict lower part of ``factors`` is that of L, the strict upper part that of U.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.permutation = Permutation(size)
        self.factors = nn.Parameter(torch.zeros(size, size))
        self.log_diagonal = nn.Parameter(torch.zeros(size))

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``L U P v`` of every row, and the log-determinant, one number."""
        v = linear(self.permutation(v)[0], self._upper())
        return v + linear(v, self.factors.tril(-1)), self.log_diagonal.sum()

    def inverse(self, z: Tensor) -> Tensor:
        """Return the vectors before the product and the permutation."""
        solve = torch.linalg.solve_triangular
        z = solve(self.factors.tril(-1).T, z, upper=True, left=False, unitriangular=True)
        return self.permutation.inverse(solve(self._upper().T, z, upper=False, left=False))

    def _upper(self) -> Tensor:
        return self.factors.triu(1) + self.log_diagonal.exp().diag()


class ActNorm(nn.Module):
    """Every coordinate shifted and scaled by learnt numbers."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(size))
        self.log_scale = nn.Parameter(torch.zeros(size))

    def initialise(self, v: Tensor) -> None:
        """Fit shift and scale to the mean and deviation of vectors; constant coordinates are only shifted."""
        std, mean = torch.std_mean(v, 0, correction=0)
        varies = std > 1e-6 * std.max().clamp_min(torch.finfo(std.dtype).tiny)
        self.shift.copy_(mean)
        self.log_scale.copy_(-torch.where(varies, std, 1).log())

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors shifted and scaled, and the log-determinant, one number."""
        return (v - self.shift) * self.log_scale.exp(), self.log_scale.sum()

    def inverse(self, z: Tensor) -> Tensor:
        """Return the vectors before the shift and the scale."""
        return torch.addcmul(self.shift, z, (-self.log_scale).exp())


class Coupling(nn.Module):
    """Scale and shift the second half by functions of the first, then the first by functions of the new second."""

    def __init__(self, size: int, settings: FlowSettings) -> None:
        super().__init__()
        self.sizes = [size - size // 2, size // 2]
        first, second = self.sizes
        self.by_first = HalfNetwork(first, second, settings)
        self.by_second = HalfNetwork(second, first, settings)

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transformed vectors ``[n, size]`` and the log-determinants ``[n]``."""
        first, second = torch.split(v, self.sizes, 1)
        log_scale, shift = self._affine(self.by_first, first)
        second = torch.addcmul(shift, second, log_scale.exp())
        log_det = log_scale.sum(1)
        log_scale, shift = self._affine(self.by_second, second)
        first = torch.addcmul(shift, first, log_scale.exp())
        return torch.cat([first, second], 1), log_det + log_scale.sum(1)

    def inverse(self, z: Tensor) -> Tensor:
        """Return the vectors that ``forward`` takes to these."""
        first, second = torch.split(z, self.sizes, 1)
        log_scale, shift = self._affine(self.by_second, second)
        first = (first - shift) / log_scale.exp()
        log_scale, shift = self._affine(self.by_first, first)
        return torch.cat([first, (second - shift) / log_scale.exp()], 1)

    def _affine(self, network: nn.Module, half: Tensor) -> tuple[Tensor, Tensor]:
        log_scale, shift = network(half).chunk(2, 1)
        return log_scale.atan().mul_(CLAMP * ATAN), shift


class HalfNetwork(nn.Module):
    """Raw log-scales and shifts of one half from the other, by one hidden layer."""

    def __init__(self, given: int, made: int, settings: FlowSettings) -> None:
        super().__init__()
        self.activation = relu if settings.activation == "relu" else leaky_relu
        self.hidden = nn.Linear(given, settings.hidden)
        self.out = nn.Linear(settings.hidden, 2 * made)

    def forward(self, half: Tensor) -> Tensor:
        """Return ``[n, 2 made]``: log-scales before the clamp, then shifts, of a half ``[n, given]``."""
        return self.out(self.activation(self.hidden(half), inplace=True))  # type: ignore[no-any-return]
