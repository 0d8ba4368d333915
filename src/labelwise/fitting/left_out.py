"""What training images say of a model that can leave them out: calibration, accuracy with its interval, confusions, doubtful labels."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.data.dataset import Split
from labelwise.metrics import confusion_matrix, share_interval
from labelwise.model import LeavesOut, LeftOut, Whitens, cannot, prepared
from labelwise.ops.pairs import draw_pairs
from labelwise.scores import Scores
from labelwise.tasks.calibrate import calibrate
from labelwise.tasks.verify import can_verify, verifier_of

MOST_CONFUSED = 3  # pairs of labels
MOST_SUSPICIOUS = 10  # images
DOUBTFUL = 0.5  # how probable another label is, at least, of an image whose own label is suspicious
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
    tells = left.tells.nonzero()[:, 0]
    if len(tells) < FEWEST:
        return classifier
    scores, targets = _scores(classifier, images, left)[tells], train.targets[tells].cpu()
    done = calibrate(scores, targets)
    about = _about(scores.of(done), train, tells, left.groups)
    done = replace(done, origin=replace(done.origin, summary={**done.origin.summary, "leave_one_out": about}))
    if not (can_verify(targets) and isinstance(model, Whitens) and model.whitens):
        return done
    pairs = draw_pairs(targets, MOST_PAIRS, 0)
    same, different = (
        model.left_out_pairs(images, train.targets.to(model.device), tells[rows]).double().cpu()
        for rows in (pairs.same, pairs.different)
    )
    return replace(done, verifier=verifier_of(same, different, "eer", "whitened"))


def _scores(classifier: Classifier, images: Tensor, left: LeftOut) -> Scores:
    """Return the scores of training images left out; labels without any have the scores that they always have."""
    scores = classifier.scores_of(classifier.encode(images))
    raw = scores.raw.clone()
    raw[:, : left.scores.shape[1]] = left.scores
    vars(scores).update(raw=raw, unfamiliarity=left.unfamiliarity)
    return scores


def _about(scores: Scores, train: Split, rows: Tensor, groups: Tensor) -> dict[str, Any]:
    """Return what is told of left-out images; ``rows`` says which of the training images these are."""
    names, targets = scores.classifier.labels.names, train.targets[rows].cpu()
    best, chances = scores.best.cpu(), scores.probabilities.cpu()
    right = (best == targets).double()
    low, high = share_interval(float(right.mean()), len(set(groups[rows].tolist())))
    table = confusion_matrix(best, targets, len(names)).fill_diagonal_(0)
    counts, places = table.flatten().sort(descending=True, stable=True)
    confused = [
        {"label": names[place // len(names)], "taken_for": names[place % len(names)], "count": int(count)}
        for count, place in zip(counts[:MOST_CONFUSED].tolist(), places.tolist(), strict=False)
        if count
    ]
    other = chances.clone().scatter_(1, targets[:, None], 0.0).max(1)
    order = other.values.sort(descending=True, stable=True)
    suspicious = [
        {
            "file": train.files[int(rows[i])] if train.files else f"row {int(rows[i])}",
            "label": names[int(targets[i])],
            "looks_like": names[int(other.indices[i])],
            "probability": round(chance, 4),
        }
        for chance, i in zip(order.values[:MOST_SUSPICIOUS].tolist(), order.indices.tolist(), strict=False)
        if chance >= DOUBTFUL
    ]
    figures = {"accuracy": float(right.mean()), "low": low, "high": high, "images": len(rows)}
    return {**figures, "confused": confused, "suspicious": suspicious}
