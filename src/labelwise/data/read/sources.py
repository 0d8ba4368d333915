"""Where data comes from: arrays, a folder of pictures, and how a ``Dataset`` is put together, whatever the source.

Splits that come with the data are kept. Without any, each class is divided into train, val and test; with train but
no val, a tenth of each class of train becomes val. A class with a single picture keeps it in train. Where pictures have
groups, a group is divided as one picture would be. Data to test on alone name a split and have no train.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from labelwise.data.dataset import PER_IMAGE, UNLABELLED, Dataset, Skipped, Split
from labelwise.data.labels.knowledge import described_labels, with_files_beside
from labelwise.data.read.pictures import Array, as_batch, channels_first, is_hidden, is_picture, list_pictures
from labelwise.data.read.reading import Listed, read_listed
from labelwise.data.read.targets import Targets, as_labels, as_targets, named_targets
from labelwise.data.split.divide import place_splits, split_rows
from labelwise.data.split.splits import Shares
from labelwise.errors import DataError, UsageError, listing, suggest
from labelwise.labels import Labels, unfit_name
from labelwise.nn.encoder import pretrained_encoder, side_for

_SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Pictures with their targets, and the split of each where the data say so.

    Without any label ``names`` is empty and all targets are -1. ``truths`` as in ``Split``. ``owned`` says that nobody else holds the images, so
    that they may be put in another order in place. ``described`` names labels that need no training picture, because a
    file beside the data describes them.
    """

    images: Tensor
    targets: Tensor
    names: tuple[str, ...]
    truths: Tensor | None = None
    splits: Sequence[str] = ()
    files: tuple[str, ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()
    domains: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    owned: bool = False
    described: frozenset[str] = frozenset()


def arrays(
    images: Array | Tensor | Mapping[str, Array | Tensor],
    targets: Targets | Mapping[str, Targets],
    *,
    names: Sequence[str] | None = None,
    shares: Shares | None = None,
    seed: int = 0,
) -> Dataset:
    """Return a data set of arrays in memory, numpy or torch.

    Args:
        images: bytes (or floats in [0, 1]) ``[n, h, w, c]``, ``[n, c, h, w]`` or ``[n, h, w]``, or features ``[n, a]``
            as floats; or these for each split: ``{"train": ..., "test": ...}``.
        targets: n labels, as names or as positions in ``names``; or, where several may be true of an image, yes or no to
            each of them, ``[n, k]`` (bool); for each split where images are.
        names: the names of the labels; without, those that occur, sorted. Needed where several may be true.
        shares: how much train, val and test get where the splits are not given.
        seed: of the division into splits.
    """
    if not isinstance(images, Mapping) and not isinstance(targets, Mapping):
        found = as_targets(as_labels(targets), names)
        return as_dataset("arrays", Rows(images=as_images(images), **found._asdict()), seed, shares)
    if not (isinstance(images, Mapping) and isinstance(targets, Mapping) and set(images) == set(targets) and images):
        raise UsageError("Give images and targets for the same splits, or neither of them by split.")
    parts = {name: (as_images(part), as_labels(targets[name])) for name, part in images.items()}
    if len({part.shape[1:] for part, _ in parts.values()}) > 1:
        raise DataError(f"All splits must hold images of one shape; given {_shapes(x for x, _ in parts.values())}.")
    for name, (part, labels) in parts.items():
        same_length(len(part), len(labels), f" in {name}")
    if len({labels.shape[1:] for _, labels in parts.values()}) > 1:
        raise DataError(
            f"All splits must say yes or no to the same labels; given {_shapes(x for _, x in parts.values())}."
        )
    found = as_targets(np.concatenate([labels for _, labels in parts.values()]), names)
    splits = [split_name(name, "Images: ") for name, (part, _) in parts.items() for _ in range(len(part))]
    rows = Rows(images=torch.cat([part for part, _ in parts.values()]), splits=splits, **found._asdict())
    return as_dataset("arrays", rows, seed)


def _shapes(given: Iterable[Array | Tensor]) -> list[list[int]]:
    return [list(each.shape) for each in given]


def folder(path: str | Path, *, size: int | None = None, seed: int = 0, strict: bool = False) -> Dataset:
    """Return the pictures of a folder that has one sub-folder for each label: ``birds/owl/1.jpg``.

    The sub-folders may also lie in ``train``, ``test`` and ``val`` (or ``valid``, ``validation``). Pictures that
    cannot be read, and labels without any readable picture, are left out and listed in ``skipped``. What a file in the
    folder says about the labels is read, too, see ``data.knowledge``.

    Args:
        path: the folder.
        size: the side of the square that each picture is made to fit; None leaves it to ``fit``, which reads the pictures
            as its encoder takes them. Until then it is 224 where a pretrained encoder is installed, else 64.
        seed: of the division into splits.
        strict: raise an error where something would be left out.
    """
    root = Path(path)
    if root.is_file():
        verb = {".csv": " Read it with data.table.", ".npz": " Read it with data.pack."}.get(root.suffix.lower(), "")
        raise DataError(f'"{root}" is a file, not a folder.{verb}')
    listed: list[Listed] = []
    homes: dict[str, str] = {}
    loose: list[str] = []
    for split, place in (split_folders(root) or {"": root}).items():
        for label, home in class_folders(place).items():
            homes.setdefault(label, str(home))
            listed += [Listed(path=file, label=label, split=split) for file in list_pictures(home)]
        loose += [str(file) for file in sorted(place.iterdir()) if file.is_file() and is_picture(file.name)]
    if strict and loose:
        raise DataError(f"Pictures lie outside the class folders: {listing(loose)}. Move or remove them.")
    data = from_files(root, listed, homes, size=size, seed=seed, strict=strict)
    outside = [Skipped(file=file, reason="it lies outside the class folders") for file in loose]
    return replace(data, skipped=(*data.skipped, *outside))


def as_dataset(name: str, rows: Rows, seed: int, shares: Shares | None = None) -> Dataset:
    """Return the data set of these rows, divided into splits as the top of this file says."""
    same_length(len(rows.images), len(rows.targets))
    whole = Split(
        images=rows.images,
        targets=rows.targets,
        truths=rows.truths,
        **{what: getattr(rows, what) for what in PER_IMAGE},
    )
    every = torch.arange(len(whole))
    testing = bool(rows.splits) and "train" not in rows.splits
    if rows.names and not testing and len(_present(whole, every)) < 2:
        found = listing(rows.names[i] for i in _present(whole, every)) or "none"
        raise DataError(
            f'"{name}" has pictures of one label only ({found}). At least two are needed, but where all are named test '
            '(a folder "test" over the labels, or a column "split").'
        )
    parts = split_rows(name, whole.strata, rows.splits, rows.groups, shares or Shares(), seed)
    seen = _present(whole, every if testing else parts["train"])
    for split in parts:
        others = sorted(_present(whole, parts[split]) - seen)
        strange = [rows.names[i] for i in others if rows.names[i] not in rows.described]
        if strange:
            raise DataError(
                f'"{name}" has labels in {split} that train does not have: {listing(strange)}. Add training pictures of '
                f"them, describe them (labels.csv beside the data), or take them out of {split}."
            )
    splits = place_splits(whole, parts) if rows.owned else {split: whole.select(parts[split]) for split in parts}
    named = name.encode(errors="surrogateescape").decode(errors="replace")  # of a file: it may be no UTF-8
    return Dataset(
        name=named,
        labels=Labels(names=rows.names or (UNLABELLED,)),
        splits=splits,
        skipped=rows.skipped,
        own_splits=bool(rows.splits) or shares is not None,
    )


def _present(split: Split, rows: Tensor) -> set[int]:
    """Return the labels of these rows."""
    if split.truths is not None:
        return set(split.truths[rows].any(0).nonzero()[:, 0].tolist())
    return set(split.targets[rows].tolist()) - {-1}


def from_files(
    source: Path, listed: Sequence[Listed], homes: Mapping[str, str], *, size: int | None, seed: int, strict: bool
) -> Dataset:
    """Return the data set of a person's own picture files, with what a file beside them says about the labels.

    Args:
        source: the folder or the table that lists them.
        listed: the pictures.
        homes: where the pictures of each label should be.
        size: the side that they are brought to; None is that of the encoder that ``fit`` chooses by itself.
        seed: of the split.
        strict: make unreadable pictures an error.
    """
    folder = source if source.is_dir() else source.parent
    name = source.resolve().name if source.is_dir() else source.stem
    if not listed:
        raise DataError(f'"{name}" has no picture in its class folders: {listing(homes)}. Put some in at least two.')
    own_splits = bool(listed[0].split)
    described = described_labels(folder)
    side = size or side_for(pretrained_encoder())
    listed, (images, kept, skipped) = read_listed(name, listed, size=side, seed=seed, strict=strict)
    here = [listed[i] for i in kept]
    names, targets, truths = named_targets([each.label for each in here], [each.labels for each in here])
    lost = sorted(set(homes) - set(names))
    if lost and (strict or len(names) < 2):
        raise DataError(
            f'"{name}" has no readable picture of: {listing(lost)}. Add some or remove the label; at least two labels '
            f"with pictures are needed (there are: {listing(names)})."
        )
    rows = Rows(
        images=images,
        targets=targets,
        truths=truths,
        names=names,
        splits=[each.split for each in here] if listed[0].split else (),
        files=tuple(str(each.path) for each in here),
        texts=tuple(each.texts for each in here if each.texts is not None),
        domains=tuple(each.domain for each in here if each.domain is not None),
        groups=tuple(each.group for each in here if each.group is not None),
        owned=True,
        described=described,
        skipped=(*skipped, *(Skipped(file=homes[label], reason="no readable picture") for label in lost)),
    )
    data = replace(as_dataset(name, rows, seed), own_splits=own_splits, own_pictures=True, side_open=size is None)
    return with_files_beside(data, folder)


def split_name(given: str, where: str) -> str:
    """Return train, val or test for any spelling of a split; ``where`` begins the error for what is none."""
    name = _SPLITS.get(given.strip().casefold())
    if name is None:
        raise DataError(f'{where}unknown split "{given}".{suggest(given, _SPLITS)} Splits are train, val and test.')
    return name


def same_length(images: int, targets: int, where: str = "") -> None:
    """Raise an error unless there is one target for each image; ``where`` ends it."""
    if images != targets:
        raise DataError(f"There are {images} images but {targets} targets{where}; give one for each image.")


def as_images(given: Array | Tensor) -> Tensor:
    """Return bytes ``[n, c, h, w]`` of pictures, or float32 ``[n, a]`` of features."""
    if given.ndim == 2:
        if not (given.is_floating_point() if isinstance(given, Tensor) else given.dtype.kind == "f"):
            raise UsageError(
                f"Features must be floats [n, size]; given {given.dtype} {list(given.shape)}. Pictures need their height "
                "and width: [n, height, width]."
            )
        return as_batch(given, (given.shape[1],))
    shape = (1, *given.shape[1:]) if given.ndim == 3 else ()
    images = channels_first(given, shape)
    if images.shape[1] not in (1, 3):
        raise UsageError(
            f"Pictures have 1 channel (grey) or 3 (colour); given {images.shape[1]}. Leave out transparency."
        )
    return images


def _subfolders(place: Path) -> list[Path]:
    """Return the folders in a folder that people see, sorted."""
    try:
        return sorted(each for each in place.iterdir() if each.is_dir() and not is_hidden(each.name))
    except OSError as error:
        raise DataError(f'Cannot list the folder "{place}": {error.strerror}. Check the path and its rights.') from None


def split_folders(root: Path) -> dict[str, Path]:
    """Return the folder of each split, or nothing where the sub-folders are the classes."""
    found: dict[str, Path] = {}
    other = [place for place in _subfolders(root) if place.name.casefold() not in _SPLITS]
    for place in _subfolders(root):
        if place not in other:
            before = found.setdefault(_SPLITS[place.name.casefold()], place)
            if before is not place:
                raise DataError(f'"{before}" and "{place}" are the same split. Keep one of them.')
    if not other:
        return found
    if len(found) > 1:  # a single one may be a class: a railway train
        raise DataError(
            f'"{root}" holds splits ({listing(sorted(found))}) and other folders ({listing(p.name for p in other)}). '
            "Keep either splits or classes in it."
        )
    return {}


def class_folders(place: Path) -> dict[str, Path]:
    """Return the folder of each label."""
    found: dict[str, Path] = {}
    for each in _subfolders(place):
        if unfit := unfit_name(each.name):
            raise DataError(f'A folder in "{place}" cannot be a label: {unfit}. Rename it.')
        before = found.setdefault(unicodedata.normalize("NFC", each.name), each)
        if before is not each:
            raise DataError(
                f'Two folders in "{place}" have the same name, "{each.name}", in different Unicode spellings. Rename one.'
            )
    if found:
        return found
    pictures = list_pictures(place)
    if pictures:
        raise DataError(
            f'"{place}" holds {len(pictures)} pictures but no class folders. Put the pictures of each label into a '
            f'folder of that name ("{place.name}/owl/{pictures[0].name}"), or list them in a CSV file for data.table.'
        )
    raise DataError(f'"{place}" is empty. Make one folder in it for each label, with its files.')
