"""An encoder that saw no label, for the draws of ``naming_sources.py``: SimCLR on the pictures of CIFAR-100 and TinyImageNet.

    LABELWISE_DATA=FOLDER python benchmarks/naming_encoder.py --codes FILE [--seconds 170] [--patches] [--toy]

A ResNet-18 is trained on all pictures of ``cifar100.npz`` and ``tinyimagenet_val_64.npz``, brought to 32 pixels: as many epochs as fit
into the time given; with ``--patches`` an encoder of patches is found on some of them. Labels are read after it, to sort codes by class, and to say how well neighbours name pictures (``probe``).
SimCLR needs a GPU, but for ``--toy``.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, normalize

from labelwise.data.read.packs import pack
from labelwise.data.read.pictures import Array
from labelwise.fitting.patches import find_patches
from labelwise.fitting.pretraining import Pretrain, pretrain
from labelwise.methods import Encoder
from labelwise.nn.image_encoder import ImageEncoder
from labelwise.training.optimizers import Optimizer
from labelwise.training.stages import Run

SIDE = 32
MOST = {"cifar100": 100, "tinyimagenet_val_64": 50}  # pictures of a class whose codes are written
PATCHED = 10_000  # pictures that patches are found on


def pictures(name: str, toy: bool) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Return the pictures of a pack as bytes ``[n, 3, 32, 32]``, the class of each, and the names of classes."""
    data = pack(Path(os.environ["LABELWISE_DATA"]) / f"{name}.npz")
    rows = {part: torch.arange(min(len(split), 600 if toy else len(split))) for part, split in data.splits.items()}
    images = torch.cat([data.split(part).images[own] for part, own in rows.items()])
    targets = torch.cat([data.split(part).targets[own] for part, own in rows.items()])
    if images.shape[-1] != SIDE:
        small = [interpolate(part.float(), size=(SIDE, SIDE), mode="area") for part in torch.split(images, 1000)]
        images = torch.cat(small).round().clamp(0, 255).byte()
    return images, targets, tuple(name.split(",")[0] for name in data.labels.names)


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


def simclr(images: Tensor, seconds: float, toy: bool) -> tuple[ImageEncoder, int]:
    """Return an encoder trained on pictures for about so many seconds, and how many epochs that were."""
    settings = Encoder(backbone="convnet" if toy else "resnet18")
    optimizer = Optimizer(name="adam", lr=1e-3, weight_decay=1e-6)
    method = Pretrain(encoder=settings, batch=512, temperature=0.2, epochs=1, optimizer=optimizer)
    run, begun = Run(device="cpu" if toy else "cuda", engine="recorded"), time.perf_counter()
    if not toy:
        pretrain(images, replace(method, epochs=2), run)  # how long an epoch takes
        each = (time.perf_counter() - begun) / 2
        method = replace(method, epochs=max(1, int((seconds - (time.perf_counter() - begun)) / each)))
        print(f"{each:.2f} s an epoch, so {method.epochs} epochs", flush=True)
    return pretrain(images, method, run)[0], method.epochs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codes", type=Path, required=True, help="where codes are written (.npz)")
    parser.add_argument("--seconds", type=float, default=170)
    parser.add_argument(
        "--patches", action="store_true", help="find an encoder of patches in place of SimCLR, on the CPU"
    )
    parser.add_argument("--toy", action="store_true", help="a few pictures on the CPU")
    chosen = parser.parse_args()
    started, device = time.perf_counter(), "cpu" if chosen.toy or chosen.patches else "cuda"
    sets = {name: pictures(name, chosen.toy) for name in MOST}
    print(f"read in {time.perf_counter() - started:.0f} s", flush=True)
    images = torch.cat([each for each, _, _ in sets.values()])
    if chosen.patches:
        some = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:PATCHED]
        trained, epochs = find_patches(images[some]), 0
    else:
        trained, epochs = simclr(images, chosen.seconds - 15 - (time.perf_counter() - started), chosen.toy)
    print(f"trained after {time.perf_counter() - started:.0f} s", flush=True)
    trained = trained.to(device).eval()
    arrays = dict[str, Array]()
    told: dict[str, object] = {"epochs": epochs, "images": len(images), "device": device}
    for name, (own, targets, names) in sets.items():
        rows = torch.cat([(targets == i).nonzero()[: MOST[name], 0] for i in range(len(names))])
        with torch.no_grad():
            codes = torch.cat([trained(part.to(device).float() / 255) for part in torch.split(own[rows], 500)]).float()
        told[f"probe {name}"] = probe(codes, targets[rows].to(device))
        arrays |= {f"{name}/codes": codes.half().cpu().numpy(), f"{name}/names": np.array(names)}
    np.savez(chosen.codes, allow_pickle=False, **arrays)
    told["all seconds"] = time.perf_counter() - started
    chosen.codes.with_suffix(".json").write_text(json.dumps(told))
    print(told, flush=True)


if __name__ == "__main__":
    main()
