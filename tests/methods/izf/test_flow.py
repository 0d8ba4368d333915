from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st
from torch import Tensor, nn

from labelwise.methods.izf.flow import ActNorm, Coupling, Flow, FlowSettings, LUMixing, Permutation
from labelwise.support.errors import UsageError

OPTIONS = st.builds(
    FlowSettings,
    blocks=st.integers(1, 4),
    hidden=st.integers(1, 9),
    activation=st.sampled_from(["leaky_relu", "relu"]),
    mixing=st.sampled_from(["permutation", "lu"]),
    act_norm=st.booleans(),
)
SIZES = st.integers(2, 33)
LOUD = 20.0  # times the weights of the start: log-scales that matter


def build(size: int, settings: FlowSettings, seed: int = 0, dtype: torch.dtype = torch.float64) -> Flow:
    torch.manual_seed(seed)
    flow = Flow(size, settings).to(dtype)
    with torch.no_grad():
        for name, parameter in flow.named_parameters():
            parameter.mul_(3.0 if "factors" in name else LOUD)
    return flow


def vectors(n: int, size: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@runs(max_examples=25)
@given(size=SIZES, settings=OPTIONS, seed=st.integers(0, 99))
def test_inverse_undoes_forward_and_forward_undoes_inverse(
    dtype: torch.dtype, size: int, settings: FlowSettings, seed: int
) -> None:
    flow, v = build(size, settings, seed, dtype), vectors(5, size, dtype)
    near = {torch.float32: 1e-3, torch.float64: 1e-10}[dtype]
    with torch.no_grad():
        z = flow(v)[0]
        assert z.dtype == dtype
        assert (z - v).abs().max() > 0.01
        torch.testing.assert_close(flow.inverse(z), v, rtol=near, atol=near)
        torch.testing.assert_close(flow(flow.inverse(v))[0], v, rtol=near, atol=near)


@runs(max_examples=25)
@given(size=SIZES, settings=OPTIONS, seed=st.integers(0, 99))
def test_log_det_is_that_of_the_jacobian(size: int, settings: FlowSettings, seed: int) -> None:
    flow, v = build(size, settings, seed), vectors(2, size)
    log_det = flow(v)[1].detach()
    for row, found in zip(v, log_det, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda x: flow(x[None])[0][0], row)  # type: ignore[no-untyped-call]
        assert float(found) == pytest.approx(float(torch.linalg.slogdet(jacobian)[1]), abs=1e-8)


@runs(max_examples=10)
@given(size=SIZES, settings=OPTIONS)
def test_gradients_stay_finite_at_extreme_vectors(size: int, settings: FlowSettings) -> None:
    flow = build(size, settings, dtype=torch.float32)
    v = torch.tensor([1e4, -1e4, 0.0])[:, None].repeat(1, size).requires_grad_()
    z, log_det = flow(v)
    (z.sum() + log_det.sum() + flow.inverse(v).sum()).backward()
    grads = [v.grad, *(parameter.grad for parameter in flow.parameters())]
    assert all(grad is not None and grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("mixing", ["permutation", "lu"])
def test_the_state_is_the_whole_flow(mixing: Any) -> None:
    settings, v = FlowSettings(blocks=3, hidden=6, mixing=mixing, act_norm=True), vectors(8, 7, torch.float32)
    flow = build(7, settings, seed=1, dtype=torch.float32)
    flow.initialise(v)
    other = build(7, settings, seed=2, dtype=torch.float32)
    assert not torch.equal(other(v)[0], flow(v)[0])
    other.load_state_dict(flow.state_dict())
    for mine, theirs in zip((*flow(v), flow.inverse(v)), (*other(v), other.inverse(v)), strict=True):
        assert torch.equal(mine, theirs)


def test_the_same_seed_gives_the_same_flow_and_every_parameter_starts_small() -> None:
    first, second, other = (build(6, FlowSettings(hidden=64, mixing="lu", act_norm=True), seed) for seed in (5, 5, 6))
    pairs = zip(first.state_dict().items(), second.state_dict().items(), strict=True)
    assert all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)
    assert not torch.equal(first.blocks[0][1].factors, other.blocks[0][1].factors)  # type: ignore[index]
    torch.manual_seed(0)
    every = torch.cat([p.flatten() for p in Flow(40, FlowSettings(hidden=64, act_norm=True)).parameters()])
    assert float(every.detach().std()) == pytest.approx(0.01, rel=0.05)


def test_act_norm_leaves_mean_zero_and_deviation_one_in_every_block() -> None:
    flow, v = build(5, FlowSettings(blocks=2, hidden=4, act_norm=True)), vectors(200, 5) * 7 + 3
    v[:, 2] = 4.0  # what does not vary is only shifted
    flow.initialise(v)
    seen = []
    for block in flow.blocks:
        for step in block:  # type: ignore[attr-defined]
            v = step(v)[0].detach()
            if isinstance(step, ActNorm):
                seen.append(v)
    assert seen[0][:, 2].abs().max() < 1e-9
    for index, after in enumerate(seen):
        varying = [column for column in range(5) if index or column != 2]
        torch.testing.assert_close(after.mean(0), torch.zeros(5, dtype=torch.float64), atol=1e-9, rtol=0)
        torch.testing.assert_close(after.std(0, correction=0)[varying], torch.ones(len(varying), dtype=torch.float64))


def test_lu_mixing_is_the_product_of_its_factors() -> None:
    torch.manual_seed(0)
    step = LUMixing(5).double()
    nn.init.normal_(step.factors)
    nn.init.normal_(step.log_diagonal)
    lower = step.factors.tril(-1) + torch.eye(5, dtype=torch.float64)
    upper = step.factors.triu(1) + step.log_diagonal.exp().diag()
    matrix = lower @ upper @ torch.eye(5, dtype=torch.float64)[step.permutation.order]
    v = vectors(3, 5)
    torch.testing.assert_close(step(v)[0], v @ matrix.T)
    torch.testing.assert_close(step(v)[1], torch.linalg.slogdet(matrix)[1])


def test_a_permutation_and_its_inverse_also_under_vmap() -> None:
    step, v = Permutation(6), vectors(4, 6)
    assert sorted(step.order.tolist()) == list(range(6))
    assert torch.equal(step(v)[0], v[:, step.order])
    assert torch.equal(step.inverse(step(v)[0]), v)
    many = vectors(8, 6).view(2, 4, 6)
    assert torch.equal(torch.vmap(lambda x: step(x)[0])(many), many[..., step.order])


def test_log_scales_never_pass_the_clamp() -> None:
    flow = build(8, FlowSettings(blocks=1, hidden=4))
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.mul_(1e3)
        log_det = flow(vectors(50, 8) * 1e3)[1].abs().max()
    assert 2 < log_det <= 8 * 2


def test_autocast_does_not_cost_digits() -> None:
    flow, v = build(16, FlowSettings(hidden=16), dtype=torch.float32), vectors(9, 16, torch.float32)
    expected, back = flow(v), flow.inverse(v)
    with torch.autocast("cpu", torch.bfloat16):
        found = flow(v.bfloat16().float()), flow(v), flow.inverse(v)
    assert not torch.equal(found[0][0], expected[0])  # the input itself may be coarse
    assert all(torch.equal(x, y) for x, y in zip((*found[1], found[2]), (*expected, back), strict=True))


@pytest.mark.parametrize("size", [8, 9])
def test_equals_the_same_flow_of_freia(size: int) -> None:
    """FrEIA transforms its first half first, so it gets our halves the other way round."""
    modules = pytest.importorskip("FrEIA.modules", reason="FrEIA is not installed")
    framework = pytest.importorskip("FrEIA.framework", reason="FrEIA is not installed")
    settings = FlowSettings(blocks=3, hidden=12)
    flow, v = build(size, settings), vectors(6, size)

    def network(given: int, made: int) -> nn.Module:
        return nn.Sequential(nn.Linear(given, 12), nn.LeakyReLU(), nn.Linear(12, made))

    half = size - size // 2
    swap = torch.cat([torch.arange(half, size), torch.arange(half)])
    other = framework.SequenceINN(size)
    before = torch.arange(size)  # where our coordinates lie in FrEIA's output so far
    for block in flow.blocks:
        permutation, coupling = block.children()
        assert isinstance(permutation, Permutation)
        assert isinstance(coupling, Coupling)
        other.append(modules.PermuteRandom)
        order = before[permutation.order][swap]
        other[-1].perm.data, other[-1].perm_inv.data = order, order.argsort()
        other.append(modules.GLOWCouplingBlock, subnet_constructor=network, split_len=size // 2)
        other.double()
        for theirs, ours in ((other[-1].subnet2, coupling.by_first), (other[-1].subnet1, coupling.by_second)):
            theirs[0].load_state_dict(ours.hidden.state_dict())
            theirs[2].load_state_dict(ours.out.state_dict())
        before = swap.argsort()
    z, log_det = other(v)
    torch.testing.assert_close(flow(v)[0], z[:, before])
    torch.testing.assert_close(flow(v)[1], log_det)
    torch.testing.assert_close(flow.inverse(flow(v)[0]), other(z, rev=True)[0])


def test_wrong_settings_and_sizes_say_what_is_wrong() -> None:
    for name, value, words in (
        ("blocks", 0, '"blocks" must be at least 1; given 0'),
        ("hidden", 0, '"hidden" must be at least 1; given 0'),
        ("activation", "leaky", 'no activation "leaky". Did you mean "leaky_relu"?'),
        ("mixing", "permute", 'no mixing "permute". Did you mean "permutation"?'),
    ):
        with pytest.raises(UsageError) as error:
            replace(FlowSettings(), **{name: value})  # type: ignore[arg-type]
        assert words in str(error.value)
    with pytest.raises(UsageError, match="at least 2; given 1"):
        Flow(1)
    flow = Flow(4, FlowSettings(hidden=2, act_norm=True))
    with pytest.raises(UsageError, match=r"takes vectors \[n, 4\]; given \[2, 5\]"):
        flow(torch.zeros(2, 5))
    with pytest.raises(UsageError, match="two vectors"):
        flow.initialise(torch.zeros(1, 4))


@pytest.mark.parametrize("mixing", ["permutation", "lu"])
@pytest.mark.parametrize("act_norm", [False, True])
def test_a_flow_may_start_as_the_identity(mixing: Any, act_norm: bool) -> None:
    torch.manual_seed(0)
    settings = FlowSettings(blocks=3, hidden=8, mixing=mixing, act_norm=act_norm, identity=True)
    flow, v = Flow(9, settings), vectors(5, 9, torch.float32)
    z, log_det = flow(v)
    assert torch.equal(z, v)
    assert torch.equal(flow.inverse(v), v)
    assert not log_det.any()
    z.square().cumsum(1).sum().backward()
    outs = [
        part.out.weight.grad
        for step in flow._chain()
        if isinstance(step, Coupling)
        for part in (step.by_first, step.by_second)
    ]
    assert all(grad is not None and grad.abs().sum() > 0 for grad in outs)
    other = Flow(9, settings)
    other.load_state_dict(flow.state_dict())
    assert torch.equal(other(v)[0], v)
