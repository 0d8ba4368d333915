"""Thirty species of drawn birds, found without a label and named by their attributes alone.

    python benchmarks/unlabelled_finches.py --seeds 5

Each seed finds an encoder of patches on the training pictures, clusters their codes and names the clusters; labels of test pictures are read
in the end, to report.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import mean, stdev

import torch

import labelwise as lw
from labelwise.data import finches
from labelwise.fitting.patches import find_patches
from labelwise.fitting.pretraining import write_encoder
from labelwise.methods import Encoder, ZeroLabel
from labelwise.ops.assignment import best_matching


def main() -> None:
    """Print the figures of every seed."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seeds", type=int, default=5)
    data, found = finches(), []
    test, k = data.split("test"), len(data.labels)
    for seed in range(words.parse_args().seeds):
        wall, cpu = time.perf_counter(), time.process_time()
        encoder = find_patches(data.split("train").images, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "patches.safetensors"
            write_encoder(file, encoder, Encoder(backbone="patches"), {})
            settings = Encoder(backbone="patches", weights=str(file), frozen=True)
            classifier = lw.fit(data, ZeroLabel(encoder=settings), lw.Run(seed=seed, device="cpu"))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        said = classifier.scores(test.images).best
        pairs = torch.zeros(k, k).index_put_((said, test.targets), torch.ones(len(said)), accumulate=True)
        named, clusters = (
            float((pairs[range(k), order].sum()) / len(said)) for order in (range(k), best_matching(pairs))
        )
        found.append((named, clusters))
        print(
            f"seed {seed}: named {100 * named:.1f} %, best names {100 * clusters:.1f} %, {wall:.0f} s ({cpu:.0f} s of one core)"
        )
    for title, figures in zip(("named", "best names"), zip(*found, strict=True), strict=True):
        print(f"{title}: {100 * mean(figures):.1f} +- {100 * stdev(figures):.1f} %")


if __name__ == "__main__":
    main()
