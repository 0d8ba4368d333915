"""Code for GPUs where there is none: every training step, and what is asked of a classifier, with tensors that say they lie on a GPU."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

import labelwise as lw
from labelwise.evaluation.evaluation import Evaluation
from labelwise.methods import Encoder, Indicator
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.step import WARM, TrainingStep
from labelwise_papers.analyses.answers import answer_calibration, yes_rates
from tests import pretend_gpu
from tests.pretend_gpu import OnGpu
from tests.train.recorded_cases import CASES


def test_what_a_gpu_refuses_is_refused() -> None:
    with pretend_gpu.pretend_gpu():
        there = torch.arange(3.0, device="cuda")
        assert (there + there.mean()).cpu().tolist() == [1, 2, 3]
        assert there[torch.tensor([2])].tolist() == [2]
        with pytest.raises(RuntimeError, match="same device"):
            there + torch.ones(3)
        with pytest.raises(RuntimeError, match="same device"):
            torch.ones(3)[torch.zeros(1, dtype=torch.int64, device="cuda")]
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()


@pytest.mark.parametrize("name", ["softmax", "indicator, N=3", "multilabel"])
def test_a_step_that_is_recorded_waits_for_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What crosses between processor and GPU in a step makes it wait, and a recording of it fail; the first steps may, which fill caches."""
    data, method = CASES[name]()
    few = range(WARM * 16)
    data, waits, descend, run = (
        replace(data, train=data.train.select(few)),
        list[str](),
        TrainingStep.descend,
        pretend_gpu._run,
    )
    taken = 0

    def watched(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        inside = [isinstance(each, OnGpu) for each in tree_flatten(args)[0] if isinstance(each, Tensor)]
        to = torch.device(kwargs["device"]).type if kwargs.get("device") is not None else ""
        words = str(func)
        if (
            "_local_scalar_dense" in words
            or ("_to_copy" in words and to and (to == "cpu") == any(inside))
            or ("copy_" in words and len(set(inside)) > 1)
        ):
            waits.append(words)
        return run(func, args, kwargs)

    def step(self: TrainingStep, *args: Any, **kwargs: Any) -> Any:
        nonlocal taken
        taken += 1
        monkeypatch.setattr(pretend_gpu, "_run", watched if taken >= WARM else run)
        try:
            return descend(self, *args, **kwargs)
        finally:
            monkeypatch.setattr(pretend_gpu, "_run", run)

    monkeypatch.setattr(TrainingStep, "descend", step)
    with pretend_gpu.pretend_gpu():
        train(replace(method, epochs=1, batch=16), data, Run(device="cuda"))  # type: ignore[call-arg]
    assert taken >= WARM
    assert waits == []


@pytest.mark.parametrize("name", CASES)
def test_every_step_stays_on_the_gpu(name: str) -> None:
    data, method = CASES[name]()
    data = replace(data, train=data.train.select(range(80)))
    short = replace(method, epochs=1)  # type: ignore[call-arg]
    expected, _ = train(short, data, Run(device="cpu"))
    with pretend_gpu.pretend_gpu():
        model, _ = train(short, data, Run(device="cuda"))
        assert all(isinstance(each, OnGpu) for each in model.state_dict().values())
        there = {key: each.cpu() for key, each in model.state_dict().items()}
    torch.testing.assert_close(there, expected.state_dict(), rtol=0.02, atol=0.02, equal_nan=True)


def test_a_classifier_on_a_gpu_is_asked() -> None:
    data = lw.data.load("digits")
    test = data.split("test").select(range(60))
    method = Indicator(epochs=1, encoder=Encoder(backbone="convnet", width=4))
    with pretend_gpu.pretend_gpu():
        classifier = lw.fit(data, method, Run(device="cuda"))
        evaluation = Evaluation.of(classifier, test, data.labels)
        every = answer_calibration(evaluation)["every"]
        assert 0 < every["after"]["ece"] < 1
        assert yes_rates(evaluation)["images"] == 60
        taught = lw.teach(classifier, "a new one", examples=test.images[:4])
        assert len(lw.classify(taught, test.images[:2])) == 2
