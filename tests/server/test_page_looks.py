"""How the page looks and reads for everyone: contrast, small screens, names of controls, focus, calm."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser import REQUIRED
from tests.server.conftest import Images, Site, Visit

if os.environ.get(REQUIRED) != "1":
    pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

from tests.server.test_page_ask import choose

Sites = Callable[..., Site]
VIEWS = ("ask", "compare", "teach", "model")

# The least contrast of texts that can be seen: each text against the nearest background behind it, as WCAG 2 counts.
CONTRAST = """() => {
  const parse = (colour) => {
    const pen = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d');
    pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.checkVisibility() || element.closest('.unseen, :disabled, script, noscript')) continue;
    let back = element;
    while (back && parse(getComputedStyle(back).backgroundColor)[3] < 255) back = back.parentElement;
    const style = getComputedStyle(element);
    const pair = [light(parse(style.color)), light(parse(getComputedStyle(back ?? document.body).backgroundColor))].sort((a, b) => b - a);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    found.push([walk.currentNode.data.trim(), (pair[0] + 0.05) / (pair[1] + 0.05), large ? 3 : 4.5]);
  }
  return found;
}"""


def filled(site: Site, visit: Visit, images: Images) -> Page:
    """The page with something in every place: an answer, a question, a fault, two images, a taught label."""
    site.post("/teach", images.of(5)[0], label="a label with quite a long name, as people give them, longer than a row")
    page = visit.open(site, "teach")
    page.set_input_files("#choose-teach", images.of(5, 3))
    page.click("#teach-go")
    page.click("nav a[href='#compare']")
    for side, file in zip("ab", images.of(1, 2), strict=True):
        page.set_input_files(f"#choose-{side}", file)
    expect(page.locator("#ruler")).to_be_visible()
    page.click("nav a[href='#ask']")
    choose(page, *images.of(1))
    for typed in ("blob 1", "blob 2", "a sentence that it does not read, and which_is_one_very_long_word_" * 2):
        page.fill("#ask-name", typed)
        page.keyboard.press("Enter")
    expect(page.locator("#asked li")).to_have_count(2)
    expect(page.locator("#ask-fault")).to_be_visible()
    expect(page.locator("#near img")).to_have_count(8)
    return page


def go(page: Page, view: str) -> None:
    page.click(f"nav a[href='#{view}']")
    expect(page.locator("main > section:visible")).to_have_id(f"view-{view}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read(site: Sites, visit: Visit, images: Images, scheme: Any) -> None:
    visit.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page = filled(site(gallery=images.gallery()), visit, images)
    ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (sum(int(x) for x in ground[4:-1].split(",")) < 200) == (scheme == "dark")
    for view in VIEWS:
        go(page, view)
        found = page.evaluate(CONTRAST)
        assert len(found) > 10
        assert not [row for row in found if row[1] < row[2]]


def test_a_phone_shows_all_without_scrolling_sideways(site: Sites, visit: Visit, images: Images) -> None:
    visit.page.set_viewport_size({"width": 360, "height": 740})
    gallery = images.gallery()
    page = filled(site(gallery=gallery, examples=gallery), visit, images)
    for view in VIEWS:
        go(page, view)
        assert page.evaluate("() => document.documentElement.scrollWidth") == 360
        small = page.locator("button:visible, nav a:visible, label.button:visible").evaluate_all(
            "(all) => all.filter((e) => Math.min(e.offsetWidth, e.offsetHeight) < 24).map((e) => e.outerHTML)"
        )
        assert not small


def test_every_control_has_a_name_and_shows_its_focus(site: Sites, visit: Visit, images: Images) -> None:
    page = filled(site(gallery=images.gallery()), visit, images)
    for view in VIEWS:
        go(page, view)
        page.evaluate("() => document.activeElement.blur()")
        seen = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            name, outline = (
                page.evaluate("""() => { const e = document.activeElement; if (e === document.body) return ['', true];
              const name = e.getAttribute('aria-label') ?? (e.labels?.length ? e.labels[0].textContent : e.textContent);
              const shown = e.matches('.unseen') ? e.closest('label') : e.matches('.ways input') ? e.nextElementSibling : e;
              return [name.trim() || e.outerHTML, !e.matches('.skip') && getComputedStyle(shown).outlineStyle === 'none' ? false : Boolean(name.trim())] }""")
            )
            assert outline, f"{view}: {name}"
            seen.add(name)
        assert len(seen) > 5


def test_nothing_moves_when_the_answer_comes(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site(gallery=images.gallery()))
    watched = ("#stage", "#choose", "#headline", "#bars", "#heat-note", "#ask-name", "#near")

    def boxes() -> list[list[float]]:
        return [
            page.locator(one).evaluate("(e) => { const b = e.getBoundingClientRect(); return [b.x, b.y]; }")
            for one in watched
        ]

    before = boxes()
    choose(page, *images.of(1))
    expect(page.locator("#near img")).to_have_count(8)
    expect(page.locator("#heat-note strong")).to_have_text("blob 1")
    assert boxes() == before
    choose(page, *images.of(5))
    expect(page.locator("#headline")).to_have_text("None of these")
    assert boxes() == before


def test_who_wants_less_motion_gets_none(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site())
    choose(page, *images.of(1))
    assert page.locator("#bars .track i").first.evaluate("(e) => getComputedStyle(e).transitionDuration") == "0s"
    page.emulate_media(reduced_motion="no-preference")
    assert page.locator("#bars .track i").first.evaluate("(e) => getComputedStyle(e).transitionDuration") != "0s"
