"""All verbs under one name. Nothing heavy is imported before a verb runs."""

import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, getdoc, signature
from typing import Any

import typer
from typer.core import TyperGroup

from labelwise.capabilities import COMPARE, GENERATE, LEARN, LOCATE, WHITEN
from labelwise.cli.ask import ask
from labelwise.cli.attack import attack
from labelwise.cli.cache import cache
from labelwise.cli.calibrate import calibrate
from labelwise.cli.classify import classify
from labelwise.cli.data import app as data_app
from labelwise.cli.evaluate import evaluate
from labelwise.cli.explain import explain
from labelwise.cli.fit import fit
from labelwise.cli.imagine import imagine
from labelwise.cli.name import name
from labelwise.cli.options import NoCache
from labelwise.cli.outliers import outliers
from labelwise.cli.output import fail, note, show_warnings
from labelwise.cli.pretrain import pretrain
from labelwise.cli.rank import rank
from labelwise.cli.report import report
from labelwise.cli.retrieve import retrieve
from labelwise.cli.serve import demo, export, serve
from labelwise.cli.teach import forget, teach
from labelwise.cli.verify import verify
from labelwise.errors import Interrupted, LabelwiseError, UsageError
from labelwise.interruption import stopping
from labelwise.plugins import plugins

RESUME = {
    "reproduce": " Run the same command again, and it goes on.",
    "fit": " Training that had begun goes on with the same command and --resume.",
    "pretrain": " Training that had begun goes on with the same command and --resume FOLDER, the .run folder beside --out.",
}
VERBS: tuple[Callable[..., None], ...] = (
    fit, pretrain, name, classify, ask, rank, verify, retrieve, teach, forget, outliers, explain, imagine, evaluate, report,
    attack, calibrate, *(verb for plugin in plugins() for verb in plugin.VERBS), serve, export, demo, cache,
)  # fmt: skip

NEEDS = {
    "teach": f"From pictures: needs a model that can {LEARN}.",
    "explain": f"Needs a model that can {LOCATE}.",
    "imagine": f"Needs a model that can {GENERATE}.",
    "verify": f"A model that can {COMPARE} compares by that, any other by the cosine of embeddings.",
    "retrieve": f"A model that can {COMPARE} compares by that; --by whitened needs one that can {WHITEN}.",
}


# Verbs that neither read nor keep features of pictures, so that there is nothing to leave.
UNCACHED = ("cache", "data", "demo", "export", "forget", "imagine", "pretrain", "serve")


class Verbs(TyperGroup):
    """The verbs; a signal stops them with ``Interrupted``, which says how to go on."""

    def invoke(self, ctx: Any) -> Any:
        """Return what the verb returns."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted(stopped_words(ctx.invoked_subcommand)) from None


def _cached(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb with the option ``--no-cache``."""

    @wraps(verb)
    def run(*, no_cache: bool = False, **options: Any) -> None:
        if no_cache:
            from labelwise.cache import turn_off

            turn_off()
        verb(**options)

    own, more = signature(verb), Parameter("no_cache", Parameter.KEYWORD_ONLY, default=False, annotation=NoCache)
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), more])  # type: ignore[attr-defined]
    run.__annotations__ = {**verb.__annotations__, "no_cache": NoCache}
    return run


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
for verb in VERBS:
    words = "\n\n".join(filter(None, (getdoc(verb), NEEDS.get(verb.__name__))))
    app.command(help=words)(verb if verb.__name__ in UNCACHED else _cached(verb))
app.add_typer(data_app)


def main() -> None:
    """Run the command line; exit with 0, 1 (the task failed), 2 (wrong use), 130 (stopped by Ctrl-C) or 143 (by SIGTERM)."""
    with show_warnings(), stopping(stopped_words(next(iter(sys.argv[1:]), None))):
        try:
            app()
        except UsageError as error:
            sys.exit(fail(error, 2))
        except Interrupted as stop:
            note(f"\n{stop}" if sys.stderr.isatty() else str(stop))  # on a line of its own
            sys.exit(130)
        except LabelwiseError as error:
            sys.exit(fail(error, 1))
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(1)
