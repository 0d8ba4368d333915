import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from labelwise.core.classifier import Classifier
from labelwise.fitting.fit import fit
from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset
from labelwise.methods import Softmax
from labelwise.support.errors import Interrupted, LabelwiseError, StoreError, UsageError
from labelwise.support.files import read_tensors, write_tensors
from labelwise.support.processes import deferred_signals
from labelwise.support.settings import of_the_run
from labelwise.support.writable import write_atomically
from labelwise.train.batches import Batch, Shard, ShuffledBatches, prefetch
from labelwise.train.checkpoint import RunFolder, RunProgress
from labelwise.train.distribution import choose_device
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.model import LabelModel, Spec
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Stage
from labelwise.train.train_data import TensorSplit, TrainData
from tests.changed import model_of
from tests.conftest import blobs, quick
from tests.epochs import batches_of
from tests.forks import Fork
from tests.once import once
from tests.pixels_of import px


def wait_for_log(path: Path, lines: int, process: Fork) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_text().count("\n") >= lines:
            return
        time.sleep(0.01)
    raise AssertionError("the run ended or hung before it could be interrupted")


def train_on_blobs(folder: Path, epochs: int, resume: bool = False) -> Classifier:
    run = Run(seed=5, device="cpu", folder=folder, resume=resume, checkpoint_seconds=0.05)
    return fit(blobs(per_label=48), quick("indicator", epochs), run)


def until_interrupted(folder: Path, epochs: int) -> None:
    try:
        train_on_blobs(folder, epochs)
    except Interrupted:
        sys.exit(7)


@once
def undisturbed(epochs: int) -> tuple[dict[str, Tensor], list[float]]:
    """The weights of a run that nobody kills, and its losses."""
    with TemporaryDirectory() as folder:
        model = model_of(train_on_blobs(Path(folder), epochs))
        lines = (Path(folder) / "log.jsonl").read_text().splitlines()
    return model.state_dict(), [json.loads(line)["loss"] for line in lines]


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_run_resumes_to_the_same_weights(tmp_path: Path, kind: signal.Signals) -> None:
    epochs, broken = 40, tmp_path / "broken.run"
    weights, straight = undisturbed(epochs)
    process = Fork(lambda: until_interrupted(broken, epochs), tmp_path)
    wait_for_log(broken / "log.jsonl", 10, process)
    process.send_signal(kind)
    assert process.wait(30) == (-signal.SIGKILL if kind == signal.SIGKILL else 7)
    again = train_on_blobs(broken, epochs, resume=True)
    state = model_of(again).state_dict()
    assert all(torch.equal(weights[name], state[name]) for name in weights)
    log = [json.loads(line) for line in (broken / "log.jsonl").read_text().splitlines()]
    assert [entry["epoch"] for entry in log] == list(range(epochs))
    assert [entry["loss"] for entry in log] == pytest.approx(straight)


@pytest.mark.parametrize(
    ("schedule", "reference"),
    [
        (
            Schedule(name="step", drops=(2, 4), factor=0.2),
            lambda o: lr_scheduler.MultiStepLR(o, [2 * 5, 4 * 5], gamma=0.2),
        ),
        (Schedule(name="cosine"), lambda o: lr_scheduler.CosineAnnealingLR(o, 30)),
        (
            Schedule(name="onecycle", warmup=0.3),
            lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=30, pct_start=0.3, cycle_momentum=False),
        ),
        (Schedule(name="constant"), lambda o: lr_scheduler.ConstantLR(o, 1.0)),
    ],
)
def test_schedules_equal_torch(schedule: Schedule, reference: object) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = reference(optimizer)  # type: ignore[operator]
    for step in range(30):
        assert schedule.lr_factor(step, 5, 6) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-5, abs=1e-9)
        optimizer.step()
        theirs.step()


def test_noam_rises_in_a_line_and_falls_as_the_root_of_the_step() -> None:
    schedule = Schedule(name="noam", steps=40)
    factors = [schedule.lr_factor(step, 10, 100) for step in range(1000)]
    assert factors[:3] == pytest.approx([1 / 40, 2 / 40, 3 / 40])
    assert max(factors) == factors[39] == 1
    for step in (50, 500):  # as "Attention is all you need" writes it, brought to a peak of 1
        assert factors[step - 1] == pytest.approx(min(step**-0.5, step * 40**-1.5) * 40**0.5)
    with pytest.raises(UsageError, match="at least one step; given 0"):
        Schedule(name="noam", steps=0)


def test_unknown_schedule_and_optimiser() -> None:
    with pytest.raises(UsageError, match='Unknown schedule "linear"'):
        Schedule(name="linear")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match='Unknown optimiser "lion"'):
        Optimizer(name="lion").build([nn.Parameter(torch.zeros(1))])  # type: ignore[arg-type]


def test_unknown_device() -> None:
    with pytest.raises(UsageError, match="auto, cpu or cuda"):
        choose_device("tpu")


def test_batches_are_the_same_in_parts() -> None:
    split = TensorSplit.of(blobs().split("train"))
    batches = ShuffledBatches(split=split, size=10)
    whole = list(batches_of(batches, 7))
    parts = [list(batches_of(batches, 7, 0, Shard(rank, 3))) for rank in range(3)]
    for step, batch in enumerate(whole):
        assert torch.equal(batch.rows, torch.cat([part[step].rows for part in parts]))
        draws = [part[step].rng.uniform(2) for part in parts]
        assert torch.equal(batch.rng.uniform(2), torch.cat(draws))
    late = list(batches_of(batches, 7, 2))
    assert torch.equal(late[0].rows, whole[2].rows)
    rows = torch.cat([batch.rows for batch in whole])
    assert len(set(rows.tolist())) == len(rows) == len(batches) * 10
    assert not torch.equal(rows, torch.cat([b.rows for b in batches_of(batches, 8)]))


def test_ahead_keeps_order_passes_errors_and_stops() -> None:
    items = [torch.tensor(i) for i in range(50)]
    assert [int(item) for item in prefetch(iter(items))] == list(range(50))

    def fails() -> Iterator[Tensor]:
        yield items[0]
        raise StopError

    got = prefetch(fails())
    assert int(next(got)) == 0
    with pytest.raises(StopError):
        next(got)
    made = []

    def counted() -> Iterator[Tensor]:
        for item in items:
            made.append(item)
            yield item

    few = prefetch(counted(), depth=2)
    next(few)
    few.close()  # type: ignore[attr-defined]
    assert len(made) <= 6


@dataclass(frozen=True, kw_only=True)
class WithValidation(Softmax):
    """Softmax that reports given figures of merit, one per epoch."""

    name: ClassVar[str] = "softmax"
    merits: tuple[float, ...] = ()
    patience: int | None = None

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        merits = iter(self.merits)
        for stage in super().stages(model, data):
            yield replace(stage, validate=lambda: next(merits), patience=self.patience)


def test_best_epoch_is_kept_and_patience_stops(blob_data: Dataset, tmp_path: Path) -> None:
    data = training_data(blob_data)
    plain = WithValidation(epochs=8, batch=16, merits=(1.0, 3.0, 2.0, 2.5, 2.0, 1.0, 1.0, 1.0), patience=3)
    stopped, _ = train(plain, data, Run(device="cpu", folder=tmp_path / "run"))
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [entry["validation"] for entry in log] == [1.0, 3.0, 2.0, 2.5, 2.0]
    captured: list[dict[str, Tensor]] = []

    @dataclass(frozen=True, kw_only=True)
    class Capture(WithValidation):
        def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
            def keep() -> float:
                captured.append({k: v.clone() for k, v in model.state_dict().items()})
                return 0.0

            for stage in super().stages(model, data):
                yield replace(stage, validate=keep, patience=None)

    train(Capture(epochs=8, batch=16), data, Run(device="cpu"))
    after = ("means", "counts", "within", "unit_mean", "unit_within")  # what is kept of training images in the end
    trained = {k: v for k, v in stopped.state_dict().items() if k not in after}
    assert all(torch.equal(tensor, captured[1][name]) for name, tensor in trained.items())


def test_divergence_is_an_error(blob_data: Dataset) -> None:
    wild = replace(quick("softmax"), optimizer=Optimizer(lr=1e12))  # type: ignore[call-arg]
    with pytest.raises(LabelwiseError, match=r"training diverged\. Lower the learning rate"):
        fit(blob_data, wild, Run(device="cpu"))


def test_gradient_clipping_is_applied(blob_data: Dataset) -> None:
    frozen = replace(quick("softmax", 1), clip=1e-12, optimizer=Optimizer(lr=0.1, weight_decay=0))  # type: ignore[call-arg]
    model, _ = train(frozen, training_data(blob_data), Run(device="cpu", seed=2))
    torch.manual_seed(2)
    start = frozen.build(Spec(shape=blob_data.shape or (), labels=blob_data.labels))
    torch.testing.assert_close(dict(model.named_parameters()), dict(start.named_parameters()), atol=1e-9, rtol=0)


def test_gradients_of_two_batches_make_the_step_of_one_twice_as_large() -> None:
    """Where rows do not meet in a batch norm, that is: on features."""
    data = blobs(per_label=120)
    flat = {name: replace(part, images=px(part).flatten(1).float() / 255) for name, part in data.splits.items()}
    part = training_data(replace(data, splits=flat))
    plain = Softmax(epochs=3, batch=16, schedule=Schedule(name="constant"), clip=0.5, closed_form=False, average=0.5)
    large, added, small = (
        train(replace(plain, batch=size), part, Run(seed=1, device="cpu", accumulate=count))[0].state_dict()
        for size, count in ((16, 1), (8, 2), (8, 1))
    )
    assert all(torch.allclose(large[name], added[name], atol=1e-5, equal_nan=True) for name in large)
    assert not torch.allclose(large["head.weight"], small["head.weight"], atol=1e-2)


def test_a_step_of_no_batch_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one batch"):
        Run(accumulate=0)
    with pytest.raises(UsageError, match="is a number of batches"):
        of_the_run(["run.accumulate=some"])


def test_training_leaves_the_global_generator_alone(blob_data: Dataset) -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    fit(blob_data, quick("softmax", 1), Run(device="cpu"))
    assert torch.equal(torch.rand(3), expected)


def test_what_a_step_draws_depends_on_the_step_alone(blob_data: Dataset) -> None:
    """Whatever the steps before it drew, as in a run that is resumed."""
    first: dict[int, list[float]] = {1: [], 3: []}

    @dataclass(frozen=True, kw_only=True)
    class Drawing(Softmax):
        count: int = 1

        def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
            (stage,) = super().stages(model, data)

            def loss(batch: Batch) -> dict[str, Tensor]:
                first[self.count].append(float(torch.rand(self.count)[0]))
                return dict(stage.loss(batch))

            yield replace(stage, loss=loss)

    for count in first:
        train(Drawing(epochs=2, batch=16, count=count), training_data(blob_data), Run(device="cpu"))
    assert first[1] == first[3]
    assert len(set(first[1])) == len(first[1]) > 4


def test_unfinished_run_is_not_overwritten(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {"seed": 1})
    folder.start(resume=False)
    folder.write(RunProgress(epoch=1), {"model/x": torch.ones(2)})
    with pytest.raises(UsageError, match=r"unfinished run.*--resume"):
        folder.start(resume=False)
    with pytest.raises(UsageError, match="seed: was 1, now 2"):
        RunFolder(tmp_path / "run", {"seed": 2}).start(resume=True)
    assert folder.start(resume=True).epoch == 1


def test_damaged_checkpoint_is_reported(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {"x": torch.ones(100)}, {"k": 1})
    assert read_tensors(tmp_path / "a.safetensors")[1] == {"k": 1}
    content = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(StoreError, match=r"a\.safetensors is damaged: its checksum differs"):
        read_tensors(tmp_path / "a.safetensors")


def test_write_atomically_keeps_the_old_file_on_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@dataclass(frozen=True, kw_only=True)
class TwoStages(Softmax):
    """Two stages with work between them that depends on the weights."""

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        (stage,) = (s for s in super().stages(model, data))
        yield replace(stage, name="first")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.9)
        yield replace(stage, name="second")


class StopError(Exception):
    pass


def test_resume_passes_through_finished_stages(blob_data: Dataset, tmp_path: Path) -> None:
    data, method = training_data(blob_data), TwoStages(epochs=3, batch=16)
    whole, _ = train(method, data, Run(device="cpu", folder=tmp_path / "a"))

    @dataclass(frozen=True, kw_only=True)
    class Breaks(TwoStages):
        def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
            for stage in super().stages(model, data):
                calls = 0

                def loss(batch: Batch, stage: Stage = stage) -> object:
                    nonlocal calls
                    calls += 1
                    if stage.name == "second" and calls > 3:
                        raise StopError
                    return stage.loss(batch)

                yield replace(stage, loss=loss)  # type: ignore[arg-type]

    run = Run(device="cpu", folder=tmp_path / "b", checkpoint_seconds=0)
    with pytest.raises(StopError):
        train(Breaks(epochs=3, batch=16), data, run)
    resumed, _ = train(method, data, replace(run, resume=True))
    first, second = whole.state_dict(), resumed.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_is_drawn_between_stages_is_drawn_again(blob_data: Dataset, tmp_path: Path) -> None:
    """A run that stops where a stage ends has no generator state to go on from."""

    @dataclass(frozen=True, kw_only=True)
    class Noisy(Softmax):
        stop: ClassVar[bool] = False

        def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
            (stage,) = (s for s in super().stages(model, data))
            yield replace(stage, name="first")
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn_like(parameter), alpha=0.1)
            if self.stop:
                raise StopError
            yield replace(stage, name="second")

    class Stops(Noisy):
        stop = True

    data, run = training_data(blob_data), Run(device="cpu", folder=tmp_path / "b")
    whole, _ = train(Noisy(epochs=2, batch=16), data, Run(device="cpu", folder=tmp_path / "a"))
    with pytest.raises(StopError):
        train(Stops(epochs=2, batch=16), data, run)
    resumed, _ = train(Noisy(epochs=2, batch=16), data, replace(run, resume=True))
    first, second = whole.state_dict(), resumed.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_checkpoints_are_written_however_short_epochs_are(
    blob_data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, written, plain = itertools.count(), list[int](), RunFolder.write

    def write(self: RunFolder, now: RunProgress, tensors: dict[str, Tensor]) -> None:
        written.append(now.epoch)
        plain(self, now, tensors)

    monkeypatch.setattr("labelwise.train.loop.time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(RunFolder, "write", write)
    method, data = quick("softmax", epochs=12), training_data(blob_data)
    assert isinstance(method, Softmax)
    steps = len(method.batches(data))
    train(method, data, Run(device="cpu", folder=tmp_path, checkpoint_seconds=5 * steps))
    assert len(set(written[:-1])) >= 2, "an epoch is shorter than the time between checkpoints"


def test_a_signal_that_stopped_nothing_stops_at_the_end_of_the_block() -> None:
    with pytest.raises(KeyboardInterrupt):
        _signalled()
    with pytest.raises(Interrupted):
        _signalled(Interrupted("Stopped."))


def _signalled(error: Exception | None = None) -> None:
    with deferred_signals() as signals:
        signal.raise_signal(signal.SIGTERM)
        assert signals.received == signal.SIGTERM
        if error is not None:
            raise error
