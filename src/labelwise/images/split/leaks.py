"""Find leaks: a file, image or group in two splits, lookalikes, and equal images with different labels."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labelwise.images.dataset import SPLITS, Dataset
from labelwise.images.images import join
from labelwise.images.split.lookalikes import LIKENESS, fingerprints, similar_pairs
from labelwise.support.errors import DataError, UsageError, listing


@dataclass(frozen=True, kw_only=True)
class ImagePlace:
    """Where an image is: its split, its row there, its file (or, as in ``pool``, "image 3"), its label or blank."""

    split: str
    row: int
    file: str
    label: str

    def __str__(self) -> str:
        return f"{self.file} ({self.split})"


@dataclass(frozen=True, kw_only=True)
class LeakReport:
    """Files, images and groups shared by splits. Each entry lists the places of one of them."""

    files: tuple[tuple[ImagePlace, ...], ...]  # each file that is in more than one split
    images: tuple[
        tuple[ImagePlace, ...], ...
    ]  # each image whose bytes are in more than one split, under different names
    # each group that is in more than one split, with its first image in each
    groups: tuple[tuple[str, tuple[ImagePlace, ...]], ...]
    duplicates: int  # how many images have the same bytes as an earlier one of their split
    # each image whose bytes occur with different labels, in one split or in several
    conflicts: tuple[tuple[ImagePlace, ...], ...]

    @property
    def count(self) -> int:
        """The number of files, images and groups in more than one split."""
        return len(self.files) + len(self.images) + len(self.groups)

    def offenders(self) -> list[str]:
        """Return one line for each file, image and group that is in more than one split."""
        files = [f"file {places[0].file} ({listing(_splits_of(places))})" for places in self.files]
        images = [f"equal images {' = '.join(map(str, places))}" for places in self.images]
        return files + images + [f'group "{name}" ({", ".join(_splits_of(places))})' for name, places in self.groups]


@dataclass(frozen=True, kw_only=True)
class Lookalike:
    """An image and the most similar image of an earlier split."""

    image: ImagePlace  # the image, of val or test
    twin: ImagePlace  # the image of an earlier split
    likeness: float  # the correlation of their thumbnails, at most 1


def check_leaks(dataset: Dataset) -> LeakReport:
    """Find files, identical images and groups shared by splits, and equal images with different labels."""
    places = _places(dataset)
    parts = [dataset.splits[name] for name in SPLITS if name in dataset.splits]
    own = dataset.grouping == "column"  # other groups are lookalikes, which prove nothing
    groups = [group for part in parts for group in (part.groups if own else ()) or [""] * len(part)]
    equal = _places_by_key([digest for part in parts for digest in part.images.digests()], places).values()
    return LeakReport(
        files=tuple(_across_splits(_places_by_key([place.file for place in places], places)).values()),
        images=tuple(same for same in equal if len(_splits_of(same)) > 1 and len({place.file for place in same}) > 1),
        groups=tuple(
            (str(name), tuple({place.split: place for place in reversed(same)}[split] for split in _splits_of(same)))
            for name, same in _across_splits(_places_by_key(groups, places)).items()
            if name
        ),
        duplicates=sum(len(same) - len(_splits_of(same)) for same in equal),
        conflicts=tuple(same for same in equal if len({place.label for place in same if place.label}) > 1),
    )


def refuse_leaks(dataset: Dataset) -> None:
    """Raise an error that lists the leaks, if there are any."""
    report = check_leaks(dataset)
    if report.count:
        first = report.offenders()[:10]
        ending = f"; and {report.count - len(first)} more" if report.count > len(first) else ""
        raise DataError(
            f'"{dataset.name}" has {report.count} files, images or groups in more than one split, so a test is too optimistic: '
            f"{'; '.join(first)}{ending}. Keep each in one split, or split the data by groups."
        )


def near_duplicates(dataset: Dataset, *, likeness: float = LIKENESS) -> tuple[Lookalike, ...]:
    """Return the images that look like one of an earlier split (train, then val), most similar first.

    Two images look alike if their thumbnails correlate by at least ``likeness`` (see ``lookalikes``): copies that were resized,
    brightened or compressed again. This is a hint, not a proof: two drawings of the digit 1 look alike, too. Features are
    compared by cosine. Images of uniform grey are never returned.
    """
    if not 0 < likeness <= 1:
        raise UsageError(f"Likeness must be above 0 and at most 1; given {likeness}.")
    parts = [dataset.splits[name] for name in SPLITS if name in dataset.splits]
    if dataset.features:
        prints = fingerprints(join([part.images for part in parts]))[0]
    else:
        prints = np.concatenate([fingerprints(part.images)[0] for part in parts])
    split = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    best, twins = np.zeros(len(prints), np.float32), np.full(len(prints), -1)
    for first, second, values in similar_pairs(prints, likeness):  # rows are in the order of splits
        crosses_splits = split[first] < split[second]
        first, second, values = first[crosses_splits], second[crosses_splits], values[crosses_splits]
        order = np.argsort(values, kind="stable")  # the last, most similar, match of an image stays
        one, twin, value = first[order], second[order], values[order]
        is_better = value > best[twin]
        best[twin[is_better]], twins[twin[is_better]] = value[is_better], one[is_better]
    rows = np.flatnonzero(twins >= 0)
    rows, places = rows[np.argsort(-best[rows], kind="stable")], _places(dataset)
    return tuple(
        Lookalike(image=places[row], twin=places[twins[row]], likeness=float(best[row])) for row in rows.tolist()
    )


def _places(dataset: Dataset) -> list[ImagePlace]:
    """Return the place of each image, in the order of train, val and test."""
    places: list[ImagePlace] = []
    for split in (name for name in SPLITS if name in dataset.splits):
        part = dataset.splits[split]
        files = part.files or [""] * len(part)
        for row, (file, label) in enumerate(zip(files, part.words(dataset.labels.names), strict=True)):
            places.append(ImagePlace(split=split, row=row, file=file or f"image {len(places)}", label=label))
    return places


def _places_by_key(keys: Sequence[Hashable], places: Sequence[ImagePlace]) -> dict[Hashable, tuple[ImagePlace, ...]]:
    """Return the places of the images that share a key, for each shared key."""
    groups: dict[Hashable, list[ImagePlace]] = {}
    for key, place in zip(keys, places, strict=True):
        groups.setdefault(key, []).append(place)
    return {key: tuple(every) for key, every in groups.items() if len(every) > 1}


def _across_splits(groups: Mapping[Hashable, tuple[ImagePlace, ...]]) -> dict[Hashable, tuple[ImagePlace, ...]]:
    return {key: places for key, places in groups.items() if len(_splits_of(places)) > 1}


def _splits_of(places: Sequence[ImagePlace]) -> list[str]:
    """Return the splits these places are in, each once."""
    return list(dict.fromkeys(place.split for place in places))
