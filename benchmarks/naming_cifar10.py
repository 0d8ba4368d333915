"""CIFAR-10 named without a label, by likeness alone and by looks, too: features of SimCLR for clusters, its pictures for looks.

    LABELWISE_DATA=FOLDER python benchmarks/naming_cifar10.py --pictures cifar10.npz [--seeds 5] [--out docs/results/measured/naming.jsonl]

The folder holds cifar10_simclr_r18_pca128.npz, whose rows are in the order of the pictures. The steps are those of ``ZeroLabel`` with its
usual settings, which takes either features or pictures. Labels are read to report accuracy on the 10,000 test images.
"""

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from labelwise.labels import Labels
from labelwise.methods.shared.kinds import looks_fit
from labelwise.methods.shared.label_prior import label_similarity
from labelwise.methods.shared.naming import Evidence, choose_names, cluster_starts, name_each, vote
from labelwise.methods.zero_label import MOST_EMBEDDINGS, ZeroLabel
from labelwise.ops.assignment import best_matching
from labelwise.ops.clusters import discriminant, neighbour_means
from labelwise.ops.linear import linear_scores
from labelwise.ops.looks import looks
from labelwise.ops.segments import segment_mean

K = 10
PRIORS: dict[str, Literal["words", "sentences"]] = {"words": "words", "words and sentences": "sentences"}


def named(train: Tensor, test: Tensor, seen: Tensor, names: tuple[str, ...], seed: int) -> dict[str, Tensor]:
    """Return the answer for each test image ``[n]`` by each way to name; ``clusters``: the cluster of each."""
    usual = ZeroLabel()
    starts = cluster_starts(neighbour_means(train, usual.smooth), K, usual.restarts, seed, torch.full((K,), 1 / K))
    heads = [discriminant(train, one.members, K) for one in starts]
    members = torch.stack([linear_scores(train, head).argmax(1) for head in heads])
    means = torch.stack([segment_mean(seen, own, K) for own in members])
    found = {"clusters": linear_scores(test, heads[0]).argmax(1)}
    for kind, prior in PRIORS.items():
        alike = label_similarity(Labels(names=names), prior, neighbours=usual.neighbours)
        plain = Evidence.of(train, members, alike)
        with_looks = replace(plain, looks=looks_fit(means, names, sentences=prior == "sentences"))
        for title, evidence in (("likeness", plain), ("looks and likeness", with_looks)):
            chosen = choose_names(vote(evidence, name_each(evidence, usual.search)))
            found[f"{title}, {kind}"] = chosen[found["clusters"]]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    with np.load(Path(os.environ["LABELWISE_DATA"]) / "cifar10_simclr_r18_pca128.npz") as held:
        codes, test = (torch.from_numpy(held[key]).float() for key in ("f", "ft"))
    with np.load(chosen.pictures) as held:
        images, targets = held["images"], torch.from_numpy(held["labels"]).long()[len(codes) :]
        names = tuple(str(name) for name in held["classes"])
    centre = codes.mean(0)
    codes, test = (normalize(each - centre, dim=1) for each in (codes, test))
    rows = torch.randperm(len(codes), generator=torch.Generator().manual_seed(0))[:MOST_EMBEDDINGS]
    pictures = torch.from_numpy(images[rows.numpy()]).permute(0, 3, 1, 2)
    seen = torch.cat([looks(part.float() / 255) for part in torch.split(pictures, 500)]).double()
    for seed in range(chosen.seeds):
        answers = named(codes[rows], test, seen, names, seed)
        clusters = answers.pop("clusters")
        inside = one_hot(clusters, K).double().T @ one_hot(targets, K).double() / len(targets)
        found = {"best names": float(inside[range(K), best_matching(inside)].sum())}
        found |= {name: float((own == targets).double().mean()) for name, own in answers.items()}
        print(seed, {name: round(100 * value, 1) for name, value in found.items()}, flush=True)
        if chosen.out is not None:
            with chosen.out.open("a") as file:
                file.writelines(
                    json.dumps({"encoder": "CIFAR-10", "row": name, "seed": seed, "accuracy": 100 * value}) + "\n"
                    for name, value in found.items()
                )


if __name__ == "__main__":
    main()
