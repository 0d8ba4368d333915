"""An encoder that saw no label, for the draws of ``naming_sources.py``: SimCLR on the pictures of CIFAR-100 and TinyImageNet.

    LABELWISE_DATA=FOLDER python benchmarks/naming_encoder.py --codes FILE [--seconds 170] [--toy]

A ResNet-18 is trained on all pictures of ``cifar100.npz`` and ``tinyimagenet_val_64.npz``, brought to 32 pixels: as many epochs as fit
into the time given. Labels are read after it, to sort codes by class, and to say how well neighbours name pictures (``probe``).
Needs a GPU, but for ``--toy``.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, normalize

from labelwise.data.read.packs import pack
from labelwise.fitting.pretraining import Pretrain, pretrain, write_encoder
from labelwise.methods import Encoder
from labelwise.training.optimizers import Optimizer
from labelwise.training.stages import Run

SIDE = 32
MOST = {"cifar100": 200, "tinyimagenet_val_64": 50}  # pictures of a class whose codes are written


def pictures(name: str, toy: bool) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Return the pictures of a pack as bytes ``[n, 3, 32, 32]``, the class of each, and the names of classes."""
    data = pack(Path(os.environ["LABELWISE_DATA"]) / f"{name}.npz")
    rows = {part: torch.arange(min(len(split), 600 if toy else len(split))) for part, split in data.splits.items()}
    images = torch.cat([data.split(part).images[own] for part, own in rows.items()])
    targets = torch.cat([data.split(part).targets[own] for part, own in rows.items()])
    if images.shape[-1] != SIDE:
        small = [interpolate(part.float(), size=(SIDE, SIDE), mode="area") for part in images.split(1000)]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codes", type=Path, required=True, help="where codes are written (.npz)")
    parser.add_argument("--seconds", type=float, default=170)
    parser.add_argument("--toy", action="store_true", help="a few pictures on the CPU")
    chosen = parser.parse_args()
    started, device = time.perf_counter(), "cpu" if chosen.toy else "cuda"
    sets = {name: pictures(name, chosen.toy) for name in MOST}
    print(f"read in {time.perf_counter() - started:.0f} s", flush=True)
    images = torch.cat([each for each, _, _ in sets.values()])
    encoder = Encoder(backbone="convnet" if chosen.toy else "resnet18")
    method = Pretrain(
        encoder=encoder,
        batch=512,
        temperature=0.2,
        epochs=2,
        optimizer=Optimizer(name="adam", lr=1e-3, weight_decay=1e-6),
    )
    begun = time.perf_counter()
    if chosen.toy:
        epochs = 1
    else:
        pretrain(images, method, Run(device=device, engine="recorded"))  # how long an epoch takes
        each = (time.perf_counter() - begun) / 2
        left = chosen.seconds - (time.perf_counter() - started) - 15
        epochs = max(1, int(left / each))
        print(f"{each:.2f} s an epoch, so {epochs} epochs", flush=True)
    method = Pretrain(encoder=encoder, batch=512, temperature=0.2, epochs=epochs, optimizer=method.optimizer)
    trained, summary = pretrain(images, method, Run(device=device, engine="recorded"))
    print(f"trained after {time.perf_counter() - started:.0f} s", flush=True)
    write_encoder(chosen.codes.with_suffix(".safetensors"), trained, encoder, {"kind": "simclr", "epochs": epochs})
    trained = trained.to(device).eval()
    arrays, told = {}, {"epochs": epochs, "images": len(images), **{key: summary[key] for key in ("seconds", "device")}}
    for name, (own, targets, names) in sets.items():
        with torch.no_grad():
            codes = torch.cat([trained(part.to(device).float() / 255) for part in own.split(1000)]).float()
        told[f"probe {name}"] = probe(codes, targets.to(device))
        rows = torch.cat([(targets == i).nonzero()[: MOST[name], 0] for i in range(len(names))])
        arrays |= {f"{name}/codes": codes[rows.to(device)].half().cpu().numpy(), f"{name}/names": np.array(names)}
        arrays |= {f"{name}/labels": targets[rows].numpy(), f"{name}/rows": rows.numpy()}
    np.savez(chosen.codes, allow_pickle=False, **arrays)
    told["all seconds"] = time.perf_counter() - started
    chosen.codes.with_suffix(".json").write_text(json.dumps(told))
    print(told, flush=True)


if __name__ == "__main__":
    main()
