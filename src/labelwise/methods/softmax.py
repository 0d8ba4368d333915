"""The ordinary classifier (B-T): a linear layer and cross-entropy over all labels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy

from labelwise.methods.shared.image_method import StartedMethod
from labelwise.methods.shared.linear import LinearModel, SoftmaxModel
from labelwise.train.batches import Batch
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData


@dataclass(frozen=True, kw_only=True)
class Softmax(StartedMethod):
    """Cross-entropy over all labels; the baseline called B-T in the indicator paper."""

    name: ClassVar[str] = "softmax"

    def build(self, spec: Spec) -> SoftmaxModel:
        """Return the untrained model."""
        return SoftmaxModel(spec, self.encoder)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the one stage."""
        assert isinstance(model, LinearModel)

        def loss(batch: Batch) -> dict[str, Tensor]:
            scores = model.score(model.encode_images(batch.images), model.encode_labels(data.labels))
            return {"choice": cross_entropy(scores.float(), batch.targets)}

        return self.train_whole(model, data, loss)
