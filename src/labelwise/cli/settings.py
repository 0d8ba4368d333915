"""The verb settings: list the settings of a method."""

from collections.abc import Iterator
from typing import Annotated, Any

from rich.console import RenderableType
from typer import Argument

from labelwise.cli.output import plain_table, show, styled
from labelwise.support.settings import Setting, explain

PRETRAINING = ("simclr", "moco", "patches")


def settings(method: Annotated[str, Argument(help="A method of fit, or a kind of pretrain.")] = "discriminant") -> None:
    """List the settings of a method, with defaults."""
    entries = list(explain(_defaults(method)))
    document = {entry.key: {"default": entry.default, "help": entry.words, "group": entry.group} for entry in entries}
    show(document, *_tables(entries))


def _defaults(name: str) -> Any:
    """Return the default settings of a method, or of a kind of pretraining."""
    if name in PRETRAINING:
        from labelwise.train.networks.patches import Patches
        from labelwise.train.pretraining import Pretrain

        return Patches() if name == "patches" else Pretrain(kind=name)  # type: ignore[arg-type]
    from labelwise.methods.registry import method_class

    return method_class(name)()


def _tables(entries: list[Setting]) -> Iterator[RenderableType]:
    """Yield a table for each group of settings."""
    groups: dict[str, list[Setting]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry)
    for group, rows in groups.items():
        yield styled((group, "bold"), f"  {rows[0].description}")
        cells = [tuple(map(styled, (f"  {entry.key}", entry.default, entry.words))) for entry in rows]
        yield plain_table("  setting", "default", "purpose", rows=cells)
        yield ""
    yield styled("Give a setting as --set key=value; repeat the option for several.")
