"""Checkpoints: what was kept comes back, damage is noticed wherever it is, and two are kept."""

import os
import warnings
from collections.abc import Iterator
from contextvars import Context
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset
from labelwise.methods import Softmax
from labelwise.support.errors import StoreError, UsageError
from labelwise.support.files import read_tensors, write_tensors
from labelwise.train.batches import Batch
from labelwise.train.checkpoint import RunFolder, RunProgress, load_optimizer, optimizer_tensors
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.model import LabelModel
from labelwise.train.run_folder import sole_run
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData

NEWEST, BEFORE, FIRST_STAGE = "checkpoint.safetensors", "previous.safetensors", "stage-0.safetensors"
HEAD, JSON, TENSORS = 3, 60, -5  # bytes in the length of the head, in the JSON document, in the tensors


def stepped(layer: nn.Conv2d) -> torch.optim.SGD:
    """Return an optimiser of a layer after one step."""
    optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
    layer(torch.ones(2, 3, 5, 5)).sum().backward()
    optimizer.step()
    return optimizer


def test_momentum_comes_back_in_the_layout_of_the_weights() -> None:
    """A fused optimiser refuses momentum that is laid out in memory in another way than the weights."""
    layer = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    before = stepped(layer)
    plain = {
        name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in optimizer_tensors(before).items()
    }
    after = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
    load_optimizer(after, plain)
    for parameter in layer.parameters():
        momentum = after.state[parameter]["momentum_buffer"]
        assert momentum.stride() == parameter.stride()
        assert torch.equal(momentum, before.state[parameter]["momentum_buffer"])


def flip(path: Path, place: int, bit: int = 0) -> None:
    """Flip one bit of a file."""
    with path.open("r+b") as file:
        file.seek(place, os.SEEK_SET if place >= 0 else os.SEEK_END)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1 << bit]))


def test_a_flipped_bit_is_noticed_in_every_byte(tmp_path: Path) -> None:
    """Every bit of what says that there is a checksum and of its digits, and one bit of each byte after that."""
    path = tmp_path / "a.safetensors"
    tensors = {"model/x": torch.randn(20), "model/n": torch.arange(5)}
    write_tensors(path, tensors, {"identity": {"seed": 1}, "progress": {"epoch": 3}})
    size = path.stat().st_size
    assert torch.equal(read_tensors(path)[0]["model/x"], tensors["model/x"])
    assert read_tensors(path)[1] == {"identity": {"seed": 1}, "progress": {"epoch": 3}}
    unseen = []
    for place in range(size):
        for bit in range(8) if place < 80 else (place % 8,):
            flip(path, place, bit)
            try:
                read_tensors(path)
                unseen.append((place, bit))
            except StoreError:
                pass
            flip(path, place, bit)
    assert not unseen, f"{len(unseen)} flips in {size} bytes"
    read_tensors(path)


def test_the_same_tensors_make_the_same_file(tmp_path: Path) -> None:
    files = [tmp_path / str(i) for i in range(8)]
    for file in files:
        write_tensors(file, {"x": torch.ones(3), "y": torch.zeros(2)}, {"a": 1, "b": 2})
    assert len({file.read_bytes() for file in files}) == 1


@dataclass(frozen=True, kw_only=True)
class TwoStages(Softmax):
    """Two stages; each fails after so many steps, so that a run stops without a word."""

    most: ClassVar[tuple[float, ...]] = (float("inf"), float("inf"))

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        (plain,) = super().stages(model, data)
        for number, most in enumerate(self.most):
            taken = 0

            def loss(batch: Batch, most: float = most) -> dict[str, Tensor]:
                nonlocal taken
                taken += 1
                if taken > most:
                    raise StopError
                return dict(plain.loss(batch))

            yield replace(plain, name=f"part {number}", loss=loss)


class StopError(Exception):
    pass


METHOD = TwoStages(epochs=3, batch=16)


@pytest.fixture(scope="module")
def undisturbed(blob_data: Dataset) -> dict[str, Tensor]:
    """The weights of a run that nothing happened to."""
    return train(METHOD, training_data(blob_data), Run(device="cpu"))[0].state_dict()


def stopped(data: Dataset, folder: Path, *steps: float) -> Run:
    """Return a run that broke off after so many steps of each stage, with a checkpoint after each step."""
    run = Run(device="cpu", folder=folder, checkpoint_seconds=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TwoStages, "most", steps)
        with pytest.raises(StopError):
            train(METHOD, training_data(data), run)
    return run


def resumed(data: Dataset, run: Run) -> dict[str, Tensor]:
    """Return the weights of a run that goes on to its end."""
    return train(METHOD, training_data(data), replace(run, resume=True))[0].state_dict()


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("steps", "file", "place"),
    [
        ((4, 0), NEWEST, HEAD),
        ((4, 0), NEWEST, JSON),
        ((4, 0), NEWEST, TENSORS),
        ((99, 4), NEWEST, TENSORS),
        ((99, 0), NEWEST, JSON),  # of a checkpoint between two stages, which holds no tensor
        ((99, 0), FIRST_STAGE, TENSORS),  # the weights that this checkpoint needs
    ],
)
def test_the_checkpoint_before_a_damaged_one_is_used(
    blob_data: Dataset,
    undisturbed: dict[str, Tensor],
    tmp_path: Path,
    steps: tuple[float, float],
    file: str,
    place: int,
) -> None:
    """It is told, the run ends with the weights of an undisturbed one, and the folder is whole again."""
    run = stopped(blob_data, tmp_path / "a run", *steps)
    flip(tmp_path / "a run" / file, place)
    with pytest.warns(
        UserWarning, match=rf"{file}.*damaged.*run in .*a run goes on from the checkpoint before it: stage"
    ):
        assert same(resumed(blob_data, run), undisturbed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(resumed(blob_data, run), undisturbed)


def test_two_damaged_checkpoints_are_an_error_that_says_what_to_do(blob_data: Dataset, tmp_path: Path) -> None:
    run = stopped(blob_data, tmp_path, 4, 0)
    for file in (NEWEST, BEFORE):
        flip(tmp_path / file, TENSORS)
    with pytest.raises(
        StoreError, match=rf"cannot be resumed.*{NEWEST}.*{BEFORE}.*delete .*start again without --resume"
    ):
        resumed(blob_data, run)
    assert all((tmp_path / file).is_file() for file in (NEWEST, BEFORE))


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_kill_at_any_moment_of_a_write_leaves_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """The process ends after so many files were renamed."""
    folder = RunFolder(tmp_path, {"seed": 1})
    folder.start(resume=False)
    for epoch in (1, 2):
        folder.write(RunProgress(epoch=epoch), {"model/x": torch.full((2,), epoch)})
    plain, left = os.replace, [None] * calls

    def rename(old: Path, new: Path) -> None:
        if not left:
            raise StopError
        left.pop()
        plain(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", rename)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        if calls < 2:
            with pytest.raises(StopError):
                folder.write(RunProgress(epoch=3), {"model/x": torch.full((2,), 3)})
        else:
            folder.write(RunProgress(epoch=3), {"model/x": torch.full((2,), 3)})
    again = RunFolder(tmp_path, {"seed": 1})
    progress = again.start(resume=True)
    assert progress.epoch == (3 if calls == 2 else 2)
    assert again.read()["model/x"].tolist() == [progress.epoch] * 2
    again.write(RunProgress(epoch=4), {})
    third = RunFolder(tmp_path, {"seed": 1})
    assert third.start(resume=True).epoch == 4
    assert read_tensors(tmp_path / BEFORE)[1]["progress"]["epoch"] == progress.epoch


def test_a_damaged_checkpoint_never_takes_the_place_of_a_whole_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, {"seed": 1})
    folder.start(resume=False)
    for epoch in (1, 2):
        folder.write(RunProgress(epoch=epoch), {})
    flip(tmp_path / NEWEST, JSON)
    again = RunFolder(tmp_path, {"seed": 1})
    with pytest.warns(UserWarning, match="goes on from the checkpoint before it"):
        assert again.start(resume=True).epoch == 1
    again.write(RunProgress(epoch=3), {})
    stand = [read_tensors(tmp_path / file)[1]["progress"]["epoch"] for file in (NEWEST, BEFORE)]
    assert stand == [3, 1]


def test_one_run_at_a_time_trains_into_a_folder(blob_data: Dataset, tmp_path: Path) -> None:
    data, run = training_data(blob_data), Run(device="cpu", folder=tmp_path / "run")
    plain, tried = Softmax(epochs=1), []

    class Meanwhile(Softmax):
        """While it trains, another run is started in the same folder: in a context of its own, as in another process."""

        def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
            with pytest.raises(UsageError, match=rf"Another process \({os.getpid()}\) is writing to .*run"):
                Context().run(train, plain, data, run)
            tried.append(True)
            yield from super().stages(model, data)

    train(Meanwhile(epochs=1), data, run)
    assert tried == [True]
    assert not (tmp_path / "run" / ".lock").exists()
    with sole_run(tmp_path / "other"):  # as the shell holds it around a run of its own
        train(plain, data, replace(run, folder=tmp_path / "other"))
