"""Folders of pictures that are not sorted into labels: those of which the labels are known by name alone, or not at all."""

from dataclasses import replace
from pathlib import Path

import torch

from labelwise.data.dataset import Dataset
from labelwise.data.labels.knowledge import find_knowledge
from labelwise.data.read.build import build
from labelwise.data.read.folders import split_folders
from labelwise.data.read.pictures import is_hidden, list_pictures, read_files
from labelwise.data.read.rows import Rows
from labelwise.errors import DataError, UsageError
from labelwise.labels import Labels
from labelwise.nn.encoder import pretrained_encoder, side_for


def unsorted_data(folder: Path, names: tuple[str, ...], size: int | None, strict: bool) -> Dataset:
    """Return the pictures of a folder and all below it, whose labels have these names and which of them have which is open.

    A file beside them may say more about the labels, see ``data.knowledge``.
    """
    if not folder.is_dir():
        raise UsageError(f'--names is for a folder of pictures without labels; "{folder}" is no folder.')
    side = size or side_for(pretrained_encoder())
    rows = _unlabelled(folder, (3, side, side), strict=strict)
    knowledge = find_knowledge(folder, names)
    labels = knowledge.labels.select(names) if knowledge else Labels(names=names)
    data = build(folder.name, rows, parts={"train": torch.arange(len(rows))})
    return replace(data, labels=labels, own_pictures=True, side_open=size is None)


def unknown_data(folder: Path, shape: tuple[int, ...]) -> Dataset:
    """Return the pictures of a folder and all below it as test images of a shape, without any label."""
    rows = _unlabelled(folder, shape, strict=False)
    return replace(build(folder.resolve().name, rows, parts={"test": torch.arange(len(rows))}), own_splits=False)


def _unlabelled(folder: Path, shape: tuple[int, ...], *, strict: bool) -> Rows:
    files = list_pictures(folder)
    if not files:
        raise DataError(f'No picture found in "{folder}".')
    images, readable, skipped = read_files(files, shape, strict=strict)
    targets, paths = torch.full((len(images),), -1), tuple(str(files[i]) for i in readable)
    return Rows(names=(), targets=targets, images=images, files=paths, skipped=skipped)


def plain_folder(root: Path) -> Path | None:
    """Return where pictures lie that are not sorted into label folders, or None."""
    if not root.is_dir():
        return None
    home = split_folders(root).get("train", root)
    folders = [each for each in home.iterdir() if each.is_dir() and not is_hidden(each.name)]
    return home if len(folders) < 2 and list_pictures(home) else None
