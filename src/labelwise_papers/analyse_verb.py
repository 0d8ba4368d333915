"""The verb analyse: a look inside a classifier."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import RenderableType
from rich.table import Table
from typer import Argument, Option

import labelwise as lw
from labelwise.cli.inputs import open_data_for, open_model
from labelwise.cli.options import Model, SplitName, shared_options
from labelwise.cli.output import PLOTS, Bar, note, one_line, percent, plain_table, show, styled, warn_leaked
from labelwise.support.errors import DataError, UsageError, listing

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.evaluation.evaluation import Evaluation
    from labelwise.evaluation.test_set import TestSet

What = Literal["saliency", "probe", "neighbours", "answers", "joint", "calibration"]
Projection = Literal["pca", "umap"]
DRAWN = ("saliency", "joint", "calibration")  # analyses that have a plot
SHOWN = 8  # heat maps of an image
Analysis = tuple[dict[str, Any], Table, Callable[[], Any] | None]  # figures, a table, what draws a plot if any
ADVICE = ", so the figures are too good. Choose a split of images of their own."


@dataclass(frozen=True, eq=False)
class Asked:
    """The data of an analysis and the choices of the user."""

    classifier: "Classifier"
    dataset: "lw.data.Dataset"
    part: "TestSet"
    limit: int | None
    seed: int
    projection: Projection

    @property
    def title(self) -> str:
        """What a table says it is about."""
        return f"{self.dataset.name}, {self.part.name}"

    @cached_property
    def evaluation(self) -> "Evaluation":
        """The images that are looked at."""
        return self.part.evaluate(self.classifier)

    @property
    def train(self) -> "Evaluation":
        """Training images, cut to the limit by a seeded draw."""
        from labelwise.evaluation.test_set import select_test_set

        part = select_test_set(self.classifier, self.dataset, "train")
        return part.draw(self.limit, self.seed).evaluate(self.classifier)


def analyse(  # noqa: PLR0913 - the options of the verb
    model: Model,
    what: Annotated[What, Option(help="What to look at, see above.")],
    data: Annotated[str | None, Argument(help="Data to look at; not needed for neighbours.")] = None,
    split: SplitName = None,
    limit: Annotated[
        int | None, Option(min=1, help="Use at most this many images of a split, drawn at random.")
    ] = None,
    out_picture: Annotated[Path | None, Option("--out", help="A plot to draw (saliency, joint, calibration).")] = None,
    projection: Annotated[Projection, Option(help="With joint: projection; umap needs umap-learn.")] = "pca",
) -> None:
    """Look inside a classifier.

    saliency: the share of pixels that support the label (Grad-CAM above 0.5); by default of training images.

    probe: test accuracy of a logistic regression on image embeddings, next to that of the classifier.

    neighbours: the most similar labels of each label, to the model.

    answers: how often it says yes to the true label, to a wrong one, and to none.

    joint: embeddings of an image under each label, among training images under their own label.

    calibration: how well probabilities of a yes match, before and after calibration.
    """
    if out_picture is not None and what not in DRAWN:
        raise UsageError(f"There is no plot of {what}; leave --out out, or choose {listing(DRAWN)}.")
    if out_picture is not None and out_picture.suffix.lower() not in PLOTS:
        raise UsageError(f"A plot is written as {listing(PLOTS)}; given {out_picture}.")
    if data is None and what != "neighbours":
        raise UsageError(f"The analysis {what} needs data: labelwise analyse {model} DATA --what {what}.")
    from labelwise.evaluation.test_set import select_test_set

    classifier = open_model(model)
    part = None
    if what == "neighbours" or data is None:
        figures, table, draw = _neighbours(classifier)
    else:
        dataset = open_data_for(classifier, data)
        part = select_test_set(classifier, dataset, split or _usual_split(what, dataset)).draw(
            limit, shared_options().seed
        )
        figures, table, draw = ANALYSES[what](
            Asked(classifier, dataset, part, limit, shared_options().seed, projection)
        )
    warn_leaked(figures.get("leaked", 0), ADVICE)
    about = {"model": str(model), "data": data, "what": what, "split": part and part.name}
    document = about | {"measured": part and part.figures()} | figures
    lines: list[RenderableType] = [*([one_line(part.words)] if part else []), table]
    if out_picture is not None and draw is not None:
        out_picture.parent.mkdir(parents=True, exist_ok=True)
        draw().savefig(out_picture, dpi=120)
        document["out"] = str(out_picture)
        lines.append(styled((str(out_picture), "bold"), " drawn"))
    show(document, *lines)


def _usual_split(what: What, data: "lw.data.Dataset") -> str | None:
    """Return the split that an analysis looks at unless told otherwise; None leaves it to the data.

    Heat maps are looked at on training images. What is compared with training images needs others: test.
    """
    if what == "saliency":
        return "train" if data.own_splits and "train" in data.splits else "all"
    if what not in ("probe", "joint"):
        return None
    if "train" not in data.splits:
        raise DataError(
            f'The analysis {what} compares test images with training images, and "{data.name}" has none of these; it '
            f"has: {listing(data.splits)}. Give the data with its training images."
        )
    return "test"


def _saliency(asked: Asked) -> Analysis:
    import torch

    from labelwise_papers.analyses.saliency import draw_saliency, salient_share

    scores, positions = asked.evaluation.labelled()
    assert scores.images is not None
    images, targets = (torch.from_numpy(each) for each in (asked.classifier.batch(scores.images), positions))
    figures = salient_share(asked.classifier, images, targets)
    rows = [
        ("images", str(figures["images"])),
        (f"pixels with a heat map above {figures['level']:g}", percent(figures["share"])),
        ("standard deviation over images", percent(figures["spread"])),
        ("images where nothing speaks for the label", percent(figures["blank"])),
    ]
    some = slice(0, max(1, len(images) // SHOWN) * SHOWN, max(1, len(images) // SHOWN))
    table = plain_table(asked.title, ">", rows=rows)
    return figures, table, lambda: draw_saliency(asked.classifier, images[some], targets[some])


def _probe(asked: Asked) -> Analysis:
    from labelwise_papers.analyses.probe import probe_embeddings

    figures = probe_embeddings(asked.train, asked.evaluation, seed=asked.seed)
    if not figures["converged"]:
        note(f"Warning: the regression was stopped after {figures['rounds']} rounds, before it had converged.")
    words = f"logistic regression on the codes of {figures['train_images']} training images"
    rows = [(words, percent(figures["probe"])), ("the classifier", percent(figures["classifier"]))]
    return figures, plain_table(f"{asked.title}, {figures['test_images']} images", ">accuracy", rows=rows), None


def _neighbours(classifier: "Classifier") -> Analysis:
    from labelwise_papers.analyses.neighbours import nearest_labels

    figures = nearest_labels(classifier)
    table = plain_table("label", "nearest first, with the distance", title=f"distances between {figures['between']}")
    for one in figures["labels"]:
        near = zip(one["nearest"], one["distances"], strict=True)
        table.add_row(one["label"], ", ".join(f"{name} {far:.3g}" for name, far in near))
    return figures, table, None


def _answers(asked: Asked) -> Analysis:
    from labelwise_papers.analyses.answers import yes_rates

    figures = yes_rates(asked.evaluation, seed=asked.seed)
    table = plain_table(f"{asked.title}: share of yes", ">raw scores", ">calibrated")
    for key, words in (
        ("right", "its true label"),
        ("wrong", "a wrong label, drawn at random"),
        ("every_wrong", "every wrong label"),
        ("ones", "a label input of ones"),
        ("zeros", "a label input of zeros"),
    ):
        rates = [figures[kind][key] for kind in ("raw", "calibrated")]
        if None not in rates:
            table.add_row(words, *(f"{100 * rate:.2f} %" for rate in rates))
    return figures, table, None


def _joint(asked: Asked) -> Analysis:
    import torch

    from labelwise_papers.analyses.joint import draw_joint, joint_view

    (known, targets), (test, own) = asked.train.labelled(), asked.evaluation.labelled()
    view = joint_view(known, torch.from_numpy(targets), test[:1], projection=asked.projection)
    truth = asked.classifier.labels.names[int(own[0])]
    distances = [None if isnan(value) else value for value in view.distances.tolist()]
    about = f"{asked.title}: an image of {truth} among training images, in spreads of each label"
    table = plain_table("asked, best first", "", ">distance", title=about)
    most = max((value for value in distances if value is not None), default=1.0)
    for name, value in zip(view.names, distances, strict=True):
        cells = ("", "") if value is None else (Bar(value / most), f"{value:.2f}")
        table.add_row(styled((name, "bold" if name == truth else "")), *cells)
    rows = zip(view.names, distances, view.asked.tolist(), strict=True)
    places = [{"label": name, "distance": value, "place": place} for name, value, place in rows]
    figures = {"label": truth, "training_images": len(view.points), "projection": view.projection, "asked": places}
    return figures, table, lambda: draw_joint(view, truth)


def _calibration(asked: Asked) -> Analysis:
    from labelwise_papers.analyses.answers import answer_calibration, draw_calibration

    figures = answer_calibration(asked.evaluation, seed=asked.seed)
    table = plain_table(asked.title, ">questions", "calibration", ">error (ECE)", ">Brier score")
    for key, words in (("every", "every label asked"), ("balanced", "the true label and a wrong one")):
        for when, *first in (("before", words, str(figures[key]["pairs"])), ("after", "", "")):
            one = figures[key][when]
            table.add_row(*first, when, percent(one["ece"]), f"{one['brier']:.4f}")
    return figures, table, lambda: draw_calibration(figures)


ANALYSES: Mapping[str, Callable[[Asked], Analysis]] = {
    "saliency": _saliency,
    "probe": _probe,
    "answers": _answers,
    "joint": _joint,
    "calibration": _calibration,
}
