"""Images a second through encode(): against plain batches of 16 in ONNX Runtime, from a folder, from the cache, and on a GPU.

    python benchmarks/encode.py [--images 256] [--rounds 5] [--threads 2] [--folder photos/]
    python benchmarks/encode.py --device cuda [--rounds 5]

encode() runs one image at a time, so that an image has the same features whatever comes with it. The ways take turns; the median of
the rounds counts.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.encoders.encode import encode
from labelwise.encoders.onnx import onnxruntime
from labelwise.encoders.registry import open_encoder
from labelwise.images.file_images import FileImages
from labelwise.images.images import ArrayImages
from labelwise.images.sources.paths import list_images

BATCH = 16


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def medians(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each way; they take turns, and the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, work in ways.items():
            times[name].append(seconds(work))
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def on_cpu(count: int, threads: int, rounds: int) -> None:
    """Print images a second of encode() and of plain batches."""
    encoder: Any = open_encoder()
    images = np.random.default_rng(0).integers(0, 256, (count, *encoder.shape), np.uint8)
    options = onnxruntime().SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime().InferenceSession(encoder.content, options, providers=["CPUExecutionProvider"])

    def batches() -> None:
        for start in range(0, count, BATCH):
            session.run(["features"], {"images": images[start : start + BATCH]})

    rows = ArrayImages(images)
    times = medians(
        {
            f"batches of {BATCH}": batches,
            "encode()": lambda: encode(encoder, rows, cache=False, workers=threads, progress=False),
        },
        rounds,
    )
    print(f"{encoder.name}, {count} images in memory, {threads} threads, {encoder.runtime}")
    for name, each in times.items():
        print(f"{name}: {count / each:.1f} images/s")
    print(f"encode() / batches: {times[f'batches of {BATCH}'] / times['encode()']:.2f}")


def from_folder(folder: Path, threads: int) -> None:
    """Print what a folder of photos takes the first time, and from the cache."""
    os.environ["LABELWISE_CACHE"] = tempfile.mkdtemp()
    paths = list_images(folder)
    for name in ("cold", "cached"):
        took = seconds(lambda: encode(open_encoder(), FileImages(paths), workers=threads, progress=False))
        print(f"{len(paths)} files, {name}: {took:.2f} s, {len(paths) / took:,.0f} images/s")


def on_gpu(rounds: int) -> None:
    """Print images a second of networks on a GPU, as they are and in half precision: bytes in, float32 features out."""
    import torch

    from labelwise.train.networks.backbones import build_backbone
    from labelwise.train.networks.image_encoder import ImageEncoder
    from labelwise.train.networks.torch_encoder import TorchEncoder

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name, size in (("efficientnet_lite0", 224), ("resnet18", 32), ("resnet50", 224)):
        shape = (3, size, size)
        network = ImageEncoder(build_backbone(name, shape), shape, frozen=True).eval().cuda()
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        fast, plain = TorchEncoder(network), TorchEncoder(network)
        plain._half = None
        for count in (1, 256):
            images = np.random.default_rng(0).integers(0, 256, (count, *shape), np.uint8)
            times = medians(
                {
                    "plain": lambda images=images, plain=plain: [plain(images) for _ in range(20)],  # type: ignore[misc]
                    "half": lambda images=images, fast=fast: [fast(images) for _ in range(20)],  # type: ignore[misc]
                },
                rounds,
            )
            rates = {way: 20 * count / each for way, each in times.items()}
            off = float(np.abs(fast(images) - plain(images)).max() / np.abs(plain(images)).max())
            print(
                f"{name}, {size} pixels, {count} at a time: plain {rates['plain']:,.0f}/s, half {rates['half']:,.0f}/s, "
                f"x {rates['half'] / rates['plain']:.2f}, differs by {off:.1e}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    if options.device == "cuda":
        on_gpu(options.rounds)
        return
    on_cpu(options.images, options.threads, options.rounds)
    if options.folder:
        from_folder(options.folder, options.threads)


if __name__ == "__main__":
    main()
