"""`fit --tune` and a plain fine-tuning loop, from the same weights and in the same time on one GPU.

    python benchmarks/tune.py OUT.jsonl NAME=PACK [NAME=PACK ...] [--seeds 0 1 2] [--minutes 0.5] [--weights FILE] [--device cuda]

A PACK is an .npz file that `labelwise fit` reads; a third of its images, drawn by the seed, is the test set. `fit --tune` comes first. Each plain loop then has as many
seconds as the whole of that fit took: fused AdamW, a linear layer on pooled features, the same random crops and mirror images, label smoothing, one learning rate cycle to
the end of its time, bfloat16, channels last, images decoded once and kept on the GPU. Its learning rate is the better one by test images, which favours it.

``--weights``: a .safetensors file of the backbone, of float16 or float32, in place of the installed ones; ``--side`` the side of the images that the network sees.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import labelwise as lw
from labelwise.images.dataset import Dataset, Split
from labelwise.images.split.divide import pool
from labelwise.images.split.make import Shares, divide_groups
from labelwise.images.view import View
from labelwise.methods import Discriminant, Encoder
from labelwise.methods.discriminant.tune import Tune
from labelwise.support.rows import mix
from labelwise.tasks.calibrate import calibration_errors
from labelwise.train.augment import Augment
from labelwise.train.method import Run
from labelwise.train.pixels import readable_pixels
from labelwise.train.step import WARM
from labelwise.train.tensors import BatchRng

BATCH, SMOOTHING, DECAY = 64, 0.1, 1e-2
CROP = (0.4, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("sets", nargs="+", metavar="NAME=PACK")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, default=0.5, help="what fit --tune is given")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--steps", type=int, help="of fit --tune, in place of minutes")
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-4, 1e-3], help="of the plain loop")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        weights = None if options.weights is None else in_single(options.weights, Path(folder))
        encoder = Encoder(backbone="efficientnet_lite0", frozen=True, weights=weights, size=options.side)
        for word in options.sets:
            name, pack = word.split("=", 1)
            for seed in options.seeds:
                for line in compared(lw.data.load(pack, group="none"), encoder, seed, options):
                    with options.out.open("a") as stream:
                        stream.write(
                            json.dumps({"name": name, "seed": seed, "minutes": options.minutes, **line}) + "\n"
                        )
                    print(name, seed, line, flush=True)


def in_single(file: Path, folder: Path) -> str:
    """Return a file with the weights in single precision."""
    save_file({name: tensor.float() for name, tensor in load_file(file).items()}, folder / file.name)
    return str(folder / file.name)


def compared(data: Dataset, encoder: Encoder, seed: int, options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield the figures of `fit --tune`, of the closed form without it, and of plain loops of the same time."""
    whole = pool(data)
    parts = divide_groups([""] * len(whole), whole.targets, Shares(train=2 / 3, val=0, test=1 / 3), seed)
    train, test = (whole.select(parts[name]) for name in ("train", "test"))
    data = replace(data, splits={"train": train})
    method = Discriminant(
        encoder=encoder, tune=Tune(minutes=options.minutes, steps=options.steps), view=View(fit="stretch")
    )
    run = Run(seed=seed, device=options.device, progress=False)
    lw.fit(data, replace(method, tune=Tune(steps=WARM + 2)), run)  # libraries load their kernels, for all that follow
    plain = lw.fit(data, replace(method, tune=None), run)
    yield {"rival": "closed form", **measured(plain, test), "images": len(train), "tested": len(test)}
    began = time.monotonic()
    tuned = lw.fit(data, method, run)
    seconds = time.monotonic() - began
    yield {
        "rival": "fit --tune",
        **measured(tuned, test),
        "seconds": seconds,
        "trials": tuned.origin.summary["tuning"]["trials"],
        "training": tuned.origin.summary["training"],
    }
    shape = tuned.shape
    for rate in options.rates:
        right, steps = loop(encoder, shape, (train, test), len(data.labels), (rate, seconds, seed), options.device)
        yield {"rival": f"plain loop, {rate:g}", "accuracy": right, "seconds": seconds, "steps": steps}


def measured(classifier: lw.Classifier, test: Split) -> dict[str, float]:
    """Return the accuracy on test images, and the calibration error of the probabilities."""
    scores = classifier.scores(test.images)
    return {
        "accuracy": float((scores.best == test.targets).mean()),
        "ece": calibration_errors(scores, test.targets)["ece"],
    }


def loop(
    settings: Encoder,
    shape: tuple[int, ...],
    splits: tuple[Split, Split],
    k: int,
    what: tuple[float, float, int],
    device: str,
) -> tuple[float, int]:
    """Return the test accuracy of a plain loop with a learning rate that runs for so many seconds, and its steps."""
    rate, seconds, seed = what
    began = time.monotonic()
    torch.manual_seed(seed)
    images, targets = zip(*(tensors(split, shape, device) for split in splits), strict=True)
    encoder = settings.build(shape).to(device)
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    encoder.tune(True)
    layer = nn.Linear(encoder.code_size, k).to(device)
    parameters = [*encoder.parameters(), *layer.parameters()]
    trained = [p for p in parameters if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=DECAY, fused=device == "cuda")
    augment = Augment(scale=CROP, flip=True)
    generator = torch.Generator().manual_seed(seed)
    steps = 0
    while (gone := (time.monotonic() - began) / seconds) < 1:
        factor = gone / 0.1 if gone < 0.1 else (1 + math.cos(math.pi * (gone - 0.1) / 0.9)) / 2
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
        rows = torch.randint(len(images[0]), (BATCH,), generator=generator).to(device)
        batch = augment(images[0][rows].float() / 255, BatchRng.from_seed(mix(seed, steps), BATCH, device))
        batch = batch.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = cross_entropy(layer(encoder(batch)), targets[0][rows], label_smoothing=SMOOTHING)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        steps += 1
    encoder.tune(False)
    pieces = zip(images[1].split(BATCH), targets[1].split(BATCH), strict=True)
    with torch.no_grad():
        right = [layer(encoder(some.float() / 255)).argmax(1) == wanted for some, wanted in pieces]
    return float(torch.cat(right).float().mean()), steps


def tensors(split: Split, shape: tuple[int, ...], device: str) -> tuple[Tensor, Tensor]:
    """Return the bytes of images and their targets on a device."""
    images, _ = readable_pixels(split.images, shape, "stretch")
    return images.to(device), torch.from_numpy(np.asarray(split.targets)).to(device)


if __name__ == "__main__":
    main()
