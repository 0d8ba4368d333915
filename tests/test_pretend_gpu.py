"""Code for GPUs where there is none: every training step, and what is asked of a classifier, with tensors that say they lie on a GPU."""

from dataclasses import replace

import pytest
import torch

import labelwise as lw
from labelwise.evaluation.evaluation import Evaluation
from labelwise.methods import Encoder, Indicator
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise_papers.analyses.answers import answer_calibration, yes_rates
from tests.pretend_gpu import OnGpu, pretend_gpu
from tests.train.recorded_cases import CASES


def test_what_a_gpu_refuses_is_refused() -> None:
    with pretend_gpu():
        there = torch.arange(3.0, device="cuda")
        assert (there + there.mean()).cpu().tolist() == [1, 2, 3]
        assert there[torch.tensor([2])].tolist() == [2]
        with pytest.raises(RuntimeError, match="same device"):
            there + torch.ones(3)
        with pytest.raises(RuntimeError, match="same device"):
            torch.ones(3)[torch.zeros(1, dtype=torch.int64, device="cuda")]
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()


@pytest.mark.parametrize("name", CASES)
def test_every_step_stays_on_the_gpu(name: str) -> None:
    data, method = CASES[name]()
    data = replace(data, train=data.train.select(range(80)))
    short = replace(method, epochs=1)  # type: ignore[call-arg]
    expected, _ = train(short, data, Run(device="cpu"))
    with pretend_gpu():
        model, _ = train(short, data, Run(device="cuda"))
        assert all(isinstance(each, OnGpu) for each in model.state_dict().values())
        there = {key: each.cpu() for key, each in model.state_dict().items()}
    torch.testing.assert_close(there, expected.state_dict(), rtol=0.02, atol=0.02, equal_nan=True)


def test_a_classifier_on_a_gpu_is_asked() -> None:
    data = lw.data.load("digits")
    test = data.split("test").select(range(60))
    method = Indicator(epochs=1, encoder=Encoder(backbone="convnet", width=4))
    with pretend_gpu():
        classifier = lw.fit(data, method, Run(device="cuda"))
        evaluation = Evaluation.of(classifier, test, data.labels)
        every = answer_calibration(evaluation)["every"]
        assert 0 < every["after"]["ece"] < 1
        assert yes_rates(evaluation)["images"] == 60
        taught = lw.teach(classifier, "a new one", examples=test.images[:4])
        assert len(lw.classify(taught, test.images[:2])) == 2
