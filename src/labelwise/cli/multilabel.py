"""What the verbs say where several labels may be true of one picture."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from labelwise.cli.output import bar, out, percent, plain_table

if TYPE_CHECKING:
    from rich.table import Table

    from labelwise.evaluate.tested import Tested
    from labelwise.tasks.classify import Prediction

EACH = "average_precision"


def closed_figures(tested: "Tested") -> dict[str, Any]:
    """Return the figures of test images of known labels: of one label each, or of several."""
    from labelwise.evaluate.closed import evaluate_closed
    from labelwise.evaluate.multilabel import evaluate_multilabel

    return asdict(evaluate_multilabel(tested) if tested.multilabel else evaluate_closed(tested))


def print_each(figures: dict[str, Any]) -> None:
    """Print the average precision of each label, lowest first, where there is one."""
    if EACH not in figures:
        return
    table = plain_table("label", "", ">average precision")
    for name, value in sorted(figures[EACH].items(), key=lambda pair: -1 if pair[1] is None else pair[1]):
        table.add_row(name, "" if value is None else bar(value), "no test image" if value is None else percent(value))
    out().print()
    out().print(table)


def add_answers(table: "Table", name: str, found: "Prediction") -> None:
    """Add what is said of one picture: each label that is answered yes, or that none is, and then the nearest."""
    shown = max(len(found.labels), 1)
    for rank, (label, value) in enumerate(found.top[:shown]):
        said = f"[bold]{label}[/]" if found.labels else f"[yellow]{found.label}[/]; nearest {label}"
        table.add_row("" if rank else name, said, bar(value), percent(value))


def calibration_line(figures: dict[str, Any]) -> str:
    """Return the calibration error before and after, of the chosen label, or of yes/no answers where several may be true."""
    kind = "ece" if "ece_before" in figures else "answer_ece"
    return " before, ".join(percent(figures[f"{kind}_{when}"]) for when in ("before", "after")) + " after"
