"""DeViSE: a linear map from image embeddings to label vectors, trained to rank the right label first (Frome et al., 2013)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from labelwise.methods.shared.zero_shot import BilinearModel, ZeroShotMethod
from labelwise.support.settings import check_range, setting
from labelwise.train.batches import Batch
from labelwise.train.model import LabelModel
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData


@dataclass(frozen=True, kw_only=True)
class Devise(ZeroShotMethod):
    """The ranking loss of DeViSE: the right label should score above each wrong one by a margin."""

    name: ClassVar[str] = "devise"

    margin: float = setting(0.1, "Margin of the ranking loss; 0.1 in the paper.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "above 0", "margin")

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the stage of the image encoder, if there is one to train, and that of the map."""
        assert isinstance(model, BilinearModel)
        yield from self.train_encoder(model, data)
        nn.init.normal_(model.weights, std=0.01)
        vectors = model.vectors(data.labels).to(model.weights.dtype)
        embeddings = replace(data, train=replace(data.train, images=model.encode_all(data.train.images)))

        def loss(batch: Batch) -> dict[str, Tensor]:
            scores = (batch.images @ model.weights @ vectors.T).float()
            right = scores.gather(1, batch.targets[:, None])
            short = (self.margin - right + scores).clamp_min(0)
            return {"rank": short.sum(1).mean() - self.margin}  # the right label is short of itself by the margin

        yield replace(self, augment=None).stage(self.name, nn.ParameterList([model.weights]), embeddings, loss)
        model.fit_statistics(data.train)
