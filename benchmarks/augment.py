"""Images per second of ``Augment`` and of the same steps in kornia, side by side in one run.

    python benchmarks/augment.py [--device cpu|cuda] [--threads N] [--json FILE]

Both start from bytes (that is how images are stored) and end in floats in [0, 1]: kornia's time includes the conversion.
Both run over the same batch; each figure is the median of the repeats, which take turns, after a warm-up.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from labelwise.train.augment import Augment
from labelwise.train.model import as_float
from labelwise.train.tensors import BatchRng

OURS = {
    "paper": Augment(padding=4, flip=True, rotation=15.0),
    "contrastive": Augment(
        scale=(0.2, 1.0),
        flip=True,
        brightness=0.4,
        contrast=0.4,
        saturation=0.4,
        hue=0.1,
        jitter_probability=0.8,
        grey=0.2,
    ),
}


def kornia_steps(recipe: str, side: int) -> nn.Module:
    try:
        import kornia.augmentation as K
    except ImportError as error:
        raise SystemExit(
            'This benchmark compares with kornia, which is missing: pip install "labelwise[bench]"'
        ) from error
    if recipe == "paper":
        return nn.Sequential(
            K.RandomCrop((side, side), padding=4, p=1.0), K.RandomHorizontalFlip(p=0.5), K.RandomRotation(15.0, p=1.0)
        )
    return nn.Sequential(
        K.RandomResizedCrop((side, side), scale=(0.2, 1.0), p=1.0),
        K.RandomHorizontalFlip(p=0.5),
        K.ColorJiggle(0.4, 0.4, 0.4, 0.1, p=0.8),
        K.RandomGrayscale(p=0.2),
    )


def seconds(call: Callable[[], Tensor], device: str) -> float:
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak_bytes(call: Callable[[], Tensor], device: str) -> int | None:
    """Return the most memory a call takes beyond what was there before it, on cuda."""
    if device != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def measure(recipe: str, side: int, n: int, device: str, repeats: int) -> dict[str, Any]:
    images = torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, device=device)
    rng, steps = BatchRng.from_seed(0, n, device), kornia_steps(recipe, side)
    calls = {"labelwise": lambda: OURS[recipe](images, rng), "kornia": lambda: steps(as_float(images))}
    for call in calls.values():
        for _ in range(3):
            seconds(call, device)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            times[name].append(seconds(call, device))
    row: dict[str, Any] = {"recipe": recipe, "side": side, "batch": n}
    for name, call in calls.items():
        row[f"{name}_images_per_second"] = n / statistics.median(times[name])
        row[f"{name}_peak_bytes"] = peak_bytes(call, device)
    row["ratio"] = row["labelwise_images_per_second"] / row["kornia_images_per_second"]
    return row


def show(rows: list[dict[str, Any]], title: str) -> None:
    table = Table("recipe", "side", "batch", "labelwise", "kornia", "ratio", "peak MB", title=title)
    for row in rows:
        speeds = [f"{row[f'{name}_images_per_second']:,.0f}" for name in ("labelwise", "kornia")]
        peaks = [row[f"{name}_peak_bytes"] for name in ("labelwise", "kornia")]
        peak = "-" if None in peaks else " / ".join(f"{p / 2**20:.0f}" for p in peaks)
        table.add_row(row["recipe"], str(row["side"]), str(row["batch"]), *speeds, f"{row['ratio']:.1f}x", peak)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of augmentation, compared with kornia.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    on_cuda = options.device == "cuda"
    rows = [
        measure(recipe, side, n, options.device, options.repeats)
        for side, n in ((32, 512), (96, 512 if on_cuda else 64))
        for recipe in OURS
    ]
    import kornia

    where = torch.cuda.get_device_name() if on_cuda else f"{platform.machine()}, {options.threads} CPU thread(s)"
    versions = f"torch {torch.__version__}, kornia {kornia.__version__}"
    show(rows, f"Images per second on {where} ({versions})")
    if options.json:
        options.json.write_text(json.dumps({"device": where, "versions": versions, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
