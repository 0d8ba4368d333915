import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from labelwise.core import Labels
from labelwise.data.dataset import Dataset, Split
from labelwise.errors import DataError, UsageError
from labelwise.ops.balance import BalanceCurve
from labelwise.settings import to_plain

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import zero_shot
import zero_shot_figures
from zero_shot import Cell, append, interval, read_cells, run_cells, seen_at, table, variants

CLAREL = ["clarel.epochs=2", "clarel.code_size=8"]


def tiny(name: str, seed: int) -> Dataset:
    """Eight labels around points that their vectors tell, six of them with training images; 16 numbers an image."""
    made = torch.Generator().manual_seed(0)
    vectors = torch.randn(8, 5, generator=made)
    centres = vectors @ torch.randn(5, 16, generator=made)
    splits = {}
    for split, rows in (("train", range(6)), ("test", range(8))):
        targets = torch.tensor([i for i in rows for _ in range(12)])
        noise = 0.5 * torch.randn(len(targets), 16, generator=made)
        splits[split] = Split(images=centres[targets] + noise, targets=targets)
    return Dataset(
        name=name, labels=Labels(names=tuple(f"label {i}" for i in range(8)), vectors=vectors), splits=splits
    )


def cells(*, seeds: int = 2, sweeps: tuple[str, ...] = ()) -> list[Cell]:
    methods = variants(["eszsl", "clarel"], CLAREL, sweeps)
    return [Cell(data="tiny", method=method, seed=seed) for seed in range(seeds) for method in methods]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench") / "results.jsonl"
    run_cells(cells(sweeps=("clarel.share=0,0.5,1",)), out, tiny)
    return out


def test_a_line_holds_the_figures_and_how_they_came_about(measured: Path) -> None:
    lines = [json.loads(line) for line in measured.read_text().splitlines()]
    assert [(line["method"], line["seed"]) for line in lines] == [
        (name, seed) for seed in (0, 1) for name in ("eszsl", "clarel", "clarel", "clarel")
    ]
    for line in lines:
        u, s = line["unseen"], line["seen"]
        assert line["harmonic"] == pytest.approx(2 * u * s / (u + s) if u + s else 0)
        assert (line["images"], line["seen_labels"], line["unseen_labels"], line["leaked"]) == (96, 6, 2, 0)
        assert 0 < line["validation_harmonic"] <= 1
        assert len(line["seen_at_unseen"]) == 101
        assert line["seen_at_unseen"] == sorted(line["seen_at_unseen"], reverse=True)
        assert float(torch.trapezoid(torch.tensor(line["seen_at_unseen"]), dx=0.01)) == pytest.approx(
            line["area"], abs=0.06
        )
        assert line["seconds"] > 0
        assert line["peak_mib"] > 50
        assert line["torch"] == torch.__version__
        assert {"labelwise", "commit", "device", "threads"} <= line.keys()
    assert {len(line["gaps"]) for line in lines if line["method"] == "eszsl"} == {0}
    for line in (line for line in lines if line["method"] == "clarel"):
        assert line["gaps"] == pytest.approx(np.linspace(0, 0.25, 51).tolist())
        assert line["harmonic_at_gaps"][0] == pytest.approx(line["harmonic_without_gap"], abs=1e-5)
        assert len(line["harmonic_at_gaps"]) == 51


def test_sweep_values_are_applied_and_the_rest_stays(measured: Path) -> None:
    found = [cell["settings"] for cell in read_cells([measured]) if cell["method"] == "clarel" and cell["seed"] == 0]
    assert [settings["share"] for settings in found] == [0, 0.5, 1]
    assert {settings["epochs"] for settings in found} == {2}
    assert {settings["class_weight"] for settings in found} == {0.5}
    both = variants(["clarel"], (), ("share=0,0.5", "class_weight=0.5,1"))
    assert [(m.share, m.class_weight) for m in both] == [(0, 0.5), (0.5, 0.5), (0.5, 1)]  # type: ignore[attr-defined]


def test_settings_go_to_the_method_they_name_or_to_all() -> None:
    eszsl, clarel = variants(["eszsl", "clarel"], ["clarel.sentences=minilm", "power=1", "eszsl.optimizer.lr=0.5"])
    assert (eszsl.sentences, eszsl.power, eszsl.optimizer.lr) == ("words", 1, 0.5)  # type: ignore[attr-defined]
    assert (clarel.sentences, clarel.power, clarel.optimizer.lr) == ("minilm", 1, 0.1)  # type: ignore[attr-defined]


def test_finished_cells_are_skipped(measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    lines = measured.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:-2]))
    loads: list[tuple[str, int]] = []

    def counted(name: str, seed: int) -> Dataset:
        loads.append((name, seed))
        return tiny(name, seed)

    every = cells(sweeps=("clarel.share=0.0,0.5,1.0",))
    run_cells(every, out, counted)
    assert loads == [("tiny", 1)]
    again = out.read_text().splitlines(keepends=True)
    assert again[:-2] == lines[:-2]
    new, old = json.loads(again[-1]), json.loads(lines[-1])
    assert (new["harmonic"], new["area"], new["gap"]) == (old["harmonic"], old["area"], old["gap"])
    run_cells(every, out, counted)
    assert loads == [("tiny", 1)]
    assert out.read_text().splitlines(keepends=True) == again


def test_a_torn_last_line_is_ignored_and_cut_off(measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    lines = measured.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:3]) + lines[3][:200])
    assert len(read_cells([out])) == 3
    append(out, json.loads(lines[3]))
    assert out.read_text().splitlines(keepends=True)[:3] == lines[:3]
    assert read_cells([out]) == read_cells([measured])[:4]


def test_a_damaged_line_elsewhere_is_an_error(measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    lines = measured.read_text().splitlines(keepends=True)
    out.write_text(lines[0] + "{half\n" + lines[1])
    with pytest.raises(DataError, match="Line 2 of"):
        read_cells([out])
    with pytest.raises(DataError, match="no such file"):
        read_cells([tmp_path / "none.jsonl"])


def entry(seed: int, share: float, harmonic: float, **others: Any) -> dict[str, Any]:
    settings = to_plain(variants(["clarel"], [f"share={share}"])[0])
    figures = dict.fromkeys(zero_shot.COLUMNS.values(), 0.25)
    figures |= {"harmonic": harmonic, "seconds": 2.0 + seed, "gap": 0.1}
    lists = {
        "gaps": [0.0, 0.1],
        "harmonic_at_gaps": [harmonic / 2, harmonic],
        "seen_at_unseen": [0.5] * 51 + [0.0] * 50,
    }
    return {"data": "tiny", "method": "clarel", "settings": settings, "seed": seed, **figures, **lists, **others}


def test_the_table_has_means_and_intervals(tmp_path: Path) -> None:
    harmonics = [0.5, 0.52, 0.57]
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for seed, harmonic in enumerate(harmonics):
        append(first if seed else second, entry(seed, 0.5, harmonic))
    append(second, entry(1, 0.5, harmonics[1]))  # the same cell again counts once
    append(second, entry(0, 1, 0.4))
    mean, sd = np.mean(harmonics), np.std(harmonics, ddof=1)
    low, high = stats.t.interval(0.95, 2, loc=mean, scale=sd / np.sqrt(3))
    assert interval(harmonics) == pytest.approx((mean, (high - low) / 2))
    head, rule, *rows = table(read_cells([first, second])).splitlines()
    names = ["data", "method", "settings", "ZSL", "u", "s", "H", "H without gap", "AUSUC", "seconds", "n"]
    assert [part.strip() for part in head.strip("|").split("|")] == names
    assert rule.count("---") == len(names)
    found = {row.split(" | ")[2]: dict(zip(names, row.strip("| ").split(" | "), strict=True)) for row in rows}
    assert found["defaults"]["H"] == f"{100 * mean:.1f} +- {50 * (high - low):.1f}"
    assert found["defaults"]["u"] == "25.0 +- 0.0"
    assert found["defaults"]["seconds"] == "3.0 +- 2.5"
    assert found["defaults"]["n"] == "3"
    assert (found["share=1"]["H"], found["share=1"]["n"]) == ("40.0", "1")


def test_the_curve_is_kept_at_even_unseen_accuracies() -> None:
    curve = BalanceCurve(
        torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.0, 0.2, 0.2, 0.5]), torch.tensor([0.9, 0.8, 0.6, 0.0])
    )
    kept = seen_at(curve)
    slow = [
        max((float(s) for u, s in zip(curve.unseen, curve.seen, strict=True) if u >= x - 1e-7), default=0.0)
        for x in (step / 100 for step in range(101))
    ]
    assert kept == pytest.approx(slow, abs=1e-5)


def test_figures_show_alpha_both_settings_and_the_curves(tmp_path: Path) -> None:
    made = [entry(seed, share, 0.4 + share / 10 + seed / 100) for seed in range(3) for share in (0.0, 0.5, 1.0)]
    (alpha,) = zero_shot_figures.alpha_lines(made)
    assert list(alpha.x) == [0.0, 0.1]
    assert alpha.mean == pytest.approx([23.0, 46.0])
    assert alpha.half[1] == pytest.approx(100 * interval([0.45, 0.46, 0.47])[1])
    assert alpha.point == pytest.approx((0.1, 46.0))
    (swept,) = zero_shot_figures.sweep_lines(made, "share")
    assert list(swept.x) == [0.0, 0.5, 1.0]
    assert swept.mean == pytest.approx([41.0, 46.0, 51.0])
    assert not zero_shot_figures.sweep_lines(made, "class_weight")
    (curve,) = zero_shot_figures.curve_lines(made)["tiny"]
    assert (len(curve.x), curve.x[-1]) == (51, 50)
    drawn = zero_shot_figures.figures(made)
    assert sorted(drawn) == ["clarel_alpha.png", "clarel_lambda.png", "zero_shot_curves.png"]
    drawn["clarel_lambda.png"].savefig(tmp_path / "lambda.png")
    assert (tmp_path / "lambda.png").stat().st_size > 1000


def test_sentence_vectors_are_written_once_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        def __init__(self) -> None:
            self.read: dict[str, torch.Tensor] = {}

    first, second = Reader(), Reader()
    path = tmp_path / "cache.pt"
    monkeypatch.setattr(zero_shot, "_minilm", lambda: first)
    with zero_shot.sentence_vectors(path):
        first.read["a red bird"] = torch.tensor([1.0, 2.0])
    monkeypatch.setattr(zero_shot, "_minilm", lambda: second)
    before = path.read_bytes()
    with zero_shot.sentence_vectors(path):
        assert second.read["a red bird"].tolist() == [1.0, 2.0]
        second.read["another"] = torch.zeros(2)
    assert path.read_bytes() == before


def test_wrong_requests_say_what_is_wrong() -> None:
    with pytest.raises(UsageError, match='No method "ezsl"'):
        variants(["ezsl"])
    with pytest.raises(UsageError, match="cannot score labels that have no images"):
        variants(["softmax"])
    with pytest.raises(UsageError, match='No setting "shar"'):
        variants(["clarel"], ["clarel.shar=1"])
    with pytest.raises(UsageError, match="key=value"):
        variants(["clarel"], ["share"])
