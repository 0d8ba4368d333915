"""Indicator networks: "is this image a y?", trained with the true labels, one or several, and N wrong labels per image.

The paper repeats each image N + 1 times, once per asked label. Its predictor is linear in the product of the image
embedding z and what the label encoder gives, psi, so w.(z * psi) + b = z.(w * psi) + b: the embedding of a label is
(w * psi, b), each image is encoded once, and all scores of a batch are one matrix product.

In training there is a shorter way still. With h the hidden layer of the label encoder, of half the size, psi = V h + c and
the score is ((z * w) V).h + (z * w).c + b: each image is projected to that half size once, and label embeddings are never
made. With few negatives only the hidden layers of the asked labels are. What remains of the number of labels is the table
of the first layer itself, whose gradient, momentum and decay the optimiser goes through once a step.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, relu, softplus

from labelwise.images.dataset import several_true
from labelwise.images.describe.labels import Labels
from labelwise.methods.indicator.negatives import sample_by_score, sample_uniformly, sample_wrong_labels
from labelwise.methods.shared.image_method import StartedMethod
from labelwise.methods.shared.linear import Encoder, StartedModel
from labelwise.support.errors import UsageError
from labelwise.support.settings import check_range, setting
from labelwise.train.batches import Batch
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.tensors import linear_scores
from labelwise.train.train_data import TensorSplit, TrainData

Activation = Literal["none", "relu", "leaky_relu", "sigmoid", "tanh"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": relu,
    "leaky_relu": leaky_relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


MANY = 100  # labels for each one that is asked, from which on looking those up beats one product with all
PART = {"cpu": 2**20, "cuda": 2**24}  # scores that hard sampling holds at a time; on a CPU few fit its caches best


class Projected(NamedTuple):
    """Images as training sees them: a score is ``embeddings @ hidden + offset``."""

    embeddings: Tensor  # [n, d/2]
    offset: Tensor  # [n, 1]
    base: Tensor | None = None  # scores of all labels in closed form [n, k], which are added


class LabelEncoder(nn.Module):
    """psi: two linear layers k -> d/2 -> d over a label input in R^k; a label's own input is one-hot."""

    def __init__(self, k: int, d: int, activation: Activation) -> None:
        super().__init__()
        self.first = nn.Linear(k, max(1, d // 2))
        self.second = nn.Linear(max(1, d // 2), d)
        self.activation = activation

    def forward(self, rows: Tensor | slice) -> Tensor:
        """Return psi ``[m, d]`` of the labels at these rows."""
        return self.second(self.hidden(rows).T)  # type: ignore[no-any-return]

    def of_inputs(self, inputs: Tensor) -> Tensor:
        """Return psi ``[m, d]`` of arbitrary label inputs ``[m, k]``."""
        return self.second(ACTIVATIONS[self.activation](self.first(inputs)))  # type: ignore[no-any-return]

    def hidden(self, rows: Tensor | slice) -> Tensor:
        """Return the hidden layer ``[d/2, m]`` of the labels at these rows; a one-hot product is a look-up."""
        table = self.first.weight
        selected = table[:, rows] if isinstance(rows, slice) else table.index_select(1, rows)
        return ACTIVATIONS[self.activation](selected + self.first.bias[:, None])


class IndicatorModel(StartedModel):
    """Image encoder, label encoder and predictor; the label embedding is (w * psi, b)."""

    def __init__(self, spec: Spec, encoder: Encoder, activation: Activation) -> None:
        super().__init__(spec, encoder)
        d = self.encoder.code_size
        self.label_encoder = LabelEncoder(len(spec.labels), d, activation)
        self.predictor = nn.Linear(d, 1)
        self._start()

    def _start(self) -> None:
        """Initialise the weights so that labels differ from each other, without a common bias.

        The paper does not say how. With torch's defaults three small factors make up a label's embedding, labels start nearly
        alike, and training lingers there. Image embeddings that are not trained cannot adapt to a random start, so with them
        it is smaller still.
        """
        nn.init.constant_(self.predictor.weight, 0.3)
        nn.init.zeros_(self.label_encoder.first.bias)
        nn.init.zeros_(self.label_encoder.second.bias)
        # A one-hot input has one active entry; torch's default assumes k of them.
        reach = 0.1 if self.encoder.untrained else 1.0
        nn.init.uniform_(self.label_encoder.first.weight, -reach, reach)
        if self.encoder.untrained:
            with torch.no_grad():
                self.label_encoder.second.weight.mul_(0.03)

    def start(self, split: TensorSplit) -> None:
        """Begin with the closed form of training images; the second layer of the label encoder is zero."""
        super().start(split)
        nn.init.zeros_(self.label_encoder.second.weight)

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label embeddings ``[k, d + 1]``."""
        rows = self.trained_rows(labels)
        own = self._embeddings(self.label_encoder(rows))
        return own + self.base[rows] if self.can_start else own

    def encode_label_inputs(self, inputs: Tensor) -> Tensor:
        """Return label embeddings ``[m, d + 1]`` of any label inputs ``[m, k]``, such as all ones or all zeros."""
        if inputs.ndim != 2 or inputs.shape[1] != len(self.spec.labels):
            raise UsageError(f"Label inputs are [m, {len(self.spec.labels)}]; given {list(inputs.shape)}.")
        return self._embeddings(self.label_encoder.of_inputs(inputs))

    def project(self, image_embeddings: Tensor, is_started: bool = False) -> Projected:
        """Return all that scores need of images, from their embeddings ``[n, d]``; ``is_started``, which waits for a GPU, is asked once before."""
        weighted_images, second = image_embeddings * self.predictor.weight, self.label_encoder.second
        base = linear_scores(image_embeddings, self.base) if is_started else None
        return Projected(
            weighted_images @ second.weight, (weighted_images @ second.bias)[:, None] + self.predictor.bias, base
        )

    def scores_of_rows(self, images: Projected, rows: slice) -> Tensor:
        """Return the score of every image with every label at these rows ``[n, m]``."""
        scores = torch.addmm(images.offset, images.embeddings, self.label_encoder.hidden(rows))
        return scores if images.base is None else scores + images.base[:, rows]

    def scores_of_pairs(self, images: Projected, labels: Tensor) -> Tensor:
        """Return the scores of each image with its own labels ``[n, m]``, given at ``asked [n, m]``."""
        if labels.shape[1] * MANY > len(self.spec.labels):
            return self.scores_of_rows(images, slice(None)).gather(1, labels)
        hidden = self.label_encoder.hidden(labels.flatten()).view(-1, *labels.shape)
        scores = torch.einsum("nh,hnm->nm", images.embeddings, hidden) + images.offset
        return scores if images.base is None else scores + images.base.gather(1, labels)

    def _embeddings(self, psi: Tensor) -> Tensor:
        return torch.cat([self.predictor.weight * psi, self.predictor.bias.expand(len(psi), 1)], 1)


@dataclass(frozen=True, kw_only=True)
class Round:
    """How one stage of a curriculum trains; None is as the method does."""

    epochs: int | None = setting(None, "Epochs of the stage.")
    batch: int | None = setting(None, "Images of a batch.")
    lr: float | None = setting(None, "Learning rate to begin with.")
    drops: tuple[int, ...] | None = setting(None, "Epochs after which the learning rate falls.")

    def __post_init__(self) -> None:
        check_range(self, "at least 1", "epochs", "batch")
        check_range(self, "above 0", "lr")

    def of(self, method: "Indicator") -> "Indicator":
        """Return the method with the settings of this stage."""
        changes = {name: value for name in ("epochs", "batch") if (value := getattr(self, name)) is not None}
        optimizer = method.optimizer if self.lr is None else replace(method.optimizer, lr=self.lr)
        schedule = method.schedule if self.drops is None else replace(method.schedule, name="step", drops=self.drops)
        return replace(method, optimizer=optimizer, schedule=schedule, rounds=(), curriculum=(), **changes)


@dataclass(frozen=True, kw_only=True)
class Indicator(StartedMethod):
    """Indicator network."""

    name: ClassVar[str] = "indicator"
    multilabel: ClassVar[bool] = True

    negatives: int | None = setting(
        None,
        "N, wrong labels per image and step; none: all of them. A small N saves time with many thousands of labels.",
    )
    sampling: Literal["uniform", "hard"] = setting(
        "uniform", "uniform, or hard: in proportion to exp(score / temperature)."
    )
    temperature: float = setting(1.0, "Temperature of hard sampling.")
    activation: Activation = setting("none", "Activation between the layers of the label encoder.")
    curriculum: tuple[int, ...] = setting((), "Numbers of negatives to train with first, one stage each (section 9).")
    rounds: tuple[Round, ...] = setting(
        (), "How each stage of the curriculum trains, the last included; empty: all alike."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(n is not None and n < 1 for n in (*self.curriculum, self.negatives)):
            raise UsageError(f"An image needs at least one negative; given {(*self.curriculum, self.negatives)}.")
        check_range(self, "above 0", "temperature")
        if self.rounds and len(self.rounds) != len(self.curriculum) + 1:
            raise UsageError(
                f"rounds names each stage: {len(self.curriculum)} of the curriculum and the last; given {len(self.rounds)}."
            )

    def build(self, spec: Spec) -> IndicatorModel:
        """Return the untrained model."""
        return IndicatorModel(spec, self.encoder, self.activation)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield one stage for each number of negatives, then keep the statistics that adding a label needs."""
        assert isinstance(model, IndicatorModel)
        self.begin(model, data)
        last = len(data.labels) - 1 if self.negatives is None else self.negatives
        for position, negatives in enumerate((*self.curriculum, last)):
            loss = (self.loss_of_several if data.train.multilabel else self.loss)(model, negatives)
            settings = self.rounds[position].of(self) if self.rounds else self
            yield settings.stage(f"indicator N={negatives}", model, data, loss)
        model.fit_statistics(data.train)

    def loss(self, model: IndicatorModel, negatives: int) -> Callable[[Batch], dict[str, Tensor]]:
        """Return the loss of eq. 4 with K1 = K2 = 1, each image encoded once."""
        is_started = model.started

        def of_batch(batch: Batch) -> dict[str, Tensor]:
            images, truth = model.project(model.encode_images(batch.images), is_started), batch.targets[:, None]
            if negatives >= len(model.spec.labels) - 1:
                scores = model.scores_of_rows(images, slice(None)).float()
                right = scores.gather(1, truth)
                no = softplus(scores).sum(1) - softplus(right[:, 0])
            else:
                wrong = self.wrong_labels(model, images, batch, negatives)
                scores = model.scores_of_pairs(images, torch.cat([truth, wrong], 1)).float()
                right, no = scores[:, :1], softplus(scores[:, 1:]).sum(1)
            return {"yes": softplus(-right).mean(), "no": no.mean()}

        return of_batch

    def loss_of_several(self, model: IndicatorModel, negatives: int) -> Callable[[Batch], dict[str, Tensor]]:
        """Return the loss of eq. 4 with K1 the number of an image's true labels, which may be 0, and K2 = 1.

        The targets of a batch are as large as its scores of all labels, so N does not matter.
        """
        is_started = model.started

        def of_batch(batch: Batch) -> dict[str, Tensor]:
            images, true = model.project(model.encode_images(batch.images), is_started), batch.targets
            scores = model.scores_of_rows(images, slice(None)).float()
            yes = (softplus(-scores) * true).sum(1)
            if negatives >= len(model.spec.labels) - 1:
                return {"yes": yes.mean(), "no": (softplus(scores) * ~true).sum(1).mean()}
            wrong = self.wrong_labels(model, images, batch, negatives)
            no = softplus(scores.gather(1, wrong.clamp_min(0))) * (wrong >= 0)
            return {"yes": yes.mean(), "no": no.sum(1).mean()}

        return of_batch

    @torch.no_grad()
    def wrong_labels(self, model: IndicatorModel, images: Projected, batch: Batch, negatives: int) -> Tensor:
        """Return the labels ``[n, negatives]`` to answer no to; hard sampling scores all labels, a part at a time.

        Targets of the batch may be ``[n, k]``, see ``ops.negatives.sample_by_score``.
        """
        k, rng = len(model.spec.labels), batch.rng
        if self.sampling == "uniform" and several_true(batch.targets):
            return sample_wrong_labels(rng.uniform(k), batch.targets, negatives)
        if self.sampling == "uniform":
            return sample_uniformly(rng.uniform(negatives, 2), batch.targets, k)
        width = max(1, PART[rng.device.type] // rng.total)
        rows = [slice(start, min(k, start + width)) for start in range(0, k, width)]
        parts = (
            (rng.uniform(part.stop - part.start), model.scores_of_rows(images, part).float() / self.temperature)
            for part in rows
        )
        return sample_by_score(parts, batch.targets, negatives)
