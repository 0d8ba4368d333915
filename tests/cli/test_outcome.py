"""What fit says at its end."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import labelwise as lw
from labelwise.cli.outcome import LISTED, next_steps, outcome
from labelwise.cli.output import Terminal
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from tests.cli.test_fit import QUICK


def printed(lines: Any, capsys: pytest.CaptureFixture[str]) -> str:
    for line in lines:
        Terminal().print(line, soft_wrap=True)
    return capsys.readouterr().out


def wrong_labels(count: int) -> Dataset:
    """Features of three labels that are told easily; so many of the first are labelled as the second."""
    rng = torch.Generator().manual_seed(3)
    targets = torch.arange(3).repeat_interleave(30)
    images = 4 * torch.eye(3).repeat(1, 4)[targets] + torch.rand(90, 12, generator=rng)
    targets[:count] = 1
    files = tuple(f"my photos/{i}.jpg" for i in range(90))
    train = Split(images=images, targets=targets, files=files)
    return Dataset(name="drawn", labels=Labels(names=("cat", "dog", "emu")), splits={"train": train})


@pytest.mark.parametrize("method", ["discriminant", "softmax"])
def test_confused_labels_and_pictures_to_look_at_are_named(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By leaving each out, or by validation images: the same words."""
    data = wrong_labels(LISTED + 2)
    if method == "softmax":
        val = wrong_labels(LISTED + 2).split("train")
        data = Dataset(name="drawn", labels=data.labels, splits={"train": wrong_labels(0).split("train"), "val": val})
    chosen = lw.methods.Softmax(epochs=5) if method == "softmax" else lw.methods.Discriminant()
    data = replace(data, own_images=True)
    classifier = lw.fit(data, chosen, lw.Run(device="cpu"))
    about = classifier.origin.summary["validation" if method == "softmax" else "leave_one_out"]
    assert "0.jpg" in [one["file"] for one in about["suspicious"]], "what is saved says nothing of folders above"
    text = printed(outcome(classifier, Path("a b.lw"), data.home), capsys)
    assert "95 % interval 8" in text
    assert "92.2 %" in text  # 83 of 90
    assert ["dog", "cat", str(LISTED + 2)] in [line.split() for line in text.splitlines()]
    assert "my photos/0.jpg: cat?" in text
    assert sum(".jpg: " in line for line in text.splitlines()) == LISTED
    assert "And 2 more." in text


@pytest.mark.parametrize("doubts", [False, True])
def test_doubtful_labels_lead_to_an_audit(doubts: bool, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(next_steps(wrong_labels(1), Path("m.lw"), ["my photos", "--data-root", "x"], doubts=doubts), capsys)
    assert ("labelwise audit 'my photos' --data-root x --out audit.html" in text) == doubts


def test_all_right_is_no_promise_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    classifier = lw.fit(wrong_labels(0), lw.methods.Discriminant(), lw.Run(device="cpu"))
    text = printed(outcome(classifier, Path("m.lw"), ""), capsys)
    assert "Estimated accuracy on new images like these: at least 95.8 %" in text
    assert "about 100.0 %" not in text


def test_the_next_commands_can_be_run_as_they_are(run: Any, pictures: Path, tmp_path: Path) -> None:
    home = tmp_path / "two words"
    model = home / "m.lw"
    fixed = ["--size", 8, "--set", "epochs=2", "--device", "cpu", "--encoder", "none"]
    code, out, _ = run("fit", pictures, "--out", model, *fixed, *QUICK)
    assert code == 0
    commands = [
        shlex.split(line.split(maxsplit=1)[1]) for line in out.splitlines() if line.startswith(("Try:", "Then:"))
    ]
    assert [words[1] for words in commands] == ["classify", "evaluate"]
    for words in commands:
        assert run(*words[1:])[0] == 0


def test_features_are_tested_and_few_have_nothing_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    data = wrong_labels(0)
    assert printed(next_steps(data, Path("m.lw"), ["a.npz"]), capsys).strip() == "Try:  labelwise evaluate m.lw a.npz"
    assert printed(next_steps(data, Path("m.lw"), None), capsys) == ""


def test_images_that_look_alike_are_said_to_be_answered_better(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    targets, groups = np.arange(120) // 40, np.arange(120) // 4
    scenes = 0.3 * np.eye(3).repeat(4, 1)[targets[::4]] + rng.random((30, 12))
    images = (scenes[groups] + 0.7 * rng.random((120, 12))).astype(np.float32)
    split = Split(images=images, targets=targets, groups=tuple(f"scene {group}" for group in groups))
    data = replace(wrong_labels(0), splits={"train": split})
    for some, told in ((data, True), (replace(data, splits={"train": replace(split, groups=())}), False)):
        classifier = lw.fit(some, lw.methods.Discriminant(), lw.Run(device="cpu"))
        about = classifier.origin.summary["leave_one_out"]
        assert ("accuracy_with_lookalikes" in about) == told
        text = printed(outcome(classifier, Path("m.lw"), ""), capsys)
        assert ("are answered better" in text) == (told and about["accuracy_with_lookalikes"] > about["high"])
        assert not told or about["accuracy_with_lookalikes"] > about["high"], "the scenes are hard enough"
