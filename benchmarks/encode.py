"""Pictures a second through a frozen encoder: on a CPU as version 0.1 ran it, folded, and by ONNX Runtime, in one run; on a GPU as it stands and recorded.

    python benchmarks/encode.py [--pictures 64] [--rounds 5] [--size 224] [--threads 2]
    python benchmarks/encode.py --device cuda [--rounds 5]

Version 0.1 took eight pictures at a time through the network as it is. "ready after" is what it takes to make the other two.
The three take turns; the median of the rounds counts. ``nn.runtime.FEW`` follows from the last column.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from labelwise.core.model import as_float
from labelwise.train.networks import runtime
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.networks.encoder import Encoder
from labelwise.train.networks.folding import folded
from labelwise.train.networks.image_encoder import ImageEncoder


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@torch.no_grad()
def on_gpu(rounds: int) -> None:
    """Print pictures a second through networks on a GPU, for one picture at a time and many: bytes in, float32 features out."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print("| network | pictures at a time | as it stands | float16, recorded | x | differs by, of the largest |")
    print("|---|---|---|---|---|---|")
    for name, size in (("efficientnet_lite0", 224), ("resnet18", 32), ("resnet50", 224)):
        encoder = ImageEncoder(build_backbone(name, (3, size, size)), (3, size, size), frozen=True).eval().cuda()
        encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for batch in (1, 256):
            images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8, device="cuda")
            fast, _ = runtime._fastest(encoder.backbone, encoder.prepare(as_float(images[:1])))
            ways: dict[str, Callable[[Tensor], Tensor]] = {"plain": encoder.backbone, "fast": fast}
            made = {way: network(encoder.prepare(as_float(images))) for way, network in ways.items()}
            rates: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(rounds + 1):  # the first warms up
                for way, network in ways.items():
                    torch.cuda.synchronize()
                    count = 200 if batch == 1 else 20
                    took = seconds(partial(gone_through, encoder, network, images, count))
                    rates[way].append(count * batch / took)
            plain, quick = (statistics.median(rates[way][1:]) for way in ways)
            apart = float((made["fast"] - made["plain"]).abs().max() / made["plain"].abs().max())
            print(
                f"| {name}, {size} | {batch} | {plain:,.0f} | {quick:,.0f} | {quick / plain:.2f} | {apart:.1e} |",
                flush=True,
            )


def gone_through(encoder: ImageEncoder, network: Callable[[Tensor], Tensor], images: Tensor, count: int) -> None:
    """Encode images so many times, each time to the end."""
    for _ in range(count):
        network(encoder.prepare(as_float(images))).cpu()


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    if options.device == "cuda":
        on_gpu(options.rounds)
        return
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
