"""The command line: one small function per verb. Nothing heavy is imported before a verb runs."""

import sys

import typer

from labelwise.cli.analysis_verbs import analyse
from labelwise.cli.attack_verb import attack
from labelwise.cli.data_verbs import app as data_app
from labelwise.cli.evaluate_verb import evaluate
from labelwise.cli.imagine_verb import imagine
from labelwise.cli.match_verbs import retrieve, verify
from labelwise.cli.name_verb import name
from labelwise.cli.output import fail
from labelwise.cli.picture_verbs import ask, classify, explain, outliers
from labelwise.cli.pretrain_verb import pretrain
from labelwise.cli.rank_verb import rank
from labelwise.cli.report_verb import report
from labelwise.cli.reproduce_verb import reproduce
from labelwise.cli.serve_verbs import export, serve
from labelwise.cli.train_verbs import calibrate, demo, fit, forget, teach
from labelwise.errors import LabelwiseError, UsageError

app = typer.Typer(
    name="labelwise",
    help="Image classifiers whose labels are inputs: train on what you know, then ask anything of a new picture.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (
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
    reproduce,
    serve,
    export,
    demo,
):
    app.command()(verb)
app.add_typer(data_app)


def main() -> None:
    """Run the command line; exit with 0, 1 (the task failed) or 2 (wrong use)."""
    try:
        app()
    except UsageError as error:
        sys.exit(fail(error, 2))
    except LabelwiseError as error:
        sys.exit(fail(error, 1))
    except KeyboardInterrupt:
        sys.exit(fail(LabelwiseError("Stopped."), 1))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
