"""The encoder of the zero-label paper, as far as some minutes go: SimCLR ResNet-50 on CIFAR-10, and codes for ``labelwise reproduce``.

    python benchmarks/paper_encoder.py --data-root FOLDER --out cifar10_simclr_r50_short.npz [--seconds 150] [--draws draws.npz] [--device cuda] [--toy]

The folder holds cifar10.npz. As many epochs as fit into the time given, where the paper has 500; all else as there, but the batch (512 for 128, so that an epoch takes
seconds) and bf16. Codes are the pooled 2,048 numbers at unit length, not centred. A second file, OUT.small.npz, has them turned to the 128 directions in which
their squared length is largest. ``--draws``: codes of other pictures, too (``naming.py pictures``), in 256 such directions. Labels are read after training, for the vote of
neighbours alone. Beside the codes it leaves OUT.json (epochs, the vote, what share of squared length 128 directions hold) and the folder OUT of checkpoints, one a minute: the same command
goes on where it was stopped, for as many epochs as were planned. It needs a GPU; ``--toy --device cpu`` shows that it works.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from naming_data import read_pictures
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.data import load
from labelwise.images.dataset import Split
from labelwise.methods import Encoder
from labelwise.train.method import Run
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.pretraining import Pretrain, pretrain

SAMPLE = 20_480  # pictures of the three short epochs that tell how fast it is
SURE = 0.9  # share of the time left that is planned: others may come to use the same GPU


def seconds_an_epoch(images: Tensor, method: Pretrain, run: Run) -> float:
    """Return how long an epoch takes once steps are recorded: the last two of three over some pictures."""
    few = images[:SAMPLE]
    with tempfile.TemporaryDirectory() as folder:
        pretrain(few, replace(method, epochs=3), replace(run, folder=Path(folder)))
        lines = [json.loads(line) for line in (Path(folder) / "log.jsonl").read_text().splitlines()]
    ends: list[float] = [line["seconds"] for line in lines if "epoch" in line]
    return (ends[-1] - ends[-3]) / 2 * len(images) / len(few)


@torch.no_grad()
def encode(trained: ImageEncoder, images: Tensor, device: str) -> Tensor:
    """Return the codes of pictures, bytes ``[n, 3, h, w]``, at unit length."""
    codes = [trained(part.to(device).float() / 255) for part in torch.split(images, 500)]
    unit: Tensor = normalize(torch.cat(codes).float(), dim=1)
    return unit


def turned(codes: Tensor, most: int) -> Tensor:
    """Return codes ``[n, d]`` in the directions in which their squared length is largest."""
    directions: Tensor = torch.linalg.eigh((codes.T @ codes).double()).eigenvectors.flip(1)[:, :most]
    return codes @ directions.float()


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


def write_codes(out: Path, trained: ImageEncoder, parts: list[Split], device: str) -> dict[str, float]:
    """Write the codes of train and test, whole and in 128 directions, and return what there is to tell of them."""
    codes = encode(trained, torch.cat([part.images for part in parts]), device)
    few, train = turned(codes, 128), len(parts[0])
    for file, rows in ((out, codes), (out.with_suffix(".small.npz"), few)):
        half = rows.half().cpu().numpy()
        np.savez(file, f=half[:train], ft=half[train:])
    targets = torch.cat([part.targets for part in parts]).to(device)
    told = {"numbers": codes.shape[1], "kept": float(few.square().sum() / len(codes))}
    return {**told, "mean": float(codes.mean(0).norm()), "probe": probe(codes, targets)}


def write_draws(out: Path, trained: ImageEncoder, pictures: Path, device: str) -> None:
    """Write the codes of other pictures, class by class, in 256 directions."""
    sets = read_pictures(pictures)
    rows = turned(encode(trained, torch.cat([own for own, _ in sets.values()]), device), 256).half().cpu()
    parts = torch.split(rows, [len(own) for own, _ in sets.values()])
    arrays = {f"{name}/codes": own.numpy() for name, own in zip(sets, parts, strict=True)}
    arrays |= {f"{name}/names": np.array(names) for name, (_, names) in sets.items()}
    np.savez(out, allow_pickle=False, **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=150, help="of training, with what comes before")
    parser.add_argument("--draws", type=Path, help="pictures of other classes, to encode as well")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true", help="few pictures, a small network, one epoch")
    chosen = parser.parse_args()
    started, device = time.perf_counter(), chosen.device
    data = load("cifar10", root=chosen.data_root)
    parts = [data.split(name).select(range(600)) if chosen.toy else data.split(name) for name in ("train", "test")]
    images = parts[0].images
    encoder = Encoder(backbone="convnet" if chosen.toy else "resnet50")
    method, run = Pretrain(encoder=encoder, batch=32 if chosen.toy else 512), Run(device=device, engine="recorded")
    notes = chosen.out.with_suffix(".json")
    if not notes.is_file():
        each = seconds_an_epoch(images, method, run)
        left = SURE * (chosen.seconds - (time.perf_counter() - started))
        notes.write_text(json.dumps({"epochs": 1 if chosen.toy else max(1, int(left / each)), "each": each}))
    told = json.loads(notes.read_text())
    print(f"{time.perf_counter() - started:.0f} s; {told['epochs']} epochs of {told['each']:.2f} s follow", flush=True)
    run = replace(run, folder=chosen.out.with_suffix(""), resume=True)
    trained, summary = pretrain(images, replace(method, epochs=told["epochs"]), run)
    print(f"trained after {time.perf_counter() - started:.0f} s", flush=True)
    trained = trained.to(device).eval()
    told |= {"seconds": summary["seconds"], "engine": summary.get("engine")}
    told |= write_codes(chosen.out, trained, parts, device)
    if chosen.draws is not None:
        write_draws(chosen.out.with_suffix(".draws.npz"), trained, chosen.draws, device)
    told["all seconds"] = time.perf_counter() - started
    notes.write_text(json.dumps(told))
    print(told, flush=True)


if __name__ == "__main__":
    main()
