"""Tiny data for quick runs, made in an instant: images, features with descriptions of labels, and sound.

Each label is a random pattern and its images are that pattern under noise, so that a method has something to learn. A quick
run shows that a recipe works from end to end; its figures mean nothing.
"""

import torch
from torch import Tensor

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UsageError, listing

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
SHAPES = {"pictures": (3, 32, 32), "features": (16,), "described": (16,), "sound": (4000,), "unseen": (3, 32, 32)}
SEEN = 7  # labels with training images, where some have none
COUNTS = {"train": 8, "val": 3, "test": 8}  # images of each label


def tiny(word: str) -> Dataset:
    """Return the tiny data set ``tiny/KIND``; kinds are those of ``SHAPES``.

    ``described`` and ``unseen`` (images) have labels without training images; test images of ``unseen`` have no other.
    """
    kind = word.removeprefix("tiny/")
    if kind not in SHAPES:
        raise UsageError(f'No tiny data "{word}". There are: {listing(f"tiny/{each}" for each in SHAPES)}.')
    rng = torch.Generator().manual_seed(0)
    patterns = torch.rand((len(NAMES), *SHAPES[kind]), generator=rng)
    splits = {name: _split(patterns, _targets(kind, name), rng) for name in COUNTS}
    texts = tuple((f"this is a picture of a {name}", f"the {name}") for name in NAMES)
    if kind == "described":
        splits = {name: _described(split, texts) if name != "test" else split for name, split in splits.items()}
    labels = Labels(
        names=NAMES,
        vectors=torch.rand(len(NAMES), 5, generator=rng) if kind == "described" else None,
        texts=texts if kind == "described" else None,
        order=tuple(range(len(NAMES))),
    )
    return Dataset(name=word, labels=labels, splits=splits)


def _targets(kind: str, split: str) -> Tensor:
    labels = torch.arange(len(NAMES))
    if kind == "described" and split != "test":
        labels = labels[:SEEN]
    if kind == "unseen":
        labels = labels[SEEN:] if split == "test" else labels[:SEEN]
    return labels.repeat(COUNTS[split])


def _split(patterns: Tensor, targets: Tensor, rng: torch.Generator) -> Split:
    noise = torch.rand((len(targets), *patterns.shape[1:]), generator=rng)
    images = 0.6 * patterns[targets] + 0.4 * noise
    pixels = (255 * images).to(torch.uint8) if images.ndim == 4 else images
    domains = tuple(DOMAINS[row // len(patterns) % len(DOMAINS)] for row in range(len(targets)))
    return Split(images=pixels, targets=targets, domains=domains)


def _described(split: Split, texts: tuple[tuple[str, ...], ...]) -> Split:
    sentences = tuple(texts[target] for target in split.targets.tolist())
    return Split(images=split.images, targets=split.targets, texts=sentences, domains=split.domains)
