"""Trains methods in double precision and keeps their weights, by one process or by several.

In single precision the order of a sum decides its last digit, and where a maximum is taken over nearly equal numbers, which of
them gets the gradient. Training makes much of either. In double precision what remains after a few steps is what several
processes do differently.
"""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch._dynamo  # the first optimiser imports it; before processes are forked, it is imported once
from torch import Tensor, nn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from labelwise.fitting.training import training_data
from labelwise.fitting.zero_shot import fit_zero_shot, plan_runs
from labelwise.images.dataset import Dataset
from labelwise.methods import Clarel, Encoder, Indicator, Izf, Method, Multilabel, Prototype, Softmax, ZeroLabel
from labelwise.methods.shared.linear import SoftmaxModel
from labelwise.methods.zero_label.transport import ClusteringSettings, Matching
from labelwise.support.files import write_tensors
from labelwise.support.processes import is_main_process
from labelwise.train.adversarial import Adversarial
from labelwise.train.augment import Augment
from labelwise.train.batches import Batch
from labelwise.train.distribution import process_group
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.model import LabelModel, Spec
from labelwise.train.optimizers import Optimizer
from labelwise.train.pretraining import Pretrain
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData
from labelwise_papers.baselines.cgan import Cgan
from labelwise_papers.baselines.devise import Devise
from labelwise_papers.baselines.supcon import Supcon
from tests.conftest import blobs, squares
from tests.described import by_text, by_vector

SMALL = Encoder(backbone="convnet", width=4)
SLOW = Optimizer(lr=0.05)
EVERY = Augment(
    size=8,
    scale=(0.5, 1.0),
    flip=True,
    rotation=20,
    brightness=0.3,
    contrast=0.3,
    saturation=0.3,
    hue=0.1,
    erase=2,
    noise=0.1,
)
BATCH = 15  # two processes take 7 and 8 rows, three 5 each


def pictures() -> TrainData:
    return training_data(blobs(per_label=24))


def described(method: Method, data: Dataset) -> tuple[Method, TrainData]:
    return method, plan_runs(data, method, 0).final


def trial(method: Method, data: Dataset) -> tuple[Method, TrainData]:
    """A method and the data of its trial, whose epochs are compared on held-out labels."""
    found = plan_runs(data, method, 0).trial
    assert found is not None
    return method, found


@dataclass(frozen=True, kw_only=True)
class Seldom(Softmax):
    """Softmax with a parameter that few images use: often none of a batch, or of those of one process alone."""

    def build(self, spec: Spec) -> SoftmaxModel:
        model = super().build(spec)
        model.register_parameter("seldom", nn.Parameter(torch.ones(())))
        return model

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        (stage,) = super().stages(model, data)
        seldom = model.get_parameter("seldom")

        def loss(batch: Batch) -> dict[str, Tensor]:
            few = batch.rows < 3
            extra = (seldom * few).square().mean() if few.any() else torch.zeros(())
            return {**stage.loss(batch), "extra": extra}

        yield replace(stage, loss=loss, parameters=[*stage.parameters, seldom])


CASES: dict[str, Callable[[], tuple[Method, TrainData]]] = {
    "indicator": lambda: (
        Indicator(epochs=2, batch=BATCH, encoder=SMALL, optimizer=SLOW, augment=EVERY, average=0.9), pictures()
    ),
    "indicator of hard negatives": lambda: (
        Indicator(epochs=2, batch=BATCH, encoder=SMALL, optimizer=SLOW, negatives=2, sampling="hard"), pictures()
    ),
    "muon": lambda: (
        Indicator(epochs=2, batch=BATCH, encoder=SMALL, optimizer=Optimizer(name="muon", lr=0.05)), pictures()
    ),
    "one short batch": lambda: (Indicator(epochs=3, batch=500, encoder=SMALL, optimizer=SLOW), pictures()),
    "a seldom parameter": lambda: (Seldom(epochs=2, batch=BATCH, encoder=SMALL, optimizer=SLOW), pictures()),
    "features": lambda: (Indicator(epochs=2), training_data(by_vector())),
    "several labels": lambda: (
        Multilabel(epochs=2, batch=BATCH, encoder=SMALL, optimizer=SLOW), training_data(squares(90))
    ),
    "prototype": lambda: (
        Prototype(epochs=2, batch=BATCH, encoder=SMALL, optimizer=SLOW, group=4, hidden=16, pair_smoothing=0.1), pictures()
    ),
    "prototype under attack": lambda: (
        Prototype(epochs=1, batch=BATCH, encoder=SMALL, hidden=16, adversarial=Adversarial(steps=2)), pictures()
    ),
    "supcon": lambda: (Supcon(epochs=2, head_epochs=2, batch=BATCH, encoder=SMALL, optimizer=SLOW), pictures()),
    "simclr": lambda: (Pretrain(hidden=16, projection_size=8, epochs=2, batch=BATCH, encoder=SMALL), pictures()),
    "moco": lambda: (
        Pretrain(kind="moco", hidden=16, projection_size=8, epochs=2, batch=BATCH, queue=50, encoder=SMALL), pictures()
    ),
    "clarel": lambda: described(Clarel(epochs=2, code_size=8, batch=BATCH), by_text(own=True)),
    "clarel of words": lambda: described(
        Clarel(epochs=1, code_size=8, batch=BATCH, reader="words", filters=(8,), hidden=8), by_text(6, own=True)
    ),
    "clarel end to end": lambda: described(
        Clarel(epochs=1, code_size=8, batch=BATCH, encoder=SMALL, end_to_end=True), blobs(per_label=24)
    ),
    "devise": lambda: described(Devise(epochs=1, batch=BATCH, encoder=SMALL, optimizer=SLOW), blobs(per_label=24)),
    "izf": lambda: described(Izf(epochs=2, batch=BATCH, hidden=16, mmd_weight=1.0), by_vector()),
    "cgan": lambda: trial(Cgan(epochs=2, batch=BATCH, hidden=16), by_vector()),
    "zero_label": lambda: (
        ZeroLabel(
            naming="transport",
            prior="vectors",
            restarts=2,
            clustering=ClusteringSettings(steps=8, batch=25),
            matching=Matching(steps=8, batch=25, lr=1e-3, clip=0.1),
        ),
        training_data(by_vector()),
    ),
}  # fmt: skip


def in_double() -> None:
    """Make float64 what torch makes, and what the library turns numbers into."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]


def whole_fit(out: Path) -> None:
    """Trial and final run of a zero-shot method in one process group, bound and calibrated."""
    classifier = fit_zero_shot(by_vector(), Clarel(epochs=3, code_size=8, batch=16), Run(seed=5, device="cpu"))
    if is_main_process():
        arrays = {"embeddings": classifier.label_embeddings, "scale": classifier.calibration.scale}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        write_tensors(out / "fit", tensors, classifier.origin.summary["training"])


def train_all(out: Path, names: Iterable[str]) -> None:
    """Write the weights and the logs of these cases, and of a whole fit; run by one process, or by all of a group."""
    in_double()
    with process_group(torch.device("cpu")):
        for name in names:
            method, data = CASES[name]()
            model, _ = train(method, data, Run(seed=5, device="cpu", folder=out / f"{name}.run"))
            if is_main_process():
                write_tensors(out / name, model.state_dict(), {})
        whole_fit(out)


def in_processes(world: int, work: Callable[..., None], *args: object, restarts: int = 0) -> None:
    """Do something in one process, or in several that torchrun's own launcher forks from this one: torch is imported already."""
    if world == 1:
        work(*args)
        return
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=world,
        run_id=f"spread-{world}",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        max_restarts=restarts,
        start_method="fork",
    )
    elastic_launch(config, work)(*args)


def apart(world: int, work: Callable[..., None], *args: object, restarts: int = 0) -> None:
    """The same, in a process forked from this one, which stays as it is."""
    process = multiprocessing.get_context("fork").Process(
        target=in_processes, args=(world, work, *args), kwargs={"restarts": restarts}
    )
    process.start()
    process.join(300)
    assert process.exitcode == 0, f"{world} processes ended with {process.exitcode}"
