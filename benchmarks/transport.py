"""Stages II and III of zero_label: the time of a step of many restarts together against that of one.

    python benchmarks/transport.py [FEATURES.npz] [--restarts 1 50] [--device cuda]

FEATURES holds ``f [n, d]``; without it, random ones are taken. The accuracies of these stages are recipes: labelwise reproduce
zero_label.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from labelwise.data.batches import Batch
from labelwise.data.rng import BatchRng
from labelwise.methods.shared.label_prior import LabelPrior, word_similarity
from labelwise.methods.shared.transport import Clustering, Matching, Restarts, clustering_losses, matching_losses

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def measure_time(features: Tensor, restarts: int, steps: int = 10) -> dict[str, float]:
    """Return the seconds of a step of stage II and of stage III, all restarts together; the best of three."""
    torch.manual_seed(0)
    images, device = torch.nn.functional.normalize(features, dim=1), features.device
    prior = LabelPrior.of(word_similarity(NAMES).to(device))
    model = Restarts(restarts, len(NAMES), images.shape[1]).to(device)
    with torch.no_grad():
        model.centres.mul_(0.1)
    optimizer = torch.optim.SGD([model.centres, model.heads], 1e-5)

    def second() -> Tensor:
        rows = torch.randint(len(images), (1000,), device=device)
        return clustering_losses(model, images[rows], Clustering()).sum()

    def third() -> Tensor:
        rows = torch.randint(len(images), (500,), device=device)
        batch = Batch(images=images[rows], targets=rows * 0 - 1, rows=rows, rng=BatchRng.seeded(0, 500, device))
        return matching_losses(model, batch, prior, Matching()).sum()

    found = {}
    for name, loss in (("stage II", second), ("stage III", third)):
        times = []
        for _ in range(3):
            begun = time.monotonic()
            for _ in range(steps):
                optimizer.zero_grad()
                loss().backward()  # type: ignore[no-untyped-call]
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append((time.monotonic() - begun) / steps)
        found[name] = min(times)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path, nargs="?")
    parser.add_argument("--restarts", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.features:
        with np.load(options.features) as pack:
            features = torch.from_numpy(pack["f"].astype(np.float32))
    else:
        features = torch.randn(50_000, 128, generator=torch.Generator().manual_seed(0))
    for count in options.restarts:
        found = measure_time(features.to(options.device), count)
        print(
            f"{count} restarts: " + ", ".join(f"{name} {1000 * seconds:.0f} ms" for name, seconds in found.items()),
            flush=True,
        )


if __name__ == "__main__":
    main()
