"""The same bytes with one thread and with two, under ``--exact``."""

from pathlib import Path

import pytest
import torch

import labelwise as lw
from labelwise.methods import Encoder, Softmax
from labelwise.train.augment import Augment
from labelwise.train.pretraining import Pretrain, pretrain
from tests.conftest import blobs, quick


def trained_on(threads: int, exact: bool, folder: Path) -> list[bytes]:
    """The weights and the answers of a run that finds torch on so many threads; images large enough for torch to divide the work."""
    data = blobs(4, per_label=12, side=48)
    torch.set_num_threads(threads)
    method = Softmax(encoder=Encoder(backbone="convnet"), epochs=2, augment=Augment())
    classifier = lw.fit(data, method, lw.Run(exact=exact, device="cpu"))
    with lw.exact(exact):
        scores = classifier.scores(data.split("test").images[:3]).raw
    lw.save(classifier, folder / f"{threads} {exact}.lw")
    return [(folder / f"{threads} {exact}.lw" / "weights.safetensors").read_bytes(), scores.tobytes()]


def test_two_numbers_of_threads_give_the_same_bytes(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        assert trained_on(1, True, tmp_path) == trained_on(2, True, tmp_path)
    finally:
        torch.set_num_threads(before)


def test_threads_and_algorithms_are_as_they_were_afterwards() -> None:
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(2)
    try:
        with lw.exact():
            assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (1, True)
        assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (2, before[1])
        with lw.exact(False):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before[0])


@pytest.mark.parametrize("wanted", [True, False])
def test_a_run_is_exact_where_it_says_so(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []

    class SeenError(Exception):
        pass

    def note(*_: object) -> None:
        seen.append((torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()))
        raise SeenError

    monkeypatch.setattr("labelwise.fitting.training._fit", note)
    monkeypatch.setattr("labelwise.train.pretraining.train", note)
    before, run = torch.get_num_threads(), lw.Run(exact=wanted, device="cpu")
    torch.set_num_threads(2)
    try:
        with pytest.raises(SeenError):
            lw.fit(blobs(3), quick("softmax"), run)
        with pytest.raises(SeenError):
            pretrain(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), Pretrain(), run)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [(1, True) if wanted else (2, False)] * 2
