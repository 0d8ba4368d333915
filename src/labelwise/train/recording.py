"""Record what a GPU does as a CUDA graph.

A recording that fails, most often because memory runs out in the middle, leaves torch in a state of its own: generators that took part stay marked
as being recorded and refuse to draw ("Offset increment outside graph capture encountered unexpectedly"). They get new states here, with the same seeds.
"""

import atexit
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def record(
    run: Callable[[], T], device: torch.device, *generators: torch.Generator, stream: torch.cuda.Stream | None = None
) -> tuple[torch.cuda.CUDAGraph, T]:
    """Return a graph that replays what ``run`` starts on a GPU, and what ``run`` returned, which replays overwrite.

    ``generators`` are those it draws from, besides the device's own. An error of the recording is raised; after it, work goes on as before.
    """
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    try:
        # Other threads go on meanwhile: one fetches images.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            return graph, run()
    except RuntimeError:
        for each in (*generators, torch.cuda.default_generators[device.index or 0]):
            each.graphsafe_set_state(torch.Generator(device).manual_seed(each.initial_seed()).graphsafe_get_state())
        atexit.register(graph.reset)  # never freed before: torch's allocator may still point to it
        raise


def reserved_bytes(device: torch.device) -> int:
    """Return the bytes that torch holds of a GPU after releasing its unused memory."""
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved(device)
