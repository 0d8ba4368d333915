"""The options that verbs share: the type of each, and what ``--help`` says of it."""

import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from labelwise.support.limits import VARIABLE
from labelwise.train.exactness import exact as exactly

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

Settings = Annotated[list[str] | None, Option("--set", help="A setting as key=value; see labelwise settings.")]
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
# Verbs that neither read nor keep features of pictures, so that there is nothing to leave.
UNCACHED = (
    "cache", "check", "demo", "encode", "export", "forget", "imagine", "pretrain", "serve", "settings", "split", "where", "get",
    "zero_shot",
)  # fmt: skip


def with_shared(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb as the shell calls it, with options that many take besides their own: ``--max-gb``, ``--no-cache``, ``--exact``.

    The first holds for the processes that the verb starts as well. A parameter of the verb that is a dataclass stands for its fields, an
    option each, in its place.
    """
    own, reads = inspect.signature(verb), {"data", "model"}
    shared: list[tuple[str, Any, Any]] = [("max_gb", None, MaxGb)] if reads & set(own.parameters) else []
    shared += [("no_cache", False, NoCache)] if verb.__name__ not in UNCACHED else []
    shared += [("exact", False, Exact)] if verb.__name__ in EXACT else []
    groups: dict[str, Any] = {
        each.name: each.annotation for each in own.parameters.values() if is_dataclass(each.annotation)
    }

    @wraps(verb)
    def run(
        *args: Any, max_gb: float | None = None, no_cache: bool = False, exact: bool = False, **options: Any
    ) -> None:
        if no_cache:
            from labelwise.support.cache import turn_off

            turn_off()
        before = os.environ.get(VARIABLE)
        if max_gb is not None:
            os.environ[VARIABLE] = str(max_gb)
        for name, group in groups.items():
            options[name] = group(**{each.name: options.pop(each.name) for each in fields(group)})
        try:
            with exactly(exact):
                verb(*args, **options)
        finally:
            if max_gb is not None:
                os.environ.pop(VARIABLE)
                os.environ.update({} if before is None else {VARIABLE: before})

    every = [single for each in own.parameters.values() for single in _singly(each)]
    every += [_named(name, default, kind) for name, default, kind in shared]
    run.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in every} | {"return": None}
    return run


def _singly(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield the options that a parameter stands for."""
    if is_dataclass(parameter.annotation):
        yield from (_named(each.name, each.default, each.type) for each in fields(parameter.annotation))
    else:
        yield parameter


def _named(name: str, default: Any, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
