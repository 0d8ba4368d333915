"""Which settings of ``zero_label`` name clusters best, judged on sets of ten classes that have nothing of CIFAR-10.

    LABELWISE_DATA=FOLDER python benchmarks/naming_choice.py --codes FILE [--draws N] [--seed N] [--prepare] [--quick]

Classes of CIFAR-100 (``cifar100.npz``) and TinyImageNet (``tinyimagenet_val_64.npz``) without those of CIFAR-10 and their kin,
codes of EfficientNet-lite0 at 128 pixels (extra ``pretrained``), made once and kept in the file of ``--codes``. A draw is ten classes:
any, or six animals and four other things. Labels are read to draw and to judge, never to cluster or to name. The prior
``sentences`` needs the extra ``text``. ``--prepare`` compares what is done to codes before they are clustered. Each row is
printed with the mean over draws, its standard error, and the mean and standard error of the difference to the first row; with
``--prepare`` to the first row of the same names.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from labelwise.data.dataset import Split
from labelwise.data.read.packs import pack
from labelwise.labels import Labels
from labelwise.methods import Encoder
from labelwise.methods.shared.label_prior import label_similarity, sentence_similarity
from labelwise.methods.shared.naming import Evidence, choose_names, cluster_starts, name_each, vote
from labelwise.ops.assignment import best_matching
from labelwise.ops.clusters import discriminant, neighbour_means
from labelwise.ops.linear import linear_scores

K, RESTARTS, CODE_SIZE = 10, 5, 128
IMAGES = {"cifar100": 100, "tinyimagenet_val_64": 50}  # of each class
# Classes of CIFAR-10 by another name, or nearly so; and two whose names have no word vector.
LEFT_OUT = {
    *(
        "pickup_truck",
        "bus",
        "streetcar",
        "bullfrog",
        "tailed frog",
        "goose",
        "black stork",
        "king penguin",
        "albatross",
    ),
    *("Chihuahua", "Yorkshire terrier", "golden retriever", "Labrador retriever", "German shepherd", "standard poodle"),
    *("tabby", "Persian cat", "Egyptian cat", "beach wagon", "convertible", "limousine", "sports car", "police van"),
    *("moving van", "lifeboat", "gondola", "gazelle", "trolleybus", "school bus", "gasmask", "jinrikisha"),
}
NO_ANIMALS = ("people", "flowers", "fruit", "trees", "containers", "electrical", "furniture", "outdoor", "vehicles")


@dataclass(frozen=True, eq=False)
class Classes:
    """Codes of some images of each class ``[c, n, d]``, the names of the classes, and which are animals ``[c]``."""

    codes: Tensor
    names: tuple[str, ...]
    animals: Tensor


def animal_names(file: Path) -> set[str]:
    """Return the names of the classes that are animals."""
    with np.load(file) as held:
        classes = [str(name) for name in held["classes"]]
        if "wnids" in held:  # WordNet lists animals first
            return {name for name, key in zip(classes, held["wnids"], strict=True) if str(key) < "n026"}
        kinds = dict(zip(held["labels"].tolist(), held["coarse"].tolist(), strict=True))
        groups = [str(name) for name in held["superclasses"]]
    return {name for i, name in enumerate(classes) if not any(word in groups[kinds[i]] for word in NO_ANIMALS)}


def encoded(file: Path, most: int) -> Classes:
    """Return the codes of ``most`` images of each class of a pack, those left out apart."""
    data = pack(file)
    every: Split | None = None
    for split in data.splits.values():
        every = split if every is None else every.join(split)
    assert every is not None
    names = [name.split(",")[0] for name in data.labels.names]
    kept = [i for i, name in enumerate(names) if name not in LEFT_OUT]
    rows = torch.cat([(every.targets == i).nonzero()[:most, 0] for i in kept])
    encoder = Encoder(backbone="efficientnet_lite0", frozen=True, size=128).build(data.shape)
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    codes = encoder.features(every.images[rows]).view(len(kept), most, -1)
    animals = animal_names(file)
    flags = torch.tensor([data.labels.names[i] in animals for i in kept])
    return Classes(codes, tuple(names[i] for i in kept), flags)


def all_classes(cache: Path) -> dict[str, Classes]:
    """Return the classes of both data sets, from the cache where it is there."""
    folder = Path(os.environ["LABELWISE_DATA"])
    if not cache.exists():
        made = {name: encoded(folder / f"{name}.npz", most) for name, most in IMAGES.items()}
        arrays = {f"{name}/codes": own.codes.half().numpy() for name, own in made.items()}
        arrays |= {f"{name}/names": np.array(own.names) for name, own in made.items()}
        np.savez(
            cache, allow_pickle=False, **arrays, **{f"{n}/animals": own.animals.numpy() for n, own in made.items()}
        )
    with np.load(cache) as held:
        return {
            name: Classes(
                torch.from_numpy(held[f"{name}/codes"]).float(),
                tuple(str(one) for one in held[f"{name}/names"]),
                torch.from_numpy(held[f"{name}/animals"]),
            )
            for name in IMAGES
        }


def draw(classes: Classes, mixed: bool, made: torch.Generator) -> list[int]:
    """Return ten classes: any, or six animals and four others."""
    order = torch.randperm(len(classes.names), generator=made)
    if not mixed:
        return order[:K].tolist()
    animals = classes.animals[order]
    return torch.cat([order[animals][:6], order[~animals][: K - 6]]).tolist()


def clusterings(codes: Tensor, truth: Tensor, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Yield each way to cluster codes ``[n, d]`` and its clusterings ``[r, n]``, the one to name first."""
    for name, smooth, sizes in (
        ("usual clusters", 20, torch.full((K,), 1 / K)),
        ("not smoothed", 1, torch.full((K,), 1 / K)),
        ("sizes free", 20, None),
    ):
        starts = cluster_starts(neighbour_means(codes, smooth), K, RESTARTS, seed, sizes)
        rows = [discriminant(codes, one.members, K) for one in starts]
        yield name, torch.stack([linear_scores(codes, own).argmax(1) for own in rows])
    yield "true classes", truth[None]


def priors(names: tuple[str, ...]) -> dict[str, Tensor]:
    """Return how alike names are ``[k, k]`` by each prior."""
    labels = Labels(names=names)
    found = {f"words {n}": label_similarity(labels, "words", neighbours=n) for n in (10, 0, 5, 20, 40)}
    found["sentences alone"] = sentence_similarity(names)
    return found | {"words 10 and sentences": label_similarity(labels, "sentences", neighbours=10)}


def in_directions(codes: Tensor, most: int) -> Tensor:
    """Return codes ``[n, d]`` around their mean, in the directions in which they vary most, of unit length."""
    rows = codes - codes.mean(0)
    return normalize(rows @ torch.linalg.svd(rows, full_matrices=False)[2][:most].T, dim=1)


def prepared(codes: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield each preparation of codes ``[n, d]`` and what it makes of them, the one that settings were compared with first."""
    for name, own in (("centred", codes), ("unit length, centred", normalize(codes, dim=1))):
        for most in (CODE_SIZE, 32, 64, 256):
            yield f"{name}, {most} directions", in_directions(own, most)
        yield name, normalize(own - own.mean(0), dim=1)


def measured_codes(classes: Classes, rows: list[int], seed: int) -> dict[str, float]:
    """Return the accuracy of every preparation on one draw, with the usual clusters."""
    images, names, found = classes.codes[rows], tuple(classes.names[i] for i in rows), dict[str, float]()
    truth, known = torch.arange(K).repeat_interleave(images.shape[1]), priors(names)
    for way, codes in prepared(images.flatten(0, 1)):
        _, members = next(clusterings(codes, truth, seed))
        found |= named(f"{way}, ", codes, members, truth, {p: known[p] for p in ("words 10", "words 10 and sentences")})
    return found


def named(about: str, codes: Tensor, members: Tensor, truth: Tensor, known: dict[str, Tensor]) -> dict[str, float]:
    """Return the accuracy of the first of some clusterings ``[r, n]``: with the best names, and with those of each prior."""
    inside = one_hot(members[0], K).double().T @ one_hot(truth, K).double() / len(truth)
    found = {f"{about}best names": float(inside[range(K), best_matching(inside)].sum())}
    for prior, alike in known.items():
        evidence = Evidence.of(codes, members, alike)
        chosen = choose_names(vote(evidence, name_each(evidence, 200)))
        found[f"{about}{prior}"] = float(inside[range(K), chosen].sum())
    return found


def measured(classes: Classes, rows: list[int], seed: int) -> dict[str, float]:
    """Return the accuracy of every variant on one draw."""
    images = classes.codes[rows]
    truth = torch.arange(K).repeat_interleave(images.shape[1])
    _, codes = next(prepared(images.flatten(0, 1)))
    names, found = tuple(classes.names[i] for i in rows), dict[str, float]()
    for way, members in clusterings(codes, truth, seed):
        known = priors(names)
        if way != "usual clusters":
            known = {prior: known[prior] for prior in ("words 10", "words 10 and sentences")}
        found |= named(f"{way}, ", codes, members, truth, known)
    return found


def main() -> None:
    """Print the mean of every variant over all draws, and over those of each kind."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--codes", type=Path, required=True, help="where codes are kept (.npz)")
    words.add_argument("--draws", type=int, default=30, help="of each of four kinds")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--prepare", action="store_true", help="compare what is done to codes before they are clustered")
    words.add_argument("--quick", action="store_true", help="two draws of each kind")
    given = words.parse_args()
    found: list[dict[str, float]] = []
    for place, (data, classes) in enumerate(all_classes(given.codes).items()):
        for mixed in (True, False):
            made = torch.Generator().manual_seed(1000 * given.seed + 2 * place + mixed)
            draws = 2 if given.quick else given.draws
            found += [
                (measured_codes if given.prepare else measured)(classes, draw(classes, mixed, made), seed)
                for seed in range(draws)
            ]
            part = torch.tensor([list(one.values()) for one in found[-draws:]], dtype=torch.float64).mean(0)
            print(data, "mixed" if mixed else "any", [round(100 * float(mean), 1) for mean in part], flush=True)
    table = 100 * torch.tensor([list(one.values()) for one in found], dtype=torch.float64)
    known = list(found[0])
    for name, column in zip(known, table.T, strict=True):
        same = next(one for one in known if one.endswith(name.rpartition(", ")[2]))
        first = table[:, known.index(same if given.prepare else "usual clusters, words 10")]
        error, gain = column.std() / len(column) ** 0.5, column - first
        print(
            f"{name:40s} {column.mean():5.1f} +- {error:.1f}   {gain.mean():+5.1f} +- {gain.std() / len(gain) ** 0.5:.1f}"
        )


if __name__ == "__main__":
    main()
