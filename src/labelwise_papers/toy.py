"""The toy experiment of invertible zero-shot flows: vectors in the plane, three seen labels and one that is not.

Labels are the corners (0, 1), (0, 0), (1, 0), seen, and (1, 1), unseen. A vector of a label is ``2 label - 1`` plus noise of
deviation 1/3. Each generator is trained on seen vectors and on the description of the unseen label alone; a good one
puts what it makes of (1, 1) around (1, 1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labelwise.methods.izf.flow import Flow, FlowSettings
from labelwise.methods.izf.model import mmd
from labelwise.support.errors import UsageError, listing, suggest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal[
    "flow", "flow_recipe_mmd", "flow_without_mmd", "flow_positive_mmd", "flow_without_centres", "flow_unit_variance", "gan", "vae"
]  # fmt: skip
Generator = Callable[[Tensor, Tensor], Tensor]
LABELS = torch.tensor([[0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])  # the last one is unseen
CENTRES = 2 * LABELS - 1
SPREAD = 1 / 3
BATCH = 384
REACH = 3  # of an image, from the middle
PADDING = 0.05  # deviation of the two coordinates that are added for the flow


@dataclass(frozen=True, eq=False)
class ToyResult:
    """What a generator learnt: the vectors that it makes of the four labels, the unseen one last ``[4, n, 2]``."""

    kind: str
    points: Tensor

    @property
    def centres(self) -> Tensor:
        """The mean of what it makes of each label ``[4, 2]``."""
        return self.points.mean(1)

    @property
    def seen_error(self) -> float:
        """How far the worst seen centre is from the right one."""
        return float((self.centres - CENTRES)[:3].norm(dim=1).max())

    @property
    def unseen_error(self) -> float:
        """How far the centre of the unseen label is from (1, 1)."""
        return float((self.centres - CENTRES)[3].norm())


@dataclass(frozen=True, kw_only=True)
class FlowLoss:
    """Weights of the flow's loss, and the variance of the first two coordinates around their label.

    ``mmd`` is of the discrepancy between seen and generated unseen vectors; below 0 it pushes them apart. The paper's -0.1 is too strong
    here: nothing stops it at the right place, and it may push the unseen label past it. The deviation of a label's vectors is
    a sixth of what lies between two labels, hence a variance of 1/36. With 1, as on real data, the likelihood wants labels to
    overlap: seen vectors then fill the place of the unseen label, and nothing is left there to generate.
    """

    likelihood: float = 2.0  # negative, logarithmic, of seen vectors
    centres: float = 1.0  # squared distance between what is made of a label and the label's mean
    mmd: float = -0.03
    variance: float = 1 / 36


FLOWS = {
    "flow": FlowLoss(),
    "flow_recipe_mmd": FlowLoss(mmd=-0.1),
    "flow_without_mmd": FlowLoss(mmd=0.0),
    "flow_positive_mmd": FlowLoss(mmd=0.1),
    "flow_without_centres": FlowLoss(centres=0.0),
    "flow_unit_variance": FlowLoss(variance=1.0),
}
TOY_FLOW = FlowSettings(blocks=3, hidden=2, activation="relu", mixing="lu")


def run_toy(kind: Kind, seed: int, steps: int = 4000) -> ToyResult:
    """Return what one generator learnt in so many steps; the same seed gives the same result."""
    if kind not in get_args(Kind):
        raise UsageError(f'No toy "{kind}".{suggest(kind, get_args(Kind))} Toys: {listing(get_args(Kind))}.')
    if steps < 0:
        raise UsageError(f"A toy cannot be trained for {steps} steps; give 0 or more.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind in FLOWS:
            generate = train_flow(FLOWS[kind], steps)
        else:
            generate = train_gan(steps) if kind == "gan" else train_vae(steps)
        with torch.no_grad():
            points = torch.stack([generate(label.expand(1000, 2), torch.randn(1000, 2)) for label in LABELS])
    return ToyResult(kind, points)


def seen_batch() -> tuple[Tensor, Tensor]:
    """Return vectors ``[384, 2]`` of the seen labels, each as often, and their labels' numbers ``[384]``."""
    targets = torch.arange(3).repeat_interleave(BATCH // 3)
    return CENTRES[targets] + SPREAD * torch.randn(BATCH, 2), targets


def train_flow(weights: FlowLoss, steps: int) -> Generator:
    """Return the inverse of a trained flow; what it says of a vector starts with the label, give or take its variance."""
    flow = Flow(4, TOY_FLOW)
    flow.initialise(_padded(seen_batch()[0]))
    optimizer = torch.optim.Adam(flow.parameters(), lr=5e-3, fused=True)
    origin = torch.cat([LABELS[:3], torch.zeros(3, 2)], 1)
    precision = torch.tensor([1 / weights.variance, 1 / weights.variance, 1.0, 1.0])
    for _ in range(steps):
        v, targets = seen_batch()
        z, log_det = flow(_padded(v))
        square = ((z - origin[targets]) ** 2 * precision).sum(1)
        unseen = torch.cat([LABELS[3].expand(BATCH, 2), torch.randn(BATCH, 2)], 1)
        vectors = flow.inverse(torch.cat([origin, unseen]))[:, :2]
        loss = weights.likelihood * (square / 2 - log_det).mean()
        loss = loss + weights.centres * ((vectors[:3] - CENTRES[:3]) ** 2).sum(1).mean()
        if weights.mmd:
            loss = loss + weights.mmd * mmd(v, vectors[3:])
        _step(optimizer, loss)
    deviation = weights.variance**0.5
    return lambda labels, free: flow.inverse(torch.cat([labels + deviation * torch.randn_like(labels), free], 1))[:, :2]


def _padded(v: Tensor) -> Tensor:
    """Return ``[n, 4]``: the vectors and two coordinates of a little noise, without which a density is unbounded."""
    return torch.cat([v, PADDING * torch.randn_like(v)], 1)


def train_gan(steps: int) -> Generator:
    """Return a conditional Wasserstein generator with gradient penalty, a classification loss and MMD (eq. 15)."""
    generator, critic, classifier = _network(4, 2), _network(4, 1), nn.Linear(2, 3)
    adversary = torch.optim.Adam([*critic.parameters(), *classifier.parameters()], lr=1e-3, betas=(0.5, 0.9))
    optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    generate = _conditional(generator)
    for _ in range(steps):
        v, targets = seen_batch()
        labels = LABELS[targets]
        with torch.no_grad():
            fake = generate(labels, torch.randn(BATCH, 2))
        between = torch.lerp(v, fake, torch.rand(BATCH, 1)).requires_grad_()
        slope = torch.autograd.grad(critic(torch.cat([between, labels], 1)).sum(), between, create_graph=True)[0]
        real_score, fake_score = (critic(torch.cat([x, labels], 1)).mean() for x in (v, fake))
        penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
        _step(adversary, fake_score - real_score + 10 * penalty + cross_entropy(classifier(v), targets))
        seen = generate(labels, torch.randn(BATCH, 2))
        unseen = generate(LABELS[3].expand(BATCH, 2), torch.randn(BATCH, 2))
        loss = -critic(torch.cat([seen, labels], 1)).mean() + 0.01 * cross_entropy(classifier(seen), targets)
        _step(optimizer, loss - 0.1 * mmd(v, unseen))
    return generate


def train_vae(steps: int) -> Generator:
    """Return the decoder of a conditional variational autoencoder with MMD (eq. 16), of deviation 1/3."""
    encoder, decoder = _network(4, 4), _network(4, 2)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=5e-3)
    generate = _conditional(decoder)
    for _ in range(steps):
        v, targets = seen_batch()
        mean, log_variance = encoder(torch.cat([v, LABELS[targets]], 1)).chunk(2, 1)
        free = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum(1).mean() / 2
        error = ((generate(LABELS[targets], free) - v) ** 2).sum(1).mean() / (2 * SPREAD**2)
        unseen = generate(LABELS[3].expand(BATCH, 2), torch.randn(BATCH, 2))
        _step(optimizer, divergence + error - 0.1 * mmd(v, unseen))
    return generate


def _network(inputs: int, outputs: int, hidden: int = 32) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def _conditional(network: nn.Module) -> Generator:
    return lambda labels, free: network(torch.cat([labels, free], 1))


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def draw_toy(results: Sequence[ToyResult]) -> "Figure":
    """Return a figure: real vectors of the four labels, then what each result generates, next to the right centres."""
    from matplotlib.figure import Figure

    rng = torch.Generator().manual_seed(0)
    real = CENTRES[:, None] + SPREAD * torch.randn(4, 300, 2, generator=rng)
    figure = Figure(figsize=(3.2 * (len(results) + 1), 3.4), layout="constrained")
    panels: Any = figure.subplots(1, len(results) + 1, squeeze=False)[0]
    panels[0].set_title("data")
    _scatter(panels[0], real)
    for panel, result in zip(panels[1:], results, strict=True):
        away = ", out of view" if float(result.centres[3].abs().max()) > REACH else ""
        panel.set_title(f"{result.kind.replace('_', ' ')}\nunseen {result.unseen_error:.2f} off{away}")
        _scatter(panel, result.points[:, :300])
    panels[0].legend(loc="upper right", fontsize=7, framealpha=0.9)
    return figure


def _scatter(panel: Any, points: Tensor) -> None:
    """Draw the points ``[4, n, 2]`` of every label, and crosses where their centres should be."""
    for number, (label, group) in enumerate(zip(LABELS.int().tolist(), points, strict=True)):
        words = f"({label[0]}, {label[1]}) {'unseen' if number == 3 else 'seen'}"
        panel.scatter(*group.T.numpy(), s=4, alpha=0.5, linewidths=0, label=words, color=f"C{number}")
    panel.scatter(*CENTRES.T.numpy(), marker="+", s=60, color="black", linewidths=1)
    panel.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), aspect="equal")
