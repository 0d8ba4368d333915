"""The same bytes with one thread and with two, under ``--exact``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

import labelwise as lw
from labelwise.train.pretraining import Pretrain, pretrain
from tests.conftest import blobs, quick
from tests.pixels_of import px

SHELL = """import sys
from labelwise.cli import main
for words in sys.argv[1:]:
    sys.argv = ["labelwise", *words.split("|")]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code
"""


def test_two_numbers_of_threads_give_the_same_bytes(tmp_path: Path) -> None:
    """In processes of their own, because torch reads the variables once. Pictures large enough for torch to divide the work.

    Without ``--exact`` both the weights and the answers differ.
    """
    data = blobs(4, per_label=12, side=8)
    for split, part in data.splits.items():
        for row, target in enumerate(part.targets.tolist()):
            folder = tmp_path / "data" / split / f"blob {target}"
            folder.mkdir(parents=True, exist_ok=True)
            large = Image.fromarray(px(part)[row].permute(1, 2, 0).numpy()).resize((48, 48))
            large.save(folder / f"{row}.png")
    picture = next((tmp_path / "data" / "test").rglob("*.png"))
    answers: dict[str, list[bytes]] = {}
    for threads in ("1", "2"):
        env = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        model = tmp_path / f"{threads}.lw"
        fit = [
            "--exact",
            "fit",
            tmp_path / "data",
            "--out",
            model,
            "--method",
            "softmax",
            "--encoder",
            "none",
            "--set",
            "epochs=2",
        ]
        more = ["--size", "48", "--set", "encoder.backbone=convnet", "--device", "cpu"]
        words = ["|".join(map(str, [*fit, *more])), f"--exact|classify|{model}|{picture}|--json"]
        done = subprocess.run([sys.executable, "-c", SHELL, *words], capture_output=True, env=env, check=True)
        said = done.stdout.replace(str(model).encode(), b"")
        answers[threads] = [said[said.index(b"{") :], (model / "weights.safetensors").read_bytes()]
    assert answers["1"] == answers["2"]


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
