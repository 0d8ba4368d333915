"""Fit a method that reads descriptions: a trial on held-out labels settles every choice, then the final run.

Labels with images are seen; labels with a description alone are unseen. How a model treats unseen labels can only be
measured on labels whose images were held out. So a third of the seen labels plays the unseen ones in a trial run: it
settles settings left open, the gap between seen and unseen labels, probabilities and the outlier rule. The final run
trains on the images of all seen labels, and takes these over.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from labelwise.core.balance import BalanceCurve, balance_curve, best_of_all, seen_spread
from labelwise.core.calibration import Familiarity
from labelwise.core.classifier import Classifier
from labelwise.core.metrics import harmonic_mean
from labelwise.fitting.division import of_labels, set_aside, validation
from labelwise.fitting.steps import Trained, origin_of, remembering, train_on
from labelwise.images.dataset import Array, Dataset, Split
from labelwise.images.describe.knowledge import describe_labels
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import DataError
from labelwise.support.rows import Draws
from labelwise.tasks.calibrate import calibrate
from labelwise.train.data import TensorSplit, TrainData
from labelwise.train.distribution import choose_device, process_group
from labelwise.train.loop import train
from labelwise.train.method import Method, Run
from labelwise.train.model import LabelModel
from labelwise.train.run_folder import sole_run

HELD_SHARE = 1 / 3  # of the seen labels, held out in the trial
VALIDATION_SHARE = 0.2  # of the images of the others
FEWEST_LABELS = 4  # seen labels that a trial needs
LEVEL_IMAGES = 2_000  # training images by which the scores of two runs are compared
MOST_PAIRS = 500  # held-out images that find their own text
Level = tuple[float, float]


class Plan(NamedTuple):
    """What the two runs train on; ``trial`` is None where there are too few labels to hold some out."""

    trial: TrainData | None
    final: TrainData


def fit_zero_shot(data: Dataset, method: Method, run: Run) -> Classifier:
    """Return a classifier of all described labels, those with images and those without.

    Labels that only ``val`` has images of are held out in the trial; without any, a third of the labels is drawn. The test split is
    never read. The trial keeps its files in a folder ``trial`` inside that of the run.
    """
    if not method.uses_targets and not bool(data.split("train").labelled.any()):
        return fit_pairs(data, method, run)
    plan = plan_runs(data, method, run.seed)
    trial: Classifier | None = None
    level: Level | None = None
    with process_group(choose_device(run.device)), sole_run(run.folder):  # one for both runs
        if plan.trial is not None:
            folder = run.folder / "trial" if run.folder else None
            model, _ = train(method, plan.trial, replace(run, folder=folder))
            trial = _calibrated(model, plan.trial)
            level = _level(trial, Trained.of(model), plan.trial)
            method = method.settle(model)
        model, about = train_on(plan.final, data, method, run)
        trial = trial or _calibrated(model, replace(plan.final, unseen=None))
        return _bound(model, plan.final, trial, level, method, about)


def fit_pairs(data: Dataset, method: Method, run: Run) -> Classifier:
    """Return a classifier of described labels from images that have sentences of their own and no label.

    Probabilities are fitted to finding the right text for held-out images among their own texts.
    """
    labels = method.describe(describe_labels(data).labels)
    whole = data.split("train")
    whole = whole.select([i for i, texts in enumerate(whole.texts) if texts]) if whole.texts else whole
    if not whole.texts or labels.texts is None:
        raise DataError(
            f'The images of "{data.name}" have no label. Without labels, every training image needs sentences (a column '
            '"text" in the table of images), and so does every label that is to be asked about (labels.csv).'
        )
    kept, held = set_aside(whole, np.zeros(len(whole), np.int64), VALIDATION_SHARE / 2, run.seed)
    held = held.select(range(min(len(held), MOST_PAIRS)))
    pairs = TrainData(train=TensorSplit.of(kept), val=TensorSplit.of(held), labels=labels)
    model, about = train_on(pairs, data, method, run)
    own = method.describe(Labels(names=tuple(f"text {i}" for i in range(len(held))), texts=held.texts))
    trained = Trained.of(model)
    matched = remembering(_bind(trained, own, own), trained, pairs.train.images)
    done = calibrate(matched.scores_of(trained.embeddings(pairs.val.images)), np.arange(len(held)))
    return _bound(model, replace(pairs, unseen=labels), done, None, method, about)


def plan_runs(data: Dataset, method: Method, seed: int) -> Plan:
    """Return the training data of the trial and of the final run."""
    data = describe_labels(data)
    labels = method.describe(data.labels)
    parts = [_rows(split, split.targets >= 0) for split in (data.split("train"), validation(data))]
    train_part, val = (_described(part, labels) for part in parts) if any(part.texts for part in parts) else parts
    whole = train_part.join(val) if len(val) else train_part
    seen = whole.present
    if len(seen) < 2:
        raise DataError(
            f'Training needs images of at least two labels; "{data.name}" has {len(seen)}. Add images of others. Images that '
            "have sentences and no label train clarel with class_weight=0 and end_to_end=true."
        )
    final = _part(labels, seen, [i for i in range(len(labels)) if i not in seen], (whole, whole.select([])))
    trial = _trial(labels, seen, (train_part, val, whole), seed) if len(seen) >= FEWEST_LABELS else None
    if trial is None:
        few = _part(labels, seen, [], set_aside(whole, whole.targets, VALIDATION_SHARE, seed))
        final = replace(final, train=few.train, val=few.val)
    return Plan(trial=trial, final=final)


def _trial(labels: Labels, seen: list[int], splits: tuple[Split, Split, Split], seed: int) -> TrainData | None:
    """Return the training and validation data of the trial; None if there are too few images."""
    train_part, val, whole = splits
    held = sorted(set(val.targets.tolist()) - set(train_part.targets.tolist()))
    if not held:
        held = _draw(seen, seed)
    elif len(seen) - len(held) < 2:
        held, train_part, val = _draw(seen, seed), whole, whole.select([])
    inside = _rows(whole, np.isin(whole.targets, held))
    own = _rows(val, ~np.isin(val.targets, held))
    rest = _rows(train_part, ~np.isin(train_part.targets, held))
    if not len(own):
        rest, own = set_aside(rest, rest.targets, VALIDATION_SHARE, seed)
    if not len(own):
        return None
    found = _part(labels, [i for i in seen if i not in held], held, (rest, own.join(inside)))
    return replace(found, without_images=len(labels) - len(seen))


def _described(split: Split, labels: Labels) -> Split:
    """Return the images with sentences; an image without any gets those of its label. Without label sentences, return none."""
    if labels.texts is None:
        return split if split.texts and all(split.texts) else replace(split, texts=())
    of_label, of_image = labels.texts, split.texts or ((),) * len(split)
    texts = tuple(own or of_label[i] for own, i in zip(of_image, split.targets.tolist(), strict=True))
    return replace(split, texts=texts)


def _draw(seen: list[int], seed: int) -> list[int]:
    """Draw the held-out labels for data that name none."""
    order = Draws(seed).permutation(len(seen)).tolist()
    return sorted(seen[i] for i in order[: max(1, round(HELD_SHARE * len(seen)))])


def _rows(split: Split, mask: Array) -> Split:
    return split.select(mask)


def _part(labels: Labels, seen: list[int], unseen: list[int], splits: tuple[Split, Split]) -> TrainData:
    """Return training data of these labels; targets index the seen labels, then the unseen ones."""
    train_part, val = (of_labels(split, seen + unseen, len(labels)) for split in splits)
    named = [labels.select([labels.names[i] for i in rows]) if rows else None for rows in (seen, unseen)]
    assert named[0] is not None
    return TrainData(train=TensorSplit.of(train_part), val=TensorSplit.of(val), labels=named[0], unseen=named[1])


def _calibrated(model: LabelModel, data: TrainData) -> Classifier:
    """Return the calibrated classifier of the trial, with its gap and outlier rule."""
    trained = Trained.of(model)
    bound = remembering(_bind(trained, data.known, data.unseen), trained, data.train.images)
    scores = bound.scores_of(trained.embeddings(data.val.images))
    figures: dict[str, Any] = {}
    if data.unseen is not None:
        curve = balance_curve(scores.raw, data.val.targets, ~bound.calibration.unseen, trained.head.penalty)
        gap = curve.best()
        if curves := getattr(model, "held_out", ()):  # more labels were held out than those of the trial
            gap = best_of_all(curves) * seen_spread(scores.raw, ~bound.calibration.unseen)
        figures = {"gap": gap, **_accuracies(curve, gap), "without_gap": _accuracies(curve, 0.0), "area": curve.area}
        figures |= {"held_labels": len(data.unseen), "images": len(data.val)}
        bound = replace(bound, calibration=replace(bound.calibration, seen_penalty=gap))
    done = calibrate(scores.of(bound), data.val.targets)
    summary = {**done.origin.summary, **({"balance": figures} if figures else {})}
    return replace(done, origin=replace(done.origin, summary=summary))


def _bind(trained: Trained, labels: Labels, unseen: Labels | None) -> Classifier:
    """Return the uncalibrated classifier of labels with images and of labels with descriptions only."""
    names = set() if unseen is None else set(unseen.names)
    bound = trained.bound(labels)
    mask = np.array([name in names for name in labels.names])
    return replace(bound, calibration=replace(bound.calibration, unseen=mask))


def _accuracies(curve: BalanceCurve, gap: float) -> dict[str, float]:
    unseen, seen = curve.at(gap)
    return {"unseen": unseen, "seen": seen, "harmonic": harmonic_mean(unseen, seen)}


def _level(classifier: Classifier, trained: Trained, data: TrainData) -> Level:
    """Return location and spread of the raw scores on training images, to compare the scores of two runs.

    Location is the mean score of the true label. Spread is the standard deviation of an image's scores over the seen labels,
    averaged over images.
    """
    every = max(1, len(data.train) // LEVEL_IMAGES)
    images, targets = trained.model.prepare(data.train.images)[::every], data.train.targets[::every]
    scores = classifier.scores_of(trained.embeddings(images)).raw[:, : len(data.labels)]
    right = np.take_along_axis(scores, np.asarray(targets)[:, None], 1)
    return float(right.mean()), seen_spread(scores, np.ones(scores.shape[1], bool))


def _bound(
    model: LabelModel, data: TrainData, trial: Classifier, level: Level | None, method: Method, about: dict[str, Any]
) -> Classifier:
    """Return the final classifier with the calibration of the trial, adjusted to the ``level`` of the scores of both runs."""
    trained = Trained.of(model)
    bound = _bind(trained, data.known, data.unseen)
    right, spread = _level(bound, trained, data) if level else (0.0, 1.0)
    right_before, spread_before = level or (0.0, 1.0)
    wider = spread / spread_before
    penalty = trial.calibration.seen_penalty * (wider if trained.head.penalty == "offset" else 1)
    scale, offset = trial.calibration.neutral()
    offset = offset + scale * (right_before - right / wider)
    held_back = replace(bound.calibration, seen_penalty=penalty)
    return remembering(
        replace(
            bound,
            calibration=held_back.fitted(scale / wider, offset, trial.calibration.temperature),
            familiarity=Familiarity(rule=trial.familiarity.rule),
            origin=origin_of(method, data, {"training": about, **trial.origin.summary}, model),
        ),
        trained,
        data.train.images,
    )
