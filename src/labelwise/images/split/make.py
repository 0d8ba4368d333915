"""Choose the rows of splits of every kind; ``divide`` applies them to data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.images.dataset import SPLITS
from labelwise.images.sources.paths import SPELLINGS as SPELLINGS
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise.support.rows import Draws

Array = npt.NDArray[Any]

VAL_SHARE = 0.1  # of train, if the data name no val
# the most images to hold out: in all, or of each label if that is more
ENOUGH, OF_EACH = 1_000, 10


def val_share(targets: npt.ArrayLike) -> float:
    """Return the share of training images with targets ``[n]`` that becomes val if the data name none.

    >>> val_share(np.arange(50_000) % 10)
    0.02
    """
    targets = np.asarray(targets)
    return min(VAL_SHARE, max(ENOUGH, OF_EACH * len(np.unique(targets))) / max(1, len(targets)))


def split_name(spelling: str, place: str) -> str:
    """Return train, val or test for any spelling of a split; ``place`` begins the error for any other word."""
    name = SPELLINGS.get(spelling.strip().casefold())
    if name is None:
        raise DataError(
            f'{place}unknown split "{spelling}".{suggest(spelling, SPELLINGS)} Splits are train, val and test.'
        )
    return name


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The share of each split; the three sum to one, and train is not empty."""

    train: float = 0.7
    val: float = 0.1
    test: float = 0.2

    def __post_init__(self) -> None:
        parts = (self.train, self.val, self.test)
        if not (all(0 <= part <= 1 for part in parts) and self.train > 0 and math.isclose(sum(parts), 1, abs_tol=1e-6)):
            raise UsageError(
                "The shares of train, val and test must not be negative, must sum to 1, and train must get some; "
                f"given train={self.train}, val={self.val}, test={self.test}."
            )


def stratify(targets: npt.ArrayLike, shares: Shares, seed: int) -> dict[str, Array]:
    """Return the rows of each split that has a positive share: sorted, disjoint, together all of them.

    Each label of ``targets [n]`` is divided separately, so every split gets its share within one image. A label with at least as
    many images as there are splits is in all of them, even if that takes several images from train. With fewer images, train
    comes first, then the split with the larger share: one image goes to train, two go to train and test.
    """
    names = _by_share(shares)
    parts = dict(zip(names, _divide(targets, [getattr(shares, name) for name in names], seed), strict=True))
    return {name: parts[name] for name in SPLITS if name in parts}


def _by_share(shares: Shares) -> list[str]:
    """Return the splits with a positive share: train, then by descending share."""
    later_splits = sorted(("test", "val"), key=lambda name: -float(getattr(shares, name)))
    return [name for name in ("train", *later_splits) if getattr(shares, name) > 0]


def split_off(targets: npt.ArrayLike, share: float, seed: int, groups: Sequence[str] = ()) -> tuple[Array, Array]:
    """Return the rows that stay and the rows held out, a share above 0 and below 1: sorted, disjoint, together all of them.

    Each label gives its share within one image. A label with two or more images gives at least one and keeps at least one; a
    single image stays. Groups stay whole, see ``divide_groups``.
    """
    if not 0 < share < 1:
        raise UsageError(f"The share to hold out must be between 0 and 1; given {share}.")
    if any(groups):
        parts = divide_groups(groups, targets, Shares(train=1 - share, val=share, test=0), seed)
        return parts["train"], parts["val"]
    kept_rows, split_rows = _divide(targets, [1 - share, share], seed)
    return kept_rows, split_rows


def leave_one_domain_out(domains: Sequence[str], domain: str) -> dict[str, Array]:
    """Return train rows, from all domains but one, and test rows, from that one."""
    domain_names = sorted(set(domains))
    if domain not in domain_names:
        raise UsageError(
            f'No domain "{domain}".{suggest(domain, domain_names)} Domains: {listing(domain_names) or "none"}.'
        )
    if len(domain_names) < 2:
        raise DataError(f'All images are of the domain "{domain}", so nothing is left to train on.')
    inside = np.array([name == domain for name in domains])
    return {"train": np.flatnonzero(~inside), "test": np.flatnonzero(inside)}


def hold_out_domain(targets: npt.ArrayLike, domains: Sequence[str], domain: str, seed: int) -> dict[str, Array]:
    """Return the rows of one domain as test; a tenth of each label and domain of the others is val, the rest train."""
    rows = leave_one_domain_out(domains, domain)
    train_rows, val = split_off(strata(targets, domains)[rows["train"]], VAL_SHARE, seed)
    return {"train": rows["train"][train_rows], "val": rows["train"][val], "test": rows["test"]}


def strata(targets: npt.ArrayLike, domains: Sequence[str]) -> Array:
    """Return the strata of images ``[n]``: labels, or pairs of label and domain."""
    targets = np.asarray(targets)
    codes = {name: i for i, name in enumerate(sorted(set(domains)))}
    return targets * len(codes) + np.array([codes[name] for name in domains]) if codes else targets


def divide_groups(groups: Sequence[str], targets: npt.ArrayLike, shares: Shares, seed: int) -> dict[str, Array]:
    """Return the rows of each split that has a positive share, sorted: no group is in two, and together they are all.

    Groups of several images are placed one by one, largest first, where label counts come nearest to their shares (by
    chi-squared distance). Then they are moved while a move helps. Single images (a blank name is its own group) fill up the
    shares of their label, so without groups this is ``stratify``. Each label keeps a group in train, and no split is empty.
    """
    targets = np.asarray(targets)
    if len(groups) != len(targets):
        raise UsageError(f"There are {len(targets)} images but {len(groups)} groups; give one for each image.")
    names = _by_share(shares)
    keys = {key: i for i, key in enumerate(dict.fromkeys(name or i for i, name in enumerate(groups)))}
    if len(keys) < len(names):
        raise DataError(f"There are {len(keys)} groups for {len(names)} splits ({listing(names)}); each needs one.")
    member = np.array([keys[name or i] for i, name in enumerate(groups)])
    counts, share = _group_counts(member, targets), np.array([getattr(shares, name) for name in names])
    wanted = share[:, None] * counts.sum(0)
    home, large = np.full(len(counts), -1), counts.sum(1) > 1
    home[large] = _place_groups(counts[large], wanted, seed)
    room = wanted - np.stack([counts[home == i].sum(0) for i in range(len(names))])
    small_groups = np.flatnonzero(~large[member])
    for rows in _shuffle_classes(np.asarray(targets)[small_groups], seed):
        own = member[small_groups[rows]]
        column = counts[own[0]].argmax()
        free = room[:, column].clip(0)
        partly = len(own) < counts[:, column].sum() and free.sum() > 0  # groups have taken some of its shares
        sizes = _counts(len(own), (free / free.sum() if partly else share).tolist())
        home[own] = np.repeat(np.arange(len(names)), sizes)
    _fill(home, counts, len(names))
    parts = {name: np.flatnonzero(home[member] == i) for i, name in enumerate(names)}
    return {name: parts[name] for name in SPLITS if name in parts}


def folds_of(groups: Sequence[str], targets: npt.ArrayLike, folds: int, seed: int) -> Array:
    """Return the fold of each image ``[n]``: groups stay whole, and each label is in as many folds as possible.

    A blank name is its own group. Groups are placed one by one, largest first, where there are fewest images of their labels,
    then fewest in all.
    """
    keys = {key: i for i, key in enumerate(dict.fromkeys(name or i for i, name in enumerate(groups)))}
    if not 2 <= folds <= len(keys):
        raise UsageError(f"There are {len(keys)} images or groups to divide, so 2 to {len(keys)} folds; given {folds}.")
    member = np.array([keys[name or i] for i, name in enumerate(groups)])
    counts = _group_counts(member, targets)
    order = np.random.default_rng(seed).permutation(len(counts))
    order = order[np.lexsort((counts[order].argmax(1), -counts[order].sum(1)))]
    home, have, total = np.zeros(len(counts), np.int64), np.zeros((folds, counts.shape[1])), np.zeros(folds)
    for group in order:
        own = counts[group].nonzero()[0]
        home[group] = fold = np.lexsort((total, have[:, own] @ counts[group, own]))[0]
        have[fold, own] += counts[group, own]
        total[fold] += counts[group].sum()
    return np.asarray(home[member])


def _fill(home: np.ndarray, counts: np.ndarray, splits: int) -> None:
    """Move groups if a label has none in train, the first split, or a split is empty; ``counts`` are ``[g, k]``."""
    for absent in np.flatnonzero(counts[home == 0].sum(0) == 0):
        own = np.flatnonzero(counts[:, absent])
        home[own[counts[own].sum(1).argmin()]] = 0
    for empty in np.flatnonzero(np.bincount(home, minlength=splits) == 0):
        richest = np.flatnonzero(home == np.bincount(home, minlength=splits).argmax())
        home[richest[counts[richest].sum(1).argmin()]] = empty


def zero_shot(
    targets: npt.ArrayLike,
    names: Sequence[str],
    held_out: float = 0.2,
    unseen: float | Sequence[str] = 0.2,
    share: float = 0.2,
    seed: int = 0,
) -> dict[str, Array]:
    """Return rows by label: ``train``, ``val_seen``, ``val_unseen``, ``test_seen`` and ``test_unseen``.

    Each seen label gives ``share`` of its images to the test, and the same share of the rest to validation. By default, 64 %
    remain for training. All images of labels held out to choose settings are in ``val_unseen``; all of unseen labels in
    ``test_unseen``. Rows without a label (-1) are in no split.

    Args:
        targets: positions in ``names`` ``[n]``; -1 where there is no label.
        names: the names of the labels; labels without an image are ignored.
        held_out: share of all labels to hold out.
        unseen: the unseen labels, by name, or their share of all labels (at least one).
        share: share of the images of seen labels in the test.
        seed: the same seed gives the same split.
    """
    present = [names[i] for i in np.unique(targets).tolist() if i >= 0]
    order = [present[i] for i in Draws(seed).permutation(len(present)).tolist()]
    for kind, part in (("held-out", held_out), ("unseen", unseen)):
        if isinstance(part, int | float) and not 0 <= part < 1:
            raise UsageError(f"The share of {kind} classes must be at least 0 and below 1; given {part}.")
    if isinstance(unseen, int | float):
        last = order[: max(1, round(unseen * len(present))) if unseen else 0]
    else:
        last = [unseen] if isinstance(unseen, str) else list(unseen)
    for name in last:
        if name not in present:
            raise UsageError(
                f'Class "{name}" cannot be unseen: it has no images.{suggest(name, present)} Classes: {listing(present)}.'
            )
    middle = [name for name in order if name not in last][: max(1, round(held_out * len(present))) if held_out else 0]
    first = set(present).difference(last, middle)
    if not last or len(first) < 2:
        raise DataError(
            f"Of {len(present)} classes with images, {len(first)} are left to train on, {len(middle)} are held out and "
            f"{len(set(last))} unseen. At least two to train on and one unseen are needed."
        )
    classes = [[i for i, name in enumerate(names) if name in part] for part in (first, middle, last)]
    seen_rows, val_unseen, test_unseen = (np.flatnonzero(np.isin(targets, labels)) for labels in classes)
    parts = _divide(np.asarray(targets)[seen_rows], [(1 - share) ** 2, share, share * (1 - share)], seed)
    train, test_seen, val_seen = (seen_rows[part] for part in parts)
    return {
        "train": train,
        "val_seen": val_seen,
        "val_unseen": val_unseen,
        "test_seen": test_seen,
        "test_unseen": test_unseen,
    }


def _divide(targets: npt.ArrayLike, shares: Sequence[float], seed: int) -> list[Array]:
    """Return the sorted rows of each part; earlier parts come first if a label has too few images."""
    parts: list[list[Array]] = [[] for _ in shares]
    for rows in _shuffle_classes(targets, seed):
        ends = np.cumsum(_counts(len(rows), shares))
        for part, piece in zip(parts, np.split(rows, ends[:-1]), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) if part else np.empty(0, np.int64) for part in parts]


def _shuffle_classes(targets: npt.ArrayLike, seed: int) -> list[Array]:
    targets = np.asarray(targets)
    if targets.ndim != 1 or targets.dtype.kind not in "iu":
        raise UsageError(f"Targets must be whole numbers [n]; given {list(targets.shape)} of {targets.dtype}.")
    draws = Draws(seed)
    sizes = np.unique(targets, return_counts=True)[1]
    classes = np.split(np.argsort(targets, kind="stable"), np.cumsum(sizes)[:-1]) if len(targets) else []
    return [rows[draws.permutation(len(rows))] for rows in classes]


def _counts(size: int, shares: Sequence[float]) -> list[int]:
    """Return the size of each part of ``size`` images by largest remainders; no part is empty if possible."""
    if size <= len(shares):
        return [int(i < size) for i in range(len(shares))]
    sizes = [size * share for share in shares]
    counts = [math.floor(want) for want in sizes]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - sizes[i])
    for i in by_remainder[: size - sum(counts)]:
        counts[i] += 1
    while 0 in counts:
        counts[counts.index(max(counts))] -= 1
        counts[counts.index(0)] += 1
    return counts


def _group_counts(member: np.ndarray, targets: npt.ArrayLike) -> np.ndarray:
    """Count the images of each group and label ``[g, k]``."""
    classes = np.unique(targets, return_inverse=True)[1]
    size = (int(member.max()) + 1, int(classes.max()) + 1)
    return np.bincount(member * size[1] + classes, minlength=size[0] * size[1]).reshape(size)


def _place_groups(counts: np.ndarray, sizes: np.ndarray, seed: int) -> np.ndarray:
    """Return the split of each group ``[g]``, from counts by group and label ``[g, k]`` and targets by split ``[s, k]``."""
    have = np.zeros_like(sizes)
    home = np.full(len(counts), -1)
    order = np.random.default_rng(seed).permutation(len(counts))
    order = order[np.argsort(-counts[order].sum(1), kind="stable")]
    for _ in range(20):  # the distance falls with every move, so this ends; most data need three rounds
        before = home.copy()
        for group in order:
            counts_of_group = counts[group]
            if home[group] >= 0:
                have[home[group]] -= counts_of_group
            home[group] = ((2 * (have - sizes) + counts_of_group) * counts_of_group / sizes).sum(1).argmin()
            have[home[group]] += counts_of_group
        if (home == before).all():
            break
    return home
