"""Independent yes/no outputs (B-ML): a linear layer and one binary cross-entropy per label."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from labelwise.images.dataset import several_true
from labelwise.methods.shared.image_method import ImageMethod
from labelwise.methods.shared.linear import HeadModel, LinearModel
from labelwise.train.batches import Batch
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData


@dataclass(frozen=True, kw_only=True)
class Multilabel(ImageMethod):
    """One binary cross-entropy per label, summed; the baseline called B-ML in the indicator paper."""

    name: ClassVar[str] = "multilabel"
    multilabel: ClassVar[bool] = True

    def build(self, spec: Spec) -> HeadModel:
        """Return the untrained model."""
        return HeadModel(spec, self.encoder)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the one stage."""
        assert isinstance(model, LinearModel)

        def loss(batch: Batch) -> dict[str, Tensor]:
            scores = model.score(model.encode_images(batch.images), model.encode_labels(data.labels)).float()
            truth = batch.targets
            if not several_true(truth):  # created on the scores' device: a copy would wait for a GPU
                truth = truth[:, None] == torch.arange(scores.shape[1], device=scores.device)
            return {
                "answers": binary_cross_entropy_with_logits(scores, truth.to(scores), reduction="sum") / len(scores)
            }

        return self.train_whole(model, data, loss)
