"""The options that verbs share: the type of each, and what ``--help`` says of it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

DATA_HELP = "A folder of pictures, a .csv table, an .npz pack, or the name of an embedded set (finches, digits)."
SPLIT_HELP = "Which images; left out, test where the data name splits, else all that it was not trained on."

Model = Annotated[Path, typer.Argument(help="A saved classifier.")]
Data = Annotated[str, typer.Argument(help=DATA_HELP)]
Paths = Annotated[list[Path], typer.Argument(help="Pictures, or folders of pictures.")]
Image = Annotated[Path, typer.Argument(help="One picture.")]
Name = Annotated[str, typer.Argument(help="The label.")]

Root = Annotated[
    Path | None, typer.Option("--data-root", help="The folder of all benchmarks; else the variable LABELWISE_DATA.")
]
Splits = Annotated[Path | None, typer.Option(help="A table that says which picture is in which split; see data split.")]
Choice = Literal["train", "val", "test", "all"]
SplitName = Annotated[Choice | None, typer.Option("--split", help=SPLIT_HELP)]
Unknown = Annotated[
    str | None, typer.Option("--unknown", help="Data of none of the labels, or a folder of pictures, to tell apart.")
]
Size = Annotated[int | None, typer.Option(min=8, help="Side in pixels that pictures are brought to.")]
Strict = Annotated[bool, typer.Option("--strict", help="Make an unreadable picture an error.")]

Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of the method as key=value; --set help lists them.")
]
Seed = Annotated[int, typer.Option(help="Of what is drawn at random.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
ScoreBy = Annotated[
    Literal["similarity", "cosine", "sum", "whitened"],
    typer.Option(help="Compare pictures by the model's similarity, the cosine of codes, their sum, or whitened codes."),
]

Out = Annotated[Path, typer.Option("--out", help="The folder to write the classifier to.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a classifier that is already there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
