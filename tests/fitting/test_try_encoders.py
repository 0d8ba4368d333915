"""Encoders are tried on a sample of images that holds no test image; the best one gives right labels the highest probability."""

from pathlib import Path

import numpy as np
import pytest

import labelwise.fitting.try_encoders as module
from labelwise.encoders.choose import Known
from labelwise.fitting.try_encoders import EncoderTrial, judge_trials, try_encoders
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import DataError
from tests.conftest import blobs, squares
from tests.encoders.samples import save_tiny, tiny_graph


def trial(name: str, right: int, ms: float, sure: float = 0.9) -> EncoderTrial:
    answers = np.random.default_rng(int(ms)).permutation(100) < right
    chances = np.where(answers, sure, 1 - sure)
    return EncoderTrial(name=name, accuracy=right / 100, low=0, high=1, ms=ms, megabytes=1, chances=chances)


def test_the_most_probable_is_best_and_what_is_level_is_marked() -> None:
    trials = judge_trials([trial("quick", 60, 1), trial("slow", 90, 10), trial("slower", 91, 99), trial("idle", 50, 5)])
    assert [(each.name, each.worth, each.level) for each in trials] == [
        ("slower", True, True), ("slow", True, True), ("quick", True, False), ("idle", False, False),
    ]  # fmt: skip


def test_answers_that_are_clearer_count_for_more() -> None:
    unsure, sure = trial("unsure", 80, 1, sure=0.6), trial("sure", 79, 9)
    assert [each.name for each in judge_trials([unsure, sure])] == ["sure", "unsure"]


def blind(folder: Path) -> str:
    """The path of an encoder that sees no difference between images."""
    folder.mkdir()
    graph = tiny_graph().replace(
        np.random.default_rng(0).normal(size=(5, 3, 3, 3)).astype(np.float32).tobytes(), bytes(540)
    )
    return str(save_tiny(folder, graph, name="blind"))


def test_an_encoder_that_sees_more_is_better(tmp_path: Path) -> None:
    names = [str(save_tiny(tmp_path)), blind(tmp_path / "another one")]
    good, bad = try_encoders(blobs(per_label=15), names, images=60)
    assert (good.name, bad.name) == tuple(names)
    assert good.accuracy > 0.7 > 0.5 > bad.accuracy
    assert good.low <= good.accuracy <= good.high
    assert good.ms > 0


def test_test_images_and_single_images_are_left_out(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 3, 8, 8), np.uint8)
    train = Split(images=pixels[:5], targets=np.array([0, 0, 2, 2, 1]))
    data = Dataset(
        name="few",
        labels=Labels(names=("a", "b", "c")),
        splits={"train": train, "test": Split(images=pixels[5:], targets=np.ones(7, int))},
    )
    (only,) = try_encoders(data, [str(save_tiny(tmp_path))])
    assert len(only.chances) == 4
    with pytest.raises(DataError, match="several labels"):
        try_encoders(squares(), [])


def test_only_encoders_of_one_shape_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [str(save_tiny(tmp_path)), blind(tmp_path / "another one"), "efficientnet_lite0"]
    known = [Known(name=name, about="", licence="", megabytes=1, ms=1, accuracy=1, at_hand=True) for name in names]
    monkeypatch.setattr(module, "known_encoders", lambda: known)
    assert [each.name for each in try_encoders(blobs(per_label=4), images=8) if "+" in each.name] in (
        ["+".join(names[:2])],
        ["+".join(names[1::-1])],
    )
