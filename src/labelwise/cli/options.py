"""The options that verbs share: the type of each, and what ``--help`` says of it."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

DATA_HELP = "A folder of pictures, a .csv table, an .npz pack, or the name of an embedded set (finches, digits)."
SPLIT_HELP = "Which images; left out, test where the data name splits, else all that it was not trained on."

Model = Annotated[Path, Argument(help="A saved classifier.")]
Data = Annotated[str, Argument(help=DATA_HELP)]
Paths = Annotated[list[Path], Argument(help="Pictures, or folders of pictures.")]
Image = Annotated[Path, Argument(help="One picture.")]
Name = Annotated[str, Argument(help="The label.")]

Root = Annotated[
    Path | None, Option("--data-root", help="The folder of all benchmarks; else the variable LABELWISE_DATA.")
]
Splits = Annotated[Path | None, Option(help="A table that says which picture is in which split; see data split.")]
Choice = Literal["train", "val", "test", "all"]
SplitName = Annotated[Choice | None, Option("--split", help=SPLIT_HELP)]
Unknown = Annotated[
    str | None, Option("--unknown", help="Data of none of the labels, or a folder of pictures, to tell apart.")
]
Size = Annotated[int | None, Option(min=8, help="Side in pixels that pictures are brought to.")]
Strict = Annotated[bool, Option("--strict", help="Make an unreadable picture an error.")]

Settings = Annotated[
    list[str] | None, Option("--set", help="A setting of the method as key=value; --set help lists them.")
]
Seed = Annotated[int, Option(help="Of what is drawn at random.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
EncoderName = Annotated[
    str,
    Option(
        help="auto, a pretrained backbone (efficientnet_lite0, timm:NAME ...), what pretrain wrote, or a saved classifier."
    ),
]
ScoreBy = Annotated[
    Literal["similarity", "cosine", "sum", "whitened"],
    Option(help="Compare pictures by the model's similarity, the cosine of codes, their sum, or whitened codes."),
]

Out = Annotated[Path, Option("--out", help="The folder to write the classifier to.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace a classifier that is already there.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON document and nothing else.")]
NoCache = Annotated[
    bool, Option("--no-cache", help="Encode pictures anew: neither use nor keep features of earlier commands.")
]
