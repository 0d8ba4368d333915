"""What a source returns: images and targets per split, the labels, and what could not be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from labelwise.errors import DataError, listing
from labelwise.labels import Labels
from labelwise.model import Spec

SPLITS = ("train", "val", "test")
PER_IMAGE = ("files", "texts", "domains", "groups")
UNLABELLED = "unlabelled"  # the one label of data without any


@dataclass(frozen=True, eq=False, kw_only=True)
class Split:
    """Images with their targets; row i of every piece belongs to the same picture.

    Attributes:
        images: bytes ``[n, c, h, w]`` (uint8), or precomputed features ``[n, a]`` (float32).
        targets: positions in the data set's labels ``[n]`` (int64); -1 where there is no label.
        truths: where several labels may be true of one image: which of the labels are, ``[n, k]`` (bool). ``targets`` is
            then the first of them, and -1 says that none is true. None: an image has one label, its target.
        files: where each image came from, n names, or empty.
        texts: sentences that describe each image, n tuples, or empty.
        domains: where or how each image was taken (a camera, a style), n names, or empty.
        groups: what each image belongs to (an animal, a day): a group never lies on both sides of a split; or empty.
    """

    images: Tensor
    targets: Tensor
    files: tuple[str, ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()
    domains: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    truths: Tensor | None = None

    def __post_init__(self) -> None:
        """Check that all pieces have the same length and that values are usable."""
        n = len(self.images)
        if self.images.ndim not in (2, 4):
            raise DataError(
                f"Images must be [n, channels, height, width], or [n, size] for features; given {list(self.images.shape)}."
            )
        if self.images.ndim == 4 and self.images.dtype != torch.uint8:
            raise DataError(f"Images must be bytes (uint8) from 0 to 255; given {self.images.dtype}.")
        for what in ("targets", *PER_IMAGE):
            piece = getattr(self, what)
            if len(piece) != n and (what == "targets" or len(piece)):
                raise DataError(f"There are {n} images but {len(piece)} {what}; give one for each image.")
        if self.truths is not None:
            _check_truths(self.truths, self.targets)
        if self.images.is_floating_point() and n and not torch.isfinite(torch.stack(self.images.aminmax())).all():
            bad = int((~torch.isfinite(self.images)).any(1).nonzero()[0])
            raise DataError(f"Row {bad} of the features holds a value that is not a finite number (NaN or infinity).")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return tuple(self.images.shape[1:])

    @property
    def strata(self) -> Tensor:
        """What to divide images by, see ``divided_by``."""
        return divided_by(self.targets, self.truths)

    def table(self, labels: int) -> Tensor:
        """Return which of so many labels are true of each image ``[n, labels]`` (bool)."""
        if self.truths is not None:
            return self.truths
        return self.targets[:, None] == torch.arange(labels, device=self.targets.device)

    def words(self, names: Sequence[str]) -> list[str]:
        """Return the name of each image's label, see ``label_words``."""
        return label_words(names, self.targets, self.truths)

    def select(self, rows: Sequence[int] | Tensor) -> "Split":
        """Return these rows only, in this order."""
        index = torch.as_tensor(rows, dtype=torch.int64)
        if torch.equal(index.cpu(), torch.arange(len(self))):
            return self
        order = index.tolist()
        at = index.to(self.images.device)
        kept = {what: tuple(getattr(self, what)[i] for i in order) for what in PER_IMAGE if getattr(self, what)}
        truths = None if self.truths is None else self.truths[at]
        return Split(images=self.images[at], targets=self.targets[at], truths=truths, **kept)

    def join(self, other: "Split") -> "Split":
        """Return the rows of both; a piece that only one of them has is dropped."""
        if (self.truths is None) != (other.truths is None):
            raise DataError("Images that have one label cannot be joined with images of which several may be true.")
        kept = {what: getattr(self, what) + getattr(other, what) for what in PER_IMAGE}
        whole = {what: piece for what, piece in kept.items() if len(piece) == len(self) + len(other)}
        targets = torch.cat([self.targets, other.targets])
        truths = None if self.truths is None or other.truths is None else torch.cat([self.truths, other.truths])
        return Split(images=torch.cat([self.images, other.images]), targets=targets, truths=truths, **whole)

    def to(self, device: str | torch.device) -> "Split":
        """Return the split with its targets on a device, and its images too unless they would fill half of it."""
        chosen = torch.device(device)
        room = torch.cuda.mem_get_info(chosen)[0] // 2 if chosen.type == "cuda" else None
        small = room is None or self.images.nbytes <= room
        images = self.images.to(chosen) if small else self.images
        truths = None if self.truths is None else self.truths.to(chosen)
        return replace(self, images=images, targets=self.targets.to(chosen), truths=truths)


def first_true(truths: Tensor) -> Tensor:
    """Return the first true label of each image ``[n]`` (int64), -1 where none is, from truths ``[n, k]`` (bool)."""
    return torch.where(truths.any(1), truths.to(torch.uint8).argmax(1), -1)


def divided_by(targets: Tensor, truths: Tensor | None) -> Tensor:
    """Return what images are divided by ``[n]``: their targets, or of several true labels the rarest, so that it is shared out."""
    if truths is None:
        return targets
    counts = torch.where(truths, truths.sum(0), len(truths) + 1)
    return torch.where(truths.any(1), counts.argmin(1), -1)


def label_words(names: Sequence[str], targets: Tensor, truths: Tensor | None) -> list[str]:
    """Return the name of each image's label, several joined by semicolons, blank where there is none."""
    if truths is None:
        return [names[target] if target >= 0 else "" for target in targets.tolist()]
    return [";".join(name for name, true in zip(names, row, strict=True) if true) for row in truths.tolist()]


def _check_truths(truths: Tensor, targets: Tensor) -> None:
    """Raise an error unless truths ``[n, k]`` fit the targets ``[n]``."""
    if truths.dtype != torch.bool or truths.ndim != 2 or len(truths) != len(targets) or not truths.shape[1]:
        raise DataError(
            f"Truths must be yes or no (bool) for each of {len(targets)} images and each label, [n, k]; given "
            f"{truths.dtype} {list(truths.shape)}."
        )
    wrong = (targets != first_true(truths)).nonzero()[:, 0]
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"The target of an image is its first true label, or -1 where none is true; image {row} has the target "
            f"{int(targets[row])} and the true labels {truths[row].nonzero()[:, 0].tolist()}. Use first_true(truths)."
        )


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A file that could not be read, and why, in words."""

    file: str
    reason: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset:
    """Labels and splits under a name. Only evaluation reaches for ``test``; methods receive ``TrainData``.

    Attributes:
        name: of the data.
        labels: what targets point into.
        splits: images by split.
        skipped: files that could not be read.
        own_splits: whether the data name their splits themselves; False where they name none and were divided by shares.
        own_pictures: whether the images are a person's own picture files, those that ``Split.files`` name.
        side_open: whether nobody said which side in pixels these were to be brought to, so that it may follow the encoder;
            see ``read.files.at_side``.
    """

    name: str
    labels: Labels
    splits: Mapping[str, Split]
    skipped: tuple[Skipped, ...] = field(default=())
    own_splits: bool = True
    own_pictures: bool = False
    side_open: bool = False

    def __post_init__(self) -> None:
        """Check the splits' names, shapes and targets."""
        wrong = [name for name in self.splits if name not in SPLITS]
        if wrong or not self.splits:
            raise DataError(f"Splits are called train, val and test; given: {listing(wrong) or 'none'}.")
        shapes = {split.shape for split in self.splits.values() if len(split)}
        if len(shapes) > 1:
            raise DataError(f"All splits must hold images of one shape; given {sorted(shapes)}.")
        for name, split in self.splits.items():
            if len(split) and not -1 <= int(split.targets.min()) <= int(split.targets.max()) < len(self.labels):
                raise DataError(f"Targets of split {name} must lie in -1..{len(self.labels) - 1} (-1: no label).")
        if len({split.truths is None for split in self.splits.values() if len(split)}) > 1:
            raise DataError(
                "Several labels may be true of the images in some splits only; give truths for all or none."
            )
        for name, split in self.splits.items():
            if split.truths is not None and split.truths.shape[1] != len(self.labels):
                raise DataError(
                    f"There are {len(self.labels)} labels, but truths of split {name} say yes or no to {split.truths.shape[1]}."
                )

    def split(self, name: str) -> Split:
        """Return one split, or raise an error that lists those there are."""
        if name not in self.splits:
            todo = ' Name what to train on "train".' if name == "train" else ""
            raise DataError(f'"{self.name}" has no {name} split. It has: {listing(self.splits)}.{todo}')
        return self.splits[name]

    @property
    def multilabel(self) -> bool:
        """Whether several labels may be true of one image, or none."""
        return any(split.truths is not None for split in self.splits.values())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return next(iter(self.splits.values())).shape


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainData:
    """All that training may see: images to train on, images to validate on, and the labels' descriptions.

    Test images cannot be reached from here. ``unseen`` holds what is known about labels without a training image. In the
    trial run of a zero-shot method these are labels held out of training, and ``val`` has images of them: its targets are
    then positions in ``known``, the labels followed by the unseen ones. Images that have sentences and no label make all
    labels unseen: ``unseen`` is ``labels``.
    """

    train: Split
    val: Split
    labels: Labels
    unseen: Labels | None = None

    @property
    def spec(self) -> Spec:
        """What a method builds its model from."""
        return Spec(shape=self.train.shape, labels=self.labels)

    @property
    def known(self) -> Labels:
        """All labels with a description: those trained on, then the unseen ones."""
        if self.unseen is None or self.unseen is self.labels:
            return self.labels
        return self.labels.join(self.unseen)

    def to(self, device: str | torch.device) -> "TrainData":
        """Return the same with the images on a device."""
        return TrainData(train=self.train.to(device), val=self.val.to(device), labels=self.labels, unseen=self.unseen)
