"""The page of labelling in Chromium: from a folder of photos to an export, by keys, on a phone; and its routes."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from labelwise.label.actions import Action
from labelwise.label.ledger import UNKNOWN
from labelwise.server.labelling.app import build
from labelwise.server.labelling.project import Project, open_project
from labelwise.server.settings import Service
from tests import once
from tests.browser import REQUIRED, browser
from tests.server.labelling.photos import draw_photos, truth

if os.environ.get(REQUIRED) != "1":
    pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect

__all__ = ["browser"]
Site = tuple[str, Project, Path]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The address of a page, its project and its folder; the same photos are encoded once."""
    monkeypatch.setenv("LABELWISE_CACHE", str(once.folder() / "features of photos"))
    folder = tmp_path / "project"
    with (
        open_project(folder, draw_photos(tmp_path / "some photos")) as project,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        guard = build(project, Service(model=folder), folder)
        server = uvicorn.Server(uvicorn.Config(guard, log_config=None, ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", project, folder
        server.should_exit = True
        thread.join()


def open_page(browser: Browser, address: str, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(30_000)
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto(address)
    page.wait_for_selector("body.ready")
    return page


def answer(page: Page) -> None:
    """Answer the question that is shown, by keys but for a name that is new."""
    before = page.locator("#counts").inner_text()
    seen = [
        truth(str(name))
        for name in page.eval_on_selector_all("#sheet .tile img[alt$='.png']", "all => all.map((one) => one.alt)")
    ]
    label, words = max(seen, key=seen.count), page.locator("#question").inner_text()
    for place, one in enumerate(seen):
        if one != label:
            page.locator("#sheet .tile").nth(place).click()
    if words == f"Is it {label}?":
        page.keyboard.press("y")
    else:
        page.keyboard.press("/")
        page.fill("#name", label)
        page.keyboard.press("Enter")
    expect(page.locator("#counts")).not_to_have_text(before)


def test_from_photos_to_an_export(browser: Browser, site: Site) -> None:
    address, project, folder = site
    page = open_page(browser, address, viewport={"width": 1280, "height": 900})
    while len(project.session.actions) < 6 and project.session.question():
        answer(page)
    answered = {
        file: target
        for file, target in zip(project.files, project.session.ledger.targets.tolist(), strict=True)
        if target >= 0
    }
    assert len(answered) >= 6
    assert all(project.session.names[target] == truth(file) for file, target in answered.items())
    before = len(project.session.actions)
    page.locator("body").press("u")
    expect(page.locator("#say")).to_have_text("Undone.")
    assert project.session.actions[before].kind == "undo"
    page.click("nav a[href='#labels']")
    page.locator("#label-list button").first.click()
    expect(page.locator("#browse-images img").first).to_be_visible()
    page.click("nav a[href='#export']")
    page.get_by_role("button", name="Folders of links").click()
    expect(page.locator("#written")).to_contain_text("written to")
    assert {one.parent.name for one in (folder / "export" / "folders").glob("*/*.png")} <= {"red", "green", "blue"}


def test_the_export_asks_for_random_images_until_guesses_count(browser: Browser, site: Site) -> None:
    address, project, _ = site
    page = open_page(browser, address)
    answer(page)
    page.click("nav a[href='#export']")
    expect(page.locator("#missing")).to_contain_text("more random images")
    page.get_by_role("button", name="Answer random images").click()
    for _ in range(3):
        expect(page.locator("#hint")).to_contain_text("before guesses count")
        answer(page)
    assert len(project.session.ledger.checks) == 3
    page.click("nav a[href='#labels']")
    page.click("nav a[href='#ask']")
    answer(page)  # the one that was shown already
    answer(page)
    assert len(project.session.ledger.checks) == 4


def test_unknown_images_become_a_label_in_one_click(
    browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labelwise.server.labelling.project.LIKELY", 0.0)  # stripes are not among the words
    address, project, _ = site
    rows = [row for row, file in enumerate(project.files) if truth(file) == "red"]
    project.add([Action(kind="unknown", rows=tuple(rows[:5])), Action(kind="name", rows=(rows[5],), label="brick")])
    page = open_page(browser, address)
    page.click("nav a[href='#labels']")
    page.locator("#label-list").get_by_role("button", name="None of these").click()  # the view before has one, too
    expect(page.locator("#browse-groups h3")).to_have_text("5 images that look alike")
    words = page.locator("#browse-groups .tools .button").all_inner_texts()
    assert len(words) == len(set(words)) == 3
    page.locator("#browse-groups .tile").nth(4).click()
    page.locator("#browse-groups .tools .button").first.click()
    expect(page.locator("#label-list")).to_contain_text(words[0])
    assert (project.session.ledger.targets[rows[:5]] == project.session.names.index(words[0])).sum() == 4
    assert (project.session.ledger.targets == UNKNOWN).sum() == 1


def test_two_browsers_see_what_the_other_answered(browser: Browser, site: Site) -> None:
    address, project, _ = site
    first, second = (open_page(browser, address) for _ in range(2))
    answer(first)
    answer(second)
    answered = int((project.session.ledger.targets >= 0).sum())
    expect(second.locator("#counts")).to_contain_text(f"{answered} images answered")


def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, site: Site) -> None:
    page = open_page(browser, site[0], viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    answer(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_service_that_is_gone_is_told_and_nothing_is_shown_as_saved(browser: Browser, site: Site) -> None:
    page = open_page(browser, site[0])
    page.route("**/actions", lambda route: route.abort())
    before = page.locator("#counts").inner_text()
    page.fill("#name", "red")
    page.keyboard.press("Enter")
    expect(page.locator("#fault")).to_be_visible()
    assert page.locator("#counts").inner_text() == before


WRONG: list[tuple[str, Any, int]] = [
    ("/actions", {"actions": []}, 400),
    ("/actions", {"actions": [{"kind": "name", "rows": [99], "label": "x"}]}, 400),
    ("/actions", {"actions": [{"kind": "name", "rows": [1], "label": "x", "colour": 1}]}, 400),
    ("/actions", [1], 400),
    ("/export", {"format": "xml"}, 400),
    ("/export", {"format": "csv", "precision": 2}, 400),
    ("/export", {"format": "csv", "min_probability": -1}, 400),
    ("/undo", {"person": 3}, 400),
    ("/nowhere", {}, 404),
]


def test_wrong_requests_are_refused_in_words(site: Site) -> None:
    for path, body, status in WRONG:
        answer = httpx.post(site[0] + path, json=body)
        assert (answer.status_code, bool(answer.json()["error"])) == (status, True), (path, body)
        assert site[1].session.actions == []


def test_other_web_pages_are_refused(site: Site) -> None:
    answer = httpx.post(site[0] + "/undo", json={}, headers={"Origin": "https://elsewhere.example"})
    assert answer.status_code == 403
    assert httpx.get(site[0] + "/gallery/999").status_code == 404
    assert httpx.get(site[0] + "/gallery/1").headers["content-type"] == "image/jpeg"
