"""All verbs under one name. Nothing heavy is imported before a verb runs."""

import os
import platform
import signal
import sys
from collections.abc import Callable
from importlib import metadata
from inspect import getdoc
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from labelwise import __version__
from labelwise.cli.ask import ask
from labelwise.cli.cache import cache
from labelwise.cli.calibrate import calibrate
from labelwise.cli.classify import classify
from labelwise.cli.data import app as data_app
from labelwise.cli.evaluate import evaluate
from labelwise.cli.explain import explain
from labelwise.cli.fit import fit
from labelwise.cli.imagine import imagine
from labelwise.cli.name import name
from labelwise.cli.options import with_shared
from labelwise.cli.outliers import outliers
from labelwise.cli.output import escape_unencodable, fail, note, show_warnings
from labelwise.cli.pretrain import pretrain
from labelwise.cli.rank import rank
from labelwise.cli.report import report
from labelwise.cli.retrieve import retrieve
from labelwise.cli.serve import demo, export, serve
from labelwise.cli.settings import settings
from labelwise.cli.teach import forget, teach
from labelwise.cli.verify import verify
from labelwise.core.capabilities import COMPARE, GENERATE, LEARN, LOCATE, WHITEN
from labelwise.support.errors import Interrupted, LabelwiseError, UsageError
from labelwise.support.interruption import stop_on_signals
from labelwise.support.plugins import plugins

RESUME = {
    "reproduce": " Run the same command again, and it goes on.",
    "fit": " Training that had begun goes on with the same command and --resume.",
    "pretrain": " Training that had begun goes on with the same command and --resume FOLDER, the .run folder beside --out.",
}
VERBS: tuple[Callable[..., None], ...] = (
    fit, pretrain, name, classify, ask, rank, verify, retrieve, teach, forget, outliers, explain, imagine, evaluate, report,
    calibrate, *(verb for plugin in plugins() for verb in plugin.VERBS), serve, export, demo, cache, settings,
)  # fmt: skip

NEEDS = {
    "teach": f"From pictures: needs a model that can {LEARN}.",
    "explain": f"Needs a model that can {LOCATE}.",
    "imagine": f"Needs a model that can {GENERATE}.",
    "verify": f"A model that can {COMPARE} compares by that, any other by the cosine of embeddings.",
    "retrieve": f"A model that can {COMPARE} compares by that; --by whitened needs one that can {WHITEN}.",
}


class Verbs(TyperGroup):
    """The verbs; a signal stops them with ``Interrupted``, which says how to go on."""

    def invoke(self, ctx: Any) -> Any:
        """Return what the verb returns."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted(stopped_words(ctx.invoked_subcommand)) from None


def stopped_words(verb: str | None) -> str:
    """Return what is said where a verb was stopped."""
    return "Stopped." + RESUME.get(verb or "", "")


app = typer.Typer(
    name="labelwise",
    cls=Verbs,
    help="Image classifiers whose labels are inputs: train on what you know, then ask anything of a new picture.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    """Print the version of this library, of Python and of torch, which is not imported for that."""
    if asked:
        print(f"labelwise {__version__} (Python {platform.python_version()}, torch {metadata.version('torch')})")
        raise typer.Exit


VERSION_HELP = "Print the versions of labelwise, Python and torch, and exit."


@app.callback(help=app.info.help)
def common(
    version: Annotated[bool, Option("--version", is_eager=True, callback=_show_version, help=VERSION_HELP)] = False,
) -> None:
    """Take what is said before a verb."""


for verb in VERBS:
    words = "\n\n".join(filter(None, (getdoc(verb), NEEDS.get(verb.__name__))))
    app.command(help=words)(with_shared(verb))
app.add_typer(data_app)


def main() -> None:
    """Run the command line; exit with 0, 1 (the task failed), 2 (wrong use), 130 (stopped by Ctrl-C) or 143 (by SIGTERM)."""
    # Threads that wait for each other sleep instead of turning: beside other programs that took several times the processor time.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # which torch reads when it is imported
    escape_unencodable()
    with show_warnings(), stop_on_signals() as signals:
        try:
            app()
        except UsageError as error:
            sys.exit(fail(error, 2))
        except Interrupted as stop:
            note(f"\n{stop}" if sys.stderr.isatty() else str(stop))  # on a line of its own
            sys.exit(128 + (signals.received or signal.SIGINT))
        except LabelwiseError as error:
            sys.exit(fail(error, 1))
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(1)
