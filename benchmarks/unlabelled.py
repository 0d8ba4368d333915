"""Small sets whose labels nobody gave, named: thirty species of drawn birds by their attributes, levels of quality of real pictures by their order.

    python benchmarks/unlabelled.py finches [--seeds 10] [--out docs/results/measured/unlabelled.jsonl]
    python benchmarks/unlabelled.py levels [--seeds 3] [--out docs/results/measured/unlabelled.jsonl]

Each seed finds an encoder of patches on the training pictures, clusters their codes and names the clusters; labels of test pictures are read in the end, to report. Levels
are those that ``data.degraded`` makes of Oxford-IIIT pets, 1,500 training and 1,000 test pictures. An order is the same read from either end, so figures are given as found, and after one answer of a person, who
says what most training pictures of the least certain cluster are.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.data import Dataset, degraded, finches, load
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.ordinal import evaluate_ordinal
from labelwise.methods import Encoder, ZeroLabel
from labelwise.methods.zero_label.rename import name_clusters, named_head, uncertain_clusters
from labelwise.train.augment import Augment
from labelwise.train.model import as_float
from labelwise.train.networks.patches import Patches, find_patches
from labelwise.train.pretraining import write_encoder
from labelwise_papers.analyses.named import evaluate_named

CHANGES = {"usual": Patches(), "parts": Patches(augment=Augment(size=40, flip=True))}  # parts: nothing is resized
Found = tuple[str, int, dict[str, float]]


def encoded(data: Dataset, settings: Patches, seed: int) -> Dataset:
    """Return the data as codes of an encoder of patches found on the training pictures."""
    encoder = find_patches(data.split("train").images, settings, seed=seed)
    splits = {}
    for name, split in data.splits.items():
        with torch.no_grad():
            codes = torch.cat([encoder(as_float(part)) for part in torch.split(split.images, 64)])
        splits[name] = replace(split, images=codes)
    return replace(data, splits=splits)


def birds(seeds: int) -> Iterator[Found]:
    """Yield how many test pictures are named right, and how many would be by the best names for their clusters."""
    data = finches()
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "patches.safetensors"
            write_encoder(file, find_patches(data.split("train").images, seed=seed), Encoder(backbone="patches"), {})
            method = ZeroLabel(encoder=Encoder(backbone="patches", weights=str(file), frozen=True))
            classifier = lw.fit(data, method, lw.Run(seed=seed, device="cpu"))
        found = evaluate_named(Evaluation.of(classifier, data.split("test"), data.labels))
        yield "30 species by attributes", seed, {f"{key}, %": 100 * found[key] for key in ("accuracy", "clusters")}


def answered(classifier: Classifier, data: Dataset) -> Classifier:
    """Return the classifier after one answer about the least certain cluster."""
    doubt, train = uncertain_clusters(classifier)[0], data.split("train")
    label = classifier.labels.index(doubt.label)
    assert named_head(classifier).names[doubt.cluster] == label
    said = int(train.targets[classifier.scores(train.images).best == label].mode().values)
    return name_clusters(classifier, {doubt.cluster: data.labels.names[said]})


def levels(seeds: int) -> Iterator[Found]:
    """Yield how near the levels of test pictures are, before and after an answer."""
    whole, draw = load("pets"), torch.Generator().manual_seed(0)
    few = {
        name: whole.split(name).select(torch.randperm(len(whole.split(name)), generator=draw)[:count])
        for name, count in (("train", 1500), ("test", 1000))
    }
    for kinds in (("blur", "jpeg", "noise"), ("blur",), ("noise",)):
        data = degraded(replace(whole, splits=few), kinds=kinds)
        for title, settings in CHANGES.items():
            for seed in range(seeds):
                codes = encoded(data, settings, seed)
                classifier = lw.fit(codes, ZeroLabel(prior="order"), lw.Run(seed=seed, device="cpu"))
                for when, who in (("no answer", classifier), ("one answer", answered(classifier, codes))):
                    best = evaluate_ordinal(Evaluation.of(who, codes.split("test"), codes.labels)).best
                    assert best.kappa is not None
                    figures = {"accuracy, %": 100 * best.accuracy, "levels off": best.mean_absolute_error}
                    figures |= {"kappa": best.kappa, "within one, %": 100 * best.within_one}
                    yield f"{' or '.join(kinds)}; {title} changes; {when}", seed, figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("finches", "levels"))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--out", type=Path, help="results are added to this file, a line each")
    given = parser.parse_args()
    for row, seed, figures in birds(given.seeds or 10) if given.what == "finches" else levels(given.seeds or 3):
        line = json.dumps({"set": given.what, "row": row, "seed": seed, "figures": figures})
        print(line, flush=True)
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
