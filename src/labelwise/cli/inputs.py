"""Read the inputs of verbs: classifiers, data at the size of a model, test sets, images."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import labelwise as lw
from labelwise.cli.options import shared_options
from labelwise.cli.output import note, warn
from labelwise.support.errors import DataError, UsageError, listing
from labelwise.support.files import read_text
from labelwise.support.settings import of_the_run

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.evaluation.test_set import TestSet
    from labelwise.images.decode.decoding import Frame
    from labelwise.images.images import Images, Skipped
    from labelwise.images.split.divide import Grouping

PIECE = 256  # images to read and encode at a time
PRIOR_HELP = "Only these labels occur: names, or label and share."


def open_model(model: Path) -> "Classifier":
    """Load the classifier in a folder; on a GPU its trained torch model encodes."""
    from labelwise.api import open_on

    return open_on(model, shared_options().device)


def open_data(
    data: str,
    side: int | None,
    *,
    size: int | None = None,
    group: "Grouping | None" = None,
    next_frame: "Frame | None" = None,
) -> "lw.data.Dataset":
    """Load data by path or name, with the splits of a table if there is one.

    Packs and benchmarks are read at ``side`` pixels (None: their own size), unless the user gives another ``size``.
    """
    options = shared_options()
    dataset = lw.data.load(
        data, size=size, side=side, strict=options.strict, root=options.root, group=group, next_frame=next_frame
    )
    if size is not None and dataset.features:
        raise UsageError(
            f'--size {size} resizes images, but "{dataset.name}" holds {dataset.features} features per image. '
            "Leave out --size."
        )
    return lw.data.apply_split(dataset, options.splits) if options.splits else dataset


def new_run(words: list[str], folder: Path, *, resume: bool) -> "lw.Run":
    """Return the run that the options ask for; settings of the run are taken out of the words."""
    from labelwise.support.processes import is_main_process

    engine, accumulate = of_the_run(words)
    common, tell = shared_options(), note if is_main_process() else None
    return lw.Run(
        seed=common.seed, device=common.device, engine=engine, accumulate=accumulate, folder=folder, resume=resume,
        progress=common.progress, tell=tell,
    )  # fmt: skip


def tell_groups(dataset: "lw.data.Dataset") -> None:
    """Print which images the splits keep together, if the data were checked for it."""
    from labelwise.images.split.divide import group_words

    words = group_words([group for part in dataset.splits.values() for group in part.groups])
    if words and dataset.grouping != "column":
        note(words)


def open_data_for(classifier: "Classifier", data: str) -> "lw.data.Dataset":
    """Return the data with images in the shape of a classifier's encoder."""
    side = classifier.shape[1] if len(classifier.shape) == 3 and classifier.shape[1] == classifier.shape[2] else None
    return open_data(data, side)


def open_part(classifier: "Classifier", data: str, split: str | None = None, *, labelled: bool = True) -> "TestSet":
    """Return the test images of data, see ``select_test_set``; on request also images without a label."""
    from labelwise.evaluation.test_set import select_test_set

    dataset = open_data_for(classifier, data)
    return select_test_set(classifier, dataset, split, unknown=not labelled)


def open_unknown(classifier: "Classifier", unknown: str) -> "TestSet":
    """Load out-of-distribution images from data or from a folder of images."""
    from labelwise.evaluation.test_set import select_test_set
    from labelwise.images.catalogue import load_unlabelled

    return select_test_set(classifier, load_unlabelled(unknown, shared_options().root), unknown=True)


def open_images(
    classifier: "Classifier", paths: Sequence[Path], *, strict: bool = False
) -> tuple["Images", list[str], list[dict[str, str]]]:
    """Return the readable images of files and folders, their names, and the unreadable files."""
    from labelwise.images.as_images import as_images

    files = as_images(paths)
    ((images, names, skipped),) = read_pieces(classifier, files, strict=strict, piece=len(files))
    return images, names, skipped


def read_pieces(
    classifier: "Classifier", files: "Images", *, strict: bool = False, piece: int = PIECE
) -> Iterator[tuple["Images", list[str], list[dict[str, str]]]]:
    """Yield the results of ``open_images``, some files at a time, each encoded once."""
    from labelwise.encoders.encode import ImagesWithFeatures
    from labelwise.images.images import check_read

    if len(classifier.shape) != 3:
        raise UsageError("This model takes precomputed features, not images.")
    unread: list[Skipped] = []
    for start in range(0, len(files), piece):
        some = files.select(range(start, min(start + piece, len(files))))
        features = classifier.features(some)
        unread += features.skipped
        check_read(unread, len(files), strict=strict or shared_options().strict)
        yield (
            ImagesWithFeatures.readable(some, features),
            list(features.ids),
            [asdict(skip) for skip in features.skipped],
        )
    tell_skipped(unread)


def tell_skipped(skipped: Sequence["Skipped"]) -> None:
    """Warn about unreadable files."""
    from labelwise.images.images import skipped_lines

    for line in skipped_lines(skipped):
        warn(f"Skipped {line}")


def read_names(words: str, least: int = 2) -> tuple[str, ...]:
    """Parse label names: separated by commas, or the lines of a text file."""
    from labelwise.images.describe.labels import unfit_name

    file = Path(words)
    if file.suffix.lower() == ".txt":
        try:
            lines = read_text(file, encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f'Cannot read the names in "{words}" ({error}). Write one name per line.') from None
    else:
        try:
            lines = next(csv.reader([words], skipinitialspace=True), [])
        except csv.Error as error:
            raise UsageError(f"These are no names: {error}. Write cat,dog in one line, or a .txt file.") from None
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) < least:
        raise UsageError(
            f"Give at least {'two names' if least == 2 else 'one name'}: cat,dog or a .txt file with one per line; given {listing(names)}."
        )
    for unfit in filter(None, map(unfit_name, names)):
        raise UsageError(f"This cannot be a label: {unfit}. Write one UTF-8 name per line.")
    return names


def restricted(classifier: "Classifier", prior: Path) -> "Classifier":
    """Return the classifier with the labels of a list, and print which these are."""
    from labelwise.tasks.occurring import read_occurring, restrict

    occurring = read_occurring(prior, classifier)
    smaller = restrict(classifier, occurring)
    note(
        f"Prior: {len(smaller.labels)} of {len(classifier.labels)} labels may occur ({prior}); {listing(smaller.labels.names)}."
    )
    if occurring.unknown_names:
        note(f"Names in {prior} that are no labels here: {listing(occurring.unknown_names)}.")
    return smaller
