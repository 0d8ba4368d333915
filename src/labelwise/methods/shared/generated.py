"""Models that make features of labels they have no image of, and a softmax layer trained on these features."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.images.describe.labels import Labels
from labelwise.methods.shared.linear import array
from labelwise.methods.shared.zero_shot import ZeroShotMethod, ZeroShotModel, best_on_validation
from labelwise.methods.shared.zero_shot_head import softmax_layers
from labelwise.support.settings import check_range, setting
from labelwise.train.data import TrainData
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Loss, Stage

REAL = 50  # features of images kept for each trained label
HEAD_PENALTIES = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5)  # falling: each fit starts from the one before
PLAIN_PENALTY = 1e-4


class GeneratingModel(ZeroShotModel):
    """A model that makes features of a label from its description.

    Features are what the encoder makes of images, centred and of unit length. Made ones lie in the same space, and their
    length is left as it comes. A subclass defines ``generate``; what it makes of a label depends on the name of the label,
    its description and the seed, and not on the other labels.
    """

    trained_epochs: Tensor

    @abstractmethod
    def generate(self, labels: Labels, count: int, seed: int) -> Tensor:
        """Return features ``[k, count, d]`` of images that do not exist, made from the labels' descriptions."""

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
    """A linear softmax over labels, trained on real features of the trained ones and on made features of all others.

    It is fitted to the labels asked about and the trained ones together, each label weighing the same, when they are
    encoded. A label that is added later is fitted against the trained ones, and the others stay as they are.
    """

    exclusive = True
    fitted_together = True
    added_apart = True
    real: Tensor  # some features of the images of each trained label [k * REAL, d]
    real_targets: Tensor  # their labels [k * REAL]; -1 where a label has fewer
    head_penalty: Tensor  # on the squared weights, in units of the mean squared length of embeddings

    def keep_for_head(self, generated: int) -> None:
        """Make room for what the softmax layer is trained on: real features, and ``generated`` ones of a label."""
        k, d = len(self.spec.labels), self.encoder.code_size
        self.generated = generated
        self.register_buffer("real", torch.zeros(k * REAL, d, dtype=torch.float16))
        self.register_buffer("real_targets", torch.full((k * REAL,), -1))
        self.register_buffer("head_penalty", torch.tensor(PLAIN_PENALTY))

    @torch.no_grad()
    def fit_head(self, features: Tensor, targets: Tensor) -> None:
        """Keep some of these features ``[n, d]`` with labels ``[n]``, the same number of each label where there are."""
        order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0)).to(targets.device)
        for label in range(len(self.spec.labels)):
            rows = order[targets[order] == label][:REAL]
            block = slice(label * REAL, label * REAL + len(rows))
            self.real[block], self.real_targets[block] = features[rows].half(), label

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return the weights and biases ``[k, d + 1]`` of the softmax layer."""
        *_, (_, embeddings) = self.heads(labels, (float(self.head_penalty),))
        return embeddings

    def heads(self, labels: Labels, penalties: tuple[float, ...]) -> Iterator[tuple[float, Tensor]]:
        """Yield each penalty and the embeddings of labels ``[k, d + 1]`` under it."""
        trained = self.spec.labels.names
        others = sorted(set(labels.names) - set(trained))
        row_of = {name: row for row, name in enumerate((*trained, *others))}
        here = self.real_targets >= 0
        features, targets = self.real[here].float(), array(self.real_targets[here])
        with torch.no_grad():
            if others:
                features = torch.cat([features, self.generate(labels.select(others), self.generated, 0).flatten(0, 1)])
                rows = np.arange(len(others)) + len(trained)
                targets = np.concatenate([targets, np.repeat(rows, self.generated)])
            embeddings = array(self.embed(features))
        for penalty, rows in softmax_layers(embeddings, targets, len(row_of), penalties):
            yield penalty, self.tensor(rows[[row_of[name] for name in labels.names]])

    def head_parts(self) -> dict[str, Any]:
        """Return what the heads of all such models have."""
        here = self.real_targets >= 0
        return {
            **super().head_parts(),
            "rows": array(self.encode_labels(self.spec.labels)),
            "real": array(self.real[here]),
            "real_targets": array(self.real_targets[here]),
            "penalty_of_layer": float(self.head_penalty),
            "generated": self.generated,
        }


@dataclass(frozen=True, kw_only=True)
class GeneratingMethod(ZeroShotMethod):
    """Settings of methods that make features of labels from descriptions.

    ``epochs``, ``batch``, ``optimizer``, ``schedule`` and ``clip`` are those of what makes features.
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
            model.trained_epochs.add_(1)  # before the weights of the epoch are kept
            return merit()

        return replace(stage, validate=validate, patience=self.patience)

    def choose_head(self, model: GeneratedSoftmax, data: TrainData, features: Tensor) -> None:
        """Fit what the softmax layer of a model is trained on; its penalty is the one set, or the best on held-out labels."""
        model.fit_head(features, data.train.targets)
        penalty = self.head_penalty
        if penalty is None:
            with torch.no_grad():
                embeddings = model.embed(model.encode_features(data.val.images)) if len(data.val) else features[:0]
            heads = ((one, model.score(embeddings, head)) for one, head in model.heads(data.known, HEAD_PENALTIES))
            penalty = best_on_validation(heads, data, PLAIN_PENALTY)
        model.head_penalty.fill_(penalty)
