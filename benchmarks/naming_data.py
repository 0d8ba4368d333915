"""Classes of CIFAR-100 and TinyImageNet to draw ten of, their codes by several encoders, and the looks of their pictures, for ``naming.py``.

Classes of CIFAR-10 and their kin are left out. Half of the classes of each set are for choosing, the others for the report: no draw mixes them.
"""

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, normalize

from labelwise.images.images import Array
from labelwise.images.sources.packs import pack
from labelwise.methods import Encoder
from labelwise.methods.zero_label.clusters import cluster_starts, discriminant, neighbour_means
from labelwise.methods.zero_label.looks import looks
from labelwise.methods.zero_label.method import ZeroLabel
from labelwise.train.networks.patches import find_patches
from labelwise.train.tensors import linear_scores

K, RESTARTS, DIRECTIONS, SIDE = 10, 5, 128, 32
IMAGES = {"cifar100": 100, "tinyimagenet_val_64": 50}  # of each class
PATCHED = 10_000  # pictures that patches are found on
# Classes of CIFAR-10 by another name, or nearly so; and two whose names have no word vector.
LEFT_OUT = {
    "pickup_truck", "bus", "streetcar", "bullfrog", "tailed frog", "goose", "black stork", "king penguin", "albatross",
    "Chihuahua", "Yorkshire terrier", "golden retriever", "Labrador retriever", "German shepherd", "standard poodle",
    "tabby", "Persian cat", "Egyptian cat", "beach wagon", "convertible", "limousine", "sports car", "police van",
    "moving van", "lifeboat", "gondola", "gazelle", "trolleybus", "school bus", "gasmask", "jinrikisha",
}  # fmt: skip
NO_ANIMALS = ("people", "flowers", "fruit", "trees", "containers", "electrical", "furniture", "outdoor", "vehicles")


@dataclass(frozen=True, eq=False)
class Classes:
    """Codes of some pictures of each class ``[c, n, d]``, their looks ``[c, n, l]``, the names of the classes, and which are animals ``[c]``."""

    codes: Tensor
    looks: Tensor
    names: tuple[str, ...]
    animals: Tensor


def held_in(name: str) -> Path:
    """Return the file of a set."""
    return Path(os.environ["LABELWISE_DATA"]) / f"{name}.npz"


def pictures(name: str) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Return all pictures of a set ``[n, 3, h, w]``, which are drawn from for each class that is not left out ``[c, m]``, and its name."""
    data = pack(held_in(name))
    images, targets = (
        torch.cat([getattr(part, what) for part in data.splits.values()]) for what in ("images", "targets")
    )
    names = [each.split(",")[0] for each in data.labels.names]
    kept = [i for i, each in enumerate(names) if each not in LEFT_OUT]
    rows = torch.stack([(targets == i).nonzero()[: IMAGES[name], 0] for i in kept])
    return images, rows, tuple(names[i] for i in kept)


def are_animals(name: str, classes: tuple[str, ...]) -> Tensor:
    """Return which classes of a set are animals ``[c]``."""
    with np.load(held_in(name)) as held:
        known = [str(each).split(",")[0] for each in held["classes"]]
        if "wnids" in held:  # WordNet lists animals first
            animals = {each for each, key in zip(known, held["wnids"], strict=True) if str(key) < "n026"}
        else:
            kinds = dict(zip(held["labels"].tolist(), held["coarse"].tolist(), strict=True))
            groups = [str(each) for each in held["superclasses"]]
            animals = {each for i, each in enumerate(known) if not any(word in groups[kinds[i]] for word in NO_ANIMALS)}
    return torch.tensor([each in animals for each in classes])


def small(images: Tensor) -> Tensor:
    """Return pictures, bytes ``[n, 3, h, w]``, at 32 pixels."""
    parts = (interpolate(part.float(), size=(SIDE, SIDE), mode="area") for part in torch.split(images, 1000))
    return torch.cat([part.round().clamp(0, 255).byte() for part in parts])


def write_codes(file: Path, *, patches: bool) -> None:
    """Write the codes of EfficientNet-lite0 at 128 pixels, trained on ImageNet, or of an encoder of patches, found on some of the pictures at 32."""
    arrays, sets = dict[str, Array](), {name: pictures(name) for name in IMAGES}
    if patches:
        images = torch.cat([small(each) for each, _, _ in sets.values()])
        some = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:PATCHED]
        found = find_patches(images[some]).eval()
    for name, (images, rows, names) in sets.items():
        own = images[rows.flatten()]
        if patches:
            with torch.no_grad():
                codes = torch.cat([found(part.float() / 255) for part in torch.split(small(own), 500)])
        else:
            encoder = Encoder(backbone="efficientnet_lite0", frozen=True, size=128).build(tuple(own.shape[1:]))
            codes = encoder.to(memory_format=torch.channels_last).features(own)  # type: ignore[call-overload]
        arrays |= {f"{name}/codes": codes.half().numpy(), f"{name}/names": np.array(names)}
    np.savez(file, allow_pickle=False, **arrays)


def write_pictures(file: Path) -> None:
    """Write the pictures that are drawn from, class by class, as the packs have them encoded."""
    arrays = dict[str, Array]()
    for name in IMAGES:
        images, rows, names = pictures(name)
        with np.load(held_in(name)) as held:
            data, ends = held["data"].tobytes(), held["offsets"].tolist()
        encoded = {decoded(data[a:b]).tobytes(): data[a:b] for a, b in pairwise(ends)}
        own = [encoded[images[row].permute(1, 2, 0).numpy().tobytes()] for row in rows.flatten().tolist()]
        arrays[f"{name}/data"] = np.frombuffer(b"".join(own), np.uint8)
        arrays[f"{name}/offsets"] = np.cumsum([0, *map(len, own)])
        arrays[f"{name}/names"] = np.array(names)
    np.savez(file, allow_pickle=False, **arrays)


def decoded(data: bytes) -> Array:
    """Return an encoded picture as bytes ``[h, w, 3]``."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def read_pictures(file: Path) -> dict[str, tuple[Tensor, tuple[str, ...]]]:
    """Return the pictures of ``write_pictures`` at 32 pixels ``[n, 3, 32, 32]``, and the names of classes, of each set."""
    found = {}
    with np.load(file) as held:
        for name in IMAGES:
            data, ends = held[f"{name}/data"].tobytes(), held[f"{name}/offsets"].tolist()
            images = torch.from_numpy(np.stack([decoded(data[a:b]) for a, b in pairwise(ends)])).permute(0, 3, 1, 2)
            found[name] = small(images), tuple(str(each) for each in held[f"{name}/names"])
    return found


def read_classes(file: Path) -> dict[str, Classes]:
    """Return the classes of each set, from a file of codes; the looks of their pictures are kept in a file beside."""
    beside, found = file.with_suffix(".looks.npz"), {}
    if not beside.exists():
        made = {}
        for name in IMAGES:
            images, rows, _ = pictures(name)
            parts = [looks(images[part].numpy()) for part in torch.split(rows.flatten(), 500)]
            made[name] = np.concatenate(parts).reshape(*rows.shape, -1)
        np.savez(beside, allow_pickle=False, **made)
    with np.load(file) as held, np.load(beside) as seen:
        for name in IMAGES:
            names = [str(each) for each in held[f"{name}/names"]]
            codes = torch.from_numpy(held[f"{name}/codes"]).float().reshape(len(names), IMAGES[name], -1)
            kept = [i for i, each in enumerate(names) if each not in LEFT_OUT]
            own = tuple(names[i] for i in kept)
            found[name] = Classes(codes[kept], torch.from_numpy(seen[name]).double(), own, are_animals(name, own))
    return found


def halves(classes: Classes, half: str) -> Tensor:
    """Return the classes for choosing, or for the report."""
    order = torch.randperm(len(classes.names), generator=torch.Generator().manual_seed(0))
    middle = len(order) // 2
    return order[:middle] if half == "choose" else order[middle:]


def draws(sets: dict[str, Classes], half: str, count: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the set and the ten classes of each draw: any, or six animals and four others, ``count`` of each kind and set."""
    for place, (name, classes) in enumerate(sets.items()):
        pool = halves(classes, half)
        for mixed in (True, False):
            generator = torch.Generator().manual_seed(10 * (half == "report") + 2 * place + mixed)
            for _ in range(count):
                order = torch.randperm(len(pool), generator=generator)
                animals = classes.animals[pool[order]]
                rows = torch.cat([order[animals][:6], order[~animals][: K - 6]]) if mixed else order[:K]
                yield name, pool[rows]


def in_directions(codes: Tensor, most: int) -> Tensor:
    """Return codes ``[n, d]`` around their mean, in the directions in which they vary most, of unit length."""
    rows = codes - codes.mean(0)
    return normalize(rows @ torch.linalg.svd(rows, full_matrices=False)[2][:most].T, dim=1)


def clusterings(codes: Tensor, restarts: int, seed: int, shares: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return linear scores ``[r, k, d + 1]`` and clusters ``[r, n]`` of codes ``[n, d]``, as ``ZeroLabel`` makes them, the one to name first.

    Clusters are as large as ``shares [k]`` say, else equal.
    """
    sizes = torch.full((K,), 1 / K) if shares is None else shares
    starts = cluster_starts(neighbour_means(codes, ZeroLabel().smooth), K, restarts, seed, sizes)
    heads = torch.stack([discriminant(codes, one.members, K) for one in starts])
    return heads, torch.stack([linear_scores(codes, head).argmax(1) for head in heads])
