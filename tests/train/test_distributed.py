"""Several processes train as one does: the same weights but for rounding, and the same figures in the log."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from labelwise.support.errors import UsageError
from labelwise.support.files import read_tensors
from labelwise.train.batches import Shard
from labelwise.train.distribution import as_one_batch
from tests.train.spread_script import CASES, apart, train_all


def differing(one: Path, other: Path) -> list[str]:
    """The names of tensors that are not the same in two files."""
    first, second = (read_tensors(file)[0] for file in (one, other))
    assert first.keys() == second.keys()
    return [n for n in first if not torch.allclose(first[n], second[n], rtol=1e-6, atol=1e-7, equal_nan=True)]


def differences(one: Path, other: Path, case: str) -> list[str]:
    """What is not the same in the weights and the log of a case."""
    lines = [(folder / f"{case}.run" / "log.jsonl").read_text().splitlines() for folder in (one, other)]
    logs = [[json.loads(line)["loss"] for line in each] for each in lines]
    names = differing(one / case, other / case)
    return [f"{case}: {name}" for name in names + ([] if logs[0] == pytest.approx(logs[1], rel=1e-6) else ["log"])]


def test_processes_train_like_one(tmp_path: Path) -> None:
    """All methods in one go; processes are forked, since importing torch takes longer than training."""
    three = ["indicator", "one short batch", "prototype", "clarel of words"]
    wrong, worlds = [], {1: list(CASES), 2: list(CASES), 3: three}
    for world, cases in worlds.items():
        (tmp_path / str(world)).mkdir()
        apart(world, train_all, tmp_path / str(world), cases)
    for world, cases in list(worlds.items())[1:]:
        one, several = tmp_path / "1", tmp_path / str(world)
        wrong += [each for case in cases for each in differences(one, several, case)]
        wrong += [f"fit: {name}" for name in differing(one / "fit", several / "fit")]
        assert read_tensors(several / "fit")[1]["processes"] == world
    assert not wrong


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone: what the layers of all processes make is what plain ones make."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_batch_norm_keeps_its_digits_far_from_zero() -> None:
    x = 3000 + torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    plain, shared = nn.BatchNorm1d(5), nn.BatchNorm1d(5)
    expected = plain(x)
    with as_one_batch(shared, Shard(0, 2)):
        found = shared(x.requires_grad_())
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(shared.running_var, plain.running_var, rtol=1e-3, atol=1e-3)
    assert type(shared) is nn.BatchNorm1d


@pytest.mark.usefixtures("group")
def test_statistics_of_batch_norm_take_no_gradient() -> None:
    """They are kept from step to step: with a gradient they would hold on to the graph of every step before."""
    norm = nn.BatchNorm1d(5)
    with as_one_batch(norm, Shard(0, 2)):
        norm(torch.randn(8, 5, requires_grad=True))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert not norm.running_mean.requires_grad
    assert not norm.running_var.requires_grad


@pytest.mark.usefixtures("group")
def test_dropout_draws_as_plain_dropout_does() -> None:
    layers, x = nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 4), nn.Dropout(0.0), nn.Dropout(0.6)), torch.randn(9, 4)
    torch.manual_seed(1)
    expected = layers(x)
    torch.manual_seed(1)
    with as_one_batch(layers, Shard(0, 2)):
        found = layers(x)
        calm = layers.eval()(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(calm, layers(x))


def test_a_batch_smaller_than_the_processes_is_refused() -> None:
    """A process without a row would have the mean of nothing as its loss."""
    with pytest.raises(UsageError, match=r"A batch of 2 images cannot be spread over 3 processes\. Start at most 2"):
        Shard(2, 3).rows(2)
