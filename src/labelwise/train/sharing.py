"""Images that several processes share, and images brought to a GPU while it computes."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from labelwise.support.interruption import cancel_on_error
from labelwise.support.processes import all_gather, current_group, sum_over_processes


def map_own_rows(images: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
    """Return what is made of images ``[n, d]``, by each process of those that are its own, which may be none."""
    if current_group().world == 1 or not len(images):
        return make(images)
    own = current_group().own(len(images))
    mine = images[own]
    part = make(mine) if len(mine) else None
    width, kind, device = next(
        filter(None, all_gather(part if part is None else (part.shape[1], part.dtype, part.device.type)))
    )
    table = torch.zeros(len(images), width, dtype=kind, device=device)
    if part is not None:
        table[own] = part
    return sum_over_processes(table)


def uploaded(items: Iterator[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Yield pinned tensors on a GPU, copied beside what it computes meanwhile."""
    aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for item in items:
        with torch.cuda.stream(aside):
            there = item.to(device, non_blocking=True)
        torch.cuda.current_stream(device).wait_stream(aside)
        there.record_stream(torch.cuda.current_stream(device))
        yield there


def ahead(items: Iterator[Tensor], depth: int = 3) -> Iterator[Tensor]:
    """Yield the same items, made by another thread up to ``depth`` in advance."""
    with cancel_on_error(ThreadPoolExecutor(1)) as pool:
        futures = deque(pool.submit(next, items, None) for _ in range(depth))
        while (item := futures.popleft().result()) is not None:
            futures.append(pool.submit(next, items, None))
            yield item


def on_device(parts: Sequence[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Yield parts of images on a device; a GPU computes on one while the next are read and copied."""
    if device.type == "cpu" or not parts or parts[0].device.type != "cpu":
        return (part.to(device) for part in parts)
    return uploaded(ahead(part.pin_memory() for part in parts), device)
