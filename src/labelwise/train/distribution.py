"""Distributed training: the rows of each process, and the reduction of results.

Gradients are torch's work (``DistributedDataParallel``), and so is batch norm on GPUs (``SyncBatchNorm``). By hand, because
torch has none: batch norm over processes on CPUs, dropout that draws for the whole batch, and a sum with a gradient (torch's own
is deprecated). With these, several processes train as one does.
"""

import atexit
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.functional import dropout
from torch.nn.parallel import DistributedDataParallel

from labelwise.support.errors import UsageError
from labelwise.support.processes import split_rows_across
from labelwise.train.batches import Batch, Shard
from labelwise.train.networks.backbone import BATCH_NORMS
from labelwise.train.stages import Loss


def choose_device(name: str) -> torch.device:
    """Return the device called ``auto``, ``cpu`` or ``cuda``; torchrun processes take a GPU each, or share."""
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f'Unknown device "{name}". Choose auto, cpu or cuda.')
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("Device cuda was asked for, but PyTorch sees no GPU here. Use auto or cpu.")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


@contextmanager
def process_group(device: torch.device) -> Iterator[Shard]:
    """Join the torchrun processes and yield this process's shard; inside, processes share all work on rows."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Shard()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():  # once: a process cannot rejoin a group it left
        store, rank, _ = next(rendezvous("env://"))
        # Restarted processes find the store of their predecessors: a separate key keeps them from contacting dead ones.
        store = PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group(_backend(device), store=store, rank=rank, world_size=world)
        atexit.register(dist.destroy_process_group)
    with split_rows_across(dist.get_rank(), world):
        yield Shard(dist.get_rank(), world)


def _backend(device: torch.device) -> str:
    """Return the backend: NCCL with a GPU per process, otherwise gloo."""
    shares_gpu = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > torch.cuda.device_count()
    return "gloo" if device.type == "cpu" or shares_gpu else "cpu:gloo,cuda:nccl"


def any_process(flag: bool, device: torch.device) -> bool:
    """Return whether the flag is set in any process."""
    if not dist.is_initialized():
        return flag
    anywhere = torch.tensor(int(flag), device=device)
    dist.all_reduce(anywhere, op=dist.ReduceOp.MAX)
    return bool(anywhere.item())


def of_main_process(value: float, device: torch.device) -> float:
    """Return the value of the main process, so that all processes decide the same."""
    if not dist.is_initialized():
        return value
    shared_value = torch.tensor(value, dtype=torch.float64, device=device)
    dist.broadcast(shared_value, 0)
    return float(shared_value)


def distributed(loss: Loss, parameters: Sequence[nn.Parameter], shard: Shard) -> Loss:
    """Return the loss whose gradients are averaged over processes; with one process, this is the loss itself.

    Some stages do not use all parameters at each step (a critic and a generator take turns), so torch looks for them.
    """
    if shard.world == 1:
        return loss
    return DistributedDataParallel(_Weighed(loss, parameters), find_unused_parameters=True)


class _Weighed(nn.Module):
    """A loss as a module, with weighted terms whose mean over processes is the mean over the whole batch.

    Processes may have a row more or less than others.
    """

    def __init__(self, loss: Loss, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.loss = loss
        self.trained = nn.ParameterList(parameters)
        self.unused = nn.Parameter(
            self.trained[0].new_zeros(())
        )  # without unused parameters, torch warns about a useless search

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the terms."""
        weight = len(batch.targets) * dist.get_world_size() / batch.rng.total
        return {name: term.float() * weight for name, term in self.loss(batch).items()}


def process_mean(terms: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean of each term over processes, detached."""
    if not dist.is_initialized():
        return {name: term.detach() for name, term in terms.items()}
    values = torch.stack([term.detach() for term in terms.values()])
    dist.all_reduce(values)
    return dict(zip(terms, values / dist.get_world_size(), strict=True))


def whole_batch(embeddings: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Gather embeddings ``[n, ...]`` and targets ``[n]`` of the whole batch from all processes.

    Every process then has the loss of the whole batch, and the gradient reaches the process that an embedding came from.
    """
    if not dist.is_initialized():
        return embeddings, batch.targets
    rows, total = batch.rng.rows, batch.rng.total
    every, targets = embeddings.new_zeros(total, *embeddings.shape[1:]), batch.targets.new_zeros(total)
    every[rows], targets[rows] = embeddings, batch.targets
    dist.all_reduce(targets)
    return _sum_over_processes(every), targets


class _Sum(torch.autograd.Function):
    """The sum of a tensor over processes; its gradient is the sum of the gradients."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, *grads: Tensor) -> Tensor:
        return _sum_over_processes(grads[0])


def _sum_over_processes(x: Tensor) -> Tensor:
    total: Tensor = _Sum.apply(x)  # type: ignore[no-untyped-call]
    return total


class _SharedBatchNorm(nn.SyncBatchNorm):
    """Batch norm over the rows of all processes: torch's own on a GPU, an equivalent one on a CPU."""

    process_group = None

    def forward(self, input: Tensor) -> Tensor:
        """Normalise over all axes but the second."""
        if input.is_cuda or not self.training:
            plain: Tensor = super().forward(input)
            return plain
        axes, shape = [axis for axis in range(input.ndim) if axis != 1], [1, -1] + [1] * (input.ndim - 2)
        sums = _sum_over_processes(torch.cat([input.sum(axes), input.new_tensor([input.numel() / input.shape[1]])]))
        mean, n = sums[:-1] / sums[-1].detach(), sums[-1].detach()
        centred = input - mean.view(shape)  # centred first: squares of large numbers would lose digits
        variance = _sum_over_processes(centred.square().sum(axes)) / n
        self._track(mean.detach(), variance.detach() * n / (n - 1).clamp_min(1))
        output = centred * torch.rsqrt(variance + self.eps).view(shape)
        return output * self.weight.view(shape) + self.bias.view(shape) if self.affine else output

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, rate)
        self.running_var.lerp_(variance, rate)


class _SharedDropout(nn.Dropout):
    """Dropout for the whole batch: processes share a generator state, and each keeps its own rows."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop numbers as if the rows of all processes were one batch."""
        if not self.training or not self.p:
            return input
        counts = torch.zeros(dist.get_world_size(), dtype=torch.int64, device=input.device)
        counts[dist.get_rank()] = len(input)
        dist.all_reduce(counts)
        first = int(counts[: dist.get_rank()].sum())
        mask = dropout(input.new_ones(int(counts.sum()), *input.shape[1:]), self.p)
        return input * mask[first : first + len(input)]


@contextmanager
def as_one_batch(model: nn.Module, shard: Shard) -> Iterator[None]:
    """While open, batch norm and dropout see the rows of all processes as one batch.

    Parameters and names stay the same. Other layers that draw random numbers, as some networks of other libraries have, draw
    for the rows of a process alone.
    """
    kinds: dict[Any, type[nn.Module]] = {BATCH_NORMS: _SharedBatchNorm, nn.Dropout: _SharedDropout}
    layers = [
        (module, type(module), shared_module)
        for module in (model.modules() if shard.world > 1 else ())
        for kind, shared_module in kinds.items()
        if isinstance(module, kind)
    ]
    for module, _, shared_module in layers:
        module.__class__ = shared_module
    try:
        yield
    finally:
        for module, kind, _ in layers:
            module.__class__ = kind
