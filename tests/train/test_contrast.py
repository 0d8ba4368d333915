"""Training without labels: that none is read, resuming, MoCo's copy and queue, the log, and files of weights."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset
from labelwise.support.errors import Interrupted, UsageError
from labelwise.support.settings import override
from labelwise.train.augment import Augment
from labelwise.train.contrastive import alignment, contrastive_augment, momentum_contrast, nt_xent, uniformity
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.model import as_float
from labelwise.train.networks.encoder import Encoder
from labelwise.train.optimizers import Optimizer
from labelwise.train.pretraining import ContrastModel, Pretrain, pretrain
from labelwise.train.tensors import BatchRng
from labelwise.train.train_data import TrainData
from tests.epochs import batches_of
from tests.pixels_of import px
from tests.stopping import stopped_at

CPU = Run(device="cpu", seed=3)
ROOT = Path(__file__).parent.parent.parent
KINDS = ("simclr", "moco")
SMALL = Encoder(backbone="convnet", width=4)


def small(kind: str, epochs: int = 2) -> Pretrain:
    return override(
        Pretrain(hidden=16, projection_size=8, epochs=epochs, batch=20, queue=50, encoder=SMALL), {"kind": kind}
    )


def data_of(dataset: Dataset) -> TrainData:
    return training_data(dataset)


def built(kind: str, data: TrainData) -> ContrastModel:
    torch.manual_seed(0)
    return small(kind).build(data.spec)


def same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    other = second.state_dict()
    return all(torch.equal(value, other[name]) for name, value in first.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_no_label_is_read(kind: str, blob_data: Dataset) -> None:
    """Random labels, and truths in place of labels, give the same weights to the bit."""
    data = data_of(blob_data)
    whole, _ = train(small(kind), data, CPU)
    made = torch.Generator().manual_seed(1)
    mixed = torch.randint(0, 4, (len(data.train),), generator=made)
    other, _ = train(small(kind), replace(data, train=replace(data.train, targets=mixed)), CPU)
    assert same(whole, other)
    encoder, _ = pretrain(px(data.train), small(kind), CPU)
    assert isinstance(whole, ContrastModel)
    assert same(whole.encoder, encoder)
    changed, _ = train(small(kind), data, replace(CPU, seed=4))
    assert not same(whole, changed), "the seed makes no difference, so neither could labels"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [1, 4, 6])  # 80 images make 4 steps an epoch, 8 in all
def test_an_interrupted_run_continues_to_the_same_weights(
    kind: str, step: int, tmp_path: Path, blob_data: Dataset
) -> None:
    data = data_of(blob_data)
    whole, _ = train(small(kind), data, CPU)
    run = replace(CPU, folder=tmp_path / "run")
    with stopped_at(step), pytest.raises(Interrupted, match=kind):
        train(small(kind), data, run)
    resumed, _ = train(small(kind), data, replace(run, resume=True))
    assert same(whole, resumed)


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_has_figures_that_are_not_minimised(kind: str, tmp_path: Path, blob_data: Dataset) -> None:
    train(small(kind), data_of(blob_data), replace(CPU, folder=tmp_path / "run"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    for line in lines:
        assert set(line["measured"]) == {"alignment", "uniformity"}
        assert set(line["terms"]) == {"contrast"}
        assert line["loss"] == line["terms"]["contrast"]
        assert 0 < line["measured"]["alignment"] < 4
        assert -8 < line["measured"]["uniformity"] < 0


def test_the_loss_of_simclr_is_nt_xent_of_both_views(blob_data: Dataset) -> None:
    data = data_of(blob_data)
    model = built("simclr", data)
    stage = next(small("simclr").stages(model, data))
    model.eval()
    batch = next(iter(batches_of(stage.batches, 5)))
    assert batch.images.shape == (20, 2, 3, 8, 8)
    assert batch.targets.tolist() == [-1] * 20
    first, second = (model.projection(model.encoder(batch.images[:, view])) for view in (0, 1))
    embeddings, found = torch.stack([first, second], 1), stage.loss(batch)
    torch.testing.assert_close(found["contrast"], nt_xent(embeddings, 0.5))
    torch.testing.assert_close(found["alignment"], alignment(embeddings).detach())
    torch.testing.assert_close(found["uniformity"], uniformity(first).detach())
    assert found["contrast"].requires_grad
    assert not found["alignment"].requires_grad
    wanted = [*model.encoder.parameters(), *model.projection.parameters()]
    assert [id(p) for p in stage.parameters] == [id(p) for p in wanted]


def test_moco_follows_and_fills_its_queue(blob_data: Dataset) -> None:
    """Three steps of a queue of 50 by hand: the copy is a running mean, and the third batch wraps around."""
    data = data_of(blob_data)
    model, settings = built("moco", data), replace(small("moco"), momentum=0.9)
    assert model.keys is not None
    stage = next(settings.stages(model, data))
    assert torch.equal(model.keys.state_dict()["0.mean"], model.encoder.mean), "the copy sees other images"
    trained = [*model.encoder.parameters(), *model.projection.parameters()]
    slow = [p.detach().clone() for p in trained]
    queue, place = model.queue.clone(), 0
    torch.testing.assert_close(queue.norm(dim=1), torch.ones(50))
    model.train()
    for batch in list(batches_of(stage.batches, 5))[:3]:
        with torch.no_grad():
            for p in trained:
                p.add_(0.1 * torch.randn_like(p))
        slow = [0.9 * old + 0.1 * p.detach() for old, p in zip(slow, trained, strict=True)]
        found = stage.loss(batch)["contrast"]
        for mine, expected in zip(model.keys.parameters(), slow, strict=True):
            torch.testing.assert_close(mine, expected)
        with torch.no_grad():  # batch norm in training uses the batch alone, so a second pass gives the same codes
            queries = model.projection(model.encoder(batch.images[:, 0]))
            keys = model.keys(batch.images[:, 1])
        torch.testing.assert_close(found.detach(), momentum_contrast(queries, keys, queue, 0.2), rtol=1e-4, atol=1e-4)
        for row in normalize(keys, dim=1):
            queue[place % 50] = row
            place += 1
        torch.testing.assert_close(model.queue, queue)
        assert int(model.place) == place % 50
        found.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is None for p in model.keys.parameters())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.eval()
    stage.loss(batch)
    kept = {name: value for name, value in model.state_dict().items() if "projection" not in name}
    assert all(torch.equal(kept[name], before[name]) for name in ("queue", "place")), "a look is not a step"


@pytest.mark.parametrize("kind", KINDS)
def test_training_tells_pictures_apart(kind: str, blob_data: Dataset) -> None:
    """A view finds the other view of its picture among unseen pictures more often than before training."""
    data, change = data_of(blob_data), Augment(flip=True, noise=0.05)
    method = replace(small(kind, epochs=20), augment=change, optimizer=Optimizer(name="adam", lr=0.01))
    fresh = built(kind, data)
    fresh.encoder.fit_normalisation(px(data.train))
    model, _ = train(method, data, CPU)
    images = as_float(px(data.val))
    views = [change(images, BatchRng.from_seed(seed, len(images))) for seed in (1, 2)]

    def loss(of: torch.nn.Module) -> float:
        assert isinstance(of, ContrastModel)
        of.eval()
        with torch.no_grad():
            return float(nt_xent(torch.stack([of.projection(of.encoder(x)) for x in views], 1), 0.2))

    assert loss(model) < loss(fresh) - 0.3


WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique")


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_in_mixed_precision_never_waits_for_the_device(kind: str, blob_data: Dataset) -> None:
    """No operation whose result the host has to read; and half precision gives the loss of single, nearly."""
    from torch.utils._python_dispatch import TorchDispatchMode

    names: list[str] = []

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            names.append(func._schema.name.removeprefix("aten::"))
            return func(*args, **(kwargs or {}))

    data = data_of(blob_data)
    model = built(kind, data)
    stage = next(small(kind).stages(model, data))
    model.train()
    batch = next(iter(batches_of(stage.batches, 5)))
    model.eval()
    plain = float(stage.loss(batch)["contrast"].detach())
    with torch.autocast("cpu", torch.bfloat16):
        half = stage.loss(batch)["contrast"]
    assert half.dtype == torch.float32
    assert float(half.detach()) == pytest.approx(plain, rel=0.02)
    model.train()
    with Watch():  # type: ignore[no-untyped-call]
        with torch.autocast("cpu", torch.bfloat16):
            terms = stage.loss(batch)
        terms["contrast"].backward()  # type: ignore[no-untyped-call]
    assert "convolution" in "".join(names)
    assert not set(names) & set(WAITS)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in stage.parameters)


def test_settings_are_checked() -> None:
    wrong = {"kind": "byol", "temperature": "0", "hidden": "0", "batch": "1", "epochs": "0", "momentum": "1"}
    for name, value in wrong.items():
        with pytest.raises(UsageError, match=f"{value}"):
            override(small("moco"), {name: value})
    with pytest.raises(UsageError, match=r"at least one batch \(20\); given 19"):
        override(small("moco"), {"queue": "19"})
    assert (Pretrain().tau, Pretrain(kind="moco").tau, Pretrain(temperature=0.1).tau) == (0.5, 0.2, 0.1)
    views = contrastive_augment((3, 32, 32))
    assert (views.brightness, views.contrast, views.saturation, views.hue) == (0.4, 0.4, 0.4, 0.1)
    assert (views.jitter_probability, views.grey, views.flip) == (0.8, 0.2, True)
    assert replace(Pretrain(), augment=Augment()).augment == Augment()
