"""Yes and no: rates of yes for the right label, a wrong one and no label, and calibration of the probabilities."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from labelwise.core.metrics import expected_calibration_error, reliability
from labelwise.core.scores import Scores
from labelwise.evaluation.evaluation import Evaluation
from labelwise.fitting.rebuild import model_of
from labelwise.methods.indicator.negatives import sample_wrong_labels
from labelwise.support.errors import UsageError
from labelwise.tasks.calibrate import uncalibrated

Figures = dict[str, Any]


def yes_rates(evaluation: Evaluation, *, seed: int = 0) -> Figures:
    """Return the share of questions answered yes, by the model's own scores (``raw``) and as ``ask`` does (``calibrated``).

    Asked are the true labels (``right``), a ``wrong`` one that the seed draws for each image, ``every_wrong`` one, and label inputs
    of ``ones`` and ``zeros``; None where the model takes no label inputs.
    """
    scores, pairs = asked_pairs(evaluation, seed)
    raw, calibrated = (_rates(each, pairs) for each in (uncalibrated(scores), scores))
    return {"images": len(scores), "raw": raw, "calibrated": calibrated, "leaked": evaluation.leaked}


def _rates(scores: Scores, pairs: "Pairs") -> dict[str, float | None]:
    yes, odd = torch.from_numpy(scores.yes) > 0.5, odd_answers(scores)
    asked = {"right": yes[pairs.truths], "wrong": yes[pairs.wrong], "every_wrong": yes[~pairs.truths]}
    rates = {name: float(answers.double().mean()) for name, answers in asked.items()}
    ones, zeros = (None, None) if odd is None else (odd > 0.5).double().mean(0).tolist()
    return {**rates, "ones": ones, "zeros": zeros}


def answer_calibration(evaluation: Evaluation, *, seed: int = 0, bins: int = 15) -> Figures:
    """Return how far probabilities of a yes are from the truth, before and after calibration: error, Brier score, full bins.

    ``every``: each image is asked about each label, so that most answers are no. ``balanced``: about a true label and a wrong one
    that the seed draws, as many yes as no, but for images without a true or without a wrong label.
    """
    scores, pairs = asked_pairs(evaluation, seed)
    asked = [
        each.classifier.calibration.yes(each.log_odds.astype(np.float64)) for each in (uncalibrated(scores), scores)
    ]
    answers = [torch.from_numpy(table) for table in asked]
    yes, no = (torch.full_like(places[0], value) for places, value in ((pairs.right, 1), (pairs.wrong, 0)))
    balanced = [torch.cat([table[pairs.right], table[pairs.wrong]]) for table in answers]
    return {
        "images": len(scores),
        "leaked": evaluation.leaked,
        "every": _pair_figures([table.flatten() for table in answers], pairs.truths.flatten(), bins),
        "balanced": _pair_figures(balanced, torch.cat([yes, no]), bins),
    }


class Pairs(NamedTuple):
    """What images are asked about."""

    truths: Tensor  # which labels are true [n, k] (bool)
    right: tuple[Tensor, Tensor]  # rows and columns of one true label of each image that has any
    wrong: tuple[Tensor, Tensor]  # and of one wrong label


def asked_pairs(evaluation: Evaluation, seed: int) -> tuple[Scores, Pairs]:
    """Return the scores of images to ask about, those with a label or all where several may be true, and the labels."""
    k = len(evaluation.classifier.labels)
    if not evaluation.multilabel:
        scores, positions = evaluation.labelled()
        targets, rows = torch.as_tensor(positions), torch.arange(len(scores))
        return scores, Pairs(one_hot(targets, k).bool(), (rows, targets), (rows, wrong_labels(targets, k, seed)))
    truths = torch.as_tensor(evaluation.targets)
    rng = torch.Generator().manual_seed(seed)
    questions = []
    for banned in (~truths, truths):
        places = sample_wrong_labels(torch.rand(truths.shape, generator=rng), banned.cpu(), 1)[:, 0]
        rows = (places >= 0).nonzero()[:, 0]
        questions.append((rows, places[rows]))
    return evaluation.scores, Pairs(truths, questions[0], questions[1])


def wrong_labels(targets: Tensor, k: int, seed: int) -> Tensor:
    """Return for each target ``[n]`` one of the other k - 1 places, each as likely ``[n]``."""
    if k < 2:
        raise UsageError("There is one label only, so none is wrong. A second label is needed to ask about.")
    rng = torch.Generator().manual_seed(seed)
    return (targets + torch.randint(1, k, targets.shape, generator=rng).to(targets.device)) % k


def odd_answers(scores: Scores) -> Tensor | None:
    """Return the probability of a yes ``[n, 2]`` to label inputs of ones and of zeros, or None without such inputs.

    These are no labels, so what calibration does to labels on average is done to them.
    """
    classifier, calibration = scores.classifier, scores.classifier.calibration
    if classifier.kind != "indicator" or calibration.exclusive:
        return None
    model: Any = model_of(classifier)
    scale, offset = calibration.neutral()
    with torch.no_grad():
        embeddings = torch.from_numpy(scores.embeddings).to(model.device)
        inputs = torch.ones(2, len(model.spec.labels), device=model.device)
        inputs[1] = 0
        odds: Tensor = model.score(embeddings, model.encode_label_inputs(inputs).float()) * scale + offset
        return odds.sigmoid().cpu()


def _pair_figures(answers: list[Tensor], truth: Tensor, bins: int) -> Figures:
    figures: Figures = {"pairs": len(truth)}
    for when, probabilities in zip(("before", "after"), answers, strict=True):
        table = reliability(probabilities, truth, bins)
        rows = zip(table.confidence.tolist(), table.accuracy.tolist(), table.count.tolist(), strict=True)
        figures[when] = {
            "ece": expected_calibration_error(probabilities, truth, bins),
            "brier": float((probabilities.double() - truth.double()).square().mean()),
            "bins": [{"probability": x, "yes": share, "count": count} for x, share, count in rows if count],
        }
    return figures


def draw_calibration(result: Figures) -> Any:
    """Return a figure of ``answer_calibration``: how often it is a yes against how probable a yes was said to be."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.9), layout="constrained", facecolor="white")
    panels = (("every", "every label asked"), ("balanced", "the true label and a wrong one"))
    for place, (key, words) in zip(figure.subplots(1, 2), panels, strict=True):
        place.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
        for when, colour in (("before", "#c9711a"), ("after", "#1a6fc9")):
            figures = result[key][when]
            x, y, count = (
                torch.tensor([one[name] for one in figures["bins"]]) for name in ("probability", "yes", "count")
            )
            words_of_error = f"{when} calibration: error {100 * figures['ece']:.1f} %"
            place.plot(x, y, "-", color=colour, linewidth=1, alpha=0.6)
            place.scatter(x, y, 8 + 300 * count / count.sum(), color=colour, alpha=0.8, linewidths=0, clip_on=False)
            place.plot([], [], "o", color=colour, markersize=5, label=words_of_error)
        place.set(xlabel="probability of a yes", ylabel="share of yes", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        place.set_title(f"{words} ({result[key]['pairs']} questions)", fontsize=10)
        place.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.13))
        place.spines[["top", "right"]].set_visible(False)
    return figure
