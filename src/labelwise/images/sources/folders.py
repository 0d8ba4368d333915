"""A data set from a folder of images: one sub-folder per label, or unsorted."""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, Self

import numpy as np

from labelwise.images.dataset import Dataset
from labelwise.images.decode.crops import is_video
from labelwise.images.decode.decoding import Frame
from labelwise.images.decode.headers import is_image_file
from labelwise.images.describe.knowledge import find_knowledge
from labelwise.images.describe.labels import RESERVED, Labels, normal_name, unfit_name
from labelwise.images.images import Skipped
from labelwise.images.sources.build import build, from_files, read_files
from labelwise.images.sources.paths import holds_images, is_hidden, is_image, list_files, list_images
from labelwise.images.sources.rows import Rows, named_rows
from labelwise.images.split.divide import Grouping
from labelwise.images.split.make import SPELLINGS
from labelwise.support.errors import DataError, UsageError, listing
from labelwise.support.file_names import ANSWERS, GROUPS, read_record

LabelsBy = Literal["", "answers", "groups"]  # who assigned the labels, if not a person


def labels_by(root: Path) -> LabelsBy:
    """Return who assigned the labels of a folder; a person may have renamed them since."""
    source = read_record(root).get("source")
    return source if source in (ANSWERS, GROUPS) else ""


NO_SUFFIX = "its name has no suffix. Rename it, for example to end with .jpg"
VIDEO = "it is a video. List its frames in a table instead: clip.mp4#t=2.5 is that at 2.5 seconds"
ANSWER = "the name is reserved for answers. Rename the folder to use it as a label"


def folder(
    path: str | Path,
    *,
    size: int | None = None,
    seed: int = 0,
    strict: bool = False,
    group: Grouping | None = None,
    next_frame: Frame | None = None,
) -> Dataset:
    """Load a folder with one sub-folder per label: ``birds/owl/1.jpg``.

    The sub-folders may also be in ``train``, ``test`` and ``val`` (or ``valid``, ``validation``). Videos, images that
    cannot be read or have no suffix, labels without any readable image, and folders called ``unknown``, ``unsure`` or ``none`` are left
    out and listed in ``skipped``, or an error where
    ``strict``. What a file in the folder says about the labels is read, too, see ``data.knowledge``.

    Each image is made to fit a square of the side ``size``. None leaves it to the reader: ``fit`` reads them as its encoder
    takes them. The seed is that of the splits. Images of a ``group`` stay together where splits are made: None is lookalikes, see ``split.grouping``.
    """
    root = Path(path)
    if root.is_file():
        verb = {".csv": " Read it with data.table.", ".npz": " Read it with data.pack."}.get(root.suffix.lower(), "")
        raise DataError(f'"{root}" is a file, not a folder.{verb}')
    tops = list_tops(root)
    others: list[Path] = []
    rows, homes = labelled_files(tops, partial(_list_images, others=others))
    loose = [str(file) for top in tops.values() for file in top.files if is_image(file.name) and file.is_file()]
    if strict and loose:
        raise DataError(f"Images are outside the label folders: {listing(loose)}. Move or remove them.")
    rows = replace(rows, by=group)
    data = from_files(root, rows, homes, size=size, seed=seed, strict=strict, next_frame=next_frame)
    reasons = {
        "it is outside the label folders": loose,
        NO_SUFFIX: (str(file) for file in others if not file.suffix),
        VIDEO: (str(file) for file in others if file.suffix),
        ANSWER: (str(each) for top in tops.values() for each in top.folders if _is_answer(each) and holds_images(each)),
    }
    skipped = (*data.skipped, *(Skipped(file=f, reason=reason) for reason, files in reasons.items() for f in files))
    return replace(data, skipped=skipped, labels_by=labels_by(root))


def _list_images(home: Path, others: list[Path]) -> list[Path]:
    """Return the image files below a folder, and add to ``others`` those whose name has no suffix, and videos."""
    files = list_files(home, lambda name: is_image(name) or is_video(name) or not os.path.splitext(name)[1])
    others += [file for file in files if is_video(file.name) or (not file.suffix and is_image_file(file))]
    return [file for file in files if file.suffix and not is_video(file.name)]


@dataclass(frozen=True)
class Level:
    """The visible entries of a folder, sorted and listed once."""

    home: Path
    folders: tuple[Path, ...]
    files: tuple[Path, ...]  # entries that are not folders

    @classmethod
    def of(cls, home: Path) -> Self:
        """List a folder."""
        try:
            names = sorted(os.listdir(home))
        except OSError as error:
            raise DataError(
                f'Cannot list the folder "{home}": {error.strerror}. Check the path and its rights.'
            ) from None
        paths = [home / name for name in names if not is_hidden(name)]
        folders = [path for path in paths if path.is_dir()]
        folder_set = set(folders)
        return cls(home, tuple(folders), tuple(path for path in paths if path not in folder_set))


def _is_answer(folder: Path) -> bool:
    """Return whether a folder holds answers of ``classify`` that are not labels, such as ``unknown``."""
    return normal_name(folder.name).casefold() in RESERVED


def labelled_files(
    tops: Mapping[str, Level], list_files: Callable[[Path], Sequence[Path]]
) -> tuple[Rows, dict[str, str]]:
    """Return the image files of the label folders below ``list_tops``, and the folder of each label."""
    homes: dict[str, str] = {}
    table: list[tuple[str, str, str]] = []
    for split, top in tops.items():
        for label, home in class_folders(top).items():
            homes.setdefault(label, str(home))
            table += [(label, split, str(file)) for file in list_files(home)]
    labels, splits, files = zip(*table, strict=True) if table else ((), (), ())
    return replace(named_rows(labels), files=files, splits=splits if any(splits) else ()), homes


def list_tops(root: Path) -> dict[str, Level]:
    """Return the folder of each split; the key "" is the root, if its sub-folders are labels."""
    splits: dict[str, Path] = {}
    top = Level.of(root)
    unnamed = [home for home in top.folders if home.name.casefold() not in SPELLINGS]
    for home in top.folders:
        if home.name.casefold() in SPELLINGS:
            before = splits.setdefault(SPELLINGS[home.name.casefold()], home)
            if before is not home:
                raise DataError(f'"{before}" and "{home}" are the same split. Keep one of them.')
    if splits and not unnamed:
        return {split: Level.of(home) for split, home in splits.items()}
    if len(splits) > 1:  # a single one may be a label: a railway train
        raise DataError(
            f'"{root}" holds splits ({listing(sorted(splits))}) and other folders ({listing(p.name for p in unnamed)}). '
            "Keep either splits or labels in it."
        )
    return {"": top}


def class_folders(top: Level) -> dict[str, Path]:
    """Return the folder of each label."""
    folders: dict[str, Path] = {}
    home = top.home
    for child in top.folders:
        if _is_answer(child):
            continue  # ``folder`` reports them
        if unfit := unfit_name(child.name):
            raise DataError(f'A folder in "{home}" cannot be a label: {unfit}. Rename it.')
        before = folders.setdefault(normal_name(child.name), child)
        if before is not child:
            raise DataError(
                f'Two folders in "{home}" have the same name, "{child.name}", except for spaces or Unicode spellings. Rename one.'
            )
    if folders:
        return folders
    files = list_images(home)
    if files:
        tables = sorted(home.glob("*.csv"))
        table = f" Or fit its table: {shlex.join(['labelwise', 'fit', str(tables[0])])}." if tables else ""
        raise DataError(
            f'"{home}" holds {len(files)} images but no label folders.{table} Put the images of each label into a '
            f'folder of that name ("{home.name}/owl/{files[0].name}"), or list them in a CSV file with the columns path and label. '
            f"To sort them into folders of images that look alike, which you then rename: {shlex.join(['labelwise', 'group', str(home), '--out', 'groups'])}"
        )
    raise DataError(f'"{home}" is empty. Make one folder in it for each label, with its files.')


def unsorted_data(folder: Path, names: tuple[str, ...], size: int | None, strict: bool) -> Dataset:
    """Load a folder of images with known label names but unknown assignment.

    A file next to them may say more about the labels, see ``data.knowledge``.
    """
    if not folder.is_dir():
        raise UsageError(f'--names needs a folder of images; "{folder}" is not a folder.')
    rows = _unlabelled_rows(folder, size, strict=strict)
    knowledge = find_knowledge(folder, names)
    labels = knowledge.labels.select(names) if knowledge else Labels(names=names)
    data = build(folder.name, rows, parts={"train": np.arange(len(rows))})
    return replace(data, labels=labels, own_images=True)


def unknown_data(folder: Path) -> Dataset:
    """Load a folder of images as test images without labels."""
    rows = _unlabelled_rows(folder, None, strict=False)
    return replace(build(folder.resolve().name, rows, parts={"test": np.arange(len(rows))}), own_splits=False)


def _unlabelled_rows(folder: Path, size: int | None, *, strict: bool) -> Rows:
    files = list_images(folder)
    if not files:
        raise DataError(f'No image found in "{folder}".')
    rows = Rows(names=(), targets=np.full(len(files), -1), files=tuple(map(str, files)))
    return read_files(rows, size, strict=strict)


def plain_folder(root: Path) -> Path | None:
    """Return a folder with images outside of label folders, or None."""
    if not root.is_dir():
        return None
    top = list_tops(root).get("train") or Level.of(root)
    return top.home if len(top.folders) < 2 and list_images(top.home) else None
