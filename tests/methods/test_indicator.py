"""The indicator method against the paper's literal form, and its settings."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from labelwise.core import Labels, Spec
from labelwise.data.batches import Batch
from labelwise.data.draws import Draws
from labelwise.errors import UsageError
from labelwise.fitting import fit, training_data
from labelwise.methods.indicator import Indicator, IndicatorModel
from labelwise.methods.linear import Encoder
from labelwise.ops.negatives import sample_wrong_labels
from labelwise.training import Run
from tests.conftest import blobs

K = 7
SPEC = Spec(shape=(3, 8, 8), labels=Labels(names=tuple("abcdefg")))


def batch(n: int = 12, seed: int = 0) -> Batch:
    made = torch.Generator().manual_seed(seed)
    images, targets = torch.rand(n, 3, 8, 8, generator=made), torch.randint(0, K, (n,), generator=made)
    return Batch(images=images, targets=targets, rows=torch.arange(n), draws=Draws.seeded(5, n))


def model(method: Indicator) -> IndicatorModel:
    torch.manual_seed(1)
    return method.build(SPEC).train()


def literal_loss(network: IndicatorModel, given: Batch, wrong: Tensor) -> Tensor:
    """The paper's way: the image is repeated for every asked label, h = z * psi, one logit for each pair."""
    n, asked = len(given.targets), torch.cat([given.targets[:, None], wrong], 1)
    times = asked.shape[1]
    images = given.images.repeat_interleave(times, 0)
    psi = network.label_encoder.of_inputs(one_hot(asked.flatten(), K).float())
    logits = network.predictor(network.encoder(images) * psi)[:, 0]
    truth = (torch.arange(times) == 0).float().repeat(n)
    return binary_cross_entropy_with_logits(logits, truth, reduction="sum") / n


@pytest.mark.parametrize("activation", ["none", "relu", "leaky_relu", "sigmoid", "tanh"])
@pytest.mark.parametrize("negatives", [1, 3, 6])
def test_loss_and_gradients_equal_the_literal_form(negatives: int, activation: str) -> None:
    method = Indicator(encoder=Encoder(width=8), negatives=negatives, activation=activation)  # type: ignore[arg-type]
    ours, theirs, given = model(method), model(method), batch()
    wrong = sample_wrong_labels(Draws.seeded(5, 12).uniform(K), given.targets, negatives)
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


def test_label_code_of_one_hot_input_is_the_label() -> None:
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
    method = Indicator(curriculum=(1, 2), negatives=3, later_lr=0.01)
    stages = list(method.stages(method.build(data.spec), data))
    assert [stage.name for stage in stages] == ["indicator N=1", "indicator N=2", "indicator N=3"]
    assert [stage.optimizer.lr for stage in stages] == [0.1, 0.01, 0.01]


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
    assert float((classifier.scores(test.images).argmax(1) == test.targets).double().mean()) > 0.9
