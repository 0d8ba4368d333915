import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from labelwise.train.contrastive import alignment, momentum_contrast, nt_xent, uniformity
from labelwise_papers.baselines.supcon import supervised_contrastive


def embeddings(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow_loss(given: Tensor, targets: list[int], temperature: float) -> float:
    """L_out anchor by anchor, positive by positive."""
    rows = [(i, view.tolist()) for i, views in enumerate(given) for view in views]
    losses = []
    for a, (image, anchor) in enumerate(rows):
        likeness = [math.exp(cosine(anchor, other) / temperature) for _, other in rows]
        rest = sum(likeness) - likeness[a]
        terms = []
        for p, (other, _) in enumerate(rows):
            same = other == image or (targets[other] == targets[image] and targets[image] >= 0)
            if p != a and same:
                terms.append(-math.log(likeness[p] / rest))
        if terms:
            losses.append(sum(terms) / len(terms))
    return sum(losses) / len(losses) if losses else 0.0


def slow_nt_xent(first: Tensor, second: Tensor, temperature: float) -> float:
    """SimCLR's loss: each of 2n rows has to find its one partner among the 2n - 1 others."""
    rows, n = [*first.tolist(), *second.tolist()], len(first)
    total = 0.0
    for i in range(2 * n):
        others = [math.exp(cosine(rows[i], rows[j]) / temperature) for j in range(2 * n) if j != i]
        total -= math.log(math.exp(cosine(rows[i], rows[(i + n) % (2 * n)]) / temperature) / sum(others))
    return total / (2 * n)


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


@given(
    targets=st.lists(st.integers(-1, 3), min_size=2, max_size=7),
    views=st.integers(1, 3),
    temperature=st.sampled_from([0.1, 0.5, 2.0]),
    seed=st.integers(0, 99),
)
def test_loss_equals_a_double_loop(targets: list[int], views: int, temperature: float, seed: int) -> None:
    made = 3 * embeddings(len(targets), views, 5, seed=seed)
    found = supervised_contrastive(made, torch.tensor(targets), temperature)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(slow_loss(made, targets, temperature), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("n", [1, 2, 6])
def test_without_labels_it_is_nt_xent(n: int) -> None:
    first, second = embeddings(n, 8), embeddings(n, 8, seed=1)
    found = supervised_contrastive(torch.stack([first, second], 1), torch.full((n,), -1), 0.5)
    assert float(found) == pytest.approx(slow_nt_xent(first, second, 0.5), rel=1e-5, abs=1e-6)


def test_lengths_do_not_matter() -> None:
    made, targets = embeddings(5, 2, 4), torch.tensor([0, 1, 0, 1, -1])
    lengths = torch.rand(5, 2, 1, generator=torch.Generator().manual_seed(2)) * 100 + 0.01
    expected = supervised_contrastive(made, targets, 0.1)
    torch.testing.assert_close(supervised_contrastive(made * lengths, targets, 0.1), expected)


def test_gradient_equals_differences() -> None:
    made, targets = embeddings(4, 2, 3), torch.tensor([0, 1, 0, -1])
    given = made.clone().requires_grad_()
    supervised_contrastive(given, targets, 0.5).backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None
    step = 1e-5
    for place in [(0, 0, 0), (1, 1, 2), (3, 0, 1)]:
        up, down = made.clone(), made.clone()
        up[place] += step
        down[place] -= step
        slope = (slow_loss(up, targets.tolist(), 0.5) - slow_loss(down, targets.tolist(), 0.5)) / (2 * step)
        assert float(given.grad[place]) == pytest.approx(slope, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("targets", [[0, 0, 0, 0], [0, 1, 2, 3], [-1, -1, -1, -1]])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1.0, 1e4])
def test_identical_rows_have_finite_gradients(kind: torch.dtype, targets: list[int], scale: float) -> None:
    for views in (2, 1):
        given = torch.full((4, views, 6), scale, dtype=kind, requires_grad=True)
        loss = supervised_contrastive(given, torch.tensor(targets), 1e-3)
        loss.backward()  # type: ignore[no-untyped-call]
        assert given.grad is not None
        assert torch.isfinite(loss)
        assert torch.isfinite(given.grad).all()
        alone = views == 1 and targets != [0, 0, 0, 0]
        assert float(loss.detach()) == pytest.approx(0.0 if alone else math.log(given[..., 0].numel() - 1), abs=1e-3)


def test_opposite_rows_at_a_low_temperature_are_finite() -> None:
    given = torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]], [[1.0, 1e-3]]], requires_grad=True)
    loss = supervised_contrastive(given, torch.tensor([0, 0, 1]), 1e-4)
    assert float(loss.detach()) == pytest.approx(1e4, rel=0.01)
    loss.backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None
    assert torch.isfinite(given.grad).all()


@pytest.mark.parametrize("shape", [(0, 1, 4), (1, 1, 4), (3, 1, 4)])
def test_without_a_positive_there_is_no_loss(shape: tuple[int, ...]) -> None:
    given = embeddings(*shape).requires_grad_()
    loss = supervised_contrastive(given, torch.arange(shape[0]), 0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0
    assert given.grad is not None
    assert not given.grad.any()


def test_mixed_precision_computes_in_single() -> None:
    made, targets = embeddings(16, 2, 8).bfloat16(), torch.arange(16) % 4
    expected = supervised_contrastive(made.double(), targets, 0.05)
    with torch.autocast("cpu", torch.bfloat16):
        found = supervised_contrastive(made, targets, 0.05)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def slow_momentum(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> float:
    """MoCo's loss: each query has to find its own key among that key and the queue."""
    total = 0.0
    for query, key in zip(queries.tolist(), keys.tolist(), strict=True):
        own = math.exp(cosine(query, key) / temperature)
        others = [math.exp(cosine(query, other) / temperature) for other in queue.tolist()]
        total -= math.log(own / (own + sum(others)))
    return total / len(queries)


def apart(a: list[float], b: list[float]) -> float:
    """The squared distance of two rows brought to unit length."""
    return sum((x / math.hypot(*a) - y / math.hypot(*b)) ** 2 for x, y in zip(a, b, strict=True))


@given(n=st.integers(1, 7), temperature=st.sampled_from([0.1, 0.5, 2.0]), seed=st.integers(0, 99))
def test_nt_xent_equals_a_double_loop(n: int, temperature: float, seed: int) -> None:
    made = 3 * embeddings(n, 2, 5, seed=seed)
    found = nt_xent(made, temperature)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(slow_nt_xent(made[:, 0], made[:, 1], temperature), rel=1e-4, abs=1e-5)


@given(n=st.integers(1, 6), temperature=st.sampled_from([0.05, 0.5]), scale=st.floats(-2, 2), seed=st.integers(0, 99))
def test_nt_xent_has_the_gradient_of_the_plain_loss(n: int, temperature: float, scale: float, seed: int) -> None:
    first, second = (embeddings(n, 2, 4, seed=seed).float().requires_grad_() for _ in range(2))
    (scale * nt_xent(first, temperature)).backward()  # type: ignore[no-untyped-call]
    (scale * supervised_contrastive(second, torch.full((n,), -1), temperature)).backward()  # type: ignore[no-untyped-call]
    assert first.grad is not None
    assert second.grad is not None
    torch.testing.assert_close(first.grad, second.grad, rtol=1e-4, atol=1e-5)


@given(n=st.integers(1, 5), m=st.integers(1, 7), temperature=st.sampled_from([0.1, 0.2]), seed=st.integers(0, 99))
def test_momentum_contrast_equals_a_double_loop(n: int, m: int, temperature: float, seed: int) -> None:
    queries, keys, queue = (
        embeddings(n, 4, seed=seed),
        2 * embeddings(n, 4, seed=seed + 1),
        embeddings(m, 4, seed=seed + 2),
    )
    found = momentum_contrast(queries, keys, queue, temperature)
    assert float(found) == pytest.approx(slow_momentum(queries, keys, queue, temperature), rel=1e-4, abs=1e-5)


def test_momentum_contrast_trains_queries_alone() -> None:
    queries, keys, queue = (embeddings(3, 4, seed=seed).requires_grad_() for seed in range(3))
    momentum_contrast(queries, keys, queue, 0.2).backward()  # type: ignore[no-untyped-call]
    assert queries.grad is not None
    assert keys.grad is queue.grad is None
    up, down = (queries.detach().clone() for _ in range(2))
    up[1, 2] += 1e-5
    down[1, 2] -= 1e-5
    expected = (slow_momentum(up, keys, queue, 0.2) - slow_momentum(down, keys, queue, 0.2)) / 2e-5
    assert float(queries.grad[1, 2]) == pytest.approx(expected, rel=1e-3)


@given(n=st.integers(2, 7), seed=st.integers(0, 99))
def test_alignment_and_uniformity_equal_loops(n: int, seed: int) -> None:
    made = 5 * embeddings(n, 2, 3, seed=seed)
    views = [apart(*pair) for pair in made.tolist()]
    assert float(alignment(made)) == pytest.approx(sum(views) / n, rel=1e-4, abs=1e-6)
    rows = made[:, 0].tolist()
    near = [math.exp(-2 * apart(rows[i], rows[j])) for i in range(n) for j in range(i)]
    assert float(uniformity(made[:, 0])) == pytest.approx(math.log(sum(near) / len(near)), rel=1e-4, abs=1e-5)


def test_figures_of_extreme_embeddings() -> None:
    same, opposite = torch.ones(4, 2, 3), torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
    assert float(alignment(same)) == 0
    assert float(uniformity(same[:, 0])) == pytest.approx(0, abs=1e-5)
    assert float(alignment(opposite)) == pytest.approx(4)
    assert float(uniformity(opposite[0])) == pytest.approx(-8)


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e4])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_embeddings_without_labels_that_are_the_same_have_finite_gradients(kind: torch.dtype, scale: float) -> None:
    for queue in (False, True):
        given = torch.full((4, 2, 6), scale, dtype=kind, requires_grad=True)
        first, second = given.unbind(1)
        found = momentum_contrast(first, second, second, 1e-3) if queue else nt_xent(given, 1e-3)
        found.backward()  # type: ignore[no-untyped-call]
        assert given.grad is not None
        assert torch.isfinite(found)
        assert torch.isfinite(given.grad).all()


def test_mixed_precision_without_labels_computes_in_single() -> None:
    made = embeddings(16, 2, 8).bfloat16()

    def figures(given: Tensor) -> Tensor:
        first, second = given.unbind(1)
        queue = momentum_contrast(first, second, second.flip(0), 0.05)
        return torch.stack([nt_xent(given, 0.05), queue, alignment(given), uniformity(first)])

    expected = figures(made.double())
    given = made.clone().requires_grad_()
    plain = made.clone().requires_grad_()
    nt_xent(plain, 0.05).backward()  # type: ignore[no-untyped-call]
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(figures(made), expected, rtol=1e-5, atol=1e-5)
        loss = nt_xent(given, 0.05)
    loss.backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None
    assert plain.grad is not None
    assert torch.equal(given.grad, plain.grad)
