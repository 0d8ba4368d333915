"""The benchmark of the toy: what is skipped, the table, the picture."""

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

from labelwise.errors import DataError, UsageError
from labelwise.toy import Kind, ToyResult, run_toy

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import izf_toy


def entry(kind: str, unseen: float, seen: float, seed: int = 0) -> izf_toy.Entry:
    return {"kind": kind, "seed": seed, "steps": 1, "unseen_error": unseen, "seen_error": seen}


def test_runs_that_are_there_are_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "toy.jsonl"
    words = ["--out", str(out), "--kinds", "vae,flow_without_mmd", "--steps", "1"]
    izf_toy.main([*words, "--seeds", "1"])
    assert len(capsys.readouterr().out.splitlines()) == 2 + 4
    izf_toy.main([*words, "--seeds", "2"])
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed[:2]] == ["vae 1", "flow_without_mmd 1"]
    found = izf_toy.read([out])
    assert [(one["kind"], one["seed"]) for one in found] == [
        (k, s) for s in (0, 1) for k in ("vae", "flow_without_mmd")
    ]
    straight = run_toy("vae", 1, 1)
    assert (found[2]["unseen_error"], found[2]["seen_error"]) == (straight.unseen_error, straight.seen_error)
    izf_toy.main(["--table", str(out), str(out)])
    assert "| `vae` | 4 |" in capsys.readouterr().out


def test_the_table() -> None:
    runs = [
        entry("gan", 3.0, 0.05),
        entry("gan", float("nan"), 0.07),
        entry("flow", 0.1, 0.09),
        entry("flow", 0.1, 0.2),
    ]
    lines = izf_toy.table([*runs, entry("flow", 0.4, 0.01)]).splitlines()
    assert lines[2:] == [
        "| `flow` | 3 | 0.20 ± 0.17 | 0.10 ± 0.10 | 1 of 3 |",
        "| `gan` | 2 | diverges | 0.06 ± 0.01 | 0 of 2 |",
    ]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "toy.jsonl"
    file.write_text(json.dumps(entry("vae", 1, 1)) + '\n{"kind": "va')
    assert len(izf_toy.read([file])) == 1
    file.write_text('{"kind": "va\n' + json.dumps(entry("vae", 1, 1)))
    with pytest.raises(DataError, match=r"Line 1 of .* is no JSON"):
        izf_toy.read([file])
    with pytest.raises(DataError, match="There is no file"):
        izf_toy.read([tmp_path / "none.jsonl"])


def test_the_picture_shows_the_median_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def remember(kind: Kind, seed: int, steps: int) -> ToyResult:
        asked.append((kind, seed, steps))
        return run_toy(kind, seed, steps)

    monkeypatch.setattr(izf_toy, "run_toy", remember)
    runs = [
        entry(kind, error, 0, seed) for kind in ("gan", "vae", "flow") for seed, error in enumerate((0.3, 0.1, 0.2))
    ]
    izf_toy.draw(runs, tmp_path / "new" / "toy.png")
    assert asked == [("flow", 2, 1), ("gan", 2, 1), ("vae", 2, 1)]
    with Image.open(tmp_path / "new" / "toy.png") as picture:
        assert picture.width > 3 * picture.height
    with pytest.raises(UsageError, match="there are none of vae"):
        izf_toy.draw([one for one in runs if one["kind"] != "vae"], tmp_path / "toy.png")
