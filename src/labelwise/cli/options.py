"""The options that verbs share: the type of each, and what ``--help`` says of it."""

import inspect
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from labelwise.exactness import exact as exactly
from labelwise.limits import VARIABLE

DATA_HELP = "A folder of pictures, a .csv table, an .npz pack, or the name of an embedded set (finches, digits)."
SPLIT_HELP = "Which images; left out, test where the data name splits, else all that it was not trained on."

Model = Annotated[Path, Argument(help="A saved classifier.")]
Data = Annotated[str, Argument(help=DATA_HELP)]
Paths = Annotated[list[Path], Argument(help="Pictures, or folders of pictures.")]
Image = Annotated[Path, Argument(help="One picture.")]
Name = Annotated[str, Argument(help="The label.")]

Root = Annotated[
    Path | None,
    Option(
        "--root",
        "--data-root",
        help="The folder that the paths of a table start at, or that of all benchmarks; else the variable LABELWISE_DATA.",
    ),
]
Splits = Annotated[Path | None, Option(help="A table that says which picture is in which split; see data split.")]
Group = Annotated[
    Literal["column", "exif", "lookalike", "folder", "none"] | None,
    Option(
        help="What stays on one side of a split: pictures that look alike, of one burst (exif), folder or column group. "
        "Left out: the column, else lookalikes of your own pictures."
    ),
]
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
MaxGb = Annotated[
    float | None,
    Option(
        "--max-gb", help="Gigabytes of memory that a file may take; left out, LABELWISE_MAX_GB or half of the memory."
    ),
]


Exact = Annotated[
    bool,
    Option(
        "--exact", help="The same bytes whatever the number of threads: one thread, deterministic algorithms. Slower."
    ),
]
EXACT = ("fit", "classify", "evaluate")  # verbs that take it


def limited(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb that reads data or a classifier with the option ``--max-gb`` besides its own; others as they are.

    It holds for the processes that the verb starts as well. Some verbs take ``--exact``, too.
    """
    own = inspect.signature(verb)
    if not {"data", "model"} & set(own.parameters):
        return verb

    @wraps(verb)
    def run(*args: Any, max_gb: float | None = None, exact: bool = False, **options: Any) -> None:
        before = os.environ.get(VARIABLE)
        if max_gb is not None:
            os.environ[VARIABLE] = str(max_gb)
        try:
            with exactly(exact):
                verb(*args, **options)
        finally:
            if max_gb is not None:
                os.environ.pop(VARIABLE)
                os.environ.update({} if before is None else {VARIABLE: before})

    named = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter("max_gb", named, default=None, annotation=MaxGb)]
    if verb.__name__ in EXACT:
        more.append(inspect.Parameter("exact", named, default=False, annotation=Exact))
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), *more])  # type: ignore[attr-defined]
    run.__annotations__ = {**verb.__annotations__, **{each.name: each.annotation for each in more}}
    return run
