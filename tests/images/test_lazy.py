"""Images that are read when a number of them is asked for."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from labelwise.images.lazy import LazyImages, Source

PIXELS = torch.randint(0, 256, (5, 3, 4, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
ROWS = torch.tensor([3, 0])

CHOICES: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda x: x[1:4],
    "every second": lambda x: x[::2],
    "none": lambda x: x[:0],
    "rows": lambda x: x[ROWS],
    "list": lambda x: x[[4, 4, 1]],
    "mask": lambda x: x[torch.tensor([True, False, True, True, False])],
    "detached": lambda x: x.detach(),
    "parts": lambda x: torch.split(x, [2, 3])[1],
    "equal parts": lambda x: x.split(2)[2],  # type: ignore[no-untyped-call]
    "joined": lambda x: torch.cat([x[3:], x[:1]]),
    "joined along rows": lambda x: torch.cat([x[3:], x], dim=0),
}
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "one": lambda x: x[2],
    "channel": lambda x: x[:, 0],
    "new axis": lambda x: x[None],
    "table of rows": lambda x: x[torch.tensor([[0, 1], [2, 3]])],
    "split by channel": lambda x: torch.split(x, 1, dim=1)[2],
    "side by side": lambda x: torch.cat([x, x], 1),
    "joined with pixels": lambda x: torch.cat([x, PIXELS]),
    "floats": lambda x: x.float() / 255,
    "sum": lambda x: x.sum((1, 2)),
}


def lazy() -> tuple[LazyImages, list[int]]:
    """Return the images, and a list of the rows that were read of them."""
    log: list[int] = []

    def read(rows: list[int]) -> Tensor:
        log.extend(rows)
        return PIXELS[rows]

    source = Source([bytes([i]) for i in range(5)], torch.arange(5), read, torch.empty_like(PIXELS))
    return LazyImages(source, torch.arange(5)), log


@pytest.mark.parametrize("name", CHOICES)
def test_rows_are_chosen_without_reading_one(name: str) -> None:
    images, log = lazy()
    choice = CHOICES[name](images)
    assert isinstance(choice, LazyImages)
    assert choice.shape == CHOICES[name](PIXELS).shape
    assert not log
    assert torch.equal(choice.pixels(), CHOICES[name](PIXELS))
    assert choice.hashes.tolist() == [digest[0] for digest in choice.digests]


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_else_is_asked_for_is_made_of_the_pixels(name: str) -> None:
    images, log = lazy()
    assert torch.equal(OTHERS[name](images), OTHERS[name](PIXELS))
    assert len(log) == len(set(log)), "none is read twice"


def test_choosing_rows_does_not_import_the_dispatcher_s_own_subclasses() -> None:
    """They take as long to import as all else that a second fit does."""
    code = """
import sys, torch
from labelwise.images.lazy import LazyImages, Source
pixels = torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
images = LazyImages(Source([b""] * 4, torch.zeros(4), pixels.__getitem__, pixels), torch.arange(4))
parts = torch.split(images[torch.tensor([2, 1, 0])], [1, 2])
assert len(torch.cat(parts).detach()) == 3 and images.dtype == torch.uint8 and images.device.type == "cpu"
sys.exit("torch.distributed.tensor" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
