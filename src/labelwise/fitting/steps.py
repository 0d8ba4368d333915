"""Steps of every fit that trains: train a model, bind it to labels, and record where it comes from."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from labelwise.core.calibration import MEMORY
from labelwise.core.classifier import Classifier, MethodRecord, Origin, bind
from labelwise.core.head import Head
from labelwise.core.saved_parts import check_finite, pack
from labelwise.encoders.encoder import Encoder
from labelwise.fitting.rebuild import training_state
from labelwise.fitting.tuning import about_trials
from labelwise.images.dataset import Array, Dataset
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.model import DiscriminantModel
from labelwise.support.rows import draw_rows
from labelwise.train.loop import train
from labelwise.train.method import Method, Run
from labelwise.train.model import LabelModel
from labelwise.train.train_data import TrainData


def train_on(part: TrainData, data: Dataset, method: Method, run: Run) -> tuple[LabelModel, dict[str, Any]]:
    """Return the model trained on a part of a data set, and a summary; the log starts with the skipped files."""
    notes = tuple({"skipped": skip.file, "reason": skip.reason} for skip in data.skipped)
    model, summary = train(method, part, replace(run, notes=notes))
    return model, {"data": data.name, "images": len(part.train), "skipped": len(notes), **summary}


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model with its exported encoder and head."""

    model: LabelModel
    encoder: Encoder
    head: Head

    @classmethod
    def of(cls, model: LabelModel) -> Self:
        """Export the current encoder and head of a model."""
        model.eval()
        head = model.export_head()
        check_finite({}, pack(head).arrays)
        return cls(model, model.export_encoder(), head)

    def embeddings(self, images: Tensor) -> Array:
        """Return the embeddings ``[n, d]`` of images, or of their features."""
        return self.head.embed(self.model.head_features(images).cpu().numpy())

    def bind(self, labels: Labels) -> Classifier:
        """Return the uncalibrated classifier of these labels."""
        return bind(self.head, self.encoder, labels)


def origin_of(method: Method, part: TrainData, summary: dict[str, Any], model: LabelModel) -> Origin:
    """Return the origin of a classifier: method, images, summary, and the runtime of a frozen encoder."""
    encoder = model.export_encoder()
    cacheable = getattr(encoder, "cacheable", True)
    summary |= {"encoder_runtime": encoder.runtime} if cacheable else {}
    summary |= {"tuning": about_trials(model.trials)} if isinstance(model, DiscriminantModel) and model.trials else {}
    origin = Origin(method=MethodRecord.of(method), summary=summary, training=training_state(model))
    return origin.with_images(part.train.source).with_images(part.val.source)


def with_memory(classifier: Classifier, training: Trained, images: Tensor) -> Classifier:
    """Return the classifier with these training images among the familiar ones; a sample if there are many."""
    training_embeddings = training.model.prepare(images)
    some = torch.from_numpy(draw_rows(len(training_embeddings), MEMORY))
    embeddings = training.embeddings(
        training_embeddings if len(some) == len(training_embeddings) else training_embeddings[some]
    )
    return replace(classifier, familiarity=classifier.familiarity.remember(embeddings))
