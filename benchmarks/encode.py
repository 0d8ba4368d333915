"""Pictures a second through a frozen encoder on a CPU: as version 0.1 ran it, folded, and by ONNX Runtime, in one run.

    python benchmarks/encode.py [--pictures 64] [--rounds 5] [--size 224] [--threads 2]

Version 0.1 took eight pictures at a time through the network as it is. "ready after" is what it takes to make the other two.
The three take turns; the median of the rounds counts. ``nn.runtime.FEW`` follows from the last column.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from labelwise.nn import runtime
from labelwise.nn.encoder import Encoder
from labelwise.nn.folding import folded


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shape = (3, options.size, options.size)
    encoder = Encoder(backbone="efficientnet_lite0", frozen=True).build(shape).eval()
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = encoder.prepare(torch.rand(options.pictures, *shape))
    encoder.backbone(images[:8])
    ways: dict[str, tuple[Callable[[Tensor], Tensor], int, float]] = {"version 0.1": (encoder.backbone, 8, 0.0)}
    start = time.perf_counter()
    module = folded(encoder.backbone)
    ways["folded"] = (module, runtime.PIECE["cpu"], time.perf_counter() - start)
    if find_spec("onnxruntime"):
        start = time.perf_counter()
        network, name = runtime._fastest(encoder.backbone, images[:1])
        ways[name] = (network, runtime.PIECE["cpu"], time.perf_counter() - start)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, (network, piece, _) in ways.items():
            times[name].append(seconds(lambda n=network, p=piece: [n(x) for x in torch.split(images, p)]))  # type: ignore[misc]
    first = statistics.median(times["version 0.1"]) / options.pictures
    print(f"{options.pictures} pictures of {options.size} pixels, {options.threads} threads, torch {torch.__version__}")
    print("| way | pictures/s | x version 0.1 | ready after, s | pays from, pictures |\n|---|---|---|---|---|")
    for name, (_, _, ready) in ways.items():
        each = statistics.median(times[name]) / options.pictures
        pays = f"{ready / (first - each):.0f}" if ready and each < first else ""
        print(f"| {name} | {1 / each:.1f} | {first / each:.2f} | {ready:.2f} | {pays} |")


if __name__ == "__main__":
    main()
