"""The steps that every fit takes: images are chosen, a model is trained on them, and the classifier remembers them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier, MethodRecord, Origin, bind
from labelwise.core.familiarity import MEMORY
from labelwise.core.head import Head
from labelwise.encoders.encoder import Encoder, Precomputed
from labelwise.fitting.rebuild import training_state
from labelwise.fitting.tuning import about_trials
from labelwise.images.dataset import SPLITS, Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.split.divide import pool
from labelwise.images.split.make import split_off
from labelwise.images.targets import Array, among_labels
from labelwise.methods.discriminant.model import DiscriminantModel
from labelwise.support.rows import draw_rows
from labelwise.train.data import TrainData
from labelwise.train.loop import train
from labelwise.train.model import LabelModel, prepared
from labelwise.train.networks.torch_encoder import TorchEncoder
from labelwise.train.stages import Method, Run


def with_idle(data: Dataset, method: Method) -> Dataset:
    """Return the data with validation images in train, where a method leaves each image out instead and the division is ours.

    Splits that the data or their user name stay as they are, and so does every test split.
    """
    if data.own_splits or not method.leaves_out or not {"train", "val"} <= set(data.splits):
        return data
    joined = {name: data.splits[name] for name in SPLITS if name in ("train", "val")}
    rest = {name: split for name, split in data.splits.items() if name not in joined}
    return replace(data, splits={"train": pool(replace(data, splits=joined)), **rest})


def validation(data: Dataset) -> Split:
    """Return the validation images; none where the data have no such split."""
    return data.splits["val"] if "val" in data.splits else data.split("train").select([])


def set_aside(split: Split, strata: Array, share: float, seed: int) -> tuple[Split, Split]:
    """Return the images that stay and a share of each stratum ``[n]`` that is held out.

    Groups stay whole, unless each stratum lies in one (the characters of an alphabet): to hold one out would leave nothing of it to learn.
    """
    pairs = set(zip(strata.tolist(), split.groups, strict=True)) if any(split.groups) else set()
    divide = any(not group for _, group in pairs) or len(pairs) > len({stratum for stratum, _ in pairs})
    kept, held = split_off(strata, share, seed, split.groups if divide else ())
    return split.select(kept), split.select(held)


def of_labels(split: Split, labels: Sequence[int], total: int) -> Split:
    """Return the images of some of ``total`` labels, with targets that are positions among these.

    Where several labels may be true, an image without a true one is an image all the same: every answer to it is no.
    """
    moved = replace(split, targets=among_labels(split.targets, labels, total))
    return moved if moved.multilabel else moved.select(moved.labelled)


def train_on(part: TrainData, data: Dataset, method: Method, run: Run) -> tuple[LabelModel, dict[str, Any]]:
    """Return the model trained on a part of a data set, and what there is to tell of it; files left out head the log."""
    notes = tuple({"skipped": one.file, "reason": one.reason} for one in data.skipped)
    model, summary = train(method, part, replace(run, notes=notes))
    return model, {"data": data.name, "images": len(part.train), "skipped": len(notes), **summary}


@dataclass(frozen=True, eq=False)
class Trained:
    """A model that was trained, and what answers in its place."""

    model: LabelModel
    encoder: Encoder
    head: Head

    @classmethod
    def of(cls, model: LabelModel) -> Self:
        """Return a model with its encoder and its head as they are now."""
        model.eval()
        return cls(model, model.export_encoder(), model.export_head())

    def embeddings(self, images: Tensor) -> Array:
        """Return the embeddings ``[n, d]`` of images, or of features that the model made of them."""
        return self.head.embed(self.model.head_features(images).cpu().numpy())

    def bound(self, labels: Labels) -> Classifier:
        """Return the classifier of labels, not yet calibrated."""
        return bind(self.head, self.encoder, labels)


def origin_of(method: Method, part: TrainData, summary: dict[str, Any], model: LabelModel) -> Origin:
    """Return where a classifier trained on this comes from, and what ran its encoder where that is frozen."""
    encoder = model.export_encoder()
    summary |= {} if isinstance(encoder, Precomputed | TorchEncoder) else {"encoder_runtime": encoder.runtime}
    summary |= {"tuning": about_trials(model.trials)} if isinstance(model, DiscriminantModel) and model.trials else {}
    origin = Origin(method=MethodRecord.of(method), summary=summary, training=training_state(model))
    return origin.with_images(part.train.source).with_images(part.val.source)


def remembering(classifier: Classifier, trained: Trained, images: Tensor) -> Classifier:
    """Return the classifier with these training images among the familiar ones; of many, some."""
    known = prepared(trained.model, images)
    some = torch.from_numpy(draw_rows(len(known), MEMORY))
    embeddings = trained.embeddings(known if len(some) == len(known) else known[some])
    return replace(classifier, familiarity=classifier.familiarity.remember(embeddings))
