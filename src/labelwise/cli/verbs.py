"""The command ``labelwise`` with all verbs. Heavy imports happen when a verb runs."""

import os
import platform
import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from labelwise import __version__
from labelwise.cli.ask import ask
from labelwise.cli.audit import audit
from labelwise.cli.cache import cache
from labelwise.cli.calibrate import calibrate
from labelwise.cli.classify import classify
from labelwise.cli.data import app as data_app
from labelwise.cli.doctor import doctor, version_of
from labelwise.cli.encoders import app as encoders_app
from labelwise.cli.evaluate import evaluate
from labelwise.cli.explain import explain
from labelwise.cli.fit import fit
from labelwise.cli.group import group
from labelwise.cli.imagine import imagine
from labelwise.cli.label import label
from labelwise.cli.merge import merge
from labelwise.cli.name import name
from labelwise.cli.options import SharedOptions, add_verb, note_words, with_groups
from labelwise.cli.outliers import outliers
from labelwise.cli.output import escape_unencodable, fail, note, show_warnings
from labelwise.cli.pretrain import pretrain
from labelwise.cli.publish import publish
from labelwise.cli.rank import rank
from labelwise.cli.report import report
from labelwise.cli.retrieve import retrieve
from labelwise.cli.serve import demo, export, serve
from labelwise.cli.settings import settings
from labelwise.cli.teach import forget, teach
from labelwise.cli.verify import verify
from labelwise.support.errors import DISK, Interrupted, LabelwiseError, StoreError, UsageError, needs_torch
from labelwise.support.plugins import plugins
from labelwise.support.processes import is_interrupt, stop_on_signals
from labelwise.support.text import COMPARE, GENERATE, LEARN, LOCATE, WHITEN

RESUME = {
    "reproduce": " Run the same command again to continue.",
    "fit": " Run the same command again: encoded images are kept, and training goes on with --resume.",
    "pretrain": " Continue training with the same command and --resume.",
}
VERBS: dict[str, tuple[Callable[..., None], ...]] = {  # by group, in the order of --help
    "Make": (fit, label, group, teach, forget, merge, calibrate, name, pretrain),
    "Ask": (classify, ask, rank, verify, retrieve, outliers, explain, imagine),
    "Measure": (evaluate, report, audit),
    "More": (serve, export, publish, demo, settings, cache, doctor),
}
for plugin in plugins():
    VERBS |= {panel: (*VERBS.get(panel, ()), *more) for panel, more in plugin.VERBS.items()}

METHODS = "discriminant, indicator, prototype, softmax, multilabel, clarel, eszsl, izf, zero_label"
NEEDS = {
    "fit": f"Methods: {', '.join([METHODS, *(name for plugin in plugins() for name in plugin.METHODS)])}.",
    "teach": f"From images: needs a model that can {LEARN}.",
    "explain": f"Needs a model that can {LOCATE}.",
    "imagine": f"Needs a model that can {GENERATE}.",
    "verify": f"A model that can {COMPARE} does so; any other uses the cosine of embeddings.",
    "retrieve": f"A model that can {COMPARE} does so; --by whitened needs one that can {WHITEN}.",
}


class Verbs(TyperGroup):
    """The verbs; on a signal they raise ``Interrupted`` with advice to continue."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs in the order of ``--help``."""
        last = [verb.__name__ for verb in VERBS["More"]]
        return sorted(super().list_commands(ctx), key=last.__contains__)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments left for the verb."""
        note_words(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, RuntimeError) as error:
            if not is_interrupt(error):
                raise
            raise Interrupted(stopped_words(ctx.invoked_subcommand)) from None


def stopped_words(verb: str | None) -> str:
    """Return the message for an interrupted verb."""
    return "Stopped." + RESUME.get(verb or "", "")


app = typer.Typer(
    name="labelwise",
    cls=Verbs,
    help="Image classifiers whose labels are inputs: fit them in seconds, then ask anything about new images.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(requested: bool) -> None:
    """Print the versions of labelwise, Python and torch, without importing torch."""
    if requested:
        torch = version_of("torch")
        suffix = f", torch {torch}" if torch else ""
        print(f"labelwise {__version__} (Python {platform.python_version()}{suffix})")
        raise typer.Exit


def common(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback acts
        bool, Option("--version", is_eager=True, callback=_show_version, help="Print versions and exit.")
    ] = False,
    *,
    shared_options: SharedOptions,
) -> None:
    """Store the options of every verb for the verb that follows."""
    context.obj = shared_options


app.callback(help=app.info.help)(with_groups(common))
for panel, verbs in VERBS.items():
    for verb in verbs:
        add_verb(app, verb, words=NEEDS.get(verb.__name__, ""), group=panel)
app.add_typer(data_app, rich_help_panel="Data")
app.add_typer(encoders_app, rich_help_panel="Data")


def main() -> None:
    """Run the command line; exit with 0, 1 (the task failed), 2 (wrong use), 130 (stopped by Ctrl-C) or 143 (by SIGTERM)."""
    # Waiting threads sleep instead of spinning, which costs several times the CPU time next to other programs.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is imported
    escape_unencodable()
    with show_warnings(), stop_on_signals() as signals:
        try:
            app()
        except UsageError as error:
            sys.exit(fail(error, 2))
        except Interrupted as stop:
            note(f"\n{stop}" if sys.stderr.isatty() else str(stop))  # start a new line after ^C
            sys.exit(128 + (signals.received or signal.SIGINT))
        except LabelwiseError as error:
            sys.exit(fail(error, 1))
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(1)
        except OSError as error:
            if error.errno not in DISK:
                raise
            place = f'"{error.filename}"' if error.filename else "A file"
            sys.exit(fail(StoreError(f"{place} cannot be written or read: {error.strerror}."), 1))
        except ModuleNotFoundError as error:
            sys.exit(fail(needs_torch("This command", error), 1))
