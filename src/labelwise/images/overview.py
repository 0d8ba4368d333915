"""The data check: contents of a data set, problems, suitable methods, and a contact sheet."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from labelwise.images.dataset import SPLITS, Dataset, shape_words
from labelwise.images.decode.headers import SHAPE
from labelwise.images.describe.knowledge import describe_labels
from labelwise.images.images import Skipped, join, read_all, skipped_lines
from labelwise.images.sheets import draw_sheet
from labelwise.images.split.divide import group_words
from labelwise.images.split.leaks import LeakReport, Lookalike, check_leaks, near_duplicates
from labelwise.support.errors import DataError, UnsupportedError, UsageError, listing, suggest
from labelwise.support.text import PIECES
from labelwise.support.writable import write_by

OF_LABELS = ("vectors", "texts", "order", "shares", "similarity")
OF_IMAGES = ("texts", "domains", "groups")
DESCRIPTIONS, ONE_LABEL, ENOUGH = "descriptions", "one_label", "enough"
TORCH = "torch"  # a requirement on the installation rather than the data


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The contents of a data set as plain values, ready for ``dataclasses.asdict``."""

    name: str  # name of the data set
    shape: tuple[int, ...] | None  # of one image: channels, height and width, or the feature size; None for files
    images: dict[str, int]  # images per split
    own_splits: bool  # the data define splits; False if fit divides them or trains on all
    counts: dict[str, dict[str, int]]  # images of each label in each split: ``counts["owl"]["train"]``
    unlabelled: dict[str, int]  # images without a label per split
    multilabel: bool  # several labels may be true of an image; ``unlabelled`` then counts images with no true label
    # size of the largest label relative to the smallest nonempty one; None without labelled images
    imbalance: float | None
    unreadable: dict[str, int]  # excluded files per reason
    skipped: tuple[Skipped, ...]  # the excluded files
    empty: tuple[str, ...]  # labels without images
    unseen: tuple[str, ...]  # labels with images but none in train
    leaks: LeakReport  # images shared by two splits
    lookalikes: tuple[Lookalike, ...]  # images of val and test similar to one of an earlier split
    groups: str  # how images are grouped if the data define no splits; blank without groups
    # what is present or missing: ``targets`` (train images of at least two labels), ``pictures`` (images rather than
    # features); what labels have: ``vectors``, ``texts``, ``order``, ``shares``, ``similarity``; what images have:
    # ``image_texts``, ``image_domains``, ``image_groups``; ``descriptions``: vectors or texts of every label, or image
    # texts that describe every label; ``one_label``: at most one label per image; and ``enough``: some can be held out
    pieces: dict[str, bool]


def inspect(dataset: Dataset) -> Inspection:
    """Inspect a data set for contents and problems; takes seconds for ten thousand images."""
    splits = {name: dataset.splits[name] for name in SPLITS if name in dataset.splits}
    names = dataset.labels.names
    table = {split: part.table(len(names)).sum(0).tolist() for split, part in splits.items()}
    counts = {name: {split: table[split][i] for split in table} for i, name in enumerate(names)}
    totals = {name: sum(count.values()) for name, count in counts.items()}
    train_labels = [name for name, count in counts.items() if count.get("train")]
    some = [total for total in totals.values() if total]
    pieces = {"targets": len(train_labels) >= 2, "pictures": not dataset.features}
    pieces |= {piece: getattr(dataset.labels, piece) is not None for piece in OF_LABELS}
    pieces |= {"parents": True} if dataset.labels.parents else {}
    own = [part if dataset.grouping == "column" else replace(part, groups=()) for part in splits.values()]
    pieces |= {f"image_{piece}": any(any(getattr(part, piece)) for part in own) for piece in OF_IMAGES}
    pieces |= {
        DESCRIPTIONS: _has_descriptions(dataset),
        ONE_LABEL: not dataset.multilabel,
        ENOUGH: _supports_default(dataset, counts),
    }
    return Inspection(
        name=dataset.name,
        shape=dataset.shape,
        images={split: len(part) for split, part in splits.items()},
        own_splits=dataset.own_splits,
        counts=counts,
        unlabelled={split: int((~part.labelled).sum()) for split, part in splits.items()},
        multilabel=dataset.multilabel,
        imbalance=max(some) / min(some) if some else None,
        unreadable=dict(Counter(group.reason for group in dataset.skipped).most_common()),
        skipped=dataset.skipped,
        empty=tuple(name for name in names if not totals[name]),
        unseen=tuple(name for name in names if totals[name] and name not in set(train_labels)),
        leaks=check_leaks(dataset),
        lookalikes=near_duplicates(dataset),
        groups="" if dataset.own_splits else group_words([group for part in splits.values() for group in part.groups]),
        pieces=pieces,
    )


def _supports_default(dataset: Dataset, counts: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether there are two validation images of trained labels, or two can be held out."""
    train_counts = [count for count in counts.values() if count.get("train")]
    val = sum(count.get("val", 0) for count in train_counts)
    return dataset.multilabel or val >= 2 or (not val and sum(count["train"] > 1 for count in train_counts) >= 2)


def _has_descriptions(dataset: Dataset) -> bool:
    """Return whether every label has a description, including sentences of its images."""
    try:
        labels = describe_labels(dataset).labels
    except DataError:
        return False
    return labels.vectors is not None or labels.texts is not None


def missing_pieces(inspection: Inspection, needs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the missing pieces of each method; "texts or image_texts" needs either one."""
    present = {**inspection.pieces, TORCH: find_spec("torch") is not None}
    for method, pieces in needs.items():
        for piece in (piece for need in pieces for piece in need.split(" or ")):
            if piece not in present:
                raise UsageError(
                    f'Method {method} needs the unknown piece "{piece}".{suggest(piece, present)} '
                    f"Pieces: {listing(present)}."
                )
    return {
        method: tuple(need for need in pieces if not any(present[piece] for piece in need.split(" or ")))
        for method, pieces in needs.items()
    }


def lines(inspection: Inspection, needs: Mapping[str, Sequence[str]] | None = None) -> list[str]:
    """Return an inspection as lines of text; ``needs`` lists the requirements of methods."""
    by_size = sorted(inspection.counts, key=lambda name: sum(inspection.counts[name].values()))
    sizes = [f"{name} {sum(inspection.counts[name].values())}" for name in by_size if name not in inspection.empty]
    counts = _counts_in_words(inspection.images) if inspection.own_splits else str(sum(inspection.images.values()))
    shape = f", shape{shape_words(inspection.shape)}" if inspection.shape else ""
    notes = [f"{inspection.name}: {len(inspection.counts)} labels, images {counts}{shape}"]
    if not inspection.own_splits:
        notes.append(
            "The data name no split. Method discriminant trains on all images; other methods divide them: "
            f"{_counts_in_words(inspection.images)}."
        )
    if inspection.multilabel:
        images, pairs = sum(inspection.images.values()), sum(sum(c.values()) for c in inspection.counts.values())
        notes.append(f"Several labels may be true of one image: {pairs / max(1, images):.1f} on average.")
    if inspection.imbalance == 1:
        notes.append(f"Every label has {sizes[0].rsplit(' ', 1)[1]} images.")
    elif inspection.imbalance is not None:
        notes.append(f"Smallest labels: {listing(sizes[:5])}. Largest: {listing(sizes[:-6:-1])}.")
        notes.append(f"Imbalance: the largest label has {inspection.imbalance:.1f} times the images of the smallest.")
    pieces = {piece: has for piece, has in inspection.pieces.items() if piece not in (DESCRIPTIONS, ONE_LABEL, ENOUGH)}
    for word, is_present in (("Found", True), ("Optional, missing", False)):
        words = [PIECES[piece] for piece, has in pieces.items() if has is is_present]
        notes.append(f"{word}: {listing(words) or 'nothing'}.")
    notes += [inspection.groups] if inspection.groups else []
    notes += _problems(inspection)
    methods: dict[str, list[str]] = {}
    for method, needed in (needs or {}).items():
        methods.setdefault(_about_method(inspection, method, needed), []).append(method)
    return notes + [f"{statement}: {listing(names, 40)}." for statement, names in methods.items()]


def _about_method(inspection: Inspection, method: str, pieces: Sequence[str]) -> str:
    """Return whether a method can be trained, in words shared by similar methods."""
    lacking = [
        " or ".join(map(PIECES.__getitem__, piece.split(" or ")))
        for piece in missing_pieces(inspection, {method: pieces})[method]
    ]
    if lacking:
        return f"Methods that would need {listing(lacking)}"
    reads = {DESCRIPTIONS, "vectors", "texts", "image_texts"} & {part for need in pieces for part in need.split(" or ")}
    label_count = len(inspection.empty) + len(inspection.unseen)
    if reads or not label_count:
        return "Methods that can train on this"
    return f"Methods that can train on this, without the {label_count} labels that have no training images"


def contact_sheet(dataset: Dataset, path: str | Path, *, images: int = 6, labels: int = 30) -> None:
    """Write an image (PNG) with ``images`` evenly spread examples of each label.

    At most ``labels`` labels are shown, evenly spread; the sheet says how many more there are.
    """
    if dataset.features:
        raise UnsupportedError(f'"{dataset.name}" holds features, not images, so there is nothing to look at.')
    if images < 1 or labels < 1:
        raise UsageError(f"A sheet shows at least one image of one label; given {images} images of {labels} labels.")
    parts = [part for part in dataset.splits.values() if len(part)]
    table = np.concatenate([part.table(len(dataset.labels)) for part in parts])
    columns_used = np.flatnonzero(table.any(0)).tolist()
    if not columns_used:
        raise DataError(f'"{dataset.name}" has no labelled images to show.')
    selection = [columns_used[i] for i in _evenly(len(columns_used), labels)]
    rows = {label: np.flatnonzero(table[:, label]) for label in selection}
    whole, shape = join([part.images for part in parts]), dataset.shape or SHAPE
    strips = {
        f"{dataset.labels.names[label]} ({len(own)})": read_all(whole.select(own[_evenly(len(own), images)]), shape)
        for label, own in rows.items()
    }
    hidden_count = len(columns_used) - len(selection)
    title = f"{dataset.name}: {len(table)} images, {len(columns_used)} labels" + (
        f"; {hidden_count} more not shown" if hidden_count else ""
    )
    sheet = draw_sheet(title, strips, images)
    write_by(path, lambda stream: sheet.save(stream, "PNG"))


def _problems(inspection: Inspection) -> list[str]:
    """Return a line for each problem or warning."""
    leaks, notes = inspection.leaks, []
    if inspection.skipped:
        notes += [f"Left out: {line}" for line in skipped_lines(inspection.skipped)]
    if any(inspection.unlabelled.values()):
        problem = "None of the labels is true" if inspection.multilabel else "Without a label"
        notes.append(f"{problem}: {_counts_in_words(inspection.unlabelled)}.")
    if inspection.empty:
        notes.append(f"Labels without images: {listing(inspection.empty)}.")
    if inspection.unseen:
        notes.append(f"Labels without training images: {listing(inspection.unseen)}.")
    if leaks.count:
        notes.append(f"Leaks: {leaks.count} in more than one split: {listing(leaks.offenders(), 5)}.")
    if leaks.duplicates:
        notes.append(f"Duplicates: {leaks.duplicates} images equal an earlier one of their split.")
    if leaks.conflicts:
        cases = [" = ".join(f"{place} {place.label}".strip() for place in places) for places in leaks.conflicts]
        notes.append(f"Equal images with different labels: {len(cases)}: {listing(cases, 5)}.")
    if inspection.lookalikes:
        cases = [f"{pair.image} like {pair.twin}" for pair in inspection.lookalikes]
        notes.append(f"Look alike across splits: {len(cases)}: {listing(cases, 5)}.")
        train_copies = sum(pair.image.split == "test" and pair.twin.split == "train" for pair in inspection.lookalikes)
        if train_copies:
            tests = inspection.images["test"]
            notes.append(
                f"{train_copies} of {tests} test images have a lookalike in train, so a test is too optimistic: split the data again "
                "(labelwise data split), which keeps lookalikes together."
            )
    return notes or ["Nothing wrong was found."]


def _counts_in_words(counts: Mapping[str, int]) -> str:
    return listing(f"{count} {noun}" for noun, count in counts.items())


def _evenly(n: int, most: int) -> list[int]:
    """Return at most ``most`` of the numbers below n, evenly spread."""
    return [i * n // min(n, most) for i in range(min(n, most))]
