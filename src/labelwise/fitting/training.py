"""Fit by training: from data and a method to a calibrated classifier, with torch."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from labelwise.core.classifier import Classifier
from labelwise.core.head import JoinsKnowledge, NamesClusters, cannot
from labelwise.fitting.choice import shape_for
from labelwise.fitting.closed_form import FrozenNetwork, fit_closed_form
from labelwise.fitting.division import labels_to_train, of_labels, split_rows, train_on_all, validation
from labelwise.fitting.estimate import estimate_on_validation, merit
from labelwise.fitting.reading import read_for
from labelwise.fitting.rebuild import training_state
from labelwise.fitting.steps import Trained, origin_of, train_on, with_memory
from labelwise.fitting.tuning import about_trials, before_tuning
from labelwise.fitting.zero_shot import fit_zero_shot
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.knowledge import require
from labelwise.images.split.make import VAL_SHARE, val_share
from labelwise.methods.discriminant.method import Discriminant
from labelwise.methods.discriminant.model import DiscriminantModel
from labelwise.methods.registry import METHODS
from labelwise.methods.shared.linear import StartedModel
from labelwise.support.errors import DataError, UsageError, listing
from labelwise.tasks.calibrate import calibrate
from labelwise.tasks.verify import can_verify, fit_verifier
from labelwise.train.distribution import choose_device, process_group
from labelwise.train.exactness import exact
from labelwise.train.method import Method, Run
from labelwise.train.model import Spec
from labelwise.train.networks.torch_encoder import encode_images
from labelwise.train.train_data import TensorSplit, TrainData

FEWEST = 3  # images of a label: one each for training, validation and test
ENOUGH = 10  # images of each label from which training is useful
MOST_VERIFIED = 2_000  # largest validation set on which the pair threshold is fitted at once


def train_classifier(data: Dataset, method: Method, run: Run) -> Classifier:
    """Fit a classifier to checked data; ``fit.fit`` calls it."""
    check_enough(data, method)
    with exact(run.exact), process_group(device := choose_device(run.device)):  # one group of processes for all steps
        if isinstance(method, Discriminant) and method.tune is None:
            return fit_closed_form(data, method, run, _frozen_network(data, method, device))
        data = read_for(
            method, train_on_all(data, method), run, device
        ).below_home()  # a classifier goes to other people and places
        if isinstance(method, Discriminant) and method.tune is not None:
            return _fit_tuned(data, method, run, device)
        return _fit(data, method, run)


def check_enough(data: Dataset, method: Method) -> None:
    """Raise an error if a method needs held-out images for calibration and labels have too few images."""
    labels = data.labels
    has_descriptions = labels.texts is not None or labels.vectors is not None
    if (
        has_descriptions
        or (data.own_splits and "val" in data.splits)
        or data.multilabel
        or not method.holds_out
        or method.zero_shot
        or not method.uses_targets
    ):
        return
    counts = Counter(labels.names[i] for split in data.splits.values() for i in split.targets.tolist() if i >= 0)
    large = [label for label, count in counts.items() if count >= FEWEST]
    if len(counts) < 2 or len(large) >= 2:
        return
    smallest = sorted(counts.items(), key=lambda pair: pair[1])
    alternatives = listing((kind for kind, cls in METHODS.items() if cls.leaves_out), 3)
    way = f" Or use method {alternatives}, which takes one image of a label." if alternatives else ""
    raise DataError(
        f'"{data.name}" has too few images: {listing((f"{label} {count}" for label, count in smallest), 6)}. '
        f"Method {method.name} needs {FEWEST} of at least two labels, since some are held out to calibrate it, and about "
        f"{ENOUGH} of each to be of use. Add images.{way}"
    )


def _fit(data: Dataset, method: Method, run: Run) -> Classifier:
    """Fit a classifier to data in the form that the method reads; a tuned encoder is kept even if it did not improve."""
    if method.zero_shot:
        return fit_zero_shot(data, method, run)
    if not method.uses_targets:
        return _fit_unlabelled(data, method, run)
    part = training_data(data, run.seed, hold_out=method.holds_out)
    for piece in (piece for piece in method.needs if hasattr(part.labels, piece)):
        require(part.labels, piece, f"Method {method.name}")
    model, summary = train_on(part, data, method, run)
    calibrated = _calibrated(Trained.of(model), part, data, method, summary)
    if len(validation(data)) or not (isinstance(model, StartedModel) and model.started):
        return calibrated
    images = torch.cat([model.prepare(split.images) for split in (part.train, part.val)])
    model.complete(images, torch.cat([part.train.targets, part.val.targets]), (*part.train.groups, *part.val.groups))
    retrained = Trained.of(model)
    origin = replace(calibrated.origin, training=training_state(model))
    return replace(
        calibrated, head=retrained.head, label_embeddings=retrained.head.embed_labels(part.labels), origin=origin
    )


def _calibrated(
    training: Trained, part: TrainData, data: Dataset, method: Method, summary: dict[str, Any]
) -> Classifier:
    """Return the classifier of a trained model, calibrated on validation images; ``summary`` is that of its training."""
    joins = isinstance(training.head, JoinsKnowledge) and training.head.reads_descriptions
    labels = part.known if joins else part.labels
    classifier = with_memory(training.bind(labels), training, part.train.images)
    unseen = np.arange(len(labels)) >= len(part.labels)
    classifier = replace(
        classifier, calibration=replace(classifier.calibration, multilabel=data.multilabel, unseen=unseen)
    )
    scores, targets = classifier.scores_of(training.embeddings(part.val.images)), part.val.targets
    if len(part.val):
        summary |= {"validation_images": len(part.val), **merit(scores, part.val)}
    classifier = replace(classifier, origin=origin_of(method, part, {"training": summary}, training.model))
    calibrated = estimate_on_validation(calibrate(scores.of(classifier), targets), scores, part.val)
    if part.val.multilabel or len(scores) > MOST_VERIFIED or not can_verify(targets):
        return calibrated
    return fit_verifier(scores.of(calibrated), targets)


def _frozen_network(data: Dataset, method: Discriminant, device: torch.device) -> FrozenNetwork:
    """Return the frozen encoder of a method."""
    model = method.build(Spec(shape=shape_for(method, data), labels=data.labels, view=method.view)).to(device)
    return FrozenNetwork(model.export_encoder(), partial(encode_images, model.encoder), training_state(model))


def _fit_tuned(data: Dataset, method: Discriminant, run: Run, device: torch.device) -> Classifier:
    """Return the classifier of a tuned encoder, or of the original one if tuning does not improve validation images.

    The trial without validation images calibrates the final classifier, which all images trained.
    """
    if data.features:
        raise UsageError(
            f'Tuning trains an encoder of images, and "{data.name}" holds features. Leave out --tune (tune).'
        )
    data = replace(data, labels=method.describe(data.labels))
    if run.tell is not None:
        for line in before_tuning(device.type, len(data.split("train")) / max(1, len(data.labels))):
            run.tell(line)
    part = training_data(data, run.seed)
    model, summary = train_on(part, data, method, run)
    assert isinstance(model, DiscriminantModel)
    tuning = about_trials(model.trials)
    if model.rehearsal is None:
        plain = replace(method, tune=None)
        closed_form = fit_closed_form(data, plain, run, _frozen_network(data, plain, device))
        return replace(
            closed_form, origin=replace(closed_form.origin, summary={**closed_form.origin.summary, "tuning": tuning})
        )
    training = Trained.of(model)
    trial = replace(training, head=model.rehearsal.head)
    summary["images"] += len(part.val)
    calibrated = _calibrated(trial, model.rehearsal.data, data, method, summary)
    classifier = replace(
        calibrated,
        head=training.head,
        label_embeddings=training.head.embed_labels(calibrated.labels),
        familiarity=replace(calibrated.familiarity, memory=None, targets=None),
    )
    return with_memory(classifier, training, torch.cat([part.train.images, part.val.images]))


def _fit_unlabelled(data: Dataset, method: Method, run: Run) -> Classifier:
    """Fit a method that reads no targets; they are removed before it starts.

    Probabilities say how many of the model's restarts agree. All may be wrong in the same way, which no unlabelled image shows.
    """
    train_part, validation_part = _without_targets(data.split("train")), _without_targets(validation(data))
    if not len(validation_part):
        train_part, validation_part = split_rows(train_part, train_part.targets + 1, VAL_SHARE, run.seed)
    part = TrainData(train=TensorSplit.of(train_part), val=TensorSplit.of(validation_part), labels=data.labels)
    model, summary = train_on(part, data, method, run)
    training = Trained.of(model)
    if not isinstance(training.head, NamesClusters):
        raise cannot(
            training.head, f"be calibrated: method {method.name} reads no label, and it has no second opinions"
        )
    origin = origin_of(method, part, {"training": summary, **getattr(model, "about", dict)()}, model)
    classifier = with_memory(replace(training.bind(data.labels), origin=origin), training, part.train.images)
    embeddings = training.embeddings(part.val.images)
    opinions = training.head.second_opinions(embeddings)
    return calibrate(classifier.scores_of(np.tile(embeddings, (len(opinions), 1))), opinions.ravel())


def _without_targets(split: Split) -> Split:
    """Return the images without their labels."""
    return Split(images=split.images, targets=np.full(len(split), -1), files=split.files)


def training_data(data: Dataset, seed: int = 0, *, hold_out: bool = True) -> TrainData:
    """Return the data that training may see: labelled training and validation images, and descriptions of labels without images.

    Labels without a training image are unseen: their descriptions are kept, their validation images are not. Without a validation
    split, a tenth of the training images is held out, at most a thousand or ten of each label, or none.
    """
    seen_rows, labels, unseen = labels_to_train(data)
    train_part, validation_part = (
        of_labels(split, seen_rows, len(data.labels)) for split in (data.split("train"), validation(data))
    )
    if hold_out and not len(validation_part):
        train_part, validation_part = split_rows(train_part, train_part.strata, val_share(train_part.strata), seed)
    if hold_out and len(validation_part) < 2:
        raise DataError(
            f"{len(train_part) + len(validation_part)} labelled images are too few to set some aside for validation. Add images, {FEWEST} of each label "
            "and more, or a val split."
        )
    return TrainData(
        train=TensorSplit.of(train_part), val=TensorSplit.of(validation_part), labels=labels, unseen=unseen
    )
