"""Levels of quality of real pictures, found without a label and named by their order alone.

    python benchmarks/unlabelled_levels.py pets --images 1500 --test 1000 --seeds 3

Pictures are graded as ``data.degraded`` does; levels of training pictures are never read to train. An order is the same read from either
end, so figures are given for the names as found, and after one answer of a person, who says what most pictures of
the least certain cluster are.
"""

import argparse
from dataclasses import replace

import torch

import labelwise as lw
from labelwise.classifier import Classifier
from labelwise.data import Dataset, degraded, load
from labelwise.data.augment import Augment
from labelwise.evaluate.ordinal import LevelFigures, evaluate_ordinal
from labelwise.evaluate.tested import Tested
from labelwise.fitting.naming import name_clusters, named_model, uncertain_clusters
from labelwise.fitting.patches import Patches, find_patches
from labelwise.methods import ZeroLabel
from labelwise.model import as_float

PARTS = Patches(augment=Augment(size=40, flip=True))  # two parts of a picture should look alike; nothing is resized


def encoded(data: Dataset, settings: Patches, seed: int) -> Dataset:
    """Return the data as codes of an encoder of patches found on the training pictures."""
    encoder = find_patches(data.split("train").images, settings, seed=seed)
    splits = {}
    for name, split in data.splits.items():
        with torch.no_grad():
            codes = torch.cat([encoder(as_float(part)) for part in torch.split(split.images, 64)])
        splits[name] = replace(split, images=codes)
    return replace(data, splits=splits)


def answered(classifier: Classifier, data: Dataset) -> Classifier:
    """Return the classifier after one answer about the least certain cluster."""
    doubt, train = uncertain_clusters(classifier)[0], data.split("train")
    label = classifier.labels.index(doubt.label)
    assert named_model(classifier).names[doubt.cluster] == label
    inside = classifier.scores(train.images).best == label
    said = int(train.targets[inside].mode().values)
    return name_clusters(classifier, {doubt.cluster: data.labels.names[said]})


def told(found: LevelFigures) -> str:
    """Return the four figures in words."""
    return (
        f"accuracy {100 * found.accuracy:5.1f} %  levels off {found.mean_absolute_error:.3f}  "
        f"kappa {found.kappa:+.3f}  within one {100 * found.within_one:5.1f} %"
    )


def main() -> None:
    """Print the figures of every seed."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("data")
    words.add_argument("--images", type=int, default=1500)
    words.add_argument("--test", type=int, default=1000)
    words.add_argument("--seeds", type=int, default=3)
    given = words.parse_args()
    whole = load(given.data)
    draw = torch.Generator().manual_seed(0)
    few = {
        name: whole.split(name).select(torch.randperm(len(whole.split(name)), generator=draw)[:count])
        for name, count in (("train", given.images), ("test", given.test))
    }
    for kinds in (("blur", "jpeg", "noise"), ("blur",), ("noise",)):
        data = degraded(replace(whole, splits=few), kinds=kinds)
        for title, settings in (("usual changes", Patches()), ("parts", PARTS)):
            for seed in range(given.seeds):
                codes = encoded(data, settings, seed)
                classifier = lw.fit(codes, ZeroLabel(prior="order"), lw.Run(seed=seed, device="cpu"))
                one = answered(classifier, codes)
                for when, who in (("no answer ", classifier), ("one answer", one)):
                    result = evaluate_ordinal(Tested.of(who, codes.split("test"), codes.labels))
                    print(f"{'+'.join(kinds):15s} {title:13s} seed {seed} {when} {told(result.best)}", flush=True)


if __name__ == "__main__":
    main()
