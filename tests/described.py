"""Data whose labels are described: features that follow from a label's vector, or from its colour and its shape."""

import numpy as np
import torch
from torch import Tensor

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.train.model import LabelModel, Spec
from tests.pixels_of import px

UNSEEN = (2, 5, 9)  # of twelve labels, in the midst of the others
COLOURS = ("red", "green", "blue", "yellow")
SHAPES = ("square", "circle", "star", "cross")
PAIRS = tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)
DIAGONAL = tuple(f"{colour} {shape}" for colour, shape in zip(COLOURS, SHAPES, strict=True))


def by_vector(labels: int = 12, per_label: int = 16, noise: float = 0.5, seed: int = 0) -> Dataset:
    """Features x = vector @ A + noise; the labels of ``UNSEEN`` have test images alone."""
    made = torch.Generator().manual_seed(seed)
    vectors, way = torch.randn(labels, 6, generator=made), torch.randn(6, 20, generator=made)
    splits = {}
    for name, some in (("train", [i for i in range(labels) if i not in UNSEEN]), ("test", list(range(labels)))):
        targets = torch.tensor(some).repeat(per_label)
        images = vectors[targets] @ way + noise * torch.randn(len(targets), 20, generator=made)
        splits[name] = Split(images=images, targets=targets)
    names = tuple(f"label {i}" for i in range(labels))
    return Dataset(name="by vector", labels=Labels(names=names, vectors=vectors), splits=splits)


def by_text(per_label: int = 12, *, own: bool = False, targets: bool = True, unseen: tuple[str, ...] = ()) -> Dataset:
    """Features that are a colour and a shape, with noise; ``own`` gives each image one to three sentences.

    Labels of ``unseen`` have test images alone; without ``targets`` training images have no label.
    """
    made = torch.Generator().manual_seed(1)
    place = torch.arange(len(PAIRS)).repeat(per_label)
    pure = torch.cat([torch.eye(4)[place // 4], torch.eye(4)[place % 4]], 1)
    images = pure + 0.15 * torch.randn(len(place), 8, generator=made)
    half = torch.arange(len(place)) < len(place) // 2
    taught = half & torch.tensor([name not in unseen for name in PAIRS])[place]
    splits = {name: Split(images=images[at], targets=place[at]) for name, at in (("train", taught), ("test", ~half))}
    labels = Labels(names=PAIRS, texts=tuple(sentences(name) for name in PAIRS))
    train = splits["train"]
    counts = [1 + row % 3 for row in range(len(train))]
    found = tuple(sentences(PAIRS[t])[:n] for t, n in zip(train.targets.tolist(), counts, strict=True)) if own else ()
    shown = train.targets if targets else np.full_like(train.targets, -1)
    splits["train"] = Split(images=px(train), targets=shown, texts=found)
    return Dataset(name="by text", labels=labels, splits=splits)


def sentences(name: str) -> tuple[str, ...]:
    """Three sentences about a coloured shape."""
    colour, shape = name.split()
    return (f"a {name}", f"this {shape} is {colour}", f"the picture shows a {shape} of {colour} paint")


class Table(LabelModel):
    """A model whose images are rows of scores, one for each label it was built for: every score is known exactly."""

    def __init__(self, labels: Labels) -> None:
        super().__init__(Spec(shape=(len(labels),), labels=labels))

    def encode_images(self, images: Tensor) -> Tensor:
        return images

    def encode_labels(self, labels: Labels) -> Tensor:
        return torch.eye(len(self.spec.labels))[[self.spec.labels.index(name) for name in labels.names]]

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return (image_embeddings[:, None] * label_embeddings).sum(-1)


class Distances(Table):
    """The same for scores below zero, which a penalty multiplies."""

    penalty = "scale"
