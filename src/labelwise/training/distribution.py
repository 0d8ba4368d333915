"""One training run over several processes: who takes which rows, and how results are joined."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import dropout

from labelwise.data.batches import Batch, Share
from labelwise.errors import UsageError


def choose_device(name: str) -> torch.device:
    """Return the device called ``auto``, ``cpu`` or ``cuda``; under torchrun each process gets its own GPU."""
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f'Unknown device "{name}". Choose auto, cpu or cuda.')
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("Device cuda was asked for, but PyTorch sees no GPU here. Use auto or cpu.")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


@contextmanager
def process_group(device: torch.device) -> Iterator[Share]:
    """Join the processes that torchrun started, and yield which share of each batch is ours."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Share()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    started = not dist.is_initialized()
    if started:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Share(dist.get_rank(), world)
    finally:
        if started:
            dist.destroy_process_group()


def is_main_process() -> bool:
    """Return whether this process is the one that writes files and talks to the user."""
    return int(os.environ.get("RANK", "0")) == 0


def add_up(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its sum over all processes, in one message."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):  # type: ignore[no-untyped-call]
        tensor.copy_(part.view_as(tensor))


def any_process(flag: bool, device: torch.device) -> bool:
    """Return whether the flag is set in any process."""
    if not dist.is_initialized():
        return flag
    raised = torch.tensor(int(flag), device=device)
    dist.all_reduce(raised, op=dist.ReduceOp.MAX)
    return bool(raised.item())


def of_main_process(value: float, device: torch.device) -> float:
    """Return the value that the main process has, so that all processes decide alike by it."""
    if not dist.is_initialized():
        return value
    told = torch.tensor(value, dtype=torch.float64, device=device)
    dist.broadcast(told, 0)
    return float(told)


def whole_batch(codes: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return codes ``[n, ...]`` and targets ``[n]`` of all processes' rows, of which the batch holds some.

    Every process then has the loss of the whole batch, and the gradient reaches the process that a code came from.
    """
    if not dist.is_initialized():
        return codes, batch.targets
    rows, total = batch.draws.rows, batch.draws.total
    every, targets = codes.new_zeros(total, *codes.shape[1:]), batch.targets.new_zeros(total)
    every[rows], targets[rows] = codes, batch.targets
    dist.all_reduce(targets)
    return _summed(every), targets


class _Sum(torch.autograd.Function):
    """The sum of a tensor over all processes; its gradient is the sum of theirs."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, *grads: Tensor) -> Tensor:
        return _summed(grads[0])


def _summed(x: Tensor) -> Tensor:
    total: Tensor = _Sum.apply(x)  # type: ignore[no-untyped-call]
    return total


class _SharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm whose statistics cover the rows of all processes (torch's own needs a GPU)."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        """Return the input normalised over all axes but the second."""
        if not self.training:
            plain: Tensor = super().forward(input)
            return plain
        axes, shape = [axis for axis in range(input.ndim) if axis != 1], [1, -1] + [1] * (input.ndim - 2)
        x = input.float()
        sums = _summed(torch.cat([x.sum(axes), x.new_tensor([x.numel() / x.shape[1]])]))
        mean, n = sums[:-1] / sums[-1].detach(), sums[-1].detach()
        off = x - mean.view(shape)  # squares of what is far from 0 would lose the digits that tell values apart
        variance = _summed(off.square().sum(axes)) / n
        self._track(mean.detach(), variance.detach() * n / (n - 1).clamp_min(1))
        out = off * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out.to(input.dtype)

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, rate)
        self.running_var.lerp_(variance, rate)


class _SharedDropout(nn.Dropout):
    """Dropout that draws for the rows of all processes, whose generators stand alike, and keeps those of its own."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with some numbers dropped, as if its rows stood in one batch with those of the others."""
        if not self.training or not self.p:
            return input
        counts = torch.zeros(dist.get_world_size(), dtype=torch.int64, device=input.device)
        counts[dist.get_rank()] = len(input)
        dist.all_reduce(counts)
        first = int(counts[: dist.get_rank()].sum())
        kept = dropout(input.new_ones(int(counts.sum()), *input.shape[1:]), self.p)
        return input * kept[first : first + len(input)]


@contextmanager
def as_one_batch(model: nn.Module, share: Share) -> Iterator[None]:
    """While open, batch norm and dropout in the model see the rows of all processes as one batch.

    Parameters and names stay the same. Other layers that draw random numbers, as some networks of other libraries have, draw
    for the rows of a process alone.
    """
    kinds = {nn.modules.batchnorm._BatchNorm: _SharedBatchNorm, nn.Dropout: _SharedDropout}
    changed = [
        (module, type(module), shared)
        for module in (model.modules() if share.world > 1 else ())
        for kind, shared in kinds.items()
        if isinstance(module, kind)
    ]
    for module, _, shared in changed:
        module.__class__ = shared
    try:
        yield
    finally:
        for module, kind, _ in changed:
            module.__class__ = kind
