"""The verb evaluate: figures on images that a classifier was not trained on."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer import Option

from labelwise.cli.inputs import open_data_for, open_model, open_part, open_unknown
from labelwise.cli.options import AsJson, Data, Device, Model, Root, SplitName, Splits, Unknown
from labelwise.cli.output import PLOTS, bar, note, one_line, percent, plain_table, show, warn_leaked
from labelwise.support.errors import UsageError, listing
from labelwise.support.words import FIGURES

if TYPE_CHECKING:
    import labelwise as lw
    from labelwise.evaluation.evaluation import Evaluation

# A key of the JSON document, its value, and the lines that say it to people.
Figures = tuple[str, Any, list[RenderableType]]
EACH = "average_precision"
FEW = 500  # test images below which an accuracy is told with its 95 % interval
MOST = 2_000  # images whose pairs are compared; where there are more, so many are drawn
QUERIES, MOST_WAYS = 15, 5
RULES = {"taught": "as teach does"}
FOLDED = ("images", "groups", "accuracy", "class_accuracy", "ece", "unknown", "by_fold")
FOLDS_HELP = "Refit its method so many times, on all labelled images but a part, and measure each image once."
ADVICE = ", so the figures are too good. Give test images a folder or a split of their own."


def evaluate(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Data,
    split: SplitName = None,
    unknown: Unknown = None,
    curve: Annotated[
        Path | None, Option(help="A picture to draw: accuracy on labels with and without training images.")
    ] = None,
    folds: Annotated[int | None, Option(min=2, help=FOLDS_HELP)] = None,
    splits: Splits = None,
    root: Root = None,
    json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Measure a classifier on images it was not trained on."""
    from labelwise.core.model import Compares
    from labelwise.evaluation.closed import evaluate_closed
    from labelwise.evaluation.multilabel import evaluate_multilabel
    from labelwise.evaluation.outliers import evaluate_outliers

    if curve is not None and curve.suffix.lower() not in PLOTS:
        raise UsageError(f"The curve is written as {listing(PLOTS)}; given {curve}.")
    classifier = open_model(model, device)
    if folds is not None:
        if split or unknown or curve:
            raise UsageError(
                "--folds measures all labelled images, each once. Leave out --split, --unknown and --curve."
            )
        _show_folds(
            classifier, open_data_for(classifier, data, root, splits), folds, (str(model), data, device), json=json
        )
        return
    part = open_part(classifier, data, split, root, splits)
    strange = None if unknown is None else open_unknown(classifier, unknown, root)
    about: dict[str, Any] = {"model": str(model), "data": data, "split": part.name, "measured": part.figures()}
    lines: list[RenderableType] = [one_line(part.words)]
    evaluation = part.evaluate(classifier)
    if _all_new(evaluation) and not (unknown or curve):
        note("The classifier knows none of these labels, so it is measured on how well it compares and learns them.")
        about["pairs"] = None
        more = [_pairs(evaluation), _episodes(evaluation)]
    else:
        figures = asdict(evaluate_multilabel(evaluation) if evaluation.multilabel else evaluate_closed(evaluation))
        if curve and evaluation.multilabel:
            raise UsageError(
                f'There is no curve of "{data}": several labels may be true of one image. Leave --curve out.'
            )
        more = [_zero_shot(evaluation, curve), _ordinal(evaluation)]
        learnt = isinstance(classifier.model, Compares) and not evaluation.multilabel
        more += [_pairs(evaluation)] if learnt else []
        if strange is not None:
            lines.append(one_line(f"As unknown: {strange.words}"))
            about["measured_unknown"] = strange.figures()
            result = evaluate_outliers(evaluation.scores, classifier.scores(strange.split.images))
            figures |= {f"unknown_{key}": value for key, value in asdict(result).items()}
        warn_leaked(figures["leaked"], ADVICE)
        about |= figures
        lines += _lines(f"{data}, {part.name}", figures)
    for key, values, more_lines in filter(None, more):
        about[key] = values
        lines += more_lines
    show(about, *lines, json=json)


def _show_folds(
    classifier: "lw.Classifier", data: "lw.data.Dataset", folds: int, words: tuple[str, str, str], *, json: bool
) -> None:
    """Show the figures of cross-validation; ``words`` are what the shell calls the classifier, the data and the device."""
    from labelwise.evaluation.folds import evaluate_folds
    from labelwise.train.stages import Run

    model, name, device = words
    result = evaluate_folds(classifier, data, folds, Run(device=device, progress=not json), note)
    told = {key: getattr(result, key) for key in FOLDED}
    lines: list[RenderableType] = [_table(f"{name}, {folds} folds", told, (result.low, result.high))]
    if result.alone:
        lines.append(f"{result.alone} images could not be measured: no other image has their label.")
    show({"model": model, "data": name, **asdict(result)}, *lines, json=json)


def _all_new(evaluation: "Evaluation") -> bool:
    """Return whether the classifier knows not one label of these pictures, each of which has one."""
    used = [] if evaluation.multilabel else [evaluation.labels.names[i] for i in evaluation.split.present]
    known = evaluation.classifier.labels.names + evaluation.classifier.model.spec.labels.names
    return bool(used) and not set(used) & set(known)


def _lines(title: str, figures: dict[str, Any]) -> list[RenderableType]:
    """Return the figures, and the average precision of each label, lowest first, where there is one."""
    from labelwise.core.metrics import wilson

    few = "accuracy" in figures and figures["images"] < FEW
    interval = wilson(figures["accuracy"], figures["images"]) if few else None
    table = _table(title, {key: value for key, value in figures.items() if key != EACH}, interval)
    if EACH not in figures:
        return [table]
    each = plain_table("label", "", f">{FIGURES[EACH]}")
    for name, value in sorted(figures[EACH].items(), key=lambda pair: -1 if pair[1] is None else pair[1]):
        each.add_row(name, "" if value is None else bar(value), "no test image" if value is None else percent(value))
    return [table, "", each]


def _table(title: str, figures: dict[str, Any], interval: tuple[float, float] | None) -> RenderableType:
    """Return figures in words: counts, shares, and rows of shares; the accuracy with its 95 % interval, where there is one."""
    table = plain_table(title, ">")
    for key, value in figures.items():
        shares = value if isinstance(value, tuple) else (value,)
        told = str(value) if isinstance(value, int) else ", ".join(map(percent, shares))
        if key == "accuracy" and interval is not None:
            told += f" ({percent(interval[0])} to {percent(interval[1])})"
        table.add_row(FIGURES[key], told)
    return table


def _zero_shot(evaluation: "Evaluation", curve: Path | None) -> Figures | None:
    """Return the figures of labels without training images, None where there are none, or an error if a curve is to be drawn."""
    from labelwise.evaluation.zero_shot import draw_curve, evaluate_zero_shot

    used = {evaluation.labels.names[i] for i in evaluation.split.present}
    unseen = evaluation.classifier.unseen
    if evaluation.multilabel or (curve is None and not (used & unseen and used - unseen)):
        return None
    result = evaluate_zero_shot(evaluation)
    if curve is not None:
        curve.parent.mkdir(parents=True, exist_ok=True)
        draw_curve(result).savefig(curve, dpi=120)
    had = f"{result.unseen_labels} labels had no training pictures (unseen), {result.seen_labels} had (seen)"
    keys = ("unseen", "seen", "harmonic")
    table = plain_table("right, averaged over labels", *(f">{FIGURES[key]}" for key in keys), title=f"zero-shot: {had}")
    table.add_row("of unseen labels alone", percent(result.zero_shot), "", "")
    back = f"of all, seen held back (gap {result.gap:.3f})"
    for words, end in ((back, ""), ("of all, none held back", "_without_gap")):
        table.add_row(words, *(percent(getattr(result, key + end)) for key in keys))
    values = {key: value for key, value in vars(result).items() if key != "curve"}
    return "zero_shot", values, ["", table, f"{FIGURES['area']}: {result.area:.3f}"]


def _ordinal(evaluation: "Evaluation") -> Figures | None:
    """Return the figures of ordered labels, or None where they do not apply."""
    from labelwise.evaluation.ordinal import evaluate_ordinal, find_order

    several = evaluation.multilabel or evaluation.classifier.calibration.multilabel
    if several or find_order(evaluation.classifier, evaluation.labels) is None:
        return None
    result = evaluate_ordinal(evaluation)
    about = f"ordered labels: {result.levels[0]} to {result.levels[-1]}"
    table = plain_table("what is said", ">most probable level", ">median level", title=about)
    for key in ("accuracy", "mean_absolute_error", "kappa", "within_one"):
        form = percent if key in ("accuracy", "within_one") else "{:.3f}".format
        values = (getattr(one, key) for one in (result.best, result.median))
        table.add_row(FIGURES[key], *("" if value is None else form(value) for value in values))
    lines: list[RenderableType] = ["", table]
    if result.spearman is not None:
        lines.append(f"{FIGURES['spearman']}: {result.spearman:.3f}")
    shares = {"wanted": percent(result.coverage), "share": percent(result.covered)}
    return "ordinal", asdict(result), [*lines, FIGURES["covered"].format(**shares, width=result.width)]


def _pairs(evaluation: "Evaluation") -> Figures | None:
    """Return how well pairs of one label are told from others, by each score; None where pairs are of one kind."""
    import torch

    from labelwise.evaluation.pairs import evaluate_pairs
    from labelwise.tasks.verify import can_verify

    if not can_verify(torch.from_numpy(evaluation.split.targets)):
        return None
    result = evaluate_pairs(evaluation, most=MOST)
    about = f"pairs of {result.images} pictures: do they show the same label, by how alike they are?"
    values: dict[str, Any] = {"images": result.images, "labels": result.labels, "verification": {}, "retrieval": {}}
    columns = []
    for by, telling in result.verification.items():
        search = result.retrieval[by]
        values["verification"][by] = {key: getattr(telling, key) for key in ("eer", "min_dcf", "auroc")}
        values["retrieval"][by] = {key: getattr(search, key) for key in ("recall", "precision_at_r")}
        shares = map(percent, (*search.recall.values(), search.precision_at_r))
        columns.append([percent(telling.eer), f"{telling.min_dcf:.3f}", percent(telling.auroc), *shares])
    recalls = (FIGURES["recall_at"].format(k=k) for k in search.recall)
    words = [*(FIGURES[f"pair_{key}"] for key in ("eer", "min_dcf", "auroc")), *recalls, FIGURES["precision_at_r"]]
    rows = zip(words, *columns, strict=True)
    table = plain_table("compared by", *(f">{by}" for by in result.verification), title=about, rows=rows)
    return "pairs", values, ["", table]


def _episodes(evaluation: "Evaluation") -> Figures:
    """Return how well new labels are learnt from one and from five pictures, as far as there are enough of enough labels."""
    import torch

    from labelwise.evaluation.episodes import EpisodeSettings, evaluate_episodes

    targets = torch.from_numpy(evaluation.split.targets)
    sizes = torch.bincount(targets[targets >= 0])
    ways = {shots: min(MOST_WAYS, int((sizes >= shots + QUERIES).sum())) for shots in (1, 5)}
    settings = [EpisodeSettings(ways=ways[shots], shots=shots, queries=QUERIES) for shots in ways if ways[shots] >= 2]
    if not settings:
        return "episodes", [], []
    results = [evaluate_episodes(evaluation, each) for each in settings]
    about = "new labels, learnt from a few pictures (few-shot): " + FIGURES["accuracy"]
    table = plain_table("", *(f">{RULES.get(rule, rule)}" for rule in results[0].accuracy), title=about)
    values = []
    for one in results:
        rules = {rule: {"mean": each.mean, "error": each.error} for rule, each in one.accuracy.items()}
        values.append({"ways": one.settings.ways, "shots": one.settings.shots, "accuracy": rules})
        words = f"{one.settings.ways} labels, {one.settings.shots} picture{'s' * (one.settings.shots > 1)} of each"
        table.add_row(words, *(str(value) for value in one.accuracy.values()))
    return "episodes", values, ["", table]
