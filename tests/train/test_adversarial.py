"""Adversarial training: what the attack finds, what it leaves alone, and what comes of it."""

import copy
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labelwise.evaluation.evaluation import Evaluation
from labelwise.fitting.fit import fit
from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset
from labelwise.methods import METHODS, Encoder, ImageMethod, Softmax
from labelwise.support.errors import UsageError
from labelwise.support.settings import from_plain, override, to_plain
from labelwise.train.adversarial import Adversarial, resting
from labelwise.train.batches import Batch
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.model import as_float
from labelwise.train.stages import Loss
from labelwise.train.tensors import BatchRng
from labelwise_papers.attacks.apgd import Apgd
from labelwise_papers.attacks.robust import RobustSettings, evaluate_robust
from labelwise_papers.attacks.square import Square
from labelwise_papers.baselines.supcon import Supcon
from tests.changed import bind_model
from tests.conftest import blobs, quick, squares
from tests.described import by_vector
from tests.epochs import batches_of
from tests.pixels_of import px

CPU = Run(device="cpu", seed=2)
HARD = Adversarial(epsilon=0.1, steps=4)
every_method = pytest.mark.parametrize("method", [n for n, kind in METHODS.items() if issubclass(kind, ImageMethod)])


def batch_of(data: Dataset, n: int = 16, seed: int = 5) -> Batch:
    part = data.split("train")
    return Batch(
        images=as_float(px(part)[:n]),
        targets=torch.as_tensor(part.targets)[:n],
        rows=torch.arange(n),
        rng=BatchRng.from_seed(seed, n),
    )


def linear_loss(weights: Tensor, batch: Batch) -> Mapping[str, Tensor]:
    return {"choice": cross_entropy(batch.images.flatten(1) @ weights.T, batch.targets)}


def test_two_labels_of_a_linear_model_are_attacked_optimally(blob_data: Dataset) -> None:
    batch = batch_of(blob_data)
    batch = replace(batch, targets=batch.targets % 2)
    weights = torch.randn(2, batch.images[0].numel(), generator=torch.Generator().manual_seed(0)) / 50
    found = HARD.attacked(lambda part: linear_loss(weights, part), batch)
    slope = (weights[0] - weights[1]).view(batch.images.shape[1:]).sign()
    way = torch.where(batch.targets == 0, -1.0, 1.0).view(-1, 1, 1, 1) * slope
    torch.testing.assert_close(found, (batch.images + 0.1 * way).clamp(0, 1))


def test_epsilon_grows_over_the_warm_up(blob_data: Dataset) -> None:
    batch, slow = batch_of(blob_data), replace(HARD, warmup=0.5)
    weights = torch.randn(4, batch.images[0].numel(), generator=torch.Generator().manual_seed(0)) / 50

    def moved(settings: Adversarial, done: float) -> float:
        found = settings.attacked(lambda part: linear_loss(weights, part), replace(batch, progress=done))
        return float((found - batch.images).abs().max())

    assert [moved(slow, done) for done in (0.0, 0.125, 0.5, 0.9)] == pytest.approx([0, 0.025, 0.1, 0.1])
    assert moved(HARD, 0.0) == pytest.approx(0.1)


def test_training_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    found = Adversarial.attacked

    def watched(self: Adversarial, loss: Loss, batch: Batch) -> Tensor:
        seen.append(batch.progress)
        return found(self, loss, batch)

    monkeypatch.setattr(Adversarial, "attacked", watched)
    method = replace(quick("softmax"), epochs=2, batch=40, adversarial=HARD)  # type: ignore[call-arg]
    fit(blobs(4, per_label=60), method, CPU)
    assert seen == [step / len(seen) for step in range(len(seen))]
    assert len(seen) > 2


@every_method
def test_the_attack_leaves_no_trace_in_the_model(method: str) -> None:
    """What a step changes is what it would change if the batch had come attacked; random numbers are those of the batch."""
    settings, data = quick(method), training_data(blobs(4, per_label=20))
    torch.manual_seed(0)
    model = settings.build(data.spec)
    stage = next(iter(settings.stages(model, data)))
    before, seen = copy.deepcopy(model.state_dict()), []

    def spied(batch: Batch) -> Mapping[str, Tensor]:
        if model.training:
            seen.append(batch.images)
            torch.manual_seed(1)
        else:
            assert not any(parameter.requires_grad for parameter in model.parameters())
        return stage.loss(batch)

    model.train()
    terms = HARD.wrap(spied, model, data)(next(batches_of(stage.batches, 7)))
    after = copy.deepcopy(model.state_dict())
    assert len(seen) == 1
    model.load_state_dict(before)
    torch.manual_seed(1)
    plain = stage.loss(replace(next(batches_of(stage.batches, 7)), images=seen[0]))
    assert {name: term.item() for name, term in terms.items()} == {name: term.item() for name, term in plain.items()}
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, after[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
    gradients = torch.autograd.grad(sum(plain.values(), torch.zeros(())), list(stage.parameters), allow_unused=True)
    assert any(gradient is not None and bool(gradient.any()) for gradient in gradients)


def test_the_attack_raises_the_loss_within_bounds(blob_data: Dataset) -> None:
    data, batch = training_data(blob_data), batch_of(blob_data)
    torch.manual_seed(0)
    method = quick("softmax")
    assert isinstance(method, Softmax)
    model = method.build(data.spec)
    stage = next(iter(method.stages(model, data)))
    with resting(model):
        found = HARD.attacked(stage.loss, batch)
        before, after = (float(sum(stage.loss(replace(batch, images=x)).values())) for x in (batch.images, found))
    assert after > before
    assert float((found - batch.images).abs().max()) <= 0.1 + 1e-6
    assert 0 <= float(found.min()) <= float(found.max()) <= 1
    with resting(model):
        assert torch.equal(HARD.attacked(stage.loss, batch_of(blob_data)), found)
        assert not torch.equal(HARD.attacked(stage.loss, batch_of(blob_data, seed=6)), found)


def test_every_step_of_an_attack_draws_the_same_numbers_and_none_of_the_batch(blob_data: Dataset) -> None:
    model, drawn = nn.Linear(1, 1), []

    def loss(batch: Batch) -> Mapping[str, Tensor]:
        drawn.append(batch.rng.uniform(3))
        return {"sum": batch.images.sum()}

    HARD.wrap(loss, model, training_data(blob_data))(batch_of(blob_data))
    assert len(drawn) == 5
    assert all(torch.equal(numbers, drawn[0]) for numbers in drawn[:4])
    assert torch.equal(drawn[4], batch_of(blob_data).rng.uniform(3))
    assert not torch.equal(drawn[4], drawn[0])


def test_a_share_of_the_pictures_is_attacked(blob_data: Dataset) -> None:
    batch = batch_of(blob_data, 40)
    weights = torch.randn(4, batch.images[0].numel(), generator=torch.Generator().manual_seed(0))
    found = replace(HARD, share=0.5).attacked(lambda part: linear_loss(weights, part), batch)
    same = (found == batch.images).flatten(1).all(1)
    assert 10 < int(same.sum()) < 30
    whole = HARD.attacked(lambda part: linear_loss(weights, part), batch)
    assert torch.equal(found[~same], whole[~same])


def test_resting_ends_as_it_began_even_after_an_error() -> None:
    norm = nn.BatchNorm1d(2)
    model = nn.Sequential(nn.Linear(2, 2), norm, nn.Dropout())
    assert norm.running_mean is not None
    norm.eval()
    model[0].bias.requires_grad_(False)
    with resting(model):
        assert not any(module.training for module in model.modules())
        norm.running_mean.add_(3)
    assert not norm.running_mean.any()
    with pytest.raises(ZeroDivisionError), resting(model):
        1 / 0  # noqa: B018
    assert [module.training for module in model] == [True, False, True]
    assert [p.requires_grad for p in model.parameters()] == [True, False, True, True]


@every_method
def test_every_method_that_trains_an_encoder_can(method: str) -> None:
    """The same seed gives the same weights, and others than without an attack."""
    data = training_data(blobs(4, per_label=20))
    settings = quick(method, 1)
    assert isinstance(settings, ImageMethod)
    hard = replace(settings, adversarial=Adversarial(epsilon=0.05, steps=1))
    plain, once, again = (train(each, data, CPU)[0].state_dict() for each in (settings, hard, hard))
    assert all(torch.equal(tensor, again[name]) for name, tensor in once.items())
    assert any(not torch.equal(tensor, plain[name]) for name, tensor in once.items())


def test_it_makes_a_classifier_robust() -> None:
    data = blobs()
    method = quick("softmax", 15)
    assert isinstance(method, Softmax)
    ways = RobustSettings(epsilon=0.05, attacks=(Apgd(steps=20), Square(queries=50)))
    plain, hard = (
        evaluate_robust(Evaluation.of(fit(data, each, CPU), data.split("test"), data.labels), ways)
        for each in (method, replace(method, adversarial=Adversarial(epsilon=0.05, steps=4)))
    )
    assert hard.clean > 0.9
    assert hard.worst > plain.worst + 0.2
    assert hard.warnings == ()


def test_scores_can_be_attacked_instead_of_the_loss(blob_data: Dataset) -> None:
    method, data, batch = quick("indicator"), training_data(blob_data), batch_of(blob_data)
    torch.manual_seed(0)
    model = method.build(data.spec).eval()
    seen: list[Tensor] = []

    def loss(part: Batch) -> Mapping[str, Tensor]:
        seen.append(px(part))
        return {"none": model.encode_images(px(part)).sum() * 0}

    replace(HARD, loss="scores").wrap(loss, model, data)(batch)
    (found,) = seen  # the loss of the stage is asked once, the scores at every step
    classifier = bind_model(model, data.labels)
    before, after = (
        cross_entropy(torch.from_numpy(classifier.scores(x).log_odds), batch.targets) for x in (batch.images, found)
    )
    assert float(after) > float(before)


def test_what_cannot_be_attacked_says_why() -> None:
    features = by_vector()
    with pytest.raises(UsageError, match="holds precomputed features"):
        fit(features, Softmax(adversarial=HARD, epochs=1), CPU)
    several = quick("multilabel", 1)
    assert isinstance(several, ImageMethod)
    with pytest.raises(UsageError, match="several true labels"):
        fit(squares(), replace(several, adversarial=replace(HARD, loss="scores")), CPU)
    described = quick("ridge", 1)
    assert isinstance(described, ImageMethod)
    with pytest.raises(UsageError, match="a part of the model"):
        fit(blobs(6), replace(described, adversarial=replace(HARD, loss="scores")), CPU)
    for wrong in ("epsilon=0", "epsilon=8", "share=0", "step_size=0", "steps=0", "loss=all", "warmup=2"):
        with pytest.raises(UsageError):
            override(Adversarial(), dict([wrong.split("=")]))


def test_settings_travel_as_words_and_as_json() -> None:
    made = override(Supcon(encoder=Encoder()), {"adversarial.epsilon": "0.3", "adversarial.steps": "40"})
    assert made.adversarial == Adversarial(epsilon=0.3, steps=40)
    assert from_plain(Supcon, to_plain(made)) == made
