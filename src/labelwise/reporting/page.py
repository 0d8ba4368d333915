"""A report: one page about a classifier on test images, with every figure that applies, and the same figures as JSON."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from platform import machine
from typing import Any

import torch
from torch import Tensor

from labelwise import __version__
from labelwise.core.classifier import Classifier
from labelwise.core.metrics import Reliability, wilson
from labelwise.core.store import LOG, load
from labelwise.evaluation.test_set import TestSet, select_test_sets
from labelwise.images.catalogue import load as load_data
from labelwise.images.catalogue import load_unlabelled, size_for
from labelwise.images.dataset import UNLABELLED, Dataset, Split
from labelwise.images.decode.pictures import as_batch
from labelwise.images.describe.labels import Labels
from labelwise.reporting import maps, plots
from labelwise.reporting.case import Case, Saved, read_log
from labelwise.reporting.cautions import cautions
from labelwise.reporting.comparison import compare
from labelwise.reporting.examples import examples
from labelwise.reporting.pages import render
from labelwise.support.display import visible
from labelwise.support.errors import UsageError, listing
from labelwise.support.files import write_atomically
from labelwise.train.distribution import choose_device

Model = Classifier | Saved | str | Path
Reader = Callable[[tuple[int, ...]], Dataset]
Source = Dataset | Reader | str | Path
PLAIN = (  # figures of a case that JSON holds as they are
    "method", "accuracy", "closed", "several", "each", "zero_shot", "ordinal", "verification", "retrieval", "speed", "left_out",
)  # fmt: skip


def open_saved(folder: str | Path, device: str = "auto") -> Saved:
    """Return the classifier of a folder with the log of its training, on the device of this name."""
    return Saved(classifier=load(folder, device=choose_device(device)), log=read_log(Path(folder) / LOG))


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportSettings:
    """What goes into a report."""

    split: str | None = None  # train, val, test or all; None is test where the data name splits, and all of other data
    unknown: Tensor | Source | None = (
        None  # images of none of the labels: a tensor, or as the data of a report are given
    )
    compare: Mapping[str, Model] | None = (
        None  # classifiers to set beside the first, by the names that the page gives them
    )
    name: str | None = None  # what the page calls the classifier; None is the name of its folder, or of its method
    examples: int = 6  # how many of the best and of the worst answers to show
    commands: tuple[str, ...] = ()  # shell commands that make the classifier and the report again
    seed: int = 0  # of what is drawn at random
    device: str = "auto"  # auto, cpu or cuda; for classifiers that are given as folders
    tell: Callable[[str], None] = lambda _: None  # is told what is being done


@dataclass(frozen=True, eq=False, kw_only=True)
class Report:
    """A finished report: the title, the page, and all figures that it says, as JSON can hold them."""

    title: str
    html: str
    figures: Mapping[str, Any]

    def write(self, path: str | Path) -> None:
        """Write the page, whole or not at all."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, visible(self.html, lines=True).encode())


def report(classifier: Model, data: Source, settings: ReportSettings | None = None) -> Report:
    """Return a report on a classifier and the images of a data set that ``evaluate.select_test_set`` chooses.

    A classifier may be the folder it was saved in, beside whose weights lies the log of its training. Data may be a path or a
    name, then read for each classifier at the size of its images; or a function that reads them, given the shape of an image.
    """
    settings = settings or ReportSettings()
    settings.tell("loading")
    saved = {name: _opened(model, settings.device) for name, model in _models(classifier, settings).items()}
    settings.tell("reading data")
    classifiers = [one.classifier for one in saved.values()]
    parts = _parts(classifiers, lambda shape: _read(data, shape), settings.split)
    other: Sequence[TestSet | None] = [None] * len(parts)
    if (unknown := settings.unknown) is not None:
        other = _parts(classifiers, lambda shape: _read_unknown(unknown, shape), None, unknown=True)
    cases = [
        Case(name, one, part, strange, settings.seed, settings.tell)
        for (name, one), part, strange in zip(saved.items(), parts, other, strict=True)
    ]
    settings.tell("drawing the page")
    case, first, figures = cases[0], parts[0], [case_figures(one) for one in cases]
    every: dict[str, Any] = {"data": first.data, "split": first.name, "labelwise": __version__}
    every |= {"measured": first.figures(), **({"measured_unknown": other[0].figures()} if other[0] else {})}
    every |= figures[0]
    comparison = compare(cases, settings.seed, settings.examples) if len(cases) > 1 else None
    if comparison:
        paired = [{"model": name, "against": case.name, **to_json(result)} for name, result in comparison["paired"]]
        every |= {"compare": figures[1:], "paired": paired}
    title = f"{case.name} on {first.data}"
    html = render("report.html", {"title": title, "figures": figures, **_values(cases, comparison, settings)})
    return Report(title=title, html=html, figures=every)


def _values(cases: Sequence[Case], comparison: Mapping[str, Any] | None, settings: ReportSettings) -> dict[str, Any]:
    """Return what the templates say of cases, above all the first, and what they draw it with."""
    case = cases[0]
    best, worst = examples(case, settings.examples)
    return {
        "case": case,
        "cases": cases,
        "comparison": comparison,
        "best": best,
        "worst": worst,
        "interval": wilson(case.accuracy, len(case)),
        "confusions": maps.confusions(case),
        "commands": settings.commands,
        "plots": plots,
        "maps": maps,
        "day": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "torch": torch.__version__,
        "machine": machine(),
    }


def _parts(
    classifiers: Sequence[Classifier], read: Reader, split: str | None, *, unknown: bool = False
) -> list[TestSet]:
    """Return the images for each classifier, read once for each shape that their models take."""
    shapes = [classifier.model.spec.shape for classifier in classifiers]
    readings = {shape: read(shape) for shape in dict.fromkeys(shapes)}
    pairs = [(classifier, readings[shape]) for classifier, shape in zip(classifiers, shapes, strict=True)]
    return select_test_sets(pairs, split, unknown=unknown)


def _read(data: Source, shape: tuple[int, ...]) -> Dataset:
    if isinstance(data, str | Path):
        return load_data(data, size=size_for(shape))
    return data if isinstance(data, Dataset) else data(shape)


def _read_unknown(images: Tensor | Source, shape: tuple[int, ...]) -> Dataset:
    if isinstance(images, str | Path):
        return load_unlabelled(images, shape)
    if not isinstance(images, Tensor):
        return _read(images, shape)
    batch = as_batch(images, shape)
    whole = Split(images=batch, targets=torch.full((len(batch),), -1))
    return Dataset(name="unknown", labels=Labels(names=(UNLABELLED,)), splits={"test": whole}, own_splits=False)


def _models(classifier: Model, settings: ReportSettings) -> dict[str, Model]:
    """Return all classifiers by their names, the one that is reported on first."""
    first = settings.name
    if first is None and isinstance(classifier, Classifier | Saved):
        own = classifier if isinstance(classifier, Classifier) else classifier.classifier
        first = str(getattr(own.origin.method, "name", "classifier"))
    first, others = first or Path(str(classifier)).name, settings.compare or {}
    if first in others:
        raise UsageError(
            f'Classifiers that are compared need different names; "{first}" is given twice. Given: '
            f"{listing([first, *others])}."
        )
    return {first: classifier, **others}


def _opened(model: Model, device: str) -> Saved:
    if isinstance(model, Saved):
        return model
    return Saved(classifier=model) if isinstance(model, Classifier) else open_saved(model, device)


def case_figures(case: Case) -> dict[str, Any]:
    """Return all figures of a case."""
    errors, unknown = case.calibration, case.unknown
    figures: dict[str, Any] = {"model": case.name, "labels": len(case.names), "images": len(case)}
    figures |= {name: getattr(case, name) for name in PLAIN}
    figures["calibration"] = {
        "before": {**errors.errors_before, "bins": _bins(errors.before)},
        "after": {**errors.errors_after, "bins": _bins(errors.after)},
    }
    figures["confusion"] = None if case.confusion is None else _counts(case.confusion, case.names)
    figures["unknown"] = {"limit": unknown.limit, "figures": unknown.result}
    figures |= {"compared_images": case.compared, "leaked": case.evaluation.leaked, "warnings": cautions(case)}
    plain: dict[str, Any] = to_json(figures)
    return plain


def to_json(value: Any) -> Any:
    """Return a value as JSON can hold it: numbers that are not finite become None, and curves are left out."""
    if isinstance(value, Tensor):
        return to_json(value.tolist())
    if is_dataclass(value) and not isinstance(value, type):
        return to_json({name: part for name, part in vars(value).items() if name != "curve"})
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bins(table: Reliability) -> list[dict[str, Any]]:
    rows = zip(table.confidence.tolist(), table.accuracy.tolist(), table.count.tolist(), strict=True)
    return [{"confidence": sure, "accuracy": right, "count": count} for sure, right, count in rows if count]


def _counts(counts: Tensor, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return each pair of a true and an answered label that occurs, the true labels in their order."""
    return [
        {"true": names[row], "said": names[column], "count": int(counts[row, column])}
        for row, column in counts.nonzero().tolist()
    ]
