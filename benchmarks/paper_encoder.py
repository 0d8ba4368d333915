"""The encoder of the zero-label paper, as far as some minutes go: SimCLR ResNet-50 on CIFAR-10, and codes for ``labelwise reproduce``.

    python benchmarks/paper_encoder.py --data cifar10.npz --out cifar10_simclr_r50.npz [--seconds 230] [--epochs N] [--directions 256] [--toy]

As many epochs as fit into the time given, where the paper has 500. Codes are the pooled 2,048 numbers at unit length, not centred. Scores
are linear in them, so they may be turned: they are written in the directions in which their squared length is largest, and the share of
it that is kept is told. Labels are read after training, for the vote of neighbours alone. Needs a GPU, but for ``--toy``.
"""

import argparse
import io
import json
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from naming_encoder import probe
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.fitting.pretraining import Pretrain, pretrain, write_encoder
from labelwise.methods import Encoder
from labelwise.training.stages import Run


def read(file: Path) -> list[tuple[Tensor, Tensor]]:
    """Return pictures as bytes ``[n, 3, h, w]`` and targets, of train and of test, each in the order of the file."""
    with np.load(file) as pack:
        split, targets = torch.from_numpy(pack["split"]), torch.from_numpy(pack["labels"]).long()
        if "images" in pack:
            images = torch.from_numpy(pack["images"])
        else:
            data, ends = pack["data"].tobytes(), pack["offsets"].tolist()
            files = (Image.open(io.BytesIO(data[a:b])).convert("RGB") for a, b in pairwise(ends))
            images = torch.from_numpy(np.stack([np.asarray(each) for each in files]))
    images = images.permute(0, 3, 1, 2).contiguous()
    return [(images[split == part], targets[split == part]) for part in (0, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a pack with images, or encoded pictures, and a split")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=230)
    parser.add_argument("--epochs", type=int, help="in place of what fits into the time")
    parser.add_argument("--directions", type=int, default=256)
    parser.add_argument("--toy", action="store_true", help="a few pictures and a small network, on the CPU")
    chosen = parser.parse_args()
    started, device = time.perf_counter(), "cpu" if chosen.toy else "cuda"
    parts = [(x[:64], y[:64]) if chosen.toy else (x, y) for x, y in read(chosen.data)]
    images = parts[0][0]
    encoder = Encoder(backbone="convnet" if chosen.toy else "resnet50")
    method = Pretrain(encoder=encoder, batch=32 if chosen.toy else 512, epochs=2)
    run, epochs = Run(device=device, engine="recorded"), chosen.epochs or 1
    if not chosen.epochs and not chosen.toy:
        begun = time.perf_counter()
        pretrain(images[:20480], method, run)  # how long an epoch takes, with what comes before
        each = (time.perf_counter() - begun) / 2 * len(images) / 20480
        epochs = max(1, int((chosen.seconds - (time.perf_counter() - started) - 15) / each))
    print(f"{time.perf_counter() - started:.0f} s; {epochs} epochs follow", flush=True)
    trained, summary = pretrain(images, replace(method, epochs=epochs), run)
    print(f"trained after {time.perf_counter() - started:.0f} s", flush=True)
    write_encoder(chosen.out.with_suffix(".safetensors"), trained, encoder, {"kind": "simclr", "epochs": epochs})
    trained = trained.to(device).eval()
    with torch.no_grad():
        made = [torch.cat([trained(x.to(device).float() / 255) for x in torch.split(own, 500)]) for own, _ in parts]
    codes = [normalize(each.float(), dim=1) for each in made]
    turn = torch.linalg.eigh((codes[0].T @ codes[0]).double()).eigenvectors.flip(1)[:, : chosen.directions].float()
    turned = [each @ turn for each in codes]
    told = {"epochs": epochs, "seconds": summary["seconds"], "device": summary["device"]}
    told |= {"kept": float(turned[0].square().sum() / len(codes[0])), "numbers": codes[0].shape[1]}
    told["probe"] = probe(torch.cat(codes), torch.cat([targets for _, targets in parts]).to(device))
    np.savez(chosen.out, f=turned[0].half().cpu().numpy(), ft=turned[1].half().cpu().numpy())
    chosen.out.with_suffix(".json").write_text(json.dumps(told))
    print({**told, "all seconds": time.perf_counter() - started}, flush=True)


if __name__ == "__main__":
    main()
