"""What verbs are given and how it is read: classifiers, data at the size of a model, the part that is measured, pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import labelwise as lw
from labelwise.cli.output import note
from labelwise.support.errors import DataError, UsageError, listing

if TYPE_CHECKING:
    from torch import Tensor

    from labelwise.core.quick import QuickClassifier
    from labelwise.evaluation.test_set import TestSet
    from labelwise.images.dataset import Skipped
    from labelwise.images.sources.shards import Packed
    from labelwise.images.split.grouping import Grouping

    File = Path | Packed

PIECE = 256  # pictures that are read and encoded at a time where all are asked about


def open_model(model: Path, device: str = "cpu") -> "lw.Classifier":
    """Return the classifier in a folder, on the device of this name."""
    from labelwise.train.distribution import choose_device

    return lw.load(model, device=choose_device(device))


def open_data(  # noqa: PLR0913 - what may be said of data
    data: str,
    side: int | None,
    *,
    size: int | None = None,
    root: Path | None = None,
    splits: Path | None = None,
    strict: bool = False,
    group: "Grouping | None" = None,
) -> "lw.data.Dataset":
    """Return the data that a word names, divided as a table says where one is given.

    The side of pictures is ``side`` (None leaves it to where they come from), unless the user asks for another ``size``.
    """
    dataset = lw.data.load(data, size=size or side, strict=strict, root=root, group=group)
    if size is not None and len(dataset.shape) != 3:
        raise UsageError(
            f'--size {size} is the side of pictures, and "{dataset.name}" holds {dataset.shape[0]} numbers for each image. '
            "Leave it out."
        )
    return lw.data.apply_split(dataset, splits) if splits else dataset


def tell_groups(dataset: "lw.data.Dataset") -> None:
    """Say what stays together in the splits, as far as somebody looked for it."""
    from labelwise.images.split.grouping import group_words

    words = group_words([group for part in dataset.splits.values() for group in part.groups])
    if words and dataset.grouping != "column":
        note(words)


def open_data_for(
    classifier: "lw.Classifier",
    data: str,
    root: Path | None = None,
    splits: Path | None = None,
    *,
    strict: bool = False,
) -> "lw.data.Dataset":
    """Return the same with pictures as the model of a classifier takes them."""
    from labelwise.images.catalogue import size_for
    from labelwise.images.sources.files import at_side

    dataset = open_data(data, size_for(classifier.shape), root=root, splits=splits, strict=strict)
    return at_side(dataset, fit=classifier.view.fit)


def open_part(
    classifier: "lw.Classifier",
    data: str,
    split: str | None = None,
    root: Path | None = None,
    splits: Path | None = None,
    *,
    labelled: bool = True,
) -> "TestSet":
    """Return the images of data that a classifier is measured on, see ``select_test_set``; those without a label where told."""
    from labelwise.evaluation.test_set import select_test_set

    dataset = open_data_for(classifier, data, root, splits)
    return select_test_set(classifier, dataset, split, unknown=not labelled)


def open_unknown(classifier: "lw.Classifier", unknown: str, root: Path | None) -> "TestSet":
    """Return images of none of the labels, of data or of a folder of pictures."""
    from labelwise.evaluation.test_set import select_test_set
    from labelwise.images.catalogue import load_unlabelled

    return select_test_set(classifier, load_unlabelled(unknown, classifier.shape, root), unknown=True)


def list_files(paths: Sequence[Path]) -> "list[File]":
    """Return the picture files that paths name: files as they are, those in folders and below, and pictures in shards."""
    from labelwise.images.decode.readable import list_pictures
    from labelwise.images.sources.addresses import may_name_shards

    files: list[File] = []
    for path in paths:
        if may_name_shards(path):
            from labelwise.images.sources.shards import packed_pictures

            files += packed_pictures(path)
        else:
            files += list_pictures(path) if path.is_dir() else [path]
    if not files:
        raise DataError(f"No picture found in {listing(str(p) for p in paths)}.")
    return files


def open_pictures(
    classifier: "lw.Classifier", paths: Sequence[Path], *, strict: bool = False
) -> tuple["Tensor", list[str], list[dict[str, str]]]:
    """Return the pictures of files and folders as the model takes them, their names, and those that could not be read."""
    files = list_files(paths)
    ((images, names, skipped),) = read_pieces(classifier, files, strict=strict, piece=len(files))
    return images, names, skipped


def read_pieces(
    classifier: "lw.Classifier | QuickClassifier",
    files: "Sequence[File]",
    *,
    strict: bool = False,
    piece: int | None = None,
) -> Iterator[tuple["Tensor", list[str], list[dict[str, str]]]]:
    """Yield what ``open_pictures`` returns, some files at a time, so that memory holds no more of them."""
    from labelwise.images.decode.readable import check_read

    if len(classifier.shape) != 3:
        raise UsageError("This model takes precomputed features, not pictures.")
    unread: list[Skipped] = []
    piece = piece or PIECE
    for start in range(0, len(files), piece):
        some = files[start : start + piece]
        images, rows, skipped = _read(some, classifier, strict)
        unread += skipped
        check_read(unread, len(files), strict=strict)
        yield images, [str(some[i]) for i in rows], [asdict(one) for one in skipped]
    tell_skipped(unread)


def _read(
    files: "Sequence[File]", classifier: "lw.Classifier | QuickClassifier", strict: bool
) -> tuple[Any, list[int], tuple["Skipped", ...]]:
    """Return pictures as a classifier takes them, which of the files they are, and those that could not be read."""
    from labelwise.core.quick import QuickClassifier

    shape, fit = classifier.shape, classifier.view.fit
    paths = [file for file in files if isinstance(file, Path)]
    if len(paths) < len(files):
        from labelwise.images.sources.shards import read_packed

        return read_packed(files, shape, fit)
    if isinstance(classifier, QuickClassifier):
        from labelwise.images.decode.readable import read_pixels

        return read_pixels(paths, shape, fit, progress=False)
    from labelwise.images.sources.known import read_known

    return read_known(paths, shape, fit=fit, strict=strict, none=True)


def tell_skipped(skipped: Sequence["Skipped"]) -> None:
    """Say which files could not be read and why."""
    from labelwise.images.skipped import skipped_lines

    for line in skipped_lines(skipped):
        note(f"Skipped {line}")
