"""Headless Chromium, for tests of pages; they are skipped where there is none, unless it is required."""

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REQUIRED = "LABELWISE_REQUIRE_BROWSER"
ARGS = ("--no-sandbox", "--disable-gpu", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


def missing(what: str) -> NoReturn:
    """Skip, or fail where a browser is required."""
    said = f"{what}; page tests need it (tools/browser.sh)"
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(said)
    pytest.skip(said)


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Headless Chromium with a camera that shows a moving picture. For a module alone: while it runs, asyncio.run cannot."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
    path = os.environ.get("LABELWISE_CHROMIUM") or shutil.which("chromium")
    if path is None:
        missing("no chromium is on the path, and LABELWISE_CHROMIUM is not set")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(ARGS))
        yield running
        running.close()
