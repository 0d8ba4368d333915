"""The moving average of weights: alone, in a run, and in a run that goes on after a crash."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from labelwise.fitting.training import training_data
from labelwise.methods import ImageMethod
from labelwise.support.errors import UsageError
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.optimizers import MovingAverage
from labelwise.train.step import TrainingStep
from tests.conftest import blobs, quick


def averaging(stays: float | None = 0.9, epochs: int = 3) -> ImageMethod:
    method = quick("softmax", epochs)
    assert isinstance(method, ImageMethod)
    return replace(method, average=stays)


def test_average_of_weights_and_statistics() -> None:
    linear = nn.Linear(2, 2)
    model = nn.Sequential(linear, nn.BatchNorm1d(2))
    average = MovingAverage(model, 0.5)
    slow = {name: tensor.double().clone() for name, tensor in model.state_dict().items()}
    for step in range(12):
        model(torch.randn(5, 2))
        with torch.no_grad():
            linear.weight.add_(torch.randn(2, 2))
        average.update()
        stays = min(0.5, (1 + step) / (10 + step))
        for name, tensor in model.state_dict().items():
            slow[name] = stays * slow[name] + (1 - stays) * tensor.double()
    own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with average.inside(model):
        for name, tensor in model.state_dict().items():
            wanted = own[name].double() if name == "1.num_batches_tracked" else slow[name]
            torch.testing.assert_close(tensor.double(), wanted, rtol=1e-5, atol=1e-6)
        assert not torch.equal(linear.weight, own["0.weight"])
    assert all(torch.equal(tensor, own[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(UsageError, match="from 0 to below 1; given 1"):
        MovingAverage(model, 1.0)


def test_a_run_ends_with_the_average() -> None:
    data = training_data(blobs())
    plain, _ = train(averaging(None), data, Run(device="cpu"))
    none, _ = train(averaging(0.0), data, Run(device="cpu"))
    some, _ = train(averaging(0.9), data, Run(device="cpu"))
    same = [torch.allclose(a, b) for a, b in zip(plain.parameters(), none.parameters(), strict=True)]
    assert all(same), "an average of which nothing stays is the last step"
    assert not any(torch.allclose(a, b) for a, b in zip(plain.parameters(), some.parameters(), strict=True))


def test_a_resumed_run_ends_with_the_same_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, method = training_data(blobs()), averaging()
    whole, _ = train(method, data, Run(device="cpu"))
    taken, step = [0], TrainingStep.take

    def stops(*given: object) -> object:
        taken[0] += 1
        if taken[0] == 7:
            raise ZeroDivisionError
        return step(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(TrainingStep, "take", stops)
    run = Run(device="cpu", folder=tmp_path, checkpoint_seconds=0)
    with pytest.raises(ZeroDivisionError):
        train(method, data, run)
    monkeypatch.undo()
    again, _ = train(method, data, replace(run, resume=True))
    first, second = whole.state_dict(), again.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
