"""An encoder that saw no label, for the draws of ``naming_sources.py``: patches, found on pictures of CIFAR-100 and TinyImageNet.

    LABELWISE_DATA=FOLDER python benchmarks/naming_encoder.py --codes patches.npz
    LABELWISE_DATA=FOLDER python benchmarks/naming_encoder.py --pictures draws.npz

Pictures are those of ``cifar100.npz`` and ``tinyimagenet_val_64.npz``, brought to 32 pixels. ``--pictures`` writes those of draws in the form of the packs, to take to a machine
where ``paper_encoder.py`` encodes them. Labels are read to sort pictures by class.
"""

import argparse
import io
import os
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, normalize

from labelwise.data.read.packs import pack
from labelwise.data.read.pictures import Array
from labelwise.fitting.patches import find_patches

SIDE = 32
MOST = {"cifar100": 100, "tinyimagenet_val_64": 50}  # pictures of a class whose codes are written
PATCHED = 10_000  # pictures that patches are found on


def pictures(name: str) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Return the pictures of a pack as bytes ``[n, 3, h, w]``, those of each class that have codes ``[c, m]``, and the names of classes."""
    data = pack(Path(os.environ["LABELWISE_DATA"]) / f"{name}.npz")
    images, targets = (
        torch.cat([getattr(part, what) for part in data.splits.values()]) for what in ("images", "targets")
    )
    names = tuple(each.split(",")[0] for each in data.labels.names)
    rows = torch.stack([(targets == i).nonzero()[: MOST[name], 0] for i in range(len(names))])
    return images, rows, names


def small(images: Tensor) -> Tensor:
    """Return pictures, bytes ``[n, 3, h, w]``, at 32 pixels."""
    parts = (interpolate(part.float(), size=(SIDE, SIDE), mode="area") for part in torch.split(images, 1000))
    return torch.cat([part.round().clamp(0, 255).byte() for part in parts])


def probe(codes: Tensor, targets: Tensor, k: int = 50) -> float:
    """Return how often the ``k`` nearest other pictures name a picture rightly."""
    unit, right = normalize(codes.float(), dim=1), 0
    for place in range(0, len(unit), 2000):
        near = unit[place : place + 2000] @ unit.T
        near[torch.arange(len(near)), place + torch.arange(len(near))] = -2
        best = near.topk(min(k, len(unit) - 1))
        votes = torch.zeros(len(near), int(targets.max()) + 1, device=unit.device)
        votes.scatter_add_(1, targets[best.indices], (best.values / 0.1).exp())
        right += int((votes.argmax(1) == targets[place : place + 2000]).sum())
    return right / len(unit)


def write_pictures(file: Path) -> None:
    """Write the pictures of draws, class by class, as the packs have them encoded."""
    arrays = dict[str, Array]()
    for name in MOST:
        images, rows, names = pictures(name)
        with np.load(Path(os.environ["LABELWISE_DATA"]) / f"{name}.npz") as held:
            data, ends = held["data"].tobytes(), held["offsets"].tolist()
        encoded = {decoded(data[a:b]).tobytes(): data[a:b] for a, b in pairwise(ends)}
        own = [encoded[images[row].permute(1, 2, 0).numpy().tobytes()] for row in rows.flatten().tolist()]
        arrays[f"{name}/data"] = np.frombuffer(b"".join(own), np.uint8)
        arrays[f"{name}/offsets"] = np.cumsum([0, *map(len, own)])
        arrays[f"{name}/names"] = np.array(names)
    np.savez(file, allow_pickle=False, **arrays)


def decoded(data: bytes) -> Array:
    """Return an encoded picture as bytes ``[h, w, 3]``."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def draw_pictures(file: Path) -> dict[str, tuple[Tensor, tuple[str, ...]]]:
    """Return the pictures of ``write_pictures`` at 32 pixels ``[n, 3, 32, 32]``, and the names of classes, of each set."""
    found = {}
    with np.load(file) as held:
        for name in MOST:
            data, ends = held[f"{name}/data"].tobytes(), held[f"{name}/offsets"].tolist()
            images = torch.from_numpy(np.stack([decoded(data[a:b]) for a, b in pairwise(ends)])).permute(0, 3, 1, 2)
            found[name] = small(images), tuple(str(each) for each in held[f"{name}/names"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codes", type=Path, help="where codes by patches are written (.npz)")
    parser.add_argument("--pictures", type=Path, help="where pictures of draws are written (.npz)")
    chosen = parser.parse_args()
    if chosen.pictures is not None:
        write_pictures(chosen.pictures)
    if chosen.codes is None:
        return
    started, sets = time.perf_counter(), {name: pictures(name) for name in MOST}
    images = torch.cat([small(each) for each, _, _ in sets.values()])
    some = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:PATCHED]
    found, arrays = find_patches(images[some]).eval(), dict[str, Array]()
    for name, (own, rows, names) in sets.items():
        with torch.no_grad():
            chosen_ones = small(own[rows.flatten()])
            codes = torch.cat([found(part.float() / 255) for part in torch.split(chosen_ones, 500)]).float()
        told = probe(codes, torch.arange(len(names)).repeat_interleave(rows.shape[1]))
        print(f"{name}: {told:.1%} named by neighbours, {time.perf_counter() - started:.0f} s", flush=True)
        arrays |= {f"{name}/codes": codes.half().numpy(), f"{name}/names": np.array(names)}
    np.savez(chosen.codes, allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
