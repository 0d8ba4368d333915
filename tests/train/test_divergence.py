"""Training that leaves the finite numbers ends with words, keeps what was good, and is never saved."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset
from labelwise.methods import Encoder, Indicator, Softmax
from labelwise.support.errors import LabelwiseError
from labelwise.support.files import read_tensors
from labelwise.train.method import Run
from labelwise.train.model import LabelModel, first_not_finite
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData

SMALL = Encoder(backbone="convnet", width=4)


def test_the_last_step_may_not_leave_weights_that_are_not_finite(blob_data: Dataset, tmp_path: Path) -> None:
    """The loss of a step is that of the weights before it, and says nothing about those after the last one."""

    @dataclass(frozen=True, kw_only=True)
    class Steep(Softmax):
        def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
            (stage,) = super().stages(model, data)
            yield replace(stage, loss=lambda batch: {name: 1e30 * term for name, term in stage.loss(batch).items()})

    wild = Steep(epochs=1, batch=10_000, clip=None, optimizer=Optimizer(lr=1e20), encoder=SMALL)
    message = r'"encoder\..*" of the model is not finite .* in epoch 1 of stage softmax: training diverged\. Lower the'
    with pytest.raises(LabelwiseError, match=message):
        fit(blob_data, wild, Run(device="cpu", folder=tmp_path / "run"))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["log.jsonl"]


def test_what_is_kept_of_training_images_must_be_finite(blob_data: Dataset) -> None:
    """Weights may be finite, and codes so large that their variance is not."""
    constant = Schedule(name="constant")
    wild = Softmax(epochs=1, batch=10_000, clip=None, optimizer=Optimizer(lr=1e3), schedule=constant, encoder=SMALL)
    with pytest.raises(LabelwiseError, match=r'"statistics/within" is not finite .* training diverged'):
        fit(blob_data, wild, Run(device="cpu"))


def test_the_checkpoint_stays_one_of_finite_weights(blob_data: Dataset, tmp_path: Path) -> None:
    wild = Indicator(epochs=30, batch=20, clip=None, optimizer=Optimizer(lr=1e15), encoder=SMALL)
    with pytest.raises(LabelwiseError, match=r"training diverged.* The last checkpoint is in .*run\."):
        fit(blob_data, wild, Run(device="cpu", folder=tmp_path / "run", checkpoint_seconds=0))
    kept = list((tmp_path / "run").glob("*.safetensors"))
    assert kept
    for path in kept:
        assert first_not_finite(read_tensors(path)[0]) is None


def test_the_first_tensor_that_is_not_finite_is_named() -> None:
    tensors = {"a": torch.ones(2), "b": torch.tensor([1, 2]), "c": torch.tensor([1.0, torch.inf]), "d": torch.ones(0)}
    assert first_not_finite(tensors) == "c"
    assert first_not_finite({name: tensors[name] for name in "abd"}) is None
    assert first_not_finite({"e": torch.tensor([torch.nan, 1.0])}) == "e"
    assert first_not_finite({"half": torch.tensor([torch.nan]).bfloat16()}) == "half"
