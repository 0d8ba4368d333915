"""What training images say of a model that can leave them out: calibration, an estimate of its accuracy, a threshold for pairs."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.core.model import LeavesOut, LeftOut, Whitens, cannot, prepared
from labelwise.core.pairs import draw_pairs
from labelwise.core.scores import Scores
from labelwise.fitting.estimate import estimate
from labelwise.images.dataset import Split
from labelwise.tasks.calibrate import calibrate
from labelwise.tasks.verify import can_verify, verifier_of

FEWEST = 2  # images that calibration takes
MOST_PAIRS = 5_000  # of each kind that a threshold for pairs is fitted on


def calibrated_left_out(classifier: Classifier, train: Split) -> Classifier:
    """Return the classifier calibrated on its own training images, each left out; as it is where no two share a label.

    Pairs of pictures are compared by whitened embeddings, as if the model had not seen the two.
    """
    model = classifier.model
    if not isinstance(model, LeavesOut):
        raise cannot(model, "leave training images out")
    images = prepared(model, train.images)
    left = model.left_out(images, train.targets.to(model.device), train.groups)
    told = left.tells.nonzero()[:, 0]
    if len(told) < FEWEST:
        return classifier
    every = len(left.rows) == len(train)
    tells = left.rows[told]
    scores, targets = (
        _scores(classifier, images if every else images[left.rows], left)[told],
        train.targets[tells].cpu(),
    )
    done = calibrate(scores, targets)
    labels = len(set(targets.tolist()))  # of n pictures of a label n - 1 differ from its mean as they like
    independent = max(1, len(set(left.groups[told].tolist())) - labels)
    about = estimate(scores.of(done), train, tells, independent, _right(scores.of(done), targets, left, told))
    done = replace(done, origin=replace(done.origin, summary={**done.origin.summary, "leave_one_out": about}))
    tells = tells if every else torch.arange(len(train))
    targets = train.targets[tells].cpu()
    if not (can_verify(targets) and isinstance(model, Whitens) and model.whitens):
        return done
    pairs = draw_pairs(targets, MOST_PAIRS)
    rows = tells[torch.from_numpy(np.concatenate(pairs))]
    alike = model.left_out_pairs(images, train.targets.to(model.device), rows).double().cpu()
    same, different = alike[: len(pairs.same)], alike[len(pairs.same) :]
    return replace(done, verifier=verifier_of(same, different, "eer", "whitened"))


def _right(scores: Scores, targets: Tensor, left: LeftOut, rows: Tensor) -> Tensor:
    """Return whether new images like these rows would be answered right ``[n]``: none of their label will be left out for them.

    Their own label is as well known as the others, and by how much it is ahead of them varies less, around the same mean.
    """
    raw, column = scores.raw.cpu(), targets[:, None]
    odds = scores.classifier.calibration.log_odds(
        raw.scatter(1, column, left.own.cpu()[rows, None]).to(scores.raw.device)
    ).cpu()
    ahead = odds.gather(1, column)[:, 0] - odds.scatter(1, column, -torch.inf).amax(1)
    return (ahead.mean() + (ahead - ahead.mean()) * left.narrowing.cpu()[rows]) > 0


def _scores(classifier: Classifier, images: Tensor, left: LeftOut) -> Scores:
    """Return the scores of training images left out; labels without any have the scores that they always have."""
    scores = classifier.scores_of(classifier.encode(images))
    raw = scores.raw.clone()
    raw[:, : left.scores.shape[1]] = left.scores
    vars(scores).update(raw=raw, unfamiliarity=left.unfamiliarity)
    return scores
