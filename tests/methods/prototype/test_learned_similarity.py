"""Scores of pairs against the literal concatenation: values, gradients, memory, settings."""

from itertools import product
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, leaky_relu
from torch.utils._python_dispatch import TorchDispatchMode

from labelwise.methods.prototype import learned_similarity as similarity
from labelwise.methods.prototype.learned_similarity import Similarity, SimilaritySettings
from labelwise.support.errors import UsageError

WAYS: tuple[Literal["none", "max", "mean"], ...] = ("none", "max", "mean")
EVERY = [
    SimilaritySettings(kind="cosine"),
    *[SimilaritySettings(kind="both", symmetric=way, hidden=16) for way in WAYS],
    *[SimilaritySettings(symmetric=way, layers=layers, hidden=16) for way, layers in product(WAYS, (1, 2))],
]
named = pytest.mark.parametrize("settings", EVERY, ids=lambda s: f"{s.kind}-{s.symmetric}-{s.layers}")


def one_way(model: Similarity, a: Tensor, b: Tensor) -> Tensor:
    """S as it is written: every pair concatenated, every layer applied to all of them."""
    pairs = torch.cat([a[:, None].expand(-1, len(b), -1), b[None].expand(len(a), -1, -1)], 2)
    hidden = leaky_relu(model.input(pairs), 0.1)
    if isinstance(model.middle, nn.Linear):
        hidden = leaky_relu(model.middle(hidden), 0.1)
    score: Tensor = model.output(hidden)[..., 0]
    return score


def literal(model: Similarity, a: Tensor, b: Tensor) -> Tensor:
    if model.settings.kind != "learned":
        cosine = model.scale * cosine_similarity(a[:, None], b[None], dim=2) + model.offset
        if model.settings.kind == "cosine":
            return cosine
    there, back = one_way(model, a, b), one_way(model, b, a).T
    learned = {"none": there, "max": torch.maximum(there, back), "mean": (there + back) / 2}[model.settings.symmetric]
    return learned + cosine if model.settings.kind == "both" else learned


def made(settings: SimilaritySettings, n: int = 7, m: int = 9, d: int = 5) -> tuple[Similarity, Tensor, Tensor]:
    torch.manual_seed(0)
    return Similarity(d, settings).eval(), torch.randn(n, d), torch.randn(m, d)


@named
@pytest.mark.parametrize("kept", [1, 400, 2**25])
def test_scores_are_those_of_the_concatenation(
    settings: SimilaritySettings, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similarity, "KEPT", kept)
    model, a, b = made(settings)
    with torch.no_grad():
        torch.testing.assert_close(model(a, b), literal(model, a, b))
        assert model.first(a).shape == (7, model.first_size)


@named
@pytest.mark.parametrize("kept", [1, 400, 2**25])
def test_gradients_are_those_of_the_concatenation(
    settings: SimilaritySettings, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similarity, "KEPT", kept)
    model, a, b = made(settings)
    weights = torch.randn(7, 9)
    found: list[Tensor] = []
    wanted: list[Tensor] = []
    for way, gradients in ((model, found), (lambda x, y: literal(model, x, y), wanted)):
        inputs = [a.clone().requires_grad_(), b.clone().requires_grad_()]
        gradients += torch.autograd.grad((way(*inputs) * weights).sum(), [*inputs, *model.parameters()])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kept", [200, 2**25])
def test_gradients_belong_to_the_dropout_that_was_drawn(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed again backwards must drop the same units as it did forwards."""
    monkeypatch.setattr(similarity, "KEPT", kept)
    model, a, b = made(SimilaritySettings(hidden=16, dropout=0.5))
    model, a, b = model.double().train(), a.double().requires_grad_(), b.double()

    def total(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        value: Tensor = model(x, b).square().sum()
        return value

    (gradient,) = torch.autograd.grad(total(a), a)
    step = torch.randn_like(a) * 1e-6
    with torch.no_grad():
        numeric = (total(a + step) - total(a - step)) / 2
    torch.testing.assert_close((gradient * step).sum(), numeric, rtol=1e-5, atol=1e-12)
    assert not torch.equal(total(a), model(a, b).square().sum()), "nothing was dropped"


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the size of the largest tensor that any operation returns."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.numbers = max(self.numbers, out.numel())
        return out


@pytest.mark.parametrize("layers", [1, 2])
def test_memory_is_bounded(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "KEPT", 80 * 64)
    model, a, b = made(SimilaritySettings(hidden=64, layers=layers), n=60, m=80, d=32)
    with torch.no_grad(), Largest() as bounded:  # type: ignore[no-untyped-call]
        model(a, b)
    with torch.no_grad(), Largest() as unbounded:  # type: ignore[no-untyped-call]
        literal(model, a, b)
    assert bounded.numbers == 80 * 64, "more than the embeddings, the scores or a tile at once"
    assert unbounded.numbers == 60 * 80 * 64


def test_training_keeps_few_hidden_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "KEPT", 1000)
    model, a, b = made(SimilaritySettings(hidden=16))
    sizes: list[int] = []

    def pack(x: Tensor) -> Tensor:
        sizes.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        model.train()(a, b)
    assert max(sizes) < 7 * 9 * 16


@pytest.mark.parametrize(
    "values", [{"layers": 3}, {"hidden": 0}, {"dropout": 1.0}, {"kind": "euclid"}, {"symmetric": "min"}], ids=str
)
def test_wrong_settings(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="similarity"):
        SimilaritySettings(**values)
