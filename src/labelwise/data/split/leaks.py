"""Leaks: the same file, image or group in two splits; images that look alike; equal images with different labels."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor

from labelwise.data.dataset import SPLITS, Dataset
from labelwise.data.split.hashes import image_hashes
from labelwise.errors import DataError, UsageError, listing

_CHUNK = 1024


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an image is: its split, its row there, its file (or, as in ``pool``, "image 3"), its label or blank."""

    split: str
    row: int
    file: str
    label: str

    def __str__(self) -> str:
        return f"{self.file} ({self.split})"


@dataclass(frozen=True, kw_only=True)
class LeakReport:
    """What is the same where it should differ. Every entry lists the places of one thing."""

    files: tuple[tuple[Place, ...], ...]  # each file that is in more than one split
    images: tuple[tuple[Place, ...], ...]  # each image whose bytes are in more than one split, under different names
    # each group that is in more than one split, with its first image in each
    groups: tuple[tuple[str, tuple[Place, ...]], ...]
    duplicates: int  # how many images have the same bytes as an earlier one of their split
    # each image whose bytes occur with different labels, in one split or in several
    conflicts: tuple[tuple[Place, ...], ...]

    @property
    def count(self) -> int:
        """How many files, images and groups are in more than one split."""
        return len(self.files) + len(self.images) + len(self.groups)

    def offenders(self) -> list[str]:
        """Return one line for each file, image and group that is in more than one split."""
        files = [f"file {places[0].file} ({listing(_splits_of(places))})" for places in self.files]
        images = [f"equal images {' = '.join(map(str, places))}" for places in self.images]
        return files + images + [f'group "{name}" ({", ".join(_splits_of(places))})' for name, places in self.groups]


@dataclass(frozen=True, kw_only=True)
class Lookalike:
    """An image and the one of an earlier split that looks most like it."""

    image: Place  # the image, of val or test
    twin: Place  # the image of an earlier split
    bits: int  # in how many of 64 bits their difference hashes differ
    likeness: float  # the correlation of their thumbnails, at most 1


def check_leaks(dataset: Dataset) -> LeakReport:
    """Return what two splits share (files, images byte for byte, groups), and equal images with different labels."""
    places = _places(dataset)
    parts = [dataset.splits[name] for name in SPLITS if name in dataset.splits]
    groups = [group for part in parts for group in part.groups or [""] * len(part)]
    equal = _shared([each for part in parts for each in image_hashes(part.images).tolist()], places).values()
    return LeakReport(
        files=tuple(_across(_shared([place.file for place in places], places)).values()),
        images=tuple(same for same in equal if len(_splits_of(same)) > 1 and len({place.file for place in same}) > 1),
        groups=tuple(
            (str(name), tuple({place.split: place for place in reversed(same)}[split] for split in _splits_of(same)))
            for name, same in _across(_shared(groups, places)).items()
            if name
        ),
        duplicates=sum(len(same) - len(_splits_of(same)) for same in equal),
        conflicts=tuple(same for same in equal if len({place.label for place in same if place.label}) > 1),
    )


def refuse_leaks(dataset: Dataset) -> None:
    """Raise an error that lists what is in more than one split, if anything is."""
    report = check_leaks(dataset)
    if report.count:
        first = report.offenders()[:10]
        more = f"; and {report.count - len(first)} more" if report.count > len(first) else ""
        raise DataError(
            f'"{dataset.name}" has {report.count} files, images or groups in more than one split, so a test would flatter: '
            f"{'; '.join(first)}{more}. Keep each in one split, or divide the data by groups."
        )


def near_duplicates(dataset: Dataset, *, bits: int = 8, likeness: float = 0.98) -> tuple[Lookalike, ...]:
    """Return the images that look like one of an earlier split (train, then val), the most alike first.

    Two images look alike where their difference hashes (which of two neighbours is brighter, on a grey thumbnail of 8
    by 9 pixels) differ in at most ``bits`` of 64 and the thumbnails correlate by ``likeness`` or more: a copy that
    was resized, brightened, compressed again or cut by a pixel. It is a hint for a person, not a proof: two drawings
    of the figure 1 look alike as well. Features have no looks, and images of a single grey have none to compare;
    neither is ever returned.
    """
    if not 0 <= bits <= 64 or not 0 < likeness <= 1:
        raise UsageError(f"Bits must lie in 0..64 and likeness in (0, 1]; given {bits} and {likeness}.")
    if len(dataset.shape) == 1:
        return ()
    places = _places(dataset)
    present = [name for name in SPLITS if name in dataset.splits]
    looks = {name: _looks(dataset.splits[name].images) for name in present}
    rows = {name: [place for place in places if place.split == name] for name in present}
    best: dict[Place, Lookalike] = {}
    for earlier, later in combinations(present, 2):
        for row, twin, differ, alike in _nearest(looks[later], looks[earlier], bits, likeness):
            pair = Lookalike(image=rows[later][row], twin=rows[earlier][twin], bits=differ, likeness=alike)
            if pair.image not in best or alike > best[pair.image].likeness:
                best[pair.image] = pair
    return tuple(sorted(best.values(), key=lambda each: -each.likeness))


def _looks(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return hashes of -1 and 1 ``[n, 64]`` and thumbnails of zero mean and unit length ``[n, 72]``."""
    hashes, thumbnails = [torch.empty(0, 64)], [torch.empty(0, 72)]
    for part in torch.split(images.cpu(), _CHUNK):
        small = F.interpolate(part.float().mean(1, keepdim=True), size=(8, 9), mode="area")[:, 0]
        hashes.append((small[:, :, 1:] > small[:, :, :-1]).flatten(1).float() * 2 - 1)
        flat = small.flatten(1)
        thumbnails.append(F.normalize(flat - flat.mean(1, keepdim=True), eps=1e-3))
    return torch.cat(hashes), torch.cat(thumbnails)


def _nearest(
    ours: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor], bits: int, likeness: float
) -> Iterable[tuple[int, int, int, float]]:
    """Yield row, the row most like it among others, differing bits and likeness, where they look alike."""
    if not len(others[0]):
        return
    for start in range(0, len(ours[0]), _CHUNK):
        hashes, thumbnails = (each[start : start + _CHUNK] for each in ours)
        differ = (64 - hashes @ others[0].T) / 2  # the dot product of signs counts equal bits less differing ones
        alike, twins = (thumbnails @ others[1].T).masked_fill_(differ > bits, -1).max(1)
        for row in (alike >= likeness - 1e-5).nonzero()[:, 0].tolist():
            twin = int(twins[row])
            yield start + row, twin, int(differ[row, twin]), min(1.0, float(alike[row]))


def _places(dataset: Dataset) -> list[Place]:
    """Return the place of each image, in the order of train, val and test."""
    places: list[Place] = []
    for split in (name for name in SPLITS if name in dataset.splits):
        part = dataset.splits[split]
        files = part.files or [""] * len(part)
        for row, (file, label) in enumerate(zip(files, part.words(dataset.labels.names), strict=True)):
            places.append(Place(split=split, row=row, file=file or f"image {len(places)}", label=label))
    return places


def _shared(keys: Sequence[Hashable], places: Sequence[Place]) -> dict[Hashable, tuple[Place, ...]]:
    """Return the places of the images that have a key in common, for each such key."""
    groups: dict[Hashable, list[Place]] = {}
    for key, place in zip(keys, places, strict=True):
        groups.setdefault(key, []).append(place)
    return {key: tuple(every) for key, every in groups.items() if len(every) > 1}


def _across(groups: Mapping[Hashable, tuple[Place, ...]]) -> dict[Hashable, tuple[Place, ...]]:
    return {key: places for key, places in groups.items() if len(_splits_of(places)) > 1}


def _splits_of(places: Sequence[Place]) -> list[str]:
    """Return the splits these places are in, each once."""
    return list(dict.fromkeys(place.split for place in places))
