"""Folders of pictures that are not sorted into labels: those of which the labels are known by name alone, or not at all."""

from dataclasses import replace
from pathlib import Path

import torch

from labelwise.data.dataset import Dataset, Split
from labelwise.data.labels.knowledge import find_knowledge, with_knowledge
from labelwise.data.read.folders import split_folders
from labelwise.data.read.pictures import is_hidden, list_pictures, read_files
from labelwise.errors import DataError, UsageError
from labelwise.labels import Labels
from labelwise.nn.encoder import pretrained_encoder, side_for


def unsorted_data(folder: Path, names: tuple[str, ...], size: int | None, strict: bool) -> Dataset:
    """Return the pictures of a folder and all below it, whose labels have these names and which of them have which is open.

    A file beside them may say more about the labels, see ``data.knowledge``.
    """
    if not folder.is_dir():
        raise UsageError(f'--names is for a folder of pictures without labels; "{folder}" is no folder.')
    files = list_pictures(folder)
    if not files:
        raise DataError(f'No picture found in "{folder}".')
    side = size or side_for(pretrained_encoder())
    images, kept, skipped = read_files(files, (3, side, side), strict=strict)
    targets = torch.full((len(images),), -1)
    train = Split(images=images, targets=targets, files=tuple(str(files[i]) for i in kept))
    data = Dataset(
        name=folder.name,
        labels=Labels(names=names),
        splits={"train": train},
        skipped=skipped,
        own_pictures=True,
        side_open=size is None,
    )
    known = find_knowledge(folder, names)
    return replace(data, labels=with_knowledge(data, known).labels.select(names)) if known else data


def plain_folder(root: Path) -> Path | None:
    """Return where pictures lie that are not sorted into label folders, or None."""
    if not root.is_dir():
        return None
    place = split_folders(root).get("train", root)
    folders = [each for each in place.iterdir() if each.is_dir() and not is_hidden(each.name)]
    return place if len(folders) < 2 and list_pictures(place) else None
