"""The verbs about encoders: list, get, remove, try."""

import shlex
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from labelwise.cli.inputs import open_data, tell_skipped
from labelwise.cli.options import Data, add_verb, shared_options
from labelwise.cli.output import note, percent, plain_table, show, styled

NAME_HELP = "The name of a listed encoder."
FROM_HELP = "A file or URL to get it from: .onnx or .whl."
Name = Annotated[str, Argument(help=NAME_HELP)]


class Encoders(TyperGroup):
    """The encoder verbs; without a verb, list the encoders."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments left for the verb."""
        lists = not args or (args[0].startswith("-") and args[0] not in ("-h", "--help"))
        return super().parse_args(ctx, ["list", *args] if lists else args)


app = typer.Typer(name="encoders", cls=Encoders, help="List, get, remove and try encoders.")


def list_encoders() -> None:
    """List encoders by accuracy, and which are installed."""
    from labelwise.encoders.choose import known_encoders

    encoders = known_encoders()
    rows = [
        (
            encoder.name,
            f"{encoder.accuracy:.1f}",
            f"{encoder.ms:.0f}",
            f"{encoder.megabytes:.0f}",
            encoder.licence,
            styled(("yes", "green") if encoder.at_hand else ("no", "dim")),
        )
        for encoder in encoders
    ]
    table = plain_table("name", ">5 examples, %", ">ms", ">MB", "licence", "installed", rows=rows)
    lines = [f"{encoder.name}: {encoder.about}." for encoder in encoders]
    lines += [f"Get one: {encoder.command}" for encoder in encoders if not encoder.at_hand][:1]
    show({"encoders": [vars(encoder) | {"command": encoder.command} for encoder in encoders]}, table, "", *lines)


def get(name: Name, source: Annotated[str | None, Option("--from", help=FROM_HELP)] = None) -> None:
    """Download an encoder, check its digest and convert it once."""
    from labelwise.encoders.download import get as download

    encoder = download(name, source, note)
    lines: Sequence[str] = (f"{name} is installed: {encoder.width} features from images of {encoder.shape[1]} pixels.",)
    show(
        {"name": name, "id": encoder.id, "width": encoder.width},
        *lines,
        f"Use it: labelwise fit PHOTOS --encoder {name}",
    )


def remove(name: Name) -> None:
    """Remove a downloaded encoder."""
    from labelwise.encoders.download import remove as drop

    removed = drop(name)
    show({"name": name, "removed": removed}, f"Removed {name}." if removed else f"{name} was not installed.")


def try_out(
    data: Data,
    names: Annotated[list[str] | None, Argument(help="Encoders; by default all installed ones.")] = None,
    images: Annotated[int, Option(min=10, help="How many images to try them on.")] = 400,
) -> None:
    """Which encoder is best for these images?

    Measures each encoder by leave-one-out on a sample of labelled images. Test images are not read.
    """
    from labelwise.fitting.try_encoders import try_encoders
    from labelwise.images.sources.build import readable

    dataset = readable(open_data(data, None), ("train", "val"))
    tell_skipped(dataset.skipped)
    trials = try_encoders(dataset, names or (), images=images, seed=shared_options().seed)
    rows = [
        (trial.name, percent(trial.accuracy), f"{percent(trial.low)} to {percent(trial.high)}", percent(trial.probability),
         f"{trial.ms:.1f}", f"{trial.megabytes:.0f}", styled(("yes", "green") if trial.worth else ("no", "dim")))
        for trial in trials
    ]  # fmt: skip
    table = plain_table("encoder", ">right", "95 % interval", ">probability", ">ms", ">MB", "worth its time", rows=rows)
    best, quick = trials[0], min((trial for trial in trials if trial.level), key=lambda trial: trial.ms)
    document = [
        {k: v for k, v in vars(trial).items() if k != "chances"} | {"probability": trial.probability}
        for trial in trials
    ]
    lines = [
        f"Leave-one-out on {len(best.chances)} images. Probability is the mean of what the right label got; ms is the CPU time per image on one core.",
        f"Best: {best.name}.",
    ]
    lines += [f"{quick.name} is faster, and these images do not show that it is worse."] if quick is not best else []
    lines += [f"Use it: labelwise fit {shlex.quote(data)} --encoder {best.name}"]
    show({"images": len(best.chances), "best": best.name, "trials": document}, table, "", *lines)


add_verb(app, list_encoders, "list")
add_verb(app, get)
add_verb(app, remove)
add_verb(app, try_out, "try")
