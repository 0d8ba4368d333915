"""Does stage III of transport naming give clusters other names than those they start with? CIFAR-10, its labels read for this report alone.

    python benchmarks/transport_names.py [--restarts 10] [--prior paper] [--common 0] [--data-root FOLDER] [--seed 0]

The data root holds CIFAR-10 and cifar10_simclr_r18_pca128.npz. ``--common c`` adds a constant to every code that makes up the share c of
its squared length, as codes have that do not lie around their mean.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from labelwise.data.dataset import Split
from labelwise.evaluate.tested import Tested
from labelwise.fitting.fit import fit
from labelwise.methods.shared.label_prior import LabelPrior, label_similarity
from labelwise.methods.shared.transport import HEAD_SCALE, Clustering, Matching
from labelwise.methods.zero_label import NamedModel, ZeroLabel
from labelwise.training.stages import Run
from labelwise_papers.analyses.named import evaluate_named
from labelwise_papers.recipe import find_recipes
from labelwise_papers.reproduce.sources import read_source


def with_common(split: Split, share: float) -> Split:
    """Return codes of unit length, of whose square a share is the same number in all."""
    return replace(split, images=pad(normalize(split.images, dim=1) * (1 - share) ** 0.5, (0, 1), value=share**0.5))


def first_gaps(scores: Tensor, prior: LabelPrior) -> tuple[float, float, float]:
    """Return how often the label of the highest first score is the cheapest, and by how much: against the next, against the mean.

    Args:
        scores: at the start of stage III ``[r, n, k]``.
        prior: what they are to follow.
    """
    costs, labels = prior.costs(scores), prior.atoms.argmax(1)
    each = torch.stack([costs[..., labels == label].mean(-1) for label in range(scores.shape[-1])], -1)
    each = each - each.mean((0, 1))  # what a label costs whatever the image
    lowest = each.sort(-1).values
    own = (each.argmin(-1) == scores.argmax(-1)).double().mean()
    return float(own), float((lowest[..., 1] - lowest[..., 0]).mean()), float((lowest.mean(-1) - lowest[..., 0]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--prior", choices=("paper", "words"), default="paper")
    parser.add_argument("--common", type=float, default=0.0)
    parser.add_argument("--steps", type=int, nargs=2, default=(5000, 10_000), help="of stages II and III")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-root", type=Path)
    chosen = parser.parse_args()
    source = find_recipes("zero_label/table3")[0].data["cifar10_r18"]
    data = read_source(source, chosen.data_root, chosen.seed)
    assert data is not None
    data = replace(data, splits={name: with_common(part, chosen.common) for name, part in data.splits.items()})
    clustering, matching = Clustering(gradient="envelope", steps=chosen.steps[0]), Matching(steps=chosen.steps[1])
    method = ZeroLabel(
        naming="transport",
        prior=chosen.prior,
        restarts=chosen.restarts,
        centre=False,
        clustering=clustering,
        matching=matching,
    )
    classifier = fit(data, method, Run(seed=chosen.seed, device="cpu"))
    model, test = classifier.model, data.split("test")
    assert isinstance(model, NamedModel)
    assert model.restarts is not None
    first = test.images @ model.restarts.best_centres.mT / HEAD_SCALE
    start, end = first.argmax(-1), (test.images @ model.restarts.best_heads.mT).argmax(-1)
    prior = LabelPrior.of(label_similarity(data.labels, chosen.prior).double())
    own, following, mean = first_gaps(first[:, :1000], prior)
    print(
        f"first step: the own label is the cheapest for {own:.1%} of images, by {following:.3f} against the next and {mean:.3f} "
        f"against the mean; epsilon {matching.epsilon}"
    )
    for name, answers in (("start", start), ("end", end)):
        right = (answers == test.targets).double().mean(1) * 100
        print(f"{name}: {right.mean():.1f} +- {right.std():.1f} %  {right.round(decimals=1).tolist()}")
    print(f"same name at start and end, %: {((start == end).double().mean(1) * 100).round().tolist()}")
    found = evaluate_named(Tested.of(classifier, test, data.labels))
    print(f"chosen by loss: {found['accuracy']:.1%}, with the best names for its clusters {found['clusters']:.1%}")


if __name__ == "__main__":
    main()
