"""Small runs of every method on a GPU, once as they stand and once recorded, from the same random numbers.

python -m tests.train.recorded_cases     # a table, where there is a GPU
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from labelwise.images.describe.labels import Labels
from labelwise.methods import Clarel, Encoder, Indicator, Izf, Multilabel, Prototype, Softmax
from labelwise.train.adversarial import Adversarial
from labelwise.train.augment import Augment
from labelwise.train.loop import train
from labelwise.train.method import Method, Run
from labelwise.train.optimizers import Optimizer
from labelwise.train.pretraining import Pretrain
from labelwise.train.train_data import TensorSplit, TrainData
from labelwise_papers.baselines.cgan import Cgan
from labelwise_papers.baselines.supcon import Supcon

SMALL = Encoder(backbone="resnet18", width=16)
ALL = Augment(padding=2, flip=True, brightness=0.2, hue=0.1, changes=1, erase=4, noise=0.01)


def pictures(n: int = 640, k: int = 10) -> TrainData:
    """Noise with labels."""
    rng = torch.Generator().manual_seed(1)
    split = TensorSplit(
        images=torch.randint(0, 256, (n, 3, 16, 16), generator=rng, dtype=torch.uint8), targets=torch.arange(n) % k
    )
    names = tuple(f"label {i}" for i in range(k))
    texts = tuple((f"a thing of kind {i}", f"number {i}") for i in range(k))
    vectors = torch.randn(k, 8, generator=rng)
    return TrainData(train=split, val=split.select(range(50)), labels=Labels(names=names, texts=texts, vectors=vectors))


def features() -> TrainData:
    """Features that are noise."""
    data = pictures()
    images = torch.rand(len(data.train), 32, generator=torch.Generator().manual_seed(2))
    return replace(data, train=replace(data.train, images=images), val=replace(data.val, images=images[:50]))


def pictured(kind: Callable[..., Method], **own: object) -> tuple[TrainData, Method]:
    settings = {"epochs": 10, "batch": 64, "encoder": SMALL, "optimizer": Optimizer(lr=0.02), "augment": ALL}
    return pictures(), kind(**{**settings, **own})


CASES: dict[str, Callable[[], tuple[TrainData, Method]]] = {
    "softmax": partial(pictured, Softmax),
    "softmax, Adam, averaged": partial(pictured, Softmax, optimizer=Optimizer(name="adam", lr=1e-3), average=0.9),
    "softmax, Muon": partial(pictured, Softmax, optimizer=Optimizer(name="muon", lr=0.05)),
    "indicator, N=3": partial(pictured, Indicator, negatives=3),
    "indicator, all": partial(pictured, Indicator),
    "indicator, hard": partial(pictured, Indicator, negatives=3, sampling="hard"),
    "multilabel": partial(pictured, Multilabel),
    "supcon": partial(pictured, Supcon, augment=None),
    "prototype": partial(pictured, Prototype, pair_smoothing=0.1),
    "softmax, attacked": partial(pictured, Softmax, adversarial=Adversarial(steps=2)),
    "simclr": lambda: (pictures(), Pretrain(epochs=10, batch=64, encoder=SMALL)),
    "moco": lambda: (pictures(), Pretrain(kind="moco", epochs=10, batch=64, queue=128, encoder=SMALL)),
    "clarel": lambda: (features(), Clarel(epochs=10, batch=64)),
    "izf": lambda: (features(), Izf(epochs=10, batch=64, hidden=32, start="random")),
    "cgan": lambda: (features(), Cgan(epochs=10, batch=64, hidden=32)),
    "head on features": lambda: (features(), Softmax(epochs=10, closed_form=False)),
}
EAGER = {"softmax, attacked"}  # its steps differ


def trained(
    name: str, engine: str, *, exact: bool = False, **run: object
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the weights after a run, and how its stages were trained."""
    data, method = CASES[name]()
    torch.use_deterministic_algorithms(exact, warn_only=True)
    try:
        model, summary = train(method, data, Run(device="cuda", engine=engine, exact=exact, **run))  # type: ignore[arg-type]
    finally:
        torch.use_deterministic_algorithms(False)
    return model.state_dict(), summary.get("engine", {})


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Return how far two sets of weights are from each other at most."""
    return max(
        float((one[key].double() - other[key].double()).nan_to_num().abs().max()) for key in one if one[key].numel()
    )


def resumed(name: str, engine: str) -> float:
    """Return how far a run that was stopped on the way, and then resumed, ends from one in one go."""
    from labelwise.train.step import RecordedStep, TrainingStep

    data, method = CASES[name]()
    whole, _ = trained(name, engine, exact=True)
    kind = TrainingStep if engine == "eager" else RecordedStep
    take, count = kind.take, 0

    def stops(*args: object) -> object:
        nonlocal count
        count += 1
        if count == 67:
            raise ZeroDivisionError
        return take(*args)  # type: ignore[arg-type]

    with TemporaryDirectory() as folder:
        run = Run(device="cuda", engine=engine, folder=Path(folder), checkpoint_seconds=0.5, exact=True)
        torch.use_deterministic_algorithms(True, warn_only=True)
        kind.take = stops  # type: ignore[method-assign, assignment]
        try:
            train(method, data, run)
        except ZeroDivisionError:
            pass
        finally:
            kind.take = take  # type: ignore[method-assign]
        model, _ = train(method, data, replace(run, resume=True))
        torch.use_deterministic_algorithms(False)
    return distance(whole, model.state_dict())


if __name__ == "__main__":
    for name in CASES:
        try:
            eager, _ = trained(name, "eager", exact=True)
            again, _ = trained(name, "eager", exact=True)
            tape, engines = trained(name, "recorded", exact=True)
            print(
                f"{name}: {distance(eager, tape):.1e}; twice eager {distance(eager, again):.1e}; {engines}", flush=True
            )
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    for name in ("softmax", "softmax, Adam, averaged", "simclr", "cgan"):
        for engine in ("eager", "recorded"):
            try:
                print(f"resumed {name} {engine}: {resumed(name, engine):.1e}", flush=True)
            except Exception as error:
                print(f"resumed {name} {engine}: {type(error).__name__}: {str(error)[:300]}", flush=True)
