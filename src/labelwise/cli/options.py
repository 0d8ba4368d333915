"""The options that verbs share: the type of each, and what ``--help`` says of it."""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

DATA_HELP = "A folder, .csv table, .npz pack, or the name of a set."
SPLIT_HELP = "Which images; by default test, or all not trained on."

Model = Annotated[Path, Argument(help="A saved classifier.")]
Data = Annotated[str, Argument(help=DATA_HELP)]
Paths = Annotated[list[Path], Argument(help="Images, or folders of images.")]
Image = Annotated[Path, Argument(help="One image.")]
Name = Annotated[str, Argument(help="The label.")]

Root = Annotated[
    Path | None,
    Option(
        "--data-root",
        help="The folder of benchmarks and of paths in tables.",
    ),
]
Splits = Annotated[Path | None, Option(help="A table that assigns images to splits; see data split.")]
Group = Annotated[
    Literal["column", "exif", "lookalike", "folder", "none"] | None,
    Option(help="What keeps images on one side of a split."),
]
Choice = Literal["train", "val", "test", "all"]
SplitName = Annotated[Choice | None, Option("--split", help=SPLIT_HELP)]
Unknown = Annotated[str | None, Option("--unknown", help="Out-of-distribution images to detect.")]
Size = Annotated[int | None, Option(min=8, help="Side in pixels that images are resized to.")]
Strict = Annotated[bool, Option("--strict", help="Fail on an unreadable image.")]

Settings = Annotated[list[str] | None, Option("--set", help="A setting as key=value; see labelwise settings.")]
Seed = Annotated[int, Option(help="Random seed.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
EncoderName = Annotated[
    str,
    Option(help="auto, a backbone, weights of pretrain, or a classifier."),
]
ScoreBy = Annotated[
    Literal["similarity", "cosine", "sum", "whitened"],
    Option(help="How images are compared."),
]

Out = Annotated[Path, Option("--out", help="The folder to write the classifier to.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace a classifier that is already there.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON document and nothing else.")]


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables while open, also for processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})


def with_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb as the shell calls it: a parameter that is a dataclass stands for its fields, an option each."""
    own = inspect.signature(verb)
    groups: dict[str, Any] = {
        each.name: each.annotation for each in own.parameters.values() if is_dataclass(each.annotation)
    }

    @wraps(verb)
    def run(*args: Any, **options: Any) -> None:
        for name, group in groups.items():
            options[name] = group(**{each.name: options.pop(each.name) for each in fields(group)})
        verb(*args, **options)

    every = [single for each in own.parameters.values() for single in _singly(each)]
    run.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in every} | {"return": None}
    return run


def _singly(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield the options that a parameter stands for."""
    if not is_dataclass(parameter.annotation):
        yield parameter
        return
    for each in fields(parameter.annotation):
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(each.name, kind, default=each.default, annotation=each.type)
