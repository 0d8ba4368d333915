"""Models that generate features of labels without images, and a softmax layer trained on these features."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.core.arrays import Array, linear_scores
from labelwise.core.head import Head
from labelwise.images.describe.labels import Labels
from labelwise.methods.izf.generated_head import GeneratedHead
from labelwise.methods.shared.linear import array
from labelwise.methods.shared.zero_shot import ZeroShotMethod, ZeroShotModel, best_on_validation
from labelwise.support.settings import check_range, setting
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Loss, Stage
from labelwise.train.train_data import TrainData

REAL = 50  # features of images kept for each trained label
HEAD_PENALTIES = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5)  # falling: each fit starts from the one before
PLAIN_PENALTY = 1e-4


class GeneratingModel(ZeroShotModel):
    """A model whose head makes features of a label from its description.

    Features are encoded images, centred and of unit length. Generated features share their space; they are not
    normalised. They depend on the name of the label, its description and the seed, not on the other labels.
    """

    trained_epochs: Tensor

    def features_of(self, images: Tensor) -> Tensor:
        """Return the features ``[n, d]`` of images."""
        return super().encode_images(images)

    def encode_features(self, images: Tensor) -> Tensor:
        """Return the features ``[n, d]`` of many images, a batch at a time."""
        return self.encode_all(images, by=self.features_of)

    def encode_images(self, images: Tensor) -> Tensor:
        """Return image embeddings ``[n, e]``."""
        return self.embed(self.features_of(images))

    def embed(self, features: Tensor) -> Tensor:
        """Return image embeddings ``[n, e]`` from features ``[n, d]``."""
        return features


class GeneratedSoftmax(GeneratingModel):
    """A model whose head is a linear softmax over labels, trained on real and generated features; see ``GeneratedHead``."""

    exclusive = True

    def keep_for_head(self, generated: int) -> None:
        """Initialise the training data of the layer: real features, and ``generated`` ones of each label without images."""
        self.generated, d = generated, self.encoder.code_size
        self.rows = np.zeros((len(self.spec.labels), d + 1), np.float32)  # the layer of the trained labels alone
        self.real = np.zeros((0, d), np.float16)  # some features of the images of trained labels
        self.real_targets = np.zeros(0, np.int64)  # their labels
        self.head_penalty = PLAIN_PENALTY  # on the squared weights, in units of the mean squared length of embeddings

    def keep_real(self, features: Tensor, targets: Tensor) -> None:
        """Keep some of these features ``[n, d]`` with labels ``[n]``, the same number of each label where there are."""
        order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0)).to(targets.device)
        rows_kept = [order[targets[order] == label][:REAL] for label in range(len(self.spec.labels))]
        self.real, self.real_targets = (array(of[torch.cat(rows_kept)]) for of in (features.half(), targets))

    def layers(self, labels: Labels, penalties: tuple[float, ...]) -> Iterator[tuple[float, Array]]:
        """Yield each penalty and the embeddings of labels ``[k, d + 1]`` under it."""
        head = self.export_head()
        assert isinstance(head, GeneratedHead)
        return head.layers(labels, penalties)

    def choose_penalty(self, penalty: float) -> None:
        """Fit the layer of the trained labels with a penalty."""
        self.head_penalty = penalty
        *_, (_, self.rows) = self.layers(self.spec.labels, (penalty,))

    def restore(self, head: Head) -> None:
        """Load from a head what the state does not hold."""
        super().restore(head)
        assert isinstance(head, GeneratedHead)
        self.rows, self.real, self.real_targets = head.rows, head.real, head.real_targets
        self.head_penalty = head.penalty_of_layer

    def head_parts(self) -> dict[str, Any]:
        """Return the fields shared by the heads of these models."""
        return {
            **super().head_parts(),
            "rows": self.rows,
            "real": self.real,
            "real_targets": self.real_targets,
            "penalty_of_layer": self.head_penalty,
            "generated": self.generated,
        }


@dataclass(frozen=True, kw_only=True)
class GeneratingMethod(ZeroShotMethod):
    """Settings of methods that generate features of labels from descriptions.

    ``epochs``, ``batch``, ``optimizer``, ``schedule`` and ``clip`` are those of the generator.
    """

    optimizer: Optimizer = field(default_factory=lambda: Optimizer(name="adam", lr=1e-4, weight_decay=1e-5))
    schedule: Schedule = field(default_factory=lambda: Schedule(name="constant"))
    batch: int = 256
    encoder_epochs: int = setting(20, "Epochs of the image encoder, if one is trained.")
    encoder_optimizer: Optimizer = setting(Optimizer(), "Optimiser of the image encoder.")
    patience: int | None = setting(
        10, "Epochs without a better figure on held-out labels after which the trial stops; none: never."
    )
    generated: int = setting(100, "Features generated per unseen label to train a softmax layer.")
    head_penalty: float | None = setting(None, "Penalty on the weights of that layer; none: chosen on held-out labels.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "at least 1", "encoder_epochs", "generated")
        check_range(self, "above 0", "head_penalty")

    def train_encoder(self, model: ZeroShotModel, data: TrainData) -> Iterator[Stage]:
        """Yield the stage of the image encoder with its own settings, if there is one; then fit the centring."""
        own = {"epochs": self.encoder_epochs, "optimizer": self.encoder_optimizer, "schedule": Schedule(), "clip": 5.0}
        yield from ZeroShotMethod.train_encoder(replace(self, **own), model, data)  # type: ignore[arg-type]

    def feature_stage(
        self, model: GeneratingModel, module: nn.Module, data: TrainData, loss: Loss, merit: Callable[[], float] | None
    ) -> Stage:
        """Return the stage that trains a module of a model on features, the images of the data.

        The best epoch by the figure of merit is kept, and how many were trained counted; without a figure, all are.
        """
        stage = replace(self, augment=None).stage(self.name, module, data, loss)
        if merit is None:
            model.trained_epochs.fill_(self.epochs)
            return stage

        def validate() -> float:
            model.trained_epochs.add_(1)  # before the weights of the epoch are stored
            return merit()

        return replace(stage, validate=validate, patience=self.patience)

    def choose_head(self, model: GeneratedSoftmax, data: TrainData, features: Tensor) -> None:
        """Fit the softmax layer of a model; its penalty is the one set, or the best on held-out labels."""
        model.keep_real(features, data.train.targets)
        penalty = self.head_penalty
        if penalty is None:
            with torch.no_grad():
                val = model.embed(model.encode_features(data.val.images)) if len(data.val) else features[:0]
            embeddings = array(val)
            layers = (
                (candidate, linear_scores(embeddings, rows))
                for candidate, rows in model.layers(data.known, HEAD_PENALTIES)
            )
            penalty = best_on_validation(layers, data, PLAIN_PENALTY)
        model.choose_penalty(penalty)
