"""Write a report: one page about a classifier on a test set with all figures, and the same figures as JSON."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from platform import machine
from typing import Any

from labelwise import __version__
from labelwise.core.classifier import Classifier
from labelwise.core.load import load
from labelwise.core.metrics import Reliability, wilson
from labelwise.core.store import LOG
from labelwise.evaluation.evaluate import read_data, read_unknown
from labelwise.evaluation.figures import to_json
from labelwise.evaluation.tables import PROMISE_HEADS, promise_rows, threshold_rows
from labelwise.evaluation.test_set import TestSet, select_test_sets
from labelwise.images.dataset import Dataset
from labelwise.reporting import maps, plots
from labelwise.reporting.case import Case, ReportPlan, Saved, read_log
from labelwise.reporting.cautions import cautions
from labelwise.reporting.comparison import compare
from labelwise.reporting.examples import examples
from labelwise.reporting.pages import render
from labelwise.support.errors import UsageError, listing
from labelwise.support.text import visible
from labelwise.support.writable import write_file

Model = Classifier | Saved | str | Path
Read = Callable[[Classifier], Dataset]
Source = Dataset | Read | str | Path | tuple[Any, Any]
PLAIN = (  # figures of a case that are copied to JSON
    "method", "accuracy", "closed", "several", "each", "estimate", "zero_shot", "ordinal", "promises", "verification", "retrieval", "speed", "left_out",
)  # fmt: skip


def open_saved(folder: str | Path) -> Saved:
    """Load a classifier with its training log."""
    return Saved(classifier=load(folder), log=read_log(Path(folder) / LOG))


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportSettings:
    """Settings of a report."""

    split: str | None = None  # train, val, test or all; None: the test split, else every image not seen in training
    unknown: Any = None  # out-of-distribution images: data, images, or a function as for the data
    compare: Mapping[str, Model] | None = None  # classifiers to compare with the first, by name
    name: str | None = None  # what the page calls the classifier; None is the name of its folder, or of its method
    examples: int = 6  # how many of the best and of the worst answers to show
    commands: tuple[str, ...] = ()  # shell commands that reproduce the classifier and the report
    protocols: Iterable[str] = ()  # additional protocols as for ``lw.evaluate``: verification, retrieval, promises
    seed: int = 0  # random seed
    tell: Callable[[str], None] = lambda _: None  # receives lines of progress


@dataclass(frozen=True, eq=False, kw_only=True)
class Report:
    """A finished report: title, page, and all figures as JSON values."""

    title: str
    html: str
    figures: Mapping[str, Any]

    def write(self, path: str | Path) -> None:
        """Write the page atomically."""
        write_file(path, visible(self.html, lines=True).encode())


def report(classifier: Model, data: Source, out: str | Path = "report.html", **settings: Any) -> Path:
    """Write a page about a classifier on a test set and return its path.

    Args:
        classifier: a classifier, or a saved folder, which also has its training log.
        data: the same as for ``lw.evaluate``.
        out: the page, a single HTML file.
        settings: see ``ReportSettings``: split, unknown, compare, examples, ...

    >>> lw.report(classifier, data, out="report.html", examples=2)
    PosixPath('report.html')
    """
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"A report is an .html file; given {path}.")
    make_report(classifier, data, ReportSettings(**settings)).write(path)
    return path


def make_report(classifier: Model, data: Source, settings: ReportSettings | None = None) -> Report:
    """Return a report on a classifier and the test set of ``select_test_set``.

    ``data`` may be a function that reads the data for a classifier; paths are read at the image size of each classifier.
    """
    settings = settings or ReportSettings()
    settings.tell("loading")
    models = {name: _open_model(model) for name, model in _models(classifier, settings).items()}
    settings.tell("reading data")
    classifiers = [entry.classifier for entry in models.values()]
    test_sets = _test_sets(
        classifiers, lambda entry: data(entry) if callable(data) else read_data(entry, data), settings.split
    )
    outliers: Sequence[TestSet | None] = [None] * len(test_sets)
    if (unknown_data := settings.unknown) is not None:
        read = unknown_data if callable(unknown_data) else lambda entry: read_unknown(entry, unknown_data)
        outliers = _test_sets(classifiers, read, None, unknown=True)
    cases = [
        Case(
            name,
            entry,
            test_set,
            unknown,
            ReportPlan(protocols=settings.protocols, seed=settings.seed, tell=settings.tell),
        )
        for (name, entry), test_set, unknown in zip(models.items(), test_sets, outliers, strict=True)
    ]
    settings.tell("drawing the page")
    case, first, figures = cases[0], test_sets[0], [case_figures(entry) for entry in cases]
    every: dict[str, Any] = {"data": first.data, "split": first.name, "labelwise": __version__}
    every |= {"measured": first.figures(), **({"measured_unknown": outliers[0].figures()} if outliers[0] else {})}
    every |= figures[0]
    comparison = compare(cases, settings.seed, settings.examples) if len(cases) > 1 else None
    if comparison:
        comparisons = [
            {"model": name, "against": case.name, **to_json(result)} for name, result in comparison["paired"]
        ]
        every |= {"compare": figures[1:], "paired": comparisons}
    title = f"{case.name} on {first.data}"
    html = render("report.html", {"title": title, "figures": figures, **_values(cases, comparison, settings)})
    return Report(title=title, html=html, figures=every)


def _values(cases: Sequence[Case], comparison: Mapping[str, Any] | None, settings: ReportSettings) -> dict[str, Any]:
    """Return the values of the templates."""
    case = cases[0]
    best, worst = examples(case, settings.examples)
    return {
        "case": case,
        "cases": cases,
        "comparison": comparison,
        "best": best,
        "worst": worst,
        "interval": wilson(case.accuracy, len(case)),
        "thresholds": threshold_rows(case.figures, len(case.names)),
        "promises": (PROMISE_HEADS, promise_rows(case.promises) if case.promises else ()),
        "confusions": maps.confusions(case),
        "commands": settings.commands,
        "plots": plots,
        "maps": maps,
        "day": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "machine": machine(),
    }


def _test_sets(
    classifiers: Sequence[Classifier], read: Read, split: str | None, *, unknown: bool = False
) -> list[TestSet]:
    """Return the images for each classifier, read once per input shape."""
    readings: dict[tuple[int, ...], Dataset] = {}
    for classifier in classifiers:
        if classifier.shape not in readings:
            readings[classifier.shape] = read(classifier)
    return select_test_sets(
        [(classifier, readings[classifier.shape]) for classifier in classifiers], split, unknown=unknown
    )


def _models(classifier: Model, settings: ReportSettings) -> dict[str, Model]:
    """Return all classifiers by name, the one of the report first."""
    first = settings.name
    if first is None and isinstance(classifier, Classifier | Saved):
        own = classifier if isinstance(classifier, Classifier) else classifier.classifier
        first = str(getattr(own.origin.method, "name", "classifier"))
    first, rivals = first or Path(str(classifier)).name, settings.compare or {}
    if first in rivals:
        raise UsageError(
            f'Compared classifiers need different names; "{first}" occurs twice. Given: {listing([first, *rivals])}.'
        )
    return {first: classifier, **rivals}


def _open_model(model: Model) -> Saved:
    if isinstance(model, Saved):
        return model
    return Saved(classifier=model) if isinstance(model, Classifier) else open_saved(model)


def case_figures(case: Case) -> dict[str, Any]:
    """Return all figures of a case."""
    errors, unknown = case.calibration, case.unknown
    figures: dict[str, Any] = {"model": case.name, "labels": len(case.names), "images": len(case)}
    figures |= {name: getattr(case, name) for name in PLAIN}
    figures["calibration"] = {
        "before": {**errors.errors_before, "bins": _bins(errors.before)},
        "after": {**errors.errors_after, "bins": _bins(errors.after)},
    }
    figures |= {"interval": case.figures.interval, "thresholds": case.figures.operating}
    figures |= {"balanced_interval": case.figures.balanced_interval}
    figures |= {"mean_average_precision": case.figures.mean_average_precision}
    figures["confusion"] = None if case.confusion is None else case.figures.confusion_list()
    figures["unknown"] = {"limit": unknown.limit, "figures": unknown.result}
    figures |= {"compared_images": case.compared, "leaked": case.figures.leaked, "warnings": cautions(case)}
    plain: dict[str, Any] = to_json(figures)
    return plain


def _bins(table: Reliability) -> list[dict[str, Any]]:
    rows = zip(table.confidence.tolist(), table.accuracy.tolist(), table.count.tolist(), strict=True)
    return [{"confidence": sure, "accuracy": right, "count": count} for sure, right, count in rows if count]
