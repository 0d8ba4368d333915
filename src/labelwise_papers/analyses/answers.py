"""Yes and no: how often is it yes for the right label, for a wrong one, for none; and are the probabilities right?"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from labelwise.errors import UsageError
from labelwise.evaluate.tested import Tested
from labelwise.metrics import Reliability, expected_calibration_error, reliability
from labelwise.ops.negatives import sample_wrong_labels
from labelwise.scores import Scores
from labelwise.tasks.calibrate import uncalibrated


@dataclass(frozen=True, kw_only=True)
class YesRates:
    """Share of images answered yes, by what is asked.

    Attributes:
        right: their true label, or each of them where several may be true.
        wrong: a wrong label, drawn at random for each image.
        every_wrong: every wrong label, averaged; what ``wrong`` is without the luck of the draw.
        ones: a label input of ones; None where the model takes no label inputs.
        zeros: a label input of zeros; None likewise.
    """

    right: float
    wrong: float
    every_wrong: float
    ones: float | None
    zeros: float | None


@dataclass(frozen=True, kw_only=True)
class AnswersResult:
    """How often the answer is yes.

    Attributes:
        images: how many were asked about.
        raw: from the model's own scores.
        calibrated: from the probabilities that ``ask`` gives.
        leaked: share of the images that the classifier was trained or calibrated on.
    """

    images: int
    raw: YesRates
    calibrated: YesRates
    leaked: float


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswerFigures:
    """How far probabilities of a yes are from the truth: calibration error, Brier score, and the bins behind them."""

    ece: float
    brier: float
    reliability: Reliability


@dataclass(frozen=True, eq=False, kw_only=True)
class PairFigures:
    """Figures of the same (image, label) pairs from raw scores and after calibration."""

    pairs: int
    before: AnswerFigures
    after: AnswerFigures


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswerCalibration:
    """Whether probabilities of a yes can be believed.

    Attributes:
        images: how many were asked about.
        every: each image asked about each label, so that most answers are no.
        balanced: each image asked about its true label (one of them where several may be true) and one wrong label: as many
            yes as no, but for images without a true or without a wrong label.
        leaked: share of the images that the classifier was trained or calibrated on.
    """

    images: int
    every: PairFigures
    balanced: PairFigures
    leaked: float


def yes_rates(tested: Tested, *, seed: int = 0) -> AnswersResult:
    """Return how often the answer is yes; ``seed`` draws wrong labels."""
    scores, pairs = asked_pairs(tested, seed)

    def rates(given: Scores) -> YesRates:
        yes, odd = given.yes > 0.5, odd_answers(given)
        return YesRates(
            right=_share(yes[pairs.truths]),
            wrong=_share(yes[pairs.wrong]),
            every_wrong=_share(yes[~pairs.truths]),
            ones=None if odd is None else _share(odd[:, 0] > 0.5),
            zeros=None if odd is None else _share(odd[:, 1] > 0.5),
        )

    return AnswersResult(
        images=len(scores), raw=rates(uncalibrated(scores)), calibrated=rates(scores), leaked=tested.leaked
    )


def answer_calibration(tested: Tested, *, seed: int = 0, bins: int = 15) -> AnswerCalibration:
    """Return how far probabilities of a yes are from the truth, before and after calibration.

    Args:
        tested: test images.
        seed: draws a wrong label for each image.
        bins: of the calibration error.
    """
    scores, pairs = asked_pairs(tested, seed)
    answers = [each.classifier.calibration.yes(each.log_odds.double()) for each in (uncalibrated(scores), scores)]
    yes, no = (torch.full((len(places[0]),), value) for places, value in ((pairs.right, 1), (pairs.wrong, 0)))
    return AnswerCalibration(
        images=len(scores),
        every=_pair_figures([table.flatten() for table in answers], pairs.truths.flatten(), bins),
        balanced=_pair_figures(
            [torch.cat([table[pairs.right], table[pairs.wrong]]) for table in answers], torch.cat([yes, no]), bins
        ),
        leaked=tested.leaked,
    )


class Pairs(NamedTuple):
    """What images are asked about.

    Attributes:
        truths: which labels are true ``[n, k]`` (bool).
        right: rows and places of one true label of each image that has any.
        wrong: rows and places of one wrong label of each image that has any.
    """

    truths: Tensor
    right: tuple[Tensor, Tensor]
    wrong: tuple[Tensor, Tensor]


def asked_pairs(tested: Tested, seed: int) -> tuple[Scores, Pairs]:
    """Return the scores of images to ask about, those with a label or all where several may be true, and the labels."""
    k, device = len(tested.classifier.labels), tested.scores.embeddings.device
    if not tested.multilabel:
        scores, targets = tested.labelled()
        rows = torch.arange(len(scores), device=device)
        return scores, Pairs(one_hot(targets, k).bool(), (rows, targets), (rows, wrong_labels(targets, k, seed)))
    truths = tested.targets
    made = torch.Generator().manual_seed(seed)
    drawn = []
    for banned in (~truths, truths):
        places = sample_wrong_labels(torch.rand(truths.shape, generator=made), banned.cpu(), 1)[:, 0]
        rows = (places >= 0).nonzero()[:, 0]
        drawn.append((rows.to(device), places[rows].to(device)))
    return tested.scores, Pairs(truths.to(device), drawn[0], drawn[1])


def wrong_labels(targets: Tensor, k: int, seed: int) -> Tensor:
    """Return for each target ``[n]`` one of the other k - 1 places, each as likely ``[n]``."""
    if k < 2:
        raise UsageError("There is one label only, so none is wrong. A second label is needed to ask about.")
    made = torch.Generator().manual_seed(seed)
    return (targets + torch.randint(1, k, targets.shape, generator=made).to(targets.device)) % k


def odd_answers(scores: Scores) -> Tensor | None:
    """Return the probability of a yes ``[n, 2]`` to label inputs of ones and of zeros, or None without such inputs.

    These are no labels, so what calibration does to labels on average is done to them.
    """
    model, calibration = scores.classifier.model, scores.classifier.calibration
    encode: Callable[[Tensor], Tensor] | None = getattr(model, "encode_label_inputs", None)
    if encode is None or calibration.exclusive:
        return None
    scale, offset = calibration.neutral()
    with torch.no_grad():
        inputs = torch.ones(2, len(model.spec.labels), device=scores.embeddings.device)
        inputs[1] = 0
        return (model.score(scores.embeddings, encode(inputs).float()) * scale + offset).sigmoid()


def _share(yes: Tensor) -> float:
    return float(yes.double().mean())


def _pair_figures(answers: list[Tensor], truth: Tensor, bins: int) -> PairFigures:
    before, after = (
        AnswerFigures(
            ece=expected_calibration_error(given, truth, bins),
            brier=float((given.double() - truth.double()).square().mean()),
            reliability=reliability(given, truth, bins),
        )
        for given in answers
    )
    return PairFigures(pairs=len(truth), before=before, after=after)


def draw_calibration(result: AnswerCalibration) -> Any:
    """Return a figure: how often it is a yes against how probable a yes was said to be, before and after calibration."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.9), layout="constrained", facecolor="white")
    panels = ((result.every, "every label asked"), (result.balanced, "the true label and a wrong one"))
    for place, (pairs, words) in zip(figure.subplots(1, 2), panels, strict=True):
        place.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
        for figures, colour, when in ((pairs.before, "#c9711a", "before"), (pairs.after, "#1a6fc9", "after")):
            bins = figures.reliability
            full = bins.count > 0
            x, y, count = bins.confidence[full], bins.accuracy[full], bins.count[full]
            said = f"{when} calibration: error {100 * figures.ece:.1f} %"
            place.plot(x, y, "-", color=colour, linewidth=1, alpha=0.6)
            place.scatter(x, y, 8 + 300 * count / count.sum(), color=colour, alpha=0.8, linewidths=0, clip_on=False)
            place.plot([], [], "o", color=colour, markersize=5, label=said)
        place.set(xlabel="probability of a yes", ylabel="share of yes", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        place.set_title(f"{words} ({pairs.pairs} questions)", fontsize=10)
        place.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.13))
        place.spines[["top", "right"]].set_visible(False)
    return figure
