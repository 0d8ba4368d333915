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
from labelwise.fitting.division import of_labels, split_rows, validation
from labelwise.fitting.steps import Trained, origin_of, train_on, with_memory
from labelwise.images.dataset import Array, Dataset, Split
from labelwise.images.describe.knowledge import describe_labels
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import DataError
from labelwise.support.rows import Draws
from labelwise.tasks.calibrate import calibrate
from labelwise.train.distribution import choose_device, process_group
from labelwise.train.loop import train
from labelwise.train.method import Method, Run
from labelwise.train.model import LabelModel
from labelwise.train.run_folder import sole_run
from labelwise.train.train_data import TensorSplit, TrainData

HELD_SHARE = 1 / 3  # of the seen labels, held out in the trial
VALIDATION_SHARE = 0.2  # share of the images of the other labels
FEWEST_LABELS = 4  # seen labels that a trial needs
LEVEL_IMAGES = 2_000  # training images to compare the scores of two runs
MOST_PAIRS = 500  # held-out images for matching with their own text
Level = tuple[float, float]


class RunPlan(NamedTuple):
    """The training data of both runs; ``trial`` is None if there are too few labels to hold out."""

    trial: TrainData | None
    final: TrainData


def fit_zero_shot(data: Dataset, method: Method, run: Run) -> Classifier:
    """Fit a classifier of all described labels, with and without images.

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
            trial = _calibrate(model, plan.trial)
            level = _level(trial, Trained.of(model), plan.trial)
            method = method.settle(model)
        model, summary = train_on(plan.final, data, method, run)
        trial = trial or _calibrate(model, replace(plan.final, unseen=None))
        return _classifier_of(model, plan.final, trial, level, method, summary)


def fit_pairs(data: Dataset, method: Method, run: Run) -> Classifier:
    """Fit a classifier of described labels to images with sentences but no label.

    Probabilities are fitted to finding the right text for held-out images among their own texts.
    """
    labels = method.describe(describe_labels(data).labels)
    train_part = data.split("train")
    train_part = (
        train_part.select([i for i, texts in enumerate(train_part.texts) if texts]) if train_part.texts else train_part
    )
    if not train_part.texts or labels.texts is None:
        raise DataError(
            f'The images of "{data.name}" have no label. Without labels, every training image needs sentences (a column '
            '"text" in the table of images), and so does every label that is to be asked about (labels.csv).'
        )
    kept_part, held_part = split_rows(train_part, np.zeros(len(train_part), np.int64), VALIDATION_SHARE / 2, run.seed)
    held_part = held_part.select(range(min(len(held_part), MOST_PAIRS)))
    pairs = TrainData(train=TensorSplit.of(kept_part), val=TensorSplit.of(held_part), labels=labels)
    model, summary = train_on(pairs, data, method, run)
    own = method.describe(Labels(names=tuple(f"text {i}" for i in range(len(held_part))), texts=held_part.texts))
    training = Trained.of(model)
    classifier = with_memory(_bind(training, own, own), training, pairs.train.images)
    calibrated = calibrate(classifier.scores_of(training.embeddings(pairs.val.images)), np.arange(len(held_part)))
    return _classifier_of(model, replace(pairs, unseen=labels), calibrated, None, method, summary)


def plan_runs(data: Dataset, method: Method, seed: int) -> RunPlan:
    """Return the training data of the trial and of the final run."""
    data = describe_labels(data)
    labels = method.describe(data.labels)
    parts = [_rows(split, split.targets >= 0) for split in (data.split("train"), validation(data))]
    train_part, val = (_with_texts(part, labels) for part in parts) if any(part.texts for part in parts) else parts
    all_images = train_part.join(val) if len(val) else train_part
    seen_rows = all_images.present
    if len(seen_rows) < 2:
        raise DataError(
            f'Training needs images of at least two labels; "{data.name}" has {len(seen_rows)}. Add images of others. Images that '
            "have sentences and no label train clarel with class_weight=0 and end_to_end=true."
        )
    final = _part(
        labels, seen_rows, [i for i in range(len(labels)) if i not in seen_rows], (all_images, all_images.select([]))
    )
    trial = _trial(labels, seen_rows, (train_part, val, all_images), seed) if len(seen_rows) >= FEWEST_LABELS else None
    if trial is None:
        trial_data = _part(labels, seen_rows, [], split_rows(all_images, all_images.targets, VALIDATION_SHARE, seed))
        final = replace(final, train=trial_data.train, val=trial_data.val)
    return RunPlan(trial=trial, final=final)


def _trial(labels: Labels, seen_rows: list[int], splits: tuple[Split, Split, Split], seed: int) -> TrainData | None:
    """Return the training and validation data of the trial; None if there are too few images."""
    train_part, val, all_images = splits
    held_labels = sorted(set(val.targets.tolist()) - set(train_part.targets.tolist()))
    if not held_labels:
        held_labels = _draw(seen_rows, seed)
    elif len(seen_rows) - len(held_labels) < 2:
        held_labels, train_part, val = _draw(seen_rows, seed), all_images, all_images.select([])
    inside = _rows(all_images, np.isin(all_images.targets, held_labels))
    own = _rows(val, ~np.isin(val.targets, held_labels))
    other_images = _rows(train_part, ~np.isin(train_part.targets, held_labels))
    if not len(own):
        other_images, own = split_rows(other_images, other_images.targets, VALIDATION_SHARE, seed)
    if not len(own):
        return None
    trial = _part(labels, [i for i in seen_rows if i not in held_labels], held_labels, (other_images, own.join(inside)))
    return replace(trial, without_images=len(labels) - len(seen_rows))


def _with_texts(split: Split, labels: Labels) -> Split:
    """Return the images with sentences; an image without any gets its label's. Without label sentences, return none."""
    if labels.texts is None:
        return split if split.texts and all(split.texts) else replace(split, texts=())
    of_label, of_image = labels.texts, split.texts or ((),) * len(split)
    texts = tuple(own or of_label[i] for own, i in zip(of_image, split.targets.tolist(), strict=True))
    return replace(split, texts=texts)


def _draw(seen_rows: list[int], seed: int) -> list[int]:
    """Draw the held-out labels if the data name none."""
    order = Draws(seed).permutation(len(seen_rows)).tolist()
    return sorted(seen_rows[i] for i in order[: max(1, round(HELD_SHARE * len(seen_rows)))])


def _rows(split: Split, mask: Array) -> Split:
    return split.select(mask)


def _part(labels: Labels, seen_rows: list[int], unseen_rows: list[int], splits: tuple[Split, Split]) -> TrainData:
    """Return training data of these labels; targets index the seen labels, then the unseen ones."""
    train_part, val = (of_labels(split, seen_rows + unseen_rows, len(labels)) for split in splits)
    label_parts = [
        labels.select([labels.names[i] for i in rows]) if rows else None for rows in (seen_rows, unseen_rows)
    ]
    assert label_parts[0] is not None
    return TrainData(
        train=TensorSplit.of(train_part), val=TensorSplit.of(val), labels=label_parts[0], unseen=label_parts[1]
    )


def _calibrate(model: LabelModel, data: TrainData) -> Classifier:
    """Return the calibrated classifier of the trial, with its gap and outlier rule."""
    training = Trained.of(model)
    classifier = with_memory(_bind(training, data.known, data.unseen), training, data.train.images)
    scores = classifier.scores_of(training.embeddings(data.val.images))
    figures: dict[str, Any] = {}
    if data.unseen is not None:
        curve = balance_curve(scores.raw, data.val.targets, ~classifier.calibration.unseen, training.head.penalty)
        gap = curve.best()
        if curves := getattr(model, "held_out", ()):  # more labels were held out than those of the trial
            gap = best_of_all(curves) * seen_spread(scores.raw, ~classifier.calibration.unseen)
        figures = {"gap": gap, **_accuracies(curve, gap), "without_gap": _accuracies(curve, 0.0), "area": curve.area}
        figures |= {"held_labels": len(data.unseen), "images": len(data.val)}
        classifier = replace(classifier, calibration=replace(classifier.calibration, seen_penalty=gap))
    calibrated = calibrate(scores.of(classifier), data.val.targets)
    summary = {**calibrated.origin.summary, **({"balance": figures} if figures else {})}
    return replace(calibrated, origin=replace(calibrated.origin, summary=summary))


def _bind(training: Trained, labels: Labels, unseen: Labels | None) -> Classifier:
    """Return the uncalibrated classifier of labels with images and of labels with descriptions only."""
    names = set() if unseen is None else set(unseen.names)
    classifier = training.bind(labels)
    mask = np.array([name in names for name in labels.names])
    return replace(classifier, calibration=replace(classifier.calibration, unseen=mask))


def _accuracies(curve: BalanceCurve, gap: float) -> dict[str, float]:
    unseen, seen = curve.at(gap)
    return {"unseen": unseen, "seen": seen, "harmonic": harmonic_mean(unseen, seen)}


def _level(classifier: Classifier, training: Trained, data: TrainData) -> Level:
    """Return location and spread of the raw scores on training images, to compare the scores of two runs.

    Location is the mean score of the true label. Spread is the standard deviation of an image's scores over the seen labels,
    averaged over images.
    """
    every = max(1, len(data.train) // LEVEL_IMAGES)
    images, targets = training.model.prepare(data.train.images)[::every], data.train.targets[::every]
    scores = classifier.scores_of(training.embeddings(images)).raw[:, : len(data.labels)]
    right = np.take_along_axis(scores, np.asarray(targets)[:, None], 1)
    return float(right.mean()), seen_spread(scores, np.ones(scores.shape[1], bool))


def _classifier_of(
    model: LabelModel, data: TrainData, trial: Classifier, level: Level | None, method: Method, summary: dict[str, Any]
) -> Classifier:
    """Return the final classifier with the calibration of the trial, adjusted to the ``level`` of the scores of both runs."""
    training = Trained.of(model)
    classifier = _bind(training, data.known, data.unseen)
    right, deviation = _level(classifier, training, data) if level else (0.0, 1.0)
    right_before, spread_before = level or (0.0, 1.0)
    wider = deviation / spread_before
    penalty = trial.calibration.seen_penalty * (wider if training.head.penalty == "offset" else 1)
    scale, offset = trial.calibration.neutral()
    offset = offset + scale * (right_before - right / wider)
    calibration = replace(classifier.calibration, seen_penalty=penalty)
    return with_memory(
        replace(
            classifier,
            calibration=calibration.refit(scale / wider, offset, trial.calibration.temperature),
            familiarity=Familiarity(rule=trial.familiarity.rule),
            origin=origin_of(method, data, {"training": summary, **trial.origin.summary}, model),
        ),
        training,
        data.train.images,
    )
