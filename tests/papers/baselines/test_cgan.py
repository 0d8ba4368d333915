"""Cgan: turns of critic and generator in the one loop, and what the trial settles."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from labelwise.fitting.rebuild import model_of
from labelwise.fitting.zero_shot import fit_zero_shot, plan_runs
from labelwise.methods.registry import method_of
from labelwise.support.errors import UsageError
from labelwise.support.settings import from_plain, to_plain
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.train_data import TrainData
from labelwise_papers.baselines.cgan import Cgan, CganModel, GanOptimizer
from tests.described import UNSEEN, by_vector
from tests.epochs import batches_of

RUN = Run(device="cpu")


def final() -> TrainData:
    return plan_runs(by_vector(), Cgan(), 0).final


def test_critic_and_generator_take_turns() -> None:
    data, method = final(), Cgan(hidden=16, critic_steps=2, batch=16)
    model = method.build(data.spec)
    stage = next(method.stages(model, data))
    batch = next(iter(batches_of(stage.batches, 0)))
    reached = []
    for turn in range(7):
        for parameter in model.parameters():
            parameter.grad = None
        torch.stack(list(stage.loss(replace(batch, phase=turn % stage.phases)).values())).sum().backward()  # type: ignore[no-untyped-call]
        pair = [
            all(p.grad is not None for p in net.parameters() if p.ndim > 1) for net in (model.critic, model.generator)
        ]
        none = [all(p.grad is None for p in net.parameters()) for net in (model.critic, model.generator)]
        assert pair == [not flag for flag in none]
        reached.append("critic" if pair[0] else "generator")
    assert reached == ["critic", "critic", "generator"] * 2 + ["critic"]
    assert int(model.turn) == 7


def test_the_discrepancy_pushes_features_of_unseen_labels_from_real_ones() -> None:
    data, method = final(), Cgan(hidden=16, critic_steps=1, batch=16, mmd_weight=0.1)
    model = method.build(data.spec)
    stage = next(method.stages(model, data))
    batch = next(iter(batches_of(stage.batches, 0)))
    assert "mmd" not in stage.loss(replace(batch, phase=0)), "the critic does not see them"
    terms = stage.loss(replace(batch, phase=1))
    assert -1.2 < float(terms["mmd"].detach()) < 0, "a distance that is to grow, of six bounded kernels"
    terms["mmd"].backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for parameter in model.generator.parameters())
    assert all(parameter.grad is None for parameter in model.critic.parameters())
    plain = Cgan(hidden=16, critic_steps=1, batch=16)
    without = next(plain.stages(plain.build(data.spec), data))
    assert "mmd" not in without.loss(replace(batch, phase=1))


def test_generated_features_come_near_real_ones() -> None:
    data = final()
    method = Cgan(epochs=60, hidden=64, batch=32, critic_steps=3, optimizer=GanOptimizer(lr=4e-3), class_weight=0.1)
    model, _ = train(method, data, RUN)
    assert isinstance(model, CganModel)
    head = model.export_head()
    made = torch.from_numpy(head.generate(data.labels, 50, 0))
    assert made.shape == (len(data.labels), 50, 20)
    alone = head.generate(data.labels.select(data.labels.names[2:3]), 50, 0)
    torch.testing.assert_close(torch.from_numpy(alone)[0], made[2])
    features = model.encode_features(data.train.images)
    means = torch.stack([features[data.train.targets == i].mean(0) for i in range(len(data.labels))])
    nearest = torch.cdist(made.mean(1), means).argmin(1)
    assert float((nearest == torch.arange(len(means))).float().mean()) > 0.7


def test_the_trial_settles_epochs_and_penalty() -> None:
    method = Cgan(epochs=4, hidden=16, batch=32)
    found = fit_zero_shot(by_vector(), method, RUN)
    settled, model = method_of(found), model_of(found)
    assert isinstance(settled, Cgan)
    assert 1 <= settled.epochs <= 4
    assert settled.head_penalty is not None
    assert isinstance(model, CganModel)
    assert int(model.trained_epochs) == settled.epochs
    assert found.unseen == {f"label {i}" for i in UNSEEN}
    assert from_plain(Cgan, to_plain(settled)) == settled


def test_adam_forgets_the_direction_sooner() -> None:
    built = GanOptimizer().build([torch.nn.Parameter(torch.zeros(2))])
    assert isinstance(built, torch.optim.Adam)
    assert built.param_groups[0]["betas"] == (0.5, 0.999)
    assert isinstance(GanOptimizer(name="sgd").build([torch.nn.Parameter(torch.zeros(2))]), torch.optim.SGD)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden": 0}, '"hidden" must be at least 1'),
        ({"critic_steps": 0}, '"critic_steps" must be at least 1'),
        ({"gradient_penalty": -1.0}, "must be 0 or more; given -1.0"),
        ({"epochs": 0}, '"epochs" must be at least 1'),
    ],
)
def test_wrong_settings(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Cgan(**wrong)
