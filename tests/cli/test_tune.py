"""fit --tune in the shell: what it says of a CPU, and what came of it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from labelwise.core.load import load
from labelwise.train.networks.backbones import build_backbone


@pytest.fixture
def encoder(tmp_path: Path) -> list[str]:
    """Options for a small network with weights, as if it had been pretrained."""
    torch.manual_seed(1)
    file = tmp_path / "convnet.safetensors"
    save_file(build_backbone("convnet", (3, 16, 16), 8).state_dict(), file)
    settings = ("backbone=convnet", "width=8", f"weights={file}", "frozen=true")
    return ["--encoder", "none", *(word for setting in settings for word in ("--set", f"encoder.{setting}"))]


def test_tuning_on_a_cpu_is_said_not_to_pay_and_is_done(
    run: Any, pictures: Path, encoder: list[str], tmp_path: Path
) -> None:
    few = ("--set", "tune.steps=3", "--set", "tune.rates=0.001")
    words = ("fit", pictures, "--method", "discriminant", "--size", 16, "--device", "cpu", *encoder)
    code, out, err = run(*words, "--tune", *few, "--out", tmp_path / "two words.lw")
    assert code == 0, err
    said = " ".join((out + err).split())
    assert "Tuning on a CPU does not pay: what takes seconds on a GPU takes many minutes (docs/tune.md)." in said
    tried = load(tmp_path / "two words.lw").origin.summary["tuning"]["trials"]
    assert [trial["rate"] for trial in tried] == [None, 0.001]
    assert ("tuning did not pay" in said) == (load(tmp_path / "two words.lw").origin.summary["tuning"]["rate"] is None)
    code, out, err = run(*words, "--out", tmp_path / "plain.lw")
    assert code == 0, err
    assert "does not pay" not in out + err
