import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labelwise.methods.izf.model import WIDTHS, Kernel, mmd

KERNELS: tuple[Kernel, ...] = ("single", "mixture")


def slow(a: Tensor, b: Tensor, kernel: Kernel) -> float:
    """The definition, one pair at a time."""

    def alike(x: Tensor, y: Tensor) -> float:
        square = sum(float(p - q) ** 2 for p, q in zip(x, y, strict=True))
        widths = [2 * len(x)] if kernel == "single" else list(WIDTHS)
        return sum(width / (width + square) for width in widths)

    def mean(xs: Tensor, ys: Tensor) -> float:
        return sum(alike(x, y) for x in xs for y in ys) / (len(xs) * len(ys))

    return mean(a, a) + mean(b, b) - 2 * mean(a, b)


def samples(n: int, m: int, d: int, seed: int = 0, shift: float = 1.0) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    a = torch.randn(n, d, generator=made, dtype=torch.float64)
    return a, torch.randn(m, d, generator=made, dtype=torch.float64) + shift


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=15)
@given(n=st.integers(1, 7), m=st.integers(1, 7), d=st.integers(1, 5), seed=st.integers(0, 99))
def test_equals_a_loop_over_pairs_both_ways_round(kernel: Kernel, n: int, m: int, d: int, seed: int) -> None:
    a, b = samples(n, m, d, seed)
    expected = slow(a, b, kernel)
    assert float(mmd(a, b, kernel)) == pytest.approx(expected, abs=1e-12)
    assert float(mmd(b, a, kernel)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_between_a_sample_and_itself_and_more_the_farther_apart(kernel: Kernel) -> None:
    a, _ = samples(40, 1, 6)
    assert abs(float(mmd(a, a, kernel))) < 1e-12
    near, far = (float(mmd(a, a + shift, kernel)) for shift in (0.2, 2.0))
    assert 1e-4 < near < far


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_where_samples_coincide(kernel: Kernel, dtype: torch.dtype) -> None:
    a = samples(9, 1, 4)[0].to(dtype).repeat(2, 1)
    b = a.clone().requires_grad_()
    mmd(a, b, kernel).backward()  # type: ignore[no-untyped-call]
    assert b.grad is not None
    assert b.grad.abs().max() < 1e-6


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_gradient_is_that_of_small_changes(kernel: Kernel) -> None:
    a, b = samples(4, 5, 3)
    assert torch.autograd.gradcheck(lambda x, y: mmd(x, y, kernel), (a.requires_grad_(), b.requires_grad_()))


@pytest.mark.parametrize("kernel", KERNELS)
def test_float32_keeps_its_digits_far_from_zero_and_under_autocast(kernel: Kernel) -> None:
    a, b = ((x * 0.5).float() for x in samples(30, 20, 8))
    expected = float(mmd(a.double(), b.double(), kernel))
    assert float(mmd(a + 1000, b + 1000, kernel)) == pytest.approx(expected, rel=1e-3)
    with torch.autocast("cpu", torch.bfloat16):
        assert float(mmd(a, b, kernel)) == pytest.approx(expected, rel=1e-4)
    assert mmd(a.bfloat16(), b.bfloat16(), kernel).dtype == torch.float32
