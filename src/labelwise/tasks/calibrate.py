"""Calibrate: make probabilities mean what they say, and choose when to answer "unknown"."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labelwise.core.calibration import Calibration
from labelwise.core.classifier import Classifier
from labelwise.core.metrics import Reliability, expected_calibration_error, pool_reliabilities, reliability
from labelwise.core.platt import fit_platt, fit_platt_each, fit_temperature, most_rows
from labelwise.core.scores import Scores
from labelwise.images.targets import several_true, truth_table
from labelwise.support.errors import DataError, UsageError
from labelwise.support.rows import draw_rows

FOLDS, MANY = 5, 2_000  # that calibration is tried on; from so many images on two are enough


def calibrate(scores: Scores, targets: Tensor, *, keep: float = 0.95) -> Classifier:
    """Return the classifier with its calibration and outlier rule fitted on images that training never saw.

    ``targets`` are their labels ``[n]``, -1 where there is none, or, where several may be true, which are ``[n, k]`` (bool). The
    outlier rule lets the share ``keep`` of these images pass as known. Of very many images some are drawn, see ``most_rows``.
    """
    if not 0 < keep < 1:
        raise UsageError(f"The share of images to keep as known lies between 0 and 1; given {keep}.")
    classifier = scores.classifier
    _check_targets(classifier, targets)
    if not several_true(targets):
        rows = (targets >= 0).nonzero()[:, 0]
        scores, targets = scores[rows], targets[rows]
    if len(targets) > (most := most_rows(len(classifier.labels))):
        rows = torch.from_numpy(draw_rows(len(targets), most))
        scores, targets = scores[rows], targets[rows.to(targets.device)]
    if len(targets) < 2:
        raise DataError(f"Calibration needs at least two labelled held-out images; given {len(targets)}.")
    targets = targets.to(scores.embeddings.device)
    raw = replace(
        classifier, calibration=classifier.calibration.bare(), familiarity=replace(classifier.familiarity, rule=None)
    )
    before = scores.of(raw)
    calibration, figures = fit_calibration(raw.calibration, before.log_odds, targets)
    fitted = replace(raw, calibration=calibration)
    figures = {"images": len(targets), "keep": keep, **figures}
    origin = replace(classifier.origin, summary={**classifier.origin.summary, "calibration": figures})
    familiarity = fitted.familiarity.fit(before.of(fitted), keep)
    return replace(fitted, familiarity=familiarity, origin=origin.with_images(scores.images))


def fit_calibration(bare: Calibration, log_odds: Tensor, targets: Tensor) -> tuple[Calibration, dict[str, Any]]:
    """Return the calibration under which these log-odds ``[n, k]`` of ``bare`` are most probable, and what it is worth.

    What it is worth is measured on images that it was not fitted on: they are divided into folds, and each is answered by a
    calibration fitted on the others. Yes/no answers, and the choice among labels, keep plain scores where that does not lower
    both their log loss and their calibration error. The figures are the errors before, and after what is done.
    """
    scale, offset, temperature = _fitted(bare, log_odds, targets)
    plain, held_out = _said(log_odds, (1.0, 0.0, 1.0)), _held_out(bare, log_odds, targets)
    truth = torch.as_tensor(truth_table(np.asarray(targets.cpu()), log_odds.shape[1])).to(log_odds.device)
    answers = _helps(plain[0].flatten(), held_out[0].flatten(), truth.flatten()) if not bare.exclusive else True
    choice = bare.multilabel or _helps(plain[1], held_out[1], targets)
    if not answers:
        scale, offset, temperature = 1.0, 0.0, temperature / scale if not bare.multilabel else 1.0
    if not choice:
        temperature = float(scale)  # of two maps the second undoes the first
    after = held_out[0] if answers else plain[0], held_out[1] if choice else plain[1]
    if bare.exclusive:  # a score that competes has no meaning alone: answers are the choice
        plain, after = (plain[1], plain[1]), (after[1], after[1])
    figures = {f"{kind}_before": error for kind, error in _errors(*plain, targets).items()}
    figures |= {f"{kind}_after": error for kind, error in _errors(*after, targets).items()}
    applied = {"answer_ece": answers and choice if bare.exclusive else answers}
    applied |= {} if bare.multilabel else {"ece": choice}
    return bare.fitted(scale, offset, temperature), {**figures, "applied": applied}


Map = tuple[float | Tensor, float | Tensor, float]


def _fitted(bare: Calibration, log_odds: Tensor, targets: Tensor) -> Any:
    """Return scale, offset and temperature under which these log-odds ``[n, k]`` are most probable."""
    if bare.multilabel:
        return (*map(torch.as_tensor, fit_platt_each(log_odds.cpu(), targets.cpu())), 1.0)
    scale, offset = (1.0, 0.0) if bare.exclusive else fit_platt(log_odds.cpu(), targets.cpu())
    return scale, offset, fit_temperature((log_odds * scale + offset).cpu(), targets.cpu())


def _said(log_odds: Tensor, by: Map) -> tuple[Tensor, Tensor]:
    """Return the probabilities of a yes, and of each label given that one is right ``[n, k]``, under a map."""
    scale, offset, temperature = by
    odds = log_odds.double() * scale + offset
    return odds.sigmoid(), (odds / temperature).softmax(1)


def _held_out(bare: Calibration, log_odds: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return what ``_said`` does, each image answered by a map that was fitted on the images of other folds."""
    n = len(targets)
    folds = 2 if n > MANY else min(FOLDS, n)
    fold = torch.randperm(n, generator=torch.Generator().manual_seed(0)).to(log_odds.device) % folds
    yes, choice = torch.empty_like(log_odds, dtype=torch.double), torch.empty_like(log_odds, dtype=torch.double)
    for each in range(folds):
        out = fold == each
        yes[out], choice[out] = _said(log_odds[out], _fitted(bare, log_odds[~out], targets[~out]))
    return yes, choice


def _helps(plain: Tensor, held: Tensor, truth: Tensor) -> bool:
    """Return whether held-out probabilities are better than plain ones: of a yes ``[m]``, or of each label ``[n, k]``."""
    loss, error = zip(*(_worth(each, truth) for each in (plain, held)), strict=True)
    return bool(loss[1] < loss[0] and error[1] <= error[0])


def _worth(probabilities: Tensor, truth: Tensor) -> tuple[float, float]:
    """Return the log loss and the calibration error of probabilities, as in ``_helps``."""
    if probabilities.ndim == 1:
        told = torch.where(truth, probabilities, 1 - probabilities)
        return -float(told.clamp_min(1e-12).log().mean()), expected_calibration_error(probabilities.cpu(), truth.cpu())
    told = probabilities.gather(1, truth[:, None]).clamp_min(1e-12)
    best, chosen = probabilities.max(1)
    return -float(told.log().mean()), expected_calibration_error(best.cpu(), (chosen == truth).cpu())


def _check_targets(classifier: Classifier, targets: Tensor) -> None:
    """Raise an error unless targets are ``[n]``, or ``[n, k]`` (bool) where several labels may be true."""
    k = len(classifier.labels)
    fits = targets.shape == (len(targets), k) and targets.dtype == torch.bool
    if not (fits if classifier.calibration.multilabel else targets.ndim == 1):
        wanted = f"yes or no (bool) to each of its {k} labels" if classifier.calibration.multilabel else "one label"
        raise DataError(
            f"This classifier takes {wanted} for each image; given targets {targets.dtype} {list(targets.shape)}."
        )


def uncalibrated(scores: Scores) -> Scores:
    """Return the model's own scores: no calibration, though seen labels stay held back."""
    return scores.of(replace(scores.classifier, calibration=scores.classifier.calibration.bare()))


def calibration_errors(scores: Scores, targets: Tensor) -> dict[str, float]:
    """Return the expected calibration error of yes/no answers, and of the chosen label if there is one."""
    begun, tables = 0, list[dict[str, Reliability]]()
    for part in scores.parts():
        tables.append(_reliabilities(part.yes, part.probabilities, targets[begun : begun + len(part)]))
        begun += len(part)
    return {kind: pool_reliabilities([table[kind] for table in tables]).error for kind in tables[0]}


def _errors(yes: Tensor, probabilities: Tensor, targets: Tensor) -> dict[str, float]:
    return {kind: table.error for kind, table in _reliabilities(yes, probabilities, targets).items()}


def _reliabilities(yes: Tensor, probabilities: Tensor, targets: Tensor) -> dict[str, Reliability]:
    """Return how often answers are right: yes and no to each label, and the chosen label if there is one."""
    answers = reliability(yes.flatten().cpu(), truth_table(np.asarray(targets), yes.shape[1]).flatten())
    if several_true(targets):
        return {"answer_ece": answers}
    best, chosen = probabilities.max(1)
    return {"ece": reliability(best.cpu(), (chosen == targets).cpu()), "answer_ece": answers}
