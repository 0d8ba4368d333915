"""What the verbs that measure share: data at the size of a model, which part is measured, and the line that says so."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from labelwise.cli.output import out

if TYPE_CHECKING:
    from labelwise.classifier import Classifier
    from labelwise.data import Dataset
    from labelwise.evaluate.part import Part

SPLIT_HELP = "Which images; left out, test where the data name splits, else all that it was not trained on."
SplitName = Annotated[
    Literal["train", "val", "test", "all"] | None, typer.Option("--split", help=SPLIT_HELP, show_default=False)
]
Unknown = Annotated[
    str | None, typer.Option("--unknown", help="Data of none of the labels, or a folder of pictures, to tell apart.")
]


def read_data(shape: tuple[int, ...], data: str, root: Path | None, splits: Path | None = None) -> "Dataset":
    """Return the data that a word names, at the size of a model's images, divided as a table says where one is given.

    Args:
        shape: of the images that the model takes.
        data: what names the data.
        root: the folder of all benchmarks.
        splits: the table, if any.
    """
    from labelwise.data import apply_split, load
    from labelwise.data.catalogue import size_for

    dataset = load(data, size=size_for(shape), root=root)
    return apply_split(dataset, splits) if splits else dataset


def unknown_part(classifier: "Classifier", unknown: str, root: Path | None) -> "Part":
    """Return images of none of the labels, of data or of a folder of pictures."""
    from labelwise.data.catalogue import load_unlabelled
    from labelwise.evaluate.part import choose_part

    return choose_part(classifier, load_unlabelled(unknown, classifier.shape, root), unknown=True)


def print_words(*words: str) -> None:
    """Print which images are measured, a line each, before the figures."""
    for line in words:
        out().print(Text(line), soft_wrap=True)
