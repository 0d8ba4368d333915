"""Headless Chromium, for tests of pages; they are skipped where there is none, unless it is required."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REQUIRED = "LABELWISE_REQUIRE_BROWSER"
ARGS = ("--no-sandbox", "--disable-gpu", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


def missing(what: str) -> NoReturn:
    """Skip, or fail where a browser is required."""
    said = f"{what}; page tests need it (tools/browser.sh)"
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(said)
    pytest.skip(said)


def until(page: "Page", happened: Callable[[], object]) -> None:
    """Wait for something that is seen here, not on the page; what the page tells Python arrives meanwhile."""
    for _ in range(600):
        if happened():
            return
        page.wait_for_timeout(50)
    pytest.fail("it did not happen within 30 seconds")


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Headless Chromium with a camera that shows a moving picture. For a module alone: while it runs, asyncio.run cannot."""
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        missing("playwright is not installed")
    path = os.environ.get("LABELWISE_CHROMIUM") or shutil.which("chromium")
    if path is None:
        missing("no chromium is on the path, and LABELWISE_CHROMIUM is not set")
    expect.set_options(timeout=30_000)  # what a busy machine needs; nobody waits longer than the page does
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(ARGS))
        yield running
        running.close()
