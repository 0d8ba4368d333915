"""Options that verbs share: their types and help, and the options of every verb."""

import inspect
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option
from typer.core import TyperCommand

from labelwise.support.errors import UsageError
from labelwise.support.files import VARIABLE

DATA_HELP = "A folder, .csv table, .npz pack, or the name of a set."
SPLIT_HELP = "Which images; by default test, or all not trained on."


def read_model(word: str) -> Path:
    """Return the folder of a saved classifier, downloading it from the hub if needed."""
    if not word.startswith("hf:/"):
        return Path(word)
    from labelwise.core.hub import saved_folder

    return saved_folder(word)


Model = Annotated[Path, Argument(parser=read_model, metavar="model", help="A saved classifier.")]
Data = Annotated[str, Argument(help=DATA_HELP)]
Paths = Annotated[list[Path], Argument(help="Images, or folders of images.")]
Image = Annotated[Path, Argument(help="One image.")]
Name = Annotated[str, Argument(help="The label.")]

Group = Annotated[
    Literal["column", "exif", "lookalike", "folder", "none"] | None,
    Option(help="What keeps images on one side of a split."),
]
Choice = Literal["train", "val", "test", "all"]
SplitName = Annotated[Choice | None, Option("--split", help=SPLIT_HELP)]
Unknown = Annotated[str | None, Option("--unknown", help="Out-of-distribution images to detect.")]
Size = Annotated[int | None, Option(min=8, help="Side in pixels that images are resized to.")]
Settings = Annotated[list[str] | None, Option("--set", help="A setting, key=value; see labelwise settings.")]
Resume = Annotated[bool, Option("--resume", help="Continue a run that was interrupted.")]
EncoderName = Annotated[
    str,
    Option(help="auto, a backbone, pretrained weights, or a classifier."),
]
ScoreBy = Annotated[
    Literal["similarity", "cosine", "sum", "whitened"],
    Option(help="How images are compared."),
]
SearchBy = Annotated[
    Literal["similarity", "cosine", "sum", "whitened"] | None,
    Option(help="How images are compared; default: the best."),
]
Out = Annotated[Path, Option("--out", help="The folder to write the classifier to.")]
PROTOCOL_HELP = "Also verification, retrieval or episodes; repeatable."


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Options of protocols that run on request."""

    protocol: Annotated[list[str] | None, Option(help=PROTOCOL_HELP)] = None
    max_error: Annotated[float | None, Option(min=0, max=1, help="Measure this promised share of errors.")] = None
    coverage: Annotated[float | None, Option(min=0, max=1, help="Measure lists promised to hold the label.")] = None

    @property
    def protocols(self) -> dict[str, dict[str, float]]:
        """The options of each requested protocol."""
        selected: dict[str, dict[str, float]] = {name: {} for name in self.protocol or ()}
        promises = {"max_error": self.max_error, "coverage": self.coverage}
        values = {name: value for name, value in promises.items() if value is not None}
        return selected | ({"promises": values} if values else {})


@dataclass(frozen=True)
class Workers:
    """The number of worker processes, and whether Ray runs them."""

    count: int | None = None  # None: not given
    ray: bool = False

    @classmethod
    def parse(cls, words: str) -> "Workers":
        """Parse ``8`` or ``ray:8``."""
        engine, _, count = words.rpartition(":")
        if engine not in ("", "ray") or not count.isdecimal() or int(count) < 1:
            raise typer.BadParameter(f'give a number of processes, such as 8 or ray:8; given "{words}"')
        return cls(int(count), engine == "ray")


@dataclass(frozen=True)
class SharedOptions:
    """The options of every verb. They may stand before the verb or after it."""

    json: Annotated[bool, Option("--json", help="Print one JSON document and nothing else.")] = False
    quiet: Annotated[bool, Option("--quiet", help="Print results and warnings only.")] = False
    seed: Annotated[int, Option("--seed", help="Random seed.")] = 0
    device: Annotated[str, Option("--device", help="auto, cpu or cuda.")] = "auto"
    workers: Annotated[
        Workers | None,
        Option("--workers", parser=Workers.parse, metavar="N", help="Processes for large jobs; ray:N for Ray."),
    ] = None
    root: Annotated[
        Path | None,
        Option("--data-root", parser=Path, metavar="FOLDER", help="Folder of benchmarks, and of paths in tables."),
    ] = None
    splits: Annotated[
        Path | None,
        Option("--splits", parser=Path, metavar="CSV", help="A split that data split wrote."),
    ] = None
    strict: Annotated[bool, Option("--strict", help="Fail on an unreadable image.")] = False
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an existing --out.")] = False
    no_cache: Annotated[bool, Option("--no-cache", help="Neither read nor write the feature cache.")] = False
    max_gb: Annotated[float | None, Option("--max-gb", help="Most gigabytes of memory for one file.")] = None
    exact: Annotated[bool, Option("--exact", help="Same bytes with any number of threads; slower.")] = False

    @property
    def progress(self) -> bool:
        """Whether to show progress."""
        return not (self.json or self.quiet or "JPY_PARENT_PID" in os.environ)  # a notebook does not redraw a line


_WORDS: ContextVar[tuple[str, ...]] = ContextVar("words", default=())  # the command line
_SHARED: ContextVar[SharedOptions] = ContextVar("shared", default=SharedOptions())  # noqa: B039 - it is frozen


def note_words(words: Sequence[str]) -> None:
    """Record the running command."""
    _WORDS.set(tuple(words))


def command_line() -> str:
    """Return the running command as typed; bytes that are not UTF-8 are replaced."""
    text = shlex.join(["labelwise", *_WORDS.get()])
    return text.encode(errors="surrogateescape").decode(errors="replace")


def shared_options() -> SharedOptions:
    """Return the current values of the options of every verb."""
    return _SHARED.get()


def refuse_workers() -> None:
    """Raise an error for --workers without a job."""
    if shared_options().workers is not None:
        raise UsageError("--workers goes with --out FOLDER.parquet.")


@contextmanager
def with_shared(options: SharedOptions) -> Iterator[None]:
    """Set the options of every verb while open."""
    variables: dict[str, str] = {}
    if options.no_cache:
        from labelwise.support.cache import switched_off  # imports numpy

        variables = switched_off()
    variables |= {} if options.max_gb is None else {VARIABLE: str(options.max_gb)}
    token = _SHARED.set(options)
    try:
        with ExitStack() as stack:
            stack.enter_context(environment(**variables))
            if options.exact:
                from labelwise.train.exactness import exact

                stack.enter_context(exact())
            yield
    finally:
        _SHARED.reset(token)


class Verb(TyperCommand):
    """A command that also takes the options of every verb; its help names them in one line."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's own parameters, and the hidden ones of every verb."""
        own = super().get_params(ctx)
        names = {parameter.name for parameter in fields(SharedOptions)}
        inherited = [copy(parameter) for parameter in ctx.find_root().command.params if parameter.name in names]
        for parameter in inherited:
            parameter.hidden, parameter.expose_value, parameter.callback = True, False, _keep
        return [*own, *inherited]

    def invoke(self, ctx: Any) -> Any:
        """Run the verb with the options before and after it."""
        root = ctx.find_root()
        before = root.obj if isinstance(root.obj, SharedOptions) else SharedOptions()
        with with_shared(replace(before, **ctx.meta.get(__name__, {}))):
            return super().invoke(ctx)


def _keep(ctx: Any, param: Any, value: Any) -> Any:
    """Record an option of every verb that follows the verb."""
    if ctx.get_parameter_source(param.name).name == "COMMANDLINE":
        ctx.meta.setdefault(__name__, {})[param.name] = value
    return value


EPILOG = "Options of every command, such as --json and --device: labelwise --help"


def add_verb(
    app: typer.Typer, verb: Callable[..., None], name: str | None = None, words: str = "", group: str = ""
) -> None:
    """Add a verb to an application; ``words`` follow its docstring in ``--help``."""
    paragraphs = (inspect.getdoc(verb) or "").split("\n\n")  # whose lines the terminal breaks
    text = "\n\n".join(filter(None, (*(each.replace("\n", " ") for each in paragraphs), words)))
    command = app.command(name, cls=Verb, help=text, epilog=EPILOG, rich_help_panel=group or None)
    command(with_groups(verb))


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables while open, also for child processes."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})


def with_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb for the shell: every field of a dataclass parameter becomes an option."""
    own = inspect.signature(verb)
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation
        for parameter in own.parameters.values()
        if is_dataclass(parameter.annotation)
    }

    @wraps(verb)
    def run(*args: Any, **options: Any) -> None:
        for name, group in groups.items():
            options[name] = group(**{each.name: options.pop(each.name) for each in fields(group)})
        verb(*args, **options)

    every = [single for parameter in own.parameters.values() for single in _singly(parameter)]
    run.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in every} | {"return": None}
    return run


def _singly(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield the options of a parameter."""
    if not is_dataclass(parameter.annotation):
        yield parameter
        return
    for entry in fields(parameter.annotation):
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(entry.name, kind, default=entry.default, annotation=entry.type)
