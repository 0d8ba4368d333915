import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import prototype_tables

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "results" / "measured" / "prototype.jsonl"


def test_the_page_has_the_tables_of_what_was_measured() -> None:
    assert prototype_tables.tables(MEASURED) in (ROOT / "docs" / "results" / "prototype.md").read_text()


def test_a_cell_is_a_mean_over_seeds_in_per_cent() -> None:
    assert prototype_tables.cell([{"a": 0.5}], "a") == "50.0"
    assert prototype_tables.cell([{"a": 0.5}, {"a": 0.52}], "a") == "51.0 +- 1.4"
    assert prototype_tables.cell([{"a": {"b": 0.25}}], "a", "b") == "25.0"
    assert prototype_tables.cell([{"a": {}}], "a", "b") == prototype_tables.cell([{}], "a", "b") == "-"


def test_a_score_that_some_seeds_lack_says_how_many_have_it() -> None:
    both: dict[str, dict[str, dict[str, float]]] = {
        "retrieval": {"cosine": {"1": 0.25}, "whitened": {"1": 0.5}},
        "verification": {"cosine": {"eer": 0.1}, "whitened": {"eer": 0.2}},
    }
    one = {part: {"cosine": each["cosine"]} for part, each in both.items()}
    found = prototype_tables.pairs("t", {"softmax": [one, both, both]}).splitlines()
    assert found[-2].startswith("| softmax | cosine | 3 | 25.0 +- 0.0 |")
    assert found[-1] == "| softmax | whitened | 2 | 50.0 +- 0.0 | - | - | - | - | - | 20.0 +- 0.0 |"


def test_episodes_have_the_spread_over_seeds_or_the_interval_of_one() -> None:
    one, two = ({"5-way 1-shot": {"taught": {"mean": mean, "error": 0.004}}} for mean in (0.9, 0.92))
    found = prototype_tables.episodes("t", {"softmax": [one, two], "triplet": [one]}).splitlines()
    assert found[-2] == "| softmax | taught | 2 | 91.0 +- 1.4 |"
    assert found[-1] == "| triplet | taught | 1 | 90.0 +- 0.4 |"


@pytest.mark.parametrize("left_out", [{"quick": True}, {"held_out": True}, {"set": ["group=2"]}])
def test_trials_are_left_out(tmp_path: Path, left_out: dict[str, object]) -> None:
    whole = {
        "job": "cub",
        "name": "softmax",
        "seed": 0,
        "quick": False,
        "held_out": False,
        "set": [],
        "figures": {"a": 1},
    }
    file = tmp_path / "r.jsonl"
    file.write_text(json.dumps(whole) + "\n" + json.dumps({**whole, **left_out, "name": "prototype"}) + "\n")
    assert prototype_tables.read(file) == {"cub": {"softmax": [{"a": 1}]}}
