"""Promised error rates and label lists, from held-out images, and how labels taught later change them.

A taught label competes with the others, and its own images were not measured. Both are made up for with the embeddings that a classifier
stores. An image of an earlier label keeps the lead that left-out images have, by rank, and each later label may beat it. An image of
a later label is left out of its label's examples.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from labelwise.core.arrays import Array
from labelwise.core.calibration import Calibration
from labelwise.core.coarser import Tree
from labelwise.core.head import LearnsFromExamples
from labelwise.support.rows import as_frequent

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier

MARGINS = 999  # stored margins of held-out images
EXAMPLES = 20  # examples of a later label used for leave-one-out


def with_promises(
    classifier: "Classifier", log_odds: Array, targets: Array, weights: Array | None = None
) -> Calibration:
    """Return the calibration with promises, from log-odds ``[n, k]`` of held-out images and their weights ``[n]``, 1 by default."""
    calibration = classifier.calibration
    behind = -ahead_of_others(log_odds, targets) / calibration.temperature
    mistakes = Tree.of(classifier.labels).mistakes(calibration.choice(log_odds), targets)
    if weights is not None:
        behind, mistakes = (as_frequent(values, weights) for values in (behind, mistakes))
    return replace(calibration, margins=_quantiles(behind), mistakes=_quantiles(mistakes), later=None)


def ahead_of_others(log_odds: Array, targets: Array) -> Array:
    """Return the lead of the right label over the best other one in log-odds ``[n, k]`` ``[n]``; negative if it is behind."""
    others, rows = log_odds.copy(), np.arange(len(log_odds))
    others[rows, targets] = -np.inf
    lead: Array = log_odds[rows, targets] - others.max(1)
    return lead


def promising(classifier: "Classifier") -> Calibration:
    """Return the calibration of a classifier with promises that count labels taught after calibration."""
    calibration, familiarity = classifier.calibration, classifier.familiarity
    memory, targets, later, margins = familiarity.memory, familiarity.targets, calibration.later, calibration.margins
    if memory is None or targets is None or margins is None or not len(margins) or later is None or later.all():
        return calibration
    if not later.any():
        return calibration
    log_odds = calibration.log_odds(classifier.score(memory))
    rows = np.flatnonzero((targets >= 0) & ~later[targets])
    if not np.isin(np.flatnonzero(~later), targets[rows]).all():
        return calibration  # other heads store no label of their training images
    earlier = _with_usual_lead(log_odds[rows], targets[rows], later, -margins * calibration.temperature)
    held_out_odds = [_leave_one_out_odds(classifier, log_odds, place) for place in np.flatnonzero(later).tolist()]
    average_count = len(rows) / int(
        (~later).sum()
    )  # images of a label that is as frequent as the earlier ones are on average
    parts = [(earlier, targets[rows], np.ones(len(rows)))]
    parts += [
        (part, np.full(len(part), place), np.full(len(part), average_count / len(part)))
        for part, place in zip(held_out_odds, np.flatnonzero(later).tolist(), strict=True)
        if len(part)
    ]
    table, labels, weights = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return with_promises(classifier, table, labels, weights)


def _with_usual_lead(log_odds: Array, targets: Array, later: Array, leads: Array) -> Array:
    """Return log-odds ``[n, k]`` of training images with the leads of held-out images, matched by rank."""
    new, rows = log_odds.copy(), np.arange(len(log_odds))
    lead = ahead_of_others(log_odds[:, ~later], (~later).cumsum()[targets] - 1)
    ranks = lead.argsort(kind="stable").argsort(kind="stable")
    usual = np.quantile(leads, (ranks + 0.5) / len(ranks))
    new[rows, targets] += (usual - lead).astype(new.dtype)
    return new


def _leave_one_out_odds(classifier: "Classifier", log_odds: Array, place: int) -> Array:
    """Return leave-one-out log-odds ``[m, k]`` of the examples of a label; none for a single example."""
    familiarity, head = classifier.familiarity, classifier.head
    assert familiarity.memory is not None
    rows = np.flatnonzero(familiarity.targets == place)[:EXAMPLES]
    if len(rows) < 2 or not isinstance(head, LearnsFromExamples):
        return log_odds[:0]
    others = np.array([[other for other in range(len(rows)) if other != position] for position in range(len(rows))])
    groups = np.repeat(np.arange(len(rows)), len(rows) - 1)
    label_rows = head.labels_from_examples(familiarity.memory[rows[others.ravel()]], groups)
    table, calibration = log_odds[rows].copy(), classifier.calibration
    for position, row in enumerate(rows.tolist()):
        score = head.score(familiarity.memory[row][None], label_rows[position][None])[0, 0]
        table[position, place] = score * calibration.scale[place] + calibration.offset[place]
    return table


def _quantiles(values: Array) -> Array:
    """Return values ``[n]`` sorted, or, of many, quantiles that promise no more than all values do."""
    every = np.sort(values).astype(np.float32)
    if len(every) <= MARGINS:
        return every
    ranks = np.ceil(np.arange(1, MARGINS + 1) * (len(every) + 1) / (MARGINS + 1)).astype(np.int64)
    return np.asarray(every[ranks - 1])
