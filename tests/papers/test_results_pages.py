"""Pages of results quote their figures from the results files; none is typed."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from labelwise.support.errors import UsageError

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import results_pages

if not results_pages.MEASURED.exists():
    pytest.skip("the documents are not here", allow_module_level=True)

PAGES = sorted(path.name for path in results_pages.PAGES.glob("*.md"))
WHOLE = (
    "README.md",
    "clarel.md",
    "indicator.md",
    "izf.md",
    "prototype.md",
    "zero_label.md",
)  # no figure of these is typed
TOPS = ("photos.md",)  # nor any above what is folded in these
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)")


@pytest.mark.parametrize("page", PAGES)
def test_what_stands_under_marks_is_made_of_the_results(page: str) -> None:
    text = (results_pages.PAGES / page).read_text()
    assert results_pages.filled(text) == text, "run python benchmarks/results_pages.py"


def typed(page: str, end: str = "<details>") -> set[str]:
    """Figures up to what is folded, or another end, that stand under no mark of the page."""
    made = "\n".join(line for mark in results_pages.MARK.finditer(page) for line in results_pages.block(mark[1]))
    head = results_pages.MARK.sub("", page).partition(end)[0]
    return set(NUMBER.findall(head)) - set(NUMBER.findall(made))


@pytest.mark.parametrize("page", WHOLE)
def test_no_figure_of_a_page_is_typed(page: str) -> None:
    assert not typed((results_pages.PAGES / page).read_text(), end="<end>")


@pytest.mark.parametrize("page", TOPS)
def test_no_figure_of_a_page_s_head_is_typed(page: str) -> None:
    assert not typed((results_pages.PAGES / page).read_text())


def test_a_typed_figure_is_seen_and_a_changed_one_made_anew() -> None:
    page = "Ours is 61.2, or 99.9.\n\n<!-- headlines zero_label -->\n| old | 1.0 |\n\n<details>\n12.5\n"
    assert typed(page) == {"99.9"}
    assert typed(page, end="<end>") == {"99.9", "12.5"}
    new = results_pages.filled(page)
    assert "| old |" not in new
    assert "| CIFAR-10, structure naming (ours), accuracy % |" in new
    assert new.endswith("\n\n<details>\n12.5\n")
    assert results_pages.filled(new) == new


def test_rows_are_paired_by_seed_and_a_seed_of_one_row_alone_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(row: str, seed: int, harmonic: float) -> dict[str, Any]:
        figures = dict.fromkeys(("zero_shot", "unseen", "seen", "area", "validation_harmonic"), 1.0) | {
            "harmonic": harmonic
        }
        return {"recipe": "izf/flow", "data": "cub_res50", "row": row, "seed": seed, "figures": figures}

    made = [run("a", 0, 50.0), run("a", 1, 60.0), run("a", 2, 99.0), run("b", 0, 49.0), run("b", 1, 57.0)]
    monkeypatch.setattr(results_pages, "read_results", lambda _: made)
    head, _, line = results_pages.block("paired izf/flow: a against b")
    cells = dict(zip(head.split(" | "), line.split(" | "), strict=True))
    assert cells["H, %"] == "+2.0 +- 12.7"  # 1 and 3; t of one degree of freedom is 12.7
    assert cells["repeats |"] == "2 |"


def test_every_paper_has_headlines_and_every_headline_is_measured() -> None:
    papers = results_pages.headlines()
    assert set(papers) == {"indicator", "prototype", "zero_label", "clarel", "izf"}
    rows = results_pages.headline_table()
    assert len(rows) == 2 + sum(map(len, papers.values()))
    assert not [row for row in rows if "| **** |" in row], "a headline without a figure of ours"
    for each in (one for own in papers.values() for one in own):
        assert not NUMBER.search(each["says"]), "words of headlines hold no figure"


def test_a_mark_that_names_nothing_measured_is_refused() -> None:
    with pytest.raises(UsageError, match="no figure that was measured"):
        results_pages.block("indicator/figure8")
