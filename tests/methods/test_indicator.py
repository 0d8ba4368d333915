"""The indicator method against the paper's literal form, and its settings."""

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot
from torch.utils._python_dispatch import TorchDispatchMode

from labelwise.fitting.fit import fit
from labelwise.fitting.training import training_data
from labelwise.images.describe.labels import Labels
from labelwise.methods.indicator.method import PART, Indicator, IndicatorModel, Round
from labelwise.methods.indicator.negatives import sample_uniformly
from labelwise.methods.shared.linear import Encoder
from labelwise.support.errors import UsageError
from labelwise.train.batches import Batch
from labelwise.train.method import Run
from labelwise.train.model import Spec
from labelwise.train.tensors import BatchRng
from tests.conftest import blobs

K = 7
SPEC = Spec(shape=(3, 8, 8), labels=Labels(names=tuple("abcdefg")))
LARGE = Spec(shape=(3, 8, 8), labels=Labels(names=tuple(f"label {i}" for i in range(450))))


def batch(n: int = 12, k: int = K) -> Batch:
    made = torch.Generator().manual_seed(0)
    images, targets = torch.rand(n, 3, 8, 8, generator=made), torch.randint(0, k, (n,), generator=made)
    return Batch(images=images, targets=targets, rows=torch.arange(n), rng=BatchRng.from_seed(5, n))


def model(method: Indicator, spec: Spec = SPEC) -> IndicatorModel:
    torch.manual_seed(1)
    return method.build(spec).train()


def total(terms: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(terms.values())).sum()


def gradients(network: IndicatorModel, loss: Tensor) -> dict[str, Tensor]:
    network.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def literal_loss(network: IndicatorModel, given: Batch, wrong: Tensor) -> Tensor:
    """The paper's way: the image is repeated for every asked label, h = z * psi, one logit for each pair."""
    n, asked = len(given.targets), torch.cat([given.targets[:, None], wrong], 1)
    times = asked.shape[1]
    images = given.images.repeat_interleave(times, 0)
    psi = network.label_encoder.of_inputs(one_hot(asked.flatten(), len(network.spec.labels)).float())
    logits = network.predictor(network.encoder(images) * psi)[:, 0]
    truth = (torch.arange(times) == 0).float().repeat(n)
    return binary_cross_entropy_with_logits(logits, truth, reduction="sum") / n


@pytest.mark.parametrize("activation", ["none", "relu", "leaky_relu", "sigmoid", "tanh"])
@pytest.mark.parametrize("negatives", [1, 3, 6])
def test_loss_and_gradients_equal_the_literal_form(negatives: int, activation: str) -> None:
    method = Indicator(encoder=Encoder(width=8), negatives=negatives, activation=activation)  # type: ignore[arg-type]
    ours, theirs, given = model(method), model(method), batch()
    wrong = sample_uniformly(BatchRng.from_seed(5, 12).uniform(negatives, 2), given.targets, K)
    loss = sum(method.loss(ours, negatives)(given).values())
    reference = literal_loss(theirs, given, wrong)
    torch.testing.assert_close(loss, reference, rtol=1e-4, atol=1e-5)
    loss.backward()  # type: ignore[union-attr]
    reference.backward()  # type: ignore[no-untyped-call]
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5, msg=name)
    for (name, mine), other in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        if "running_mean" in name:
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("negatives", [1, 3])
def test_few_negatives_of_many_labels_equal_the_literal_form(negatives: int) -> None:
    method = Indicator(encoder=Encoder(width=8), negatives=negatives, activation="tanh")
    ours, theirs, given = model(method, LARGE), model(method, LARGE), batch(k=len(LARGE.labels))
    wrong = sample_uniformly(BatchRng.from_seed(5, 12).uniform(negatives, 2), given.targets, len(LARGE.labels))
    found = gradients(ours, total(method.loss(ours, negatives)(given)))
    expected = gradients(theirs, literal_loss(theirs, given, wrong))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("activation", ["none", "relu", "leaky_relu", "sigmoid", "tanh"])
@pytest.mark.parametrize("asks", ["all", "few", "many"])
def test_projected_scores_and_gradients_equal_those_of_label_embeddings(asks: str, activation: str) -> None:
    """The short way of training against the embeddings and scores of the contract, for all labels, and for pairs."""
    method = Indicator(encoder=Encoder(width=8), activation=activation)  # type: ignore[arg-type]
    network, pictures, k = model(method, LARGE).double(), batch().images.double(), len(LARGE.labels)
    for bias in (network.label_encoder.first.bias, network.label_encoder.second.bias, network.predictor.bias):
        torch.nn.init.uniform_(bias, -1, 1)
    made = torch.Generator().manual_seed(2)
    asked = torch.randint(0, k, (12, 50 if asks == "many" else 2), generator=made)
    if asks == "all":
        asked = torch.arange(k).expand(12, k)
    weights = torch.rand(asked.shape, generator=made).double()
    plain = network.score(network.encode_images(pictures), network.encode_labels(LARGE.labels)).gather(1, asked)
    expected = gradients(network, (plain * weights).sum())
    images = network.project(network.encode_images(pictures))
    short = network.scores_of_rows(images, slice(None)) if asks == "all" else network.scores_of_pairs(images, asked)
    torch.testing.assert_close(short, plain)
    torch.testing.assert_close(gradients(network, (short * weights).sum()), expected)


class Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the size of the largest tensor that any operation makes."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        made = [x.numel() for x in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(x, Tensor)]
        self.largest = max(self.largest, *made, 0)
        return out


@pytest.mark.parametrize(("sampling", "factor"), [("uniform", 1), ("hard", 1), ("all", 4)])
def test_training_makes_nothing_larger_than_the_table_of_labels(
    sampling: str, factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No label embeddings ``[k, d]`` ever, and with few negatives no scores ``[n, k]`` but a part at a time."""
    k, d, n = 3000, 16, 32
    monkeypatch.setitem(PART, "cpu", 100 * n)
    method = Indicator(sampling="hard" if sampling == "hard" else "uniform")
    network = model(method, Spec(shape=(d,), labels=Labels(names=tuple(map(str, range(k))))))
    made = torch.Generator().manual_seed(0)
    images, targets = torch.rand(n, d, generator=made), torch.randint(0, k, (n,), generator=made)
    given = Batch(images=images, targets=targets, rows=targets, rng=BatchRng.from_seed(5, n))
    with Sizes() as sizes:  # type: ignore[no-untyped-call]
        total(method.loss(network, k if sampling == "all" else 9)(given)).backward()  # type: ignore[no-untyped-call]
    assert sizes.largest == factor * k * d // 2


@pytest.mark.parametrize("sampling", ["uniform", "hard"])
def test_a_batch_spread_over_processes_gets_the_same_wrong_labels(
    sampling: Literal["uniform", "hard"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PART, "cpu", 12 * 100)
    method, given = Indicator(encoder=Encoder(width=8), sampling=sampling), batch(k=len(LARGE.labels))
    network = model(method, LARGE).eval()

    def drawn(rows: slice) -> Tensor:
        rng = BatchRng(torch.Generator().manual_seed(5), rows, 12)
        part = replace(given, images=given.images[rows], targets=given.targets[rows], rng=rng)
        return method.wrong_labels(network, network.project(network.encode_images(part.images)), part, 4)

    whole, parts = drawn(slice(0, 12)), [drawn(slice(0, 5)), drawn(slice(5, 12))]
    assert torch.equal(torch.cat(parts).sort().values, whole.sort().values)


def test_hard_sampling_in_parts_follows_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """One label each for many copies of one image: shares in proportion to exp(score / temperature)."""
    n = 20_000
    monkeypatch.setitem(PART, "cpu", 3 * n)
    method = Indicator(encoder=Encoder(width=8), sampling="hard", temperature=0.2)
    network = model(method).eval()
    one = network.encode_images(batch().images[:1])
    given = replace(batch(), targets=torch.full((n,), 4), rng=BatchRng.from_seed(1, n))
    drawn = method.wrong_labels(network, network.project(one.expand(n, -1)), given, 1)
    scores = network.score(one, network.encode_labels(SPEC.labels))[0].detach().double()
    shares = (scores / 0.2).index_fill(0, torch.tensor([4]), -torch.inf).softmax(0)
    counts = torch.bincount(drawn[:, 0], minlength=K)
    others = [0, 1, 2, 3, 5, 6]
    assert counts[4] == 0
    assert shares.max() > 2 * shares[others].min()
    assert chisquare(counts[others].numpy(), (shares[others] * n).numpy()).pvalue > 0.01


def test_label_embedding_of_one_hot_input_is_the_label() -> None:
    network = model(Indicator(activation="tanh"))
    torch.testing.assert_close(network.encode_label_inputs(torch.eye(K)), network.encode_labels(SPEC.labels))
    some = SPEC.labels.select(["c", "a"])
    torch.testing.assert_close(network.encode_label_inputs(torch.eye(K)[[2, 0]]), network.encode_labels(some))
    with pytest.raises(UsageError, match=r"Label inputs are \[m, 7\]; given \[1, 3\]"):
        network.encode_label_inputs(torch.ones(1, 3))


def test_more_negatives_than_labels_means_all() -> None:
    method = Indicator(encoder=Encoder(width=8))
    network = model(method)
    every, more = method.loss(network, K - 1)(batch()), method.loss(network, 50)(batch())
    assert torch.equal(every["no"], more["no"])


def test_hard_sampling_prefers_high_scores() -> None:
    given = batch(n=64)
    easy = Indicator(encoder=Encoder(width=8), sampling="uniform")
    hard = replace(easy, sampling="hard", temperature=0.01)
    network = model(easy)
    losses = {name: float(m.loss(network, 1)(given)["no"].detach()) for name, m in (("easy", easy), ("hard", hard))}
    assert losses["hard"] > losses["easy"]


def test_curriculum_is_one_stage_for_each_number() -> None:
    data = training_data(blobs())
    rounds = (Round(epochs=3, drops=(1, 2)), Round(lr=0.01, batch=7), Round(lr=0.002, epochs=2))
    method = Indicator(curriculum=(1, 2), negatives=3, rounds=rounds)
    stages = list(method.stages(method.build(data.spec), data))
    assert [stage.name for stage in stages] == ["indicator N=1", "indicator N=2", "indicator N=3"]
    assert [stage.optimizer.lr for stage in stages] == [method.optimizer.lr, 0.01, 0.002]
    assert [stage.epochs for stage in stages] == [3, method.epochs, 2]
    assert [getattr(stage.batches, "size", None) for stage in stages] == [method.batch, 7, method.batch]
    assert [stage.schedule.drops for stage in stages] == [(1, 2), method.schedule.drops, method.schedule.drops]
    with pytest.raises(UsageError, match="2 of the curriculum and the last; given 1"):
        Indicator(curriculum=(1, 2), rounds=rounds[:1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"negatives": 0}, "at least one negative"), ({"temperature": 0.0}, "above 0"), ({"epochs": 0}, "at least 1")],
)
def test_wrong_settings(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Indicator(**wrong)  # type: ignore[arg-type]


def test_precomputed_features_train() -> None:
    import labelwise as lw

    made = torch.Generator().manual_seed(0)
    targets = torch.arange(4).repeat(40)
    features = torch.randn(160, 6, generator=made) + torch.eye(4, 6)[targets] * 6
    data = lw.data.arrays(features.numpy(), targets.numpy())
    classifier = fit(data, Indicator(epochs=20, batch=32), Run(device="cpu"))
    test = data.split("test")
    assert float((classifier.scores(test.images).best == test.targets).mean()) > 0.9
