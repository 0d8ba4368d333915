"""Indicator networks: "is this image a y?", trained with the true label and N wrong labels per image.

The paper repeats each image N + 1 times, once per asked label. Its predictor is linear in the product of image code
z and label embedding psi, so w.(z * psi) + b = z.(w * psi) + b: the code of a label is (w * psi, b), each image is
encoded once, and all scores of a batch are one matrix product.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, linear, relu, softplus

from labelwise.core import LabelModel, Labels, Spec
from labelwise.data.batches import Batch
from labelwise.data.dataset import TrainData
from labelwise.errors import UsageError
from labelwise.methods.linear import Encoder, ImageMethod, LinearModel
from labelwise.ops.negatives import sample_wrong_labels
from labelwise.training import Stage

Activation = Literal["none", "relu", "leaky_relu", "sigmoid", "tanh"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": relu,
    "leaky_relu": leaky_relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


class LabelEncoder(nn.Module):
    """psi: two linear layers k -> d/2 -> d over a label input in R^k; a label's own input is one-hot."""

    def __init__(self, k: int, d: int, activation: Activation) -> None:
        super().__init__()
        self.first = nn.Linear(k, max(1, d // 2))
        self.second = nn.Linear(max(1, d // 2), d)
        self.activation = activation

    def forward(self, rows: Tensor | slice) -> Tensor:
        """Return psi ``[m, d]`` of the labels at these rows; a one-hot product is a look-up."""
        return self._finish(self.first.weight.T[rows] + self.first.bias)

    def of_inputs(self, inputs: Tensor) -> Tensor:
        """Return psi ``[m, d]`` of arbitrary label inputs ``[m, k]``."""
        return self._finish(linear(inputs, self.first.weight, self.first.bias))

    def _finish(self, hidden: Tensor) -> Tensor:
        return self.second(ACTIVATIONS[self.activation](hidden))  # type: ignore[no-any-return]


class IndicatorModel(LinearModel):
    """Image encoder, label encoder and predictor; the label code is (w * psi, b)."""

    def __init__(self, spec: Spec, encoder: Encoder, activation: Activation) -> None:
        super().__init__(spec, encoder)
        d = self.encoder.code_size
        self.label_encoder = LabelEncoder(len(spec.labels), d, activation)
        self.predictor = nn.Linear(d, 1)
        self._start()

    def _start(self) -> None:
        """Set the weights to begin with, so that labels differ from each other and not from a common bias.

        The paper does not say how. With torch's defaults three small factors make up a label's code, labels start nearly
        alike, and training lingers there. Image codes that are not trained cannot adapt to a random start, so with them
        it is smaller still.
        """
        nn.init.constant_(self.predictor.weight, 0.3)
        nn.init.zeros_(self.label_encoder.first.bias)
        nn.init.zeros_(self.label_encoder.second.bias)
        # A one-hot input has one active entry, not k, whatever torch's default for k inputs assumes.
        reach = 0.1 if self.encoder.untrained else 1.0
        nn.init.uniform_(self.label_encoder.first.weight, -reach, reach)
        if self.encoder.untrained:
            with torch.no_grad():
                self.label_encoder.second.weight.mul_(0.03)

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label codes ``[k, d + 1]``."""
        return self._codes(self.label_encoder(self.trained_rows(labels)))

    def encode_label_inputs(self, inputs: Tensor) -> Tensor:
        """Return label codes ``[m, d + 1]`` of any label inputs ``[m, k]``, such as all ones or all zeros."""
        if inputs.ndim != 2 or inputs.shape[1] != len(self.spec.labels):
            raise UsageError(f"Label inputs are [m, {len(self.spec.labels)}]; given {list(inputs.shape)}.")
        return self._codes(self.label_encoder.of_inputs(inputs))

    def _codes(self, psi: Tensor) -> Tensor:
        return torch.cat([self.predictor.weight * psi, self.predictor.bias.expand(len(psi), 1)], 1)


@dataclass(frozen=True, kw_only=True)
class Indicator(ImageMethod):
    """Indicator network.

    Attributes:
        negatives: N, wrong labels per image and step, drawn without replacement. None, or k - 1 and more, is all of
            them, which costs no more here: each image is encoded once whatever N.
        sampling: ``uniform``, or ``hard``: in proportion to exp(score / temperature).
        temperature: of hard sampling.
        activation: between the two layers of the label encoder.
        curriculum: numbers of negatives to train with first, one stage each (section 9 of the paper).
        later_lr: the learning rate of the stages after the first; None keeps that of the first.
    """

    name: ClassVar[str] = "indicator"

    negatives: int | None = None
    sampling: Literal["uniform", "hard"] = "uniform"
    temperature: float = 1.0
    activation: Activation = "none"
    curriculum: tuple[int, ...] = ()
    later_lr: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        if any(n is not None and n < 1 for n in (*self.curriculum, self.negatives)):
            raise UsageError(f"An image needs at least one negative; given {(*self.curriculum, self.negatives)}.")
        if self.temperature <= 0:
            raise UsageError(f"The temperature must be above 0; given {self.temperature}.")

    def build(self, spec: Spec) -> IndicatorModel:
        """Return the untrained model."""
        return IndicatorModel(spec, self.encoder, self.activation)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield one stage for each number of negatives, then keep the statistics that adding a label needs."""
        assert isinstance(model, IndicatorModel)
        model.encoder.fit_normalisation(data.train.images)
        last = len(data.labels) - 1 if self.negatives is None else self.negatives
        for position, negatives in enumerate((*self.curriculum, last)):
            stage = self.stage(f"indicator N={negatives}", model, data, self.loss(model, negatives))
            yield self._later(stage) if position else stage
        model.fit_statistics(data.train)

    def loss(self, model: IndicatorModel, negatives: int) -> Callable[[Batch], dict[str, Tensor]]:
        """Return the loss of eq. 4 with K1 = K2 = 1, each image encoded once."""
        labels = model.spec.labels

        def of_batch(batch: Batch) -> dict[str, Tensor]:
            scores = model.score(model.encode_images(batch.images), model.encode_labels(labels)).float()
            right = scores.gather(1, batch.targets[:, None])
            if negatives >= len(labels) - 1:
                no = softplus(scores).sum(1) - softplus(right[:, 0])
            else:
                logits = scores.detach() / self.temperature if self.sampling == "hard" else None
                wrong = sample_wrong_labels(batch.draws.uniform(len(labels)), batch.targets, negatives, logits)
                no = softplus(scores.gather(1, wrong)).sum(1)
            return {"yes": softplus(-right).mean(), "no": no.mean()}

        return of_batch

    def _later(self, stage: Stage) -> Stage:
        lr = self.optimizer.lr if self.later_lr is None else self.later_lr
        return replace(stage, optimizer=replace(stage.optimizer, lr=lr))
