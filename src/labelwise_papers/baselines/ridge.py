"""Ridge: image embeddings are mapped to label vectors by ridge regression; the nearest label vector answers.

Label vectors have unit length, so the nearest one is the one with the largest product.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from labelwise.methods.shared.zero_shot import BilinearModel, ZeroShotMethod, best_on_validation
from labelwise.support.settings import check_range, setting
from labelwise.train.method import Method
from labelwise.train.model import LabelModel
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData

PENALTIES = tuple(10.0 ** (step / 2) for step in range(-4, 7))
PLAIN = 1.0  # where there is nothing to choose by


@dataclass(frozen=True, kw_only=True)
class Ridge(ZeroShotMethod):
    """The nearest label vector after ridge regression: a baseline of one linear system."""

    name: ClassVar[str] = "ridge"

    penalty: float | None = setting(None, "Penalty on the weights; none: chosen on held-out labels.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "above 0", "penalty")

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the stage of the image encoder, if there is one to train; then solve."""
        assert isinstance(model, BilinearModel)
        yield from self.train_encoder(model, data)
        embeddings, vectors = model.encode_all(data.train.images), model.vectors(data.labels)
        values, axes = torch.linalg.eigh(embeddings.T @ embeddings)
        sums = embeddings.new_zeros(len(vectors), embeddings.shape[1]).index_add_(0, data.train.targets, embeddings)
        middle = axes.T @ sums.T @ vectors

        def scores() -> Iterator[tuple[float, Tensor]]:
            rotated = model.encode_all(data.val.images) @ axes
            asked = middle @ model.vectors(data.known).T
            for penalty in PENALTIES:
                yield penalty, rotated @ (asked / (values[:, None] + penalty))

        penalty = self.penalty or best_on_validation(scores(), data, PLAIN)
        model.solve(axes @ (middle / (values[:, None] + penalty)), (penalty,))
        model.fit_statistics(data.train)

    def settle(self, model: LabelModel) -> Method:
        """Return the settings with the penalty that the trial chose."""
        assert isinstance(model, BilinearModel)
        return replace(self, penalty=model.penalties[0])
