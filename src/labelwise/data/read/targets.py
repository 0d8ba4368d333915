"""Labels as they are given, by name, by number or as yes and no, and the targets that are made of them."""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labelwise.data.dataset import first_true
from labelwise.data.read.pictures import Array
from labelwise.errors import UsageError, listing, suggest

Targets = Sequence[int] | Sequence[str] | Array | Tensor


class Named(NamedTuple):
    """The names of labels, sorted, and where those of each picture stand among them, see ``Split``."""

    names: tuple[str, ...]
    targets: Tensor
    truths: Tensor | None


def named_targets(labels: Sequence[str | None], several: Sequence[tuple[str, ...] | None]) -> Named:
    """Return targets ``[n]`` and, where pictures have several labels each, truths ``[n, k]``.

    Args:
        labels: the label of each picture, or None.
        several: the labels of each picture where several may be true; else nothing, or None for each.
    """
    sets = [each for each in several if each is not None]
    names = tuple(sorted({name for each in sets for name in each} | {name for name in labels if name is not None}))
    position: dict[str | None, int] = {name: i for i, name in enumerate(names)}
    if not sets or not names:
        return Named(names, torch.tensor([position.get(label, -1) for label in labels]), None)
    truths = torch.zeros(len(sets), len(names), dtype=torch.bool)
    pairs = [(row, position[name]) for row, each in enumerate(sets) for name in each]
    truths[tuple(torch.tensor(pairs).T)] = True
    return Named(names, first_true(truths), truths)


def as_labels(given: Targets) -> Array:
    """Return labels ``[n]`` as whole numbers or as text, or ``[n, k]`` as yes and no."""
    values: Array = given.cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values.flat):
        values = values.astype(np.str_)
    several = values.ndim == 2 and values.dtype.kind == "b" and values.shape[1] > 0
    if not len(values) or not (several or (values.ndim == 1 and values.dtype.kind in "iuU")):
        raise UsageError(
            f"Labels must be whole numbers or names, one for each image; given {values.dtype} {list(values.shape)}. Where "
            "several may be true of an image, they are yes and no (bool) to each, [n, labels]."
        )
    return values


def as_targets(values: Array, names: Sequence[str] | None) -> Named:
    """Return labels, as ``as_labels`` gives them, as positions in their names."""
    if values.dtype.kind == "b":
        return _as_truths(values, names)
    if values.dtype.kind == "U":
        texts = [unicodedata.normalize("NFC", text) for text in values.tolist()]
        known = tuple(sorted(set(texts))) if names is None else tuple(unicodedata.normalize("NFC", n) for n in names)
        position = {name: i for i, name in enumerate(known)}
        strange = next((text for text in texts if text not in position), None)
        if strange is not None:
            raise UsageError(
                f'Label "{strange}" is not among the names.{suggest(strange, known)} Names: {listing(known)}.'
            )
        return Named(known, torch.tensor([position[text] for text in texts]), None)
    low, high = int(values.min()), int(values.max())
    if low < 0 or (names is not None and high >= len(names)):
        most = "" if names is None else f" and at most {len(names) - 1}, as there are {len(names)} names"
        raise UsageError(f"Labels as numbers must be at least 0{most}; given {low} to {high}.")
    if names is not None:
        return Named(tuple(str(name) for name in names), torch.from_numpy(values.astype(np.int64)), None)
    found, where = np.unique(values, return_inverse=True)
    return Named(tuple(str(value) for value in found.tolist()), torch.from_numpy(where.astype(np.int64)), None)


def _as_truths(values: Array, names: Sequence[str] | None) -> Named:
    """Return what yes and no to each label ``[n, k]`` say."""
    if names is None or len(names) != values.shape[1]:
        raise UsageError(
            f"Yes and no are given for {values.shape[1]} labels of each image; name each of them. Names given: "
            f"{0 if names is None else len(names)}."
        )
    truths = torch.from_numpy(np.array(values))
    return Named(tuple(unicodedata.normalize("NFC", str(name)) for name in names), first_true(truths), truths)
