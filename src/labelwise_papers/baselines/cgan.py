"""A conditional GAN that makes features of labels from their vectors (after f-CLSWGAN, Xian et al., 2018): a baseline of izf.

A generator makes a feature of noise and a label vector; a critic tells made features of a label from real ones, and the two
are trained against each other as a Wasserstein GAN with a gradient penalty. A softmax on the real features of seen labels,
fitted beforehand, asks of made features that they look like their label. Labels are then told apart by a softmax layer on
real features of seen and made features of unseen labels.

Both are trained in turns by the one loop. A step is either one of the critic or one of the generator: its loss reaches only
the parameters whose turn it is, and the optimiser leaves alone what got no gradient.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from labelwise.core.arrays import linear_scores
from labelwise.methods.izf.generated import (
    PLAIN_PENALTY,
    GeneratedSoftmax,
    GeneratingMethod,
)
from labelwise.methods.izf.generated_head import fit_softmax
from labelwise.methods.izf.model import mmd
from labelwise.methods.shared.linear import array
from labelwise.methods.shared.zero_shot import harmonic, has_unseen
from labelwise.support.settings import check_range, setting
from labelwise.train import tensors
from labelwise.train.batches import Batch
from labelwise.train.method import Method
from labelwise.train.model import LabelModel, Spec
from labelwise.train.optimizers import Optimizer
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData
from labelwise_papers.baselines.cgan_head import CganHead


@dataclass(frozen=True, kw_only=True)
class GanOptimizer(Optimizer):
    """Adam with less memory of the direction than usual, as GANs need it."""

    name: Literal["sgd", "adam", "adamw"] = "adam"
    lr: float = 1e-4
    weight_decay: float = 0.0
    beta: float = setting(0.5, "Share of the mean direction that a step of Adam keeps.")

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the torch optimiser of these parameters."""
        built = super().build(parameters)
        for group in built.param_groups:
            if "betas" in group:
                group["betas"] = (self.beta, group["betas"][1])
        return built


class CganModel(GeneratedSoftmax):
    """A generator of features from noise and label vectors, a critic that serves training, and a softmax layer."""

    turn: Tensor  # how many steps were trained
    trained_epochs: Tensor  # how many epochs were

    def __init__(self, spec: Spec, settings: "Cgan") -> None:
        super().__init__(spec, settings.encoder, settings.label_source, settings.power)
        d, a, hidden = self.encoder.code_size, self.vector_size, settings.hidden
        self.generator = _network(2 * a, hidden, d)
        self.critic = _network(d + a, hidden, 1)
        self.register_buffer("turn", torch.zeros((), dtype=torch.int64))
        self.register_buffer("trained_epochs", torch.zeros((), dtype=torch.int64))
        self.keep_for_head(settings.generated)

    def make(self, vectors: Tensor, drawn: Tensor) -> Tensor:
        """Return features ``[n, d]`` from label vectors ``[n, a]`` and noise ``[n, a]``."""
        return self.generator(torch.cat([drawn, vectors], 1))  # type: ignore[no-any-return]

    def export_head(self) -> CganHead:
        """Return what scores features as this model does, without torch."""
        state = {name: array(tensor) for name, tensor in self.generator.state_dict().items()}
        return CganHead(**self.head_parts(), generator=state)


@dataclass(frozen=True, kw_only=True)
class Cgan(GeneratingMethod):
    """Zero-shot by features that a conditional GAN generates.

    One step in six is the generator's, and figures on held-out labels rise by fits and starts: hence many epochs of small
    batches, and patience.
    """

    name: ClassVar[str] = "cgan"

    epochs: int = 300
    batch: int = 64
    patience: int | None = 50
    clip: float | None = None
    optimizer: GanOptimizer = field(default_factory=GanOptimizer)
    hidden: int = setting(1024, "Width of the hidden layer of generator and critic.")
    critic_steps: int = setting(5, "Steps of the critic per step of the generator.")
    gradient_penalty: float = setting(10.0, "Penalty on the distance of the critic's slope from 1.")
    class_weight: float = setting(0.01, "Weight of the loss that made features look like their label.")
    mmd_weight: float = setting(
        0.0, "Weight of the discrepancy of generated unseen features to real seen ones (iMMD of izf, 0.1 there)."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "at least 1", "hidden", "critic_steps")
        check_range(self, "0 or more", "gradient_penalty", "class_weight", "mmd_weight")

    def build(self, spec: Spec) -> CganModel:  # type: ignore[override]
        """Return the untrained model."""
        return CganModel(spec, self)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the stage of the image encoder, if there is one to train, and that of generator and critic."""
        assert isinstance(model, CganModel)
        yield from self.train_encoder(model, data)
        features = model.encode_features(data.train.images)
        model.keep_real(features, data.train.targets)
        networks = nn.ModuleList([model.generator, model.critic])
        fixed = replace(data, train=replace(data.train, images=features))
        stage = self.feature_stage(model, networks, fixed, self._loss(model, fixed), self._merit(model, data))
        yield replace(stage, phases=self.critic_steps + 1)
        self.choose_head(model, data, features)
        model.fit_statistics(data.train)

    def _merit(self, model: CganModel, data: TrainData) -> Callable[[], float] | None:
        """Return what measures an epoch on held-out labels, by a softmax layer fitted again; None without images of them."""
        if not has_unseen(data):
            return None
        features = array(model.encode_features(data.val.images))

        def merit() -> float:
            *_, (_, rows) = model.layers(data.known, (self.head_penalty or PLAIN_PENALTY,))
            return harmonic(linear_scores(features, rows), data)

        return merit

    def _loss(self, model: CganModel, data: TrainData) -> Callable[[Batch], dict[str, Tensor]]:
        """Return the loss of a batch of features: that of the critic, or that of the generator when it is its turn."""
        vectors, features = model.vectors(data.labels), data.train.images
        unseen = model.vectors(data.unseen) if self.mmd_weight and data.unseen is not None else None
        start = np.zeros((len(data.labels), features.shape[1] + 1), np.float32)
        choice = model.tensor(fit_softmax(array(features), array(data.train.targets), start, PLAIN_PENALTY)).to(
            features
        )

        def loss(batch: Batch) -> dict[str, Tensor]:
            model.turn.add_(1)
            with torch.autocast(batch.images.device.type, enabled=False):
                given, drawn = vectors[batch.targets], batch.rng.normal(vectors.shape[1])
                if batch.phase < self.critic_steps:
                    return self._critic_terms(model, batch, given, drawn)
                terms = self._generator_terms(model, batch, given, drawn, choice)
                if unseen is not None:
                    others = unseen[(batch.rng.uniform() * len(unseen)).long()]
                    made = model.make(others, batch.rng.normal(vectors.shape[1]))
                    terms["mmd"] = -self.mmd_weight * mmd(batch.images, made, "mixture")
                return terms

        return loss

    def _critic_terms(self, model: CganModel, batch: Batch, given: Tensor, drawn: Tensor) -> dict[str, Tensor]:
        """Return what the critic minimises; the generator gets no gradient."""
        with torch.no_grad():
            made = model.make(given, drawn)
        between = torch.lerp(made, batch.images, batch.rng.uniform(1)).requires_grad_()
        (slope,) = torch.autograd.grad(_judge(model.critic, between, given).sum(), between, create_graph=True)
        told = _judge(model.critic, made, given) - _judge(model.critic, batch.images, given)
        steep = (slope.square().sum(1) + 1e-12).sqrt() - 1
        return {"critic": told.mean(), "slope": self.gradient_penalty * steep.square().mean()}

    def _generator_terms(
        self, model: CganModel, batch: Batch, given: Tensor, drawn: Tensor, choice: Tensor
    ) -> dict[str, Tensor]:
        """Return what the generator minimises; the critic gets no gradient."""
        made = model.make(given, drawn)
        fixed = {name: parameter.detach() for name, parameter in model.critic.named_parameters()}
        told = functional_call(model.critic, fixed, (torch.cat([made, given], 1),))
        wrong = cross_entropy(tensors.linear_scores(made, choice), batch.targets)
        return {"generator": -told.mean(), "choice": self.class_weight * wrong}

    def settle(self, model: LabelModel) -> Method:
        """Return the settings with the epochs and the penalty that the trial chose."""
        assert isinstance(model, CganModel)
        return replace(self, epochs=int(model.trained_epochs), head_penalty=model.head_penalty)


def _judge(critic: nn.Module, features: Tensor, vectors: Tensor) -> Tensor:
    """Return how real a critic finds features of labels ``[n]``."""
    return critic(torch.cat([features, vectors], 1))[:, 0]  # type: ignore[no-any-return]


def _network(given: int, hidden: int, made: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(given, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, made))
