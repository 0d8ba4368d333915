"""The command line: one small function per verb. Nothing heavy is imported before a verb runs."""

import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from labelwise.cli.analysis_verbs import analyse
from labelwise.cli.attack_verb import attack
from labelwise.cli.data_verbs import app as data_app
from labelwise.cli.evaluate_verb import evaluate
from labelwise.cli.imagine_verb import imagine
from labelwise.cli.match_verbs import retrieve, verify
from labelwise.cli.name_verb import name
from labelwise.cli.output import fail, note, show_warnings
from labelwise.cli.picture_verbs import ask, classify, explain, outliers
from labelwise.cli.pretrain_verb import pretrain
from labelwise.cli.rank_verb import rank
from labelwise.cli.report_verb import report
from labelwise.cli.serve_verbs import export, serve
from labelwise.cli.train_verbs import calibrate, demo, fit, forget, teach
from labelwise.errors import Interrupted, LabelwiseError, UsageError
from labelwise.interruption import stopping
from labelwise.plugins import plugins

RESUME = {
    "reproduce": " Run the same command again, and it goes on.",
    "fit": " Training that had begun goes on with the same command and --resume.",
    "pretrain": " Training that had begun goes on with the same command and --resume FOLDER, the .run folder beside --out.",
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
VERBS: tuple[Callable[..., None], ...] = (
    fit,
    pretrain,
    name,
    classify,
    ask,
    rank,
    verify,
    retrieve,
    teach,
    forget,
    outliers,
    explain,
    imagine,
    evaluate,
    report,
    analyse,
    attack,
    calibrate,
    *(verb for plugin in plugins() for verb in plugin.VERBS),
    serve,
    export,
    demo,
)
for verb in VERBS:
    app.command()(verb)
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
