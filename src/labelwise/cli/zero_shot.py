"""What the verbs say and read about labels without images: a vector from the shell, the zero-shot figures, the curve."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelwise.cli.output import out, percent, plain_table
from labelwise.errors import DataError, UsageError, listing, suggest

if TYPE_CHECKING:
    from labelwise.classifier import Classifier
    from labelwise.evaluate.tested import Tested
    from labelwise.evaluate.zero_shot import ZeroShotResult

FIGURES = (".png", ".svg", ".pdf")


def read_vector(given: str, name: str) -> list[float]:
    """Return the numbers that a word of the shell gives: a file that holds them, or numbers between commas.

    Args:
        given: ``0,1,0.5``; or a .csv or .txt file with one row or one column of numbers, or with a row for each label
            under a header that begins with "label", as labels.csv has it.
        name: the label whose row is looked for in such a file.
    """
    if Path(given).suffix.lower() not in (".csv", ".txt") and not Path(given).is_file():
        return [_number(field.strip(), f'"{given}"') for field in given.split(",")]
    from labelwise.data.read.csv_files import records

    rows = [(number, [field.strip() for field in row]) for number, row in records(Path(given), what="file")]
    if not rows:
        raise DataError(f'"{given}" is empty. Write the numbers of the vector into it, in one row or one column.')
    if rows[0][1][0].casefold() in ("label", "name"):
        return _row_of_label(given, name)
    if len(rows) > 1 and any(len(row) > 1 for _, row in rows):
        raise DataError(
            f'"{given}" has {len(rows)} rows of up to {max(len(row) for _, row in rows)} fields. A vector is one row or '
            'one column of numbers; a table of many labels has a header that begins with "label".'
        )
    return [_number(field, f'Row {number} of "{given}"') for number, row in rows for field in row]


def _row_of_label(file: str, name: str) -> list[float]:
    """Return the vector of a label from a table with a row for each label."""
    from labelwise.data.labels.knowledge import read_knowledge
    from labelwise.data.labels.knowledge_files import label_name

    labels = read_knowledge(file).labels
    if label_name(name) not in labels.names:
        raise DataError(
            f'"{file}" has no row for "{name}".{suggest(name, labels.names)} Rows: {listing(labels.names)}.'
        )
    if labels.vectors is None:
        raise DataError(f'"{file}" has no attribute columns, so it gives no vector of "{name}".')
    found: list[float] = labels.vectors[labels.index(label_name(name))].tolist()
    return found


def _number(field: str, where: str) -> float:
    try:
        return float(field)
    except ValueError:
        raise UsageError(
            f'{where}: "{field}" is no number. A vector is given as numbers between commas, or as a .csv or .txt file.'
        ) from None


def check_curve(path: Path | None) -> None:
    """Raise an error unless a curve can be drawn into this file, if any."""
    if path is not None and path.suffix.lower() not in FIGURES:
        raise UsageError(f"The curve is written as {listing(FIGURES)}; given {path}.")


def zero_shot_result(tested: "Tested", curve: Path | None) -> "ZeroShotResult | None":
    """Return the figures of the zero-shot protocol, or None where it does not apply; the curve is drawn if asked for.

    Args:
        tested: test images.
        curve: where to draw the curve; then it is an error if the protocol does not apply.
    """
    from labelwise.evaluate.zero_shot import evaluate_zero_shot

    used = {tested.labels.names[i] for i in set(tested.split.targets.tolist()) if i >= 0}
    if curve is None and not (used & tested.classifier.unseen and used - tested.classifier.unseen):
        return None
    found = evaluate_zero_shot(tested)
    if curve is not None:
        curve.parent.mkdir(parents=True, exist_ok=True)
        draw_curve(found, curve)
    return found


def plain_figures(result: "ZeroShotResult") -> dict[str, Any]:
    """Return the figures as JSON can hold them, without the curve."""
    return {field.name: getattr(result, field.name) for field in fields(result) if field.name != "curve"}


def print_figures(result: "ZeroShotResult") -> None:
    """Print the figures of the zero-shot protocol."""
    about = f"zero-shot: {result.seen_labels} seen and {result.unseen_labels} unseen labels"
    table = plain_table("accuracy, averaged over labels", ">unseen (u)", ">seen (s)", ">harmonic (H)", title=about)
    table.add_row("unseen labels alone", percent(result.zero_shot), "", "")
    for words, end in ((f"all labels, gap {result.gap:.3f}", ""), ("all labels, without a gap", "_without_gap")):
        table.add_row(words, *(percent(getattr(result, each + end)) for each in ("unseen", "seen", "harmonic")))
    out().print()
    out().print(table)
    out().print(f"area under the curve of s over u: {result.area:.3f}")


def print_balance(classifier: "Classifier") -> None:
    """Print what the trial on held-out labels measured, as far as there was one."""
    labels, unseen = len(classifier.labels), len(classifier.unseen)
    out().print(f"labels: {labels - unseen} with images, {unseen} from a description alone")
    figures = classifier.origin.summary.get("balance")
    if figures is None:
        out().print("validation: too few labels have images to hold some out, so unseen labels were not tried")
        return
    out().print(
        f"validation, {figures['held_labels']} labels held out of a trial: unseen {percent(figures['unseen'])}, seen "
        f"{percent(figures['seen'])}, harmonic mean {percent(figures['harmonic'])} "
        f"({percent(figures['without_gap']['harmonic'])} without the gap of {figures['gap']:.3f})"
    )


def draw_curve(result: "ZeroShotResult", path: Path) -> None:
    """Write seen accuracy over unseen accuracy for every gap, with the chosen gap and no gap marked."""
    from matplotlib.figure import Figure

    curve = result.curve
    figure = Figure(figsize=(5, 4.6), layout="constrained", facecolor="white")
    axes = figure.subplots()
    axes.fill_between(curve.unseen, curve.seen, color="#1a6fc9", alpha=0.08, linewidth=0)
    axes.plot(curve.unseen, curve.seen, color="#1a6fc9", linewidth=1.5, label=f"every gap, area {result.area:.3f}")
    for end, colour, words in (("_without_gap", "#c9711a", "no gap"), ("", "#1a7f37", f"chosen gap {result.gap:.3f}")):
        u, s, h = (getattr(result, each + end) for each in ("unseen", "seen", "harmonic"))
        axes.plot([u], [s], "o", color=colour, markersize=8, label=f"{words}: H {percent(h)}", clip_on=False, zorder=3)
    axes.set(
        title=f"{result.seen_labels} seen and {result.unseen_labels} unseen labels, {result.images} test images",
        xlabel="accuracy on unseen labels (u)",
        ylabel="accuracy on seen labels (s)",
        xlim=(0, 1.0),
        ylim=(0, 1.0),
        aspect="equal",
    )
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
