"""One training run over several processes: who takes which rows, and how results are joined."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce

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


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each gradient by its mean over all processes, in one message."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):  # type: ignore[no-untyped-call]
        gradient.copy_(part.view_as(gradient))


def any_process(flag: bool, device: torch.device) -> bool:
    """Return whether the flag is set in any process."""
    if not dist.is_initialized():
        return flag
    raised = torch.tensor(int(flag), device=device)
    dist.all_reduce(raised, op=dist.ReduceOp.MAX)
    return bool(raised.item())


def whole_batch(codes: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return codes ``[n, v, e]`` and targets ``[n]`` of all processes' rows, of which the batch holds some.

    Every process then has the loss of the whole batch, and the gradient reaches the process that a code came from.
    """
    if not dist.is_initialized():
        return codes, batch.targets
    rows, total = batch.draws.rows, batch.draws.total
    every, targets = codes.new_zeros(total, *codes.shape[1:]), batch.targets.new_zeros(total)
    every[rows], targets[rows] = codes, batch.targets
    dist.all_reduce(targets)
    return all_reduce(every), targets  # type: ignore[no-untyped-call]


class _SharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm whose statistics cover the rows of all processes (torch's own needs a GPU)."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        """Return the input normalised over all axes but the second."""
        if not self.training:
            plain: Tensor = super().forward(input)
            return plain
        axes = [axis for axis in range(input.ndim) if axis != 1]
        x = input.float()
        count = torch.full_like(x[:1].sum(axes), input.numel() / input.shape[1])
        total: Tensor = all_reduce(torch.stack([x.sum(axes), (x * x).sum(axes), count]))  # type: ignore[no-untyped-call]
        n = total[2]
        mean = total[0] / n
        variance = (total[1] / n - mean * mean).clamp_min(0)
        self._track(mean.detach(), variance.detach() * n / (n - 1).clamp_min(1))
        shape = [1, -1] + [1] * (input.ndim - 2)
        out = (x - mean.view(shape)) * torch.rsqrt(variance + self.eps).view(shape)
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


@contextmanager
def shared_batch_norm(model: nn.Module, share: Share) -> Iterator[None]:
    """While open, batch norm in the model uses the rows of all processes; parameters and names stay the same."""
    changed = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)] if share.world > 1 else []
    kinds = [type(module) for module in changed]
    for module in changed:
        module.__class__ = _SharedBatchNorm
    try:
        yield
    finally:
        for module, kind in zip(changed, kinds, strict=True):
            module.__class__ = kind
