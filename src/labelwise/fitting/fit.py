"""Fit: from data and a method to a calibrated classifier."""

from dataclasses import replace

import torch
from torch import Tensor

from labelwise.classifier import Classifier, Origin, bind
from labelwise.data.dataset import Dataset, Split, TrainData, first_true
from labelwise.data.labels.knowledge import require
from labelwise.data.read.files import at_side
from labelwise.data.split.make import split_off
from labelwise.errors import DataError, UsageError, listing
from labelwise.fitting.choice import decide, encoder_of
from labelwise.fitting.memory import remembering
from labelwise.fitting.zero_shot import fit_zero_shot
from labelwise.labels import unfit_name
from labelwise.methods import METHODS
from labelwise.model import NamesClusters, cannot, prepared
from labelwise.nn.encoder import side_for
from labelwise.ops.ranking import average_precisions
from labelwise.tasks.calibrate import calibrate
from labelwise.tasks.verify import can_verify, make_verifier
from labelwise.training.loop import train
from labelwise.training.stages import Method, Run

VALIDATION_SHARE = 0.1
MOST_VERIFIED = 2_000  # validation images up to which a threshold for pairs is fitted at once


def fit(data: Dataset, method: Method | None = None, run: Run | None = None) -> Classifier:
    """Return a classifier trained on the train split and calibrated on the validation split.

    The test split is never read. Without a validation split a tenth of the training images is set aside for it. Methods
    that read descriptions of labels are fitted as ``zero_shot`` says. Methods that read no target are fitted without any.
    Pictures from files whose size was left open are read at the size that the method's encoder takes.

    Args:
        data: labels and splits.
        method: what to train, with its settings; None is what ``choice.decide`` makes of the data, as in the shell.
        run: seed, device, folder for checkpoints; the default keeps nothing on disk.
    """
    run = run or Run()
    method = method or decide(data).method
    _check_method(data, method)
    data = at_side(data, side_for(encoder_of(method)))
    if method.zero_shot:
        return fit_zero_shot(data, method, run)
    if not method.uses_targets:
        return _fit_unlabelled(data, method, run)
    seen = training_data(data, run.seed)
    for piece in (piece for piece in method.needs if hasattr(seen.labels, piece)):
        require(seen.labels, piece, f"Method {method.name}")
    skipped = tuple({"skipped": one.file, "reason": one.reason} for one in data.skipped)
    model, summary = train(method, seen, replace(run, notes=skipped))
    bound = remembering(bind(model, seen.labels), seen.train.images)
    bound = replace(bound, calibration=replace(bound.calibration, multilabel=data.multilabel))
    held = bound.scores_of(bound.encode(prepared(model, seen.val.images)))
    about = {"data": data.name, "images": len(seen.train), "skipped": len(skipped), **summary}
    about |= {"validation_images": len(seen.val), **_merit(held.log_odds.cpu(), seen.val)}
    origin = Origin(method=method, summary={"training": about})
    origin = origin.with_images(seen.train.images).with_images(seen.val.images)
    targets = seen.val.targets if seen.val.truths is None else seen.val.truths
    done = calibrate(held.of(replace(bound, origin=origin)), targets)
    if seen.val.truths is not None or len(held) > MOST_VERIFIED or not can_verify(targets):
        return done
    return replace(done, verifier=make_verifier(model, held.embeddings, targets))


def _fit_unlabelled(data: Dataset, method: Method, run: Run) -> Classifier:
    """Return a classifier of all labels by a method that reads no target: targets are taken away before it starts.

    Probabilities say how many of the model's second opinions agree; all may be wrong in the same way, and without a label no
    more can be known.
    """
    whole = _without_targets(data.split("train"))
    held = _without_targets(data.splits["val"]) if "val" in data.splits else whole.select([])
    if not len(held):
        kept, rows = split_off(whole.targets + 1, VALIDATION_SHARE, run.seed)
        whole, held = whole.select(kept), whole.select(rows)
    notes = tuple({"skipped": one.file, "reason": one.reason} for one in data.skipped)
    model, summary = train(method, TrainData(train=whole, val=held, labels=data.labels), replace(run, notes=notes))
    about = {"data": data.name, "images": len(whole), "skipped": len(notes), **summary}
    if not isinstance(model, NamesClusters):
        raise cannot(model, f"be calibrated: method {method.name} reads no label, and it has no second opinions")
    origin = Origin(method=method, summary={"training": about, **model.about()})
    origin = origin.with_images(whole.images).with_images(held.images)
    bound = remembering(replace(bind(model, data.labels), origin=origin), whole.images)
    embeddings = bound.encode(prepared(model, held.images))
    opinions = model.second_opinions(embeddings)
    return calibrate(bound.scores_of(embeddings.repeat(len(opinions), 1)), opinions.flatten())


def _without_targets(split: Split) -> Split:
    """Return the images alone: no method can read a label from them."""
    return Split(images=split.images, targets=torch.full_like(split.targets, -1), files=split.files)


def _check_method(data: Dataset, method: Method) -> None:
    """Raise an error where a method cannot train on such data: names, several labels an image, features to be attacked."""
    for name in data.labels.names:
        if unfit := unfit_name(name):
            raise UsageError(f'"{data.name}" has a label that could not be saved: {unfit}. Rename it.')
    if len(data.shape) == 1 and getattr(method, "adversarial", None) is not None:
        raise UsageError(
            f'Adversarial training changes the pixels of pictures, and "{data.name}" holds precomputed features. '
            "Leave adversarial out, or give pictures."
        )
    if data.multilabel and not method.multilabel:
        able = listing(name for name, kind in METHODS.items() if kind.multilabel)
        raise UsageError(
            f'Several labels may be true of one image of "{data.name}", and method {method.name} takes one label for each. '
            f"Methods that can: {able}."
        )


def _merit(scores: Tensor, val: Split) -> dict[str, float]:
    """Return how good scores ``[n, k]`` of validation images are: accuracy, or mean average precision of several labels."""
    if val.truths is None:
        return {"validation_accuracy": float((scores.argmax(1) == val.targets).double().mean())}
    return {"validation_precision": float(average_precisions(scores, val.truths).nanmean())}


def training_data(data: Dataset, seed: int = 0) -> TrainData:
    """Return what training may see: labelled train and validation images, and descriptions of labels without any.

    Labels that no training image has are unseen: their descriptions stay, their validation images do not.
    """
    train_part = data.split("train")
    if train_part.truths is None:
        present = sorted(set(train_part.targets.tolist()))
    else:
        present = train_part.truths.any(0).nonzero()[:, 0].tolist()
    names = [data.labels.names[i] for i in present if i >= 0]
    if len(names) < 2:
        raise DataError(
            f'Training needs images of at least two labels; the train split of "{data.name}" has {len(names)}. '
            "Add a folder of other pictures, for example one of things that are not your label."
        )
    unseen = [name for name in data.labels.names if name not in set(names)]
    labels = data.labels.select(names) if unseen else data.labels
    places = torch.full((len(data.labels) + 1,), -1)
    places[[data.labels.index(name) for name in names]] = torch.arange(len(names))
    whole = _labelled(data.split("train"), places)
    held = _labelled(data.splits["val"], places) if "val" in data.splits else whole.select([])
    if not len(held):
        kept, rows = split_off(whole.strata, VALIDATION_SHARE, seed)
        whole, held = whole.select(kept), whole.select(rows)
    if len(held) < 2:
        raise DataError(
            f"{len(whole) + len(held)} labelled images are too few to set some aside for validation. "
            "Add images, or a val split."
        )
    rest = data.labels.select(unseen) if unseen else None
    return TrainData(train=whole, val=held, labels=labels, unseen=rest)


def _labelled(split: Split, places: Tensor) -> Split:
    """Return the images whose label has a place, with their targets moved to it.

    Where several labels may be true, an image without a true one is an image all the same: every answer to it is no.
    """
    if split.truths is not None:
        truths = split.truths[:, (places[:-1] >= 0).to(split.truths.device)]
        return replace(split, truths=truths, targets=first_true(truths))
    moved = replace(split, targets=places[split.targets.cpu()])
    return moved.select((moved.targets >= 0).nonzero()[:, 0])
