"""Pages in a real browser: no error, no sideways scrolling, light and dark, on a desk and on a phone."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset
from labelwise.methods import Eszsl
from labelwise.reporting.page import ReportSettings, make_report
from labelwise.train.method import Run
from tests.conftest import quick, squares
from tests.contract.subjects import trained
from tests.described import by_vector
from tests.reporting.test_page import hard, ordinary


def long_names() -> Dataset:
    from dataclasses import replace

    data = hard()
    names = ("a label with a very long name that goes on and on", "x" * 60, *data.labels.names[2:])
    return replace(data, labels=replace(data.labels, names=names))


@cache
def page_of(kind: str) -> str:
    if kind == "one":
        return ordinary()[2].html
    if kind == "compared":
        from dataclasses import replace

        data = long_names()
        models = [replace(trained(name), labels=data.labels) for name in ("softmax", "indicator")]
        name = "a-folder-with-a-rather-long-name-for-a-classifier.lw"
        commands = ("labelwise report " + "word " * 60,)
        return make_report(models[0], data, ReportSettings(name=name, compare={"b": models[1]}, commands=commands)).html
    if kind == "several":
        data = squares(120)
        return make_report(fit(data, quick("multilabel", 3), Run(device="cpu")), data).html
    data = by_vector()
    return make_report(fit(data, Eszsl(), Run(device="cpu")), data).html


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("kind", ["one", "compared", "several", "features"])
def test_renders(browser: Any, tmp_path: Path, kind: str, width: int, scheme: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(page_of(kind))
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url.startswith("http") else None)
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    empty = page.evaluate(
        "[...document.querySelectorAll('svg')].filter((s) => s.getBoundingClientRect().height < 40).length"
    )
    assert empty == 0
    assert wrong == []
    page.close()


def test_tables_sort(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page_of("one"))
    page = browser.new_page()
    page.goto(file.as_uri())

    def column(place: int) -> list[str]:
        cells = f"[...document.querySelectorAll('table.labels tbody tr')].map((row) => row.cells[{place}].textContent)"
        return list(page.evaluate(cells))

    page.get_by_role("button", name="recall").click()
    shares = [float(text.split("\u00a0")[0]) for text in column(2)]
    assert shares == sorted(shares)
    page.get_by_role("button", name="recall").click()
    assert [float(text.split("\u00a0")[0]) for text in column(2)] == shares[::-1]
    assert page.locator("th[aria-sort=descending]").count() == 1
    page.get_by_role("button", name="label", exact=True).click()
    assert column(0) == sorted(column(0))
    page.close()


def test_readable_without_a_script(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page_of("one"))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.get_by_role("heading", name="Labels", exact=True).is_visible()
    assert page.locator("table.labels tbody tr").count() == 4
    context.close()
