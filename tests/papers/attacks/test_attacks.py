from dataclasses import dataclass, field, replace
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from labelwise.support.errors import UsageError
from labelwise_papers.attacks.apgd import Apgd, aimed_ratio_loss, check_steps, ratio_loss
from labelwise_papers.attacks.pgd import Attack, Fgsm, Pgd, Problem, choice_loss, margin
from labelwise_papers.attacks.square import Square

ATTACKS: dict[str, Attack] = {
    "fgsm": Fgsm(),
    "pgd": Pgd(steps=8),
    "apgd choice": Apgd(steps=12),
    "apgd ratio": Apgd(loss="ratio", steps=12),
    "apgd aimed": Apgd(loss="ratio", steps=12, aims=2),
    "square": Square(queries=120),
}
GRADIENTS = {name: attack for name, attack in ATTACKS.items() if not attack.black_box}


@dataclass
class Linear:
    """Scores linear in the pixels, which remembers the margins it was asked for."""

    weights: Tensor
    targets: Tensor | None = None
    best: Tensor = field(default_factory=lambda: torch.tensor(-torch.inf))

    def __call__(self, images: Tensor) -> Tensor:
        scores = images.flatten(1) @ self.weights.T
        if self.targets is not None and len(images) == len(self.targets):
            self.best = torch.maximum(self.best, margin(scores.detach().double(), self.targets))
        return scores


def made(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear_problem(k: int, n: int = 6, epsilon: float = 0.1, seed: int = 0) -> Problem:
    """A problem with images away from the edges of [0, 1] and each one's best label as its target."""
    drawn = made(seed)
    images = torch.rand(n, 2, 3, 3, generator=drawn) * 0.4 + 0.3
    scores = Linear(torch.randn(k, 18, generator=drawn))
    targets = scores(images).argmax(1)
    return Problem(scores=scores, images=images, targets=targets, epsilon=torch.full((n,), epsilon))


def optimal_margins(problem: Problem) -> Tensor:
    """The best margin within the ball and within [0, 1]: for a fixed wrong label every pixel goes to its better end."""
    assert isinstance(problem.scores, Linear)
    weights, (low, high) = problem.scores.weights, problem.bounds
    found = torch.full((len(problem.images),), -torch.inf, dtype=torch.double)
    for row, wrong in product(range(len(problem.images)), range(len(weights))):
        right = int(problem.targets[row])
        if wrong != right:
            slope = (weights[wrong] - weights[right]).view_as(problem.images[row]).double()
            value = (torch.where(slope > 0, high[row], low[row]) * slope).sum()
            found[row] = torch.maximum(found[row], value)
    return found


@pytest.mark.parametrize("name", GRADIENTS)
def test_two_labels_of_a_linear_model_are_attacked_optimally(name: str) -> None:
    problem = linear_problem(k=2)
    found = GRADIENTS[name](problem, made(1))
    torch.testing.assert_close(found.margins, optimal_margins(problem), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["apgd choice", "apgd ratio"])
def test_two_labels_near_the_edge_of_pixels_are_attacked_optimally(name: str) -> None:
    problem = linear_problem(k=2, epsilon=0.6)
    found = ATTACKS[name](problem, made(1))
    torch.testing.assert_close(found.margins, optimal_margins(problem), rtol=1e-5, atol=1e-5)


def test_aims_at_every_wrong_label_fool_whatever_can_be_fooled() -> None:
    problem = linear_problem(k=5, n=40)
    problem = replace(problem, epsilon=torch.linspace(0.01, 0.2, 40))
    can = optimal_margins(problem) > 0
    found = Apgd(loss="ratio", steps=30, aims=4)(problem, made(1))
    assert 5 < int(can.sum()) < 35
    assert torch.equal(found.fooled, can)


def test_square_comes_near_the_optimum_without_gradients() -> None:
    problem = linear_problem(k=2, epsilon=0.02)
    clean, best = margin(problem.scores(problem.images).double(), problem.targets), optimal_margins(problem)
    found = Square(queries=400)(problem, made(1))
    standing = best < 0
    gained = (found.margins - clean)[standing] / (best - clean)[standing]
    assert bool(standing.any())
    assert float(gained.mean()) > 0.8


@pytest.mark.parametrize("name", ATTACKS)
@settings(max_examples=10)
@given(epsilon=st.floats(0.001, 1), seed=st.integers(0, 1000))
def test_no_pixel_leaves_its_bounds(name: str, epsilon: float, seed: int) -> None:
    problem = linear_problem(k=3, n=3, epsilon=epsilon, seed=seed)
    problem = replace(problem, images=(problem.images - 0.3) / 0.4)  # up to the edges
    found = ATTACKS[name](problem, made(seed)).images
    low, high = problem.bounds
    assert bool(((found >= low) & (found <= high) & (found >= 0) & (found <= 1)).all())
    assert float((found.double() - problem.images.double()).abs().max()) <= float(problem.epsilon[0]) + 2**-24


@pytest.mark.parametrize("name", ATTACKS)
def test_the_best_point_seen_is_returned(name: str) -> None:
    problem = linear_problem(k=4, epsilon=0.01, n=8)
    once = ATTACKS[name]
    spy = Linear(problem.scores.weights, problem.targets)  # type: ignore[attr-defined]
    found = once(replace(problem, scores=spy), made(3))
    said = spy(found.images)
    torch.testing.assert_close(found.margins, margin(said.double(), problem.targets))
    assert torch.equal(found.fooled, said.argmax(1) != problem.targets)
    assert bool((found.margins >= spy.best - 1e-12).all()) or bool(found.fooled.any())


@pytest.mark.parametrize("name", ATTACKS)
def test_the_same_seed_gives_the_same_points(name: str) -> None:
    problem = linear_problem(k=4)
    first, again, other = (ATTACKS[name](problem, made(seed)).images for seed in (5, 5, 6))
    assert torch.equal(first, again)
    if name == "square":
        assert not torch.equal(first, other)


def test_more_steps_are_never_weaker() -> None:
    problem = curved_problem()
    found = [Pgd(steps=steps, step_size=0.3)(problem, made(0)).margins for steps in (1, 3, 10, 30)]
    assert all(bool((later >= before).all()) for before, later in pairwise(found))
    assert bool((found[-1] > found[0]).any())


def curved_problem(n: int = 20) -> Problem:
    """A small random network."""
    drawn = made(4)
    first, second = torch.randn(24, 18, generator=drawn), torch.randn(5, 24, generator=drawn)
    images = torch.rand(n, 2, 3, 3, generator=drawn)

    def scores(x: Tensor) -> Tensor:
        return torch.tanh(x.flatten(1) @ first.T) @ second.T

    return Problem(
        scores=scores, images=images, targets=scores(images).argmax(1), epsilon=torch.linspace(0.005, 0.05, n)
    )


def test_the_step_size_that_adapts_is_at_least_as_good() -> None:
    problem = curved_problem(60)
    plain, adaptive = Pgd(steps=40)(problem, made(0)), Apgd(steps=40)(problem, made(0))
    assert int(adaptive.fooled.sum()) >= int(plain.fooled.sum()) > 0


def test_steps_are_halved_until_a_peak_within_the_ball_is_reached() -> None:
    """The wrong label scores best at a point inside the ball, which steps as large as the ball jump over."""
    problem = linear_problem(k=2, epsilon=0.2)
    drawn = torch.rand(problem.images.shape, generator=made(8))
    peak = problem.images + (drawn - 0.5) * 0.2

    def scores(x: Tensor) -> Tensor:
        far = (x - peak).square().flatten(1).sum(1)
        return torch.stack([torch.ones_like(far), -far], 1)

    problem = replace(problem, scores=scores, targets=torch.zeros_like(problem.targets))
    clean, best = problem.glance(problem.images).margins, -1.0
    for loss in ("choice", "ratio"):
        left = best - Apgd(loss=loss, steps=100)(problem, made(0)).margins
        assert float((left / (best - clean)).max()) < 0.02


def test_every_image_has_its_own_radius() -> None:
    problem = curved_problem()
    moved = (Apgd(steps=10)(problem, made(0)).images - problem.images).abs().flatten(1).amax(1)
    assert bool((moved <= problem.epsilon + 1e-6).all())
    assert float(moved[-1]) > float(problem.epsilon[0])


def test_aims_after_the_first_leave_fooled_images_alone() -> None:
    problem, asked = curved_problem(), []

    def scores(x: Tensor) -> Tensor:
        asked.append(len(x))
        return problem.scores(x)

    first = Apgd(loss="ratio", steps=3, aims=1)(problem, made(0))
    Apgd(loss="ratio", steps=3, aims=2)(replace(problem, scores=scores), made(0))
    left = int((~first.fooled).sum())
    assert 0 < left < 20
    assert asked == [20] * 2 + [20] * 4 + [left] * 4


def test_a_gradient_that_is_no_number_counts_as_none() -> None:
    problem = replace(curved_problem(), scores=lambda x: (x.flatten(1) - x.flatten(1).detach())[:, :5].sqrt())
    seen = problem.look(problem.images, lambda scores, _: scores.sum(1))
    assert bool((seen.gradient == 0).all())


def test_losses_against_loops() -> None:
    scores, targets = torch.randn(7, 6, generator=made(0)), torch.arange(7) % 6
    aims = (targets + 2) % 6
    for row in range(7):
        z, y = scores[row].tolist(), int(targets[row])
        ranked = sorted(z, reverse=True)
        lead = max(value for label, value in enumerate(z) if label != y) - z[y]
        assert float(margin(scores, targets)[row]) == pytest.approx(lead, abs=1e-6)
        assert float(ratio_loss(scores, targets)[row]) == pytest.approx(lead / (ranked[0] - ranked[2]), abs=1e-5)
        aimed = (z[int(aims[row])] - z[y]) / (ranked[0] - (ranked[2] + ranked[3]) / 2)
        assert float(aimed_ratio_loss(aims)(scores, targets)[row]) == pytest.approx(aimed, abs=1e-5)
    torch.testing.assert_close(ratio_loss(scores * 50 + 3, targets), ratio_loss(scores, targets), rtol=1e-4, atol=1e-4)


def test_the_loss_of_choices_is_the_cross_entropy_without_its_saturation() -> None:
    scores, targets = torch.randn(9, 6, generator=made(0), dtype=torch.double).requires_grad_(), torch.arange(9) % 6
    losses, entropy = choice_loss(scores, targets), cross_entropy(scores, targets, reduction="none")
    torch.testing.assert_close(torch.log1p(losses.exp()), entropy)
    (ours,), (theirs,) = (torch.autograd.grad(loss.sum(), scores) for loss in (losses, entropy))
    assert torch.equal(ours.sign(), theirs.sign())
    sure = torch.tensor([[500.0, 0.0, 1.0]], requires_grad=True)
    (far,) = torch.autograd.grad(choice_loss(sure, torch.tensor([0])).sum(), sure)
    (gone,) = torch.autograd.grad(cross_entropy(sure, torch.tensor([0])), sure)
    assert not gone.any()
    assert bool((far != 0).all())


def test_checks_of_the_step_size_are_those_of_the_paper() -> None:
    assert list(check_steps(100)) == [22, 41, 57, 70, 80, 87, 93, 99]


@pytest.mark.parametrize(
    "settings_of",
    [
        lambda: Pgd(steps=0),
        lambda: Pgd(step_size=0),
        lambda: Apgd(steps=0),
        lambda: Apgd(aims=2),
        lambda: Square(queries=0),
        lambda: Square(share=0),
    ],
    ids=["steps", "step size", "adaptive steps", "aims", "queries", "share"],
)
def test_settings_out_of_range_are_refused(settings_of) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError):
        settings_of()
