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
TORCH = "torch"  # what methods need of the installation, not of data


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What a data set holds, in plain values: ``dataclasses.asdict`` makes JSON of it."""

    name: str  # of the data set
    shape: tuple[int, ...] | None  # of one image: channels, height and width, or the size of features; None of files
    images: dict[str, int]  # how many each split has
    own_splits: bool  # whether the data name their splits; False where fit divides them, or trains on all
    counts: dict[str, dict[str, int]]  # images of each label in each split: ``counts["owl"]["train"]``
    unlabelled: dict[str, int]  # images without a label in each split
    multilabel: bool  # whether several labels may be true of one image; ``unlabelled`` are then those of which none is
    # images of the largest label for one of the smallest that has any; None without labelled images
    imbalance: float | None
    unreadable: dict[str, int]  # how many files were left out for each reason
    skipped: tuple[Skipped, ...]  # these files
    empty: tuple[str, ...]  # labels without any image
    unseen: tuple[str, ...]  # labels with images, but none in train
    leaks: LeakReport  # what two splits share
    lookalikes: tuple[Lookalike, ...]  # images of val and test that look like one of an earlier split
    groups: str  # what stays together where the data name no splits, in words; blank where nothing does
    # what there is and what is missing: ``targets`` (train images of two labels or more), ``pictures`` (and not
    # features); what labels have: ``vectors``, ``texts``, ``order``, ``shares``, ``similarity``; what images have:
    # ``image_texts``, ``image_domains``, ``image_groups``; ``descriptions``: vectors or texts of every label, or image
    # texts that describe every label; ``one_label``: an image has one label at most; and ``enough``: some can be held out
    pieces: dict[str, bool]


def inspect(dataset: Dataset) -> Inspection:
    """Return what a data set holds and what is wrong with it; seconds for ten thousand images."""
    splits = {name: dataset.splits[name] for name in SPLITS if name in dataset.splits}
    names = dataset.labels.names
    table = {split: part.table(len(names)).sum(0).tolist() for split, part in splits.items()}
    counts = {name: {split: table[split][i] for split in table} for i, name in enumerate(names)}
    totals = {name: sum(count.values()) for name, count in counts.items()}
    trained = [name for name, count in counts.items() if count.get("train")]
    some = [total for total in totals.values() if total]
    pieces = {"targets": len(trained) >= 2, "pictures": not dataset.features}
    pieces |= {piece: getattr(dataset.labels, piece) is not None for piece in OF_LABELS}
    pieces |= {"parents": True} if dataset.labels.parents else {}
    own = [part if dataset.grouping == "column" else replace(part, groups=()) for part in splits.values()]
    pieces |= {f"image_{piece}": any(any(getattr(part, piece)) for part in own) for piece in OF_IMAGES}
    pieces |= {
        DESCRIPTIONS: _has_descriptions(dataset),
        ONE_LABEL: not dataset.multilabel,
        ENOUGH: _enough(dataset, counts),
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
        unreadable=dict(Counter(each.reason for each in dataset.skipped).most_common()),
        skipped=dataset.skipped,
        empty=tuple(name for name in names if not totals[name]),
        unseen=tuple(name for name in names if totals[name] and name not in set(trained)),
        leaks=check_leaks(dataset),
        lookalikes=near_duplicates(dataset),
        groups="" if dataset.own_splits else group_words([each for part in splits.values() for each in part.groups]),
        pieces=pieces,
    )


def _enough(dataset: Dataset, counts: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether there are two validation images of labels that are trained on, or two can be set aside."""
    trained = [count for count in counts.values() if count.get("train")]
    val = sum(count.get("val", 0) for count in trained)
    return dataset.multilabel or val >= 2 or (not val and sum(count["train"] > 1 for count in trained) >= 2)


def _has_descriptions(dataset: Dataset) -> bool:
    """Return whether something describes every label, the sentences of its images included."""
    try:
        labels = describe_labels(dataset).labels
    except DataError:
        return False
    return labels.vectors is not None or labels.texts is not None


def missing_pieces(inspection: Inspection, needs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return what each method lacks of the pieces that it needs; "texts or image_texts" is met by either of the two."""
    known = {**inspection.pieces, TORCH: find_spec("torch") is not None}
    for method, needed in needs.items():
        for piece in (piece for need in needed for piece in need.split(" or ")):
            if piece not in known:
                raise UsageError(
                    f'Method {method} needs the unknown piece "{piece}".{suggest(piece, known)} '
                    f"Pieces: {listing(known)}."
                )
    return {
        method: tuple(need for need in needed if not any(known[piece] for piece in need.split(" or ")))
        for method, needed in needs.items()
    }


def lines(inspection: Inspection, needs: Mapping[str, Sequence[str]] | None = None) -> list[str]:
    """Return an inspection as lines of text, as the shell prints it; ``needs`` are those of methods."""
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
    for word, there in (("Found", True), ("Optional, missing", False)):
        words = [PIECES[piece] for piece, has in pieces.items() if has is there]
        notes.append(f"{word}: {listing(words) or 'nothing'}.")
    notes += [inspection.groups] if inspection.groups else []
    notes += _problems(inspection)
    methods: dict[str, list[str]] = {}
    for method, needed in (needs or {}).items():
        methods.setdefault(_about_method(inspection, method, needed), []).append(method)
    return notes + [f"{about}: {listing(names, 40)}." for about, names in methods.items()]


def _about_method(inspection: Inspection, method: str, needed: Sequence[str]) -> str:
    """Return whether a method can be trained, in words that others may share."""
    lacking = [
        " or ".join(map(PIECES.__getitem__, piece.split(" or ")))
        for piece in missing_pieces(inspection, {method: needed})[method]
    ]
    if lacking:
        return f"Methods that would need {listing(lacking)}"
    reads = {DESCRIPTIONS, "vectors", "texts", "image_texts"} & {part for need in needed for part in need.split(" or ")}
    without = len(inspection.empty) + len(inspection.unseen)
    if reads or not without:
        return "Methods that can train on this"
    return f"Methods that can train on this, without the {without} labels that have no training images"


def contact_sheet(dataset: Dataset, path: str | Path, *, images: int = 6, labels: int = 30) -> None:
    """Write an image (PNG) with some ``images`` of each label under its name, spread over all that it has.

    At most ``labels`` labels are shown, evenly spread; the sheet says how many more there are.
    """
    if dataset.features:
        raise UnsupportedError(f'"{dataset.name}" holds features, not images, so there is nothing to look at.')
    if images < 1 or labels < 1:
        raise UsageError(f"A sheet shows at least one image of one label; given {images} images of {labels} labels.")
    parts = [part for part in dataset.splits.values() if len(part)]
    table = np.concatenate([part.table(len(dataset.labels)) for part in parts])
    filled = np.flatnonzero(table.any(0)).tolist()
    if not filled:
        raise DataError(f'"{dataset.name}" has no labelled images to show.')
    selection = [filled[i] for i in _evenly(len(filled), labels)]
    rows = {label: np.flatnonzero(table[:, label]) for label in selection}
    whole, shape = join([part.images for part in parts]), dataset.shape or SHAPE
    strips = {
        f"{dataset.labels.names[label]} ({len(own)})": read_all(whole.select(own[_evenly(len(own), images)]), shape)
        for label, own in rows.items()
    }
    more = len(filled) - len(selection)
    title = f"{dataset.name}: {len(table)} images, {len(filled)} labels" + (f"; {more} more not shown" if more else "")
    sheet = draw_sheet(title, strips, images)
    write_by(path, lambda stream: sheet.save(stream, "PNG"))


def _problems(inspection: Inspection) -> list[str]:
    """Return a line for each thing that is wrong or worth a look."""
    leaks, notes = inspection.leaks, []
    if inspection.skipped:
        notes += [f"Left out: {line}" for line in skipped_lines(inspection.skipped)]
    if any(inspection.unlabelled.values()):
        what = "None of the labels is true" if inspection.multilabel else "Without a label"
        notes.append(f"{what}: {_counts_in_words(inspection.unlabelled)}.")
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
        cases = [f"{each.image} like {each.twin}" for each in inspection.lookalikes]
        notes.append(f"Look alike across splits: {len(cases)}: {listing(cases, 5)}.")
        learnt = sum(each.image.split == "test" and each.twin.split == "train" for each in inspection.lookalikes)
        if learnt:
            tests = inspection.images["test"]
            notes.append(
                f"{learnt} of {tests} test images have a lookalike in train, so a test is too optimistic: split the data again "
                "(labelwise data split), which keeps lookalikes together."
            )
    return notes or ["Nothing wrong was found."]


def _counts_in_words(counts: Mapping[str, int]) -> str:
    return listing(f"{count} {what}" for what, count in counts.items())


def _evenly(n: int, most: int) -> list[int]:
    """Return at most ``most`` of the numbers below n, evenly spread."""
    return [i * n // min(n, most) for i in range(min(n, most))]
