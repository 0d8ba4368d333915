"""The page where one compares, teaches, forgets, takes back, and reads the card; who may do it, and by keyboard alone."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser import REQUIRED, until
from tests.server.conftest import Images, Site, Visit

if os.environ.get(REQUIRED) != "1":
    pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

from tests.server.test_page_ask import DROP, PASTE, SLOW, choose, percent, sent

Sites = Callable[..., Site]


def names(site: Site) -> list[str]:
    return [label["name"] for label in site.get("/labels")["labels"]]


def listed(page: Page) -> list[str]:
    return page.locator("#labels .name").all_inner_texts()


def teach_images(page: Page, images: Images, label: int = 5) -> None:
    """Teach a colour the model has never seen, from five images that are dropped."""
    page.fill("#teach-name", "purple blob")
    page.evaluate(DROP, ["#zone-teach", sent(*images.of(label, 5))])
    expect(page.locator("#teach-images img")).to_have_count(5)
    page.click("#teach-go")
    expect(page.locator("#teach-note")).to_contain_text("“purple blob” is taught.")


def test_two_images_are_the_same_or_different(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site(), "compare")
    (a, b), (c,) = images.of(1, 2), images.of(2)
    page.set_input_files("#choose-a", a)
    page.set_input_files("#choose-b", b)
    expect(page.locator("#verdict-head")).to_have_text("Same")
    sides = []
    for head, file in (("Same", b), ("Different", c)):
        page.evaluate(DROP, ["#zone-b", sent(file)])
        expect(page.locator("#verdict-head")).to_have_text(head)
        expect(page.locator("#ruler-note")).to_contain_text("Similarity")
        dot, limit = (page.locator(f"#ruler .{part}").bounding_box() for part in ("dot", "limit"))
        assert dot
        assert limit
        sides.append(dot["x"] + dot["width"] / 2 > limit["x"] + limit["width"] / 2)
    assert sides == [True, False]
    expect(page.locator("#say")).to_contain_text("Different")


def test_pasted_images_fill_the_first_and_then_the_second_place(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site(), "compare")
    page.evaluate(SLOW)
    for file in images.of(0, 2):
        page.evaluate(PASTE, ["body", sent(file)])
    page.evaluate("() => window.go()")
    expect(page.locator("#verdict-head")).to_have_text("Same")


def test_a_model_without_a_limit_for_pairs_says_so(site: Sites, visit: Visit) -> None:
    here = site("clarel")
    page = visit.open(here, "compare")
    expect(page.locator("#verdict-sub")).to_have_text(here.get("/card")["can"]["verify"])


def test_a_label_taught_from_images_is_listed_and_recognised(site: Sites, visit: Visit, images: Images) -> None:
    here, (new,) = site(), images.of(5, first=8)
    page = visit.open(here)
    choose(page, new)
    expect(page.locator("#headline")).to_have_text("None of these")
    page.click("nav a[href='#teach']")
    teach_images(page, images)
    assert names(here)[-1] == "purple blob"
    expect(page.locator("#labels li").first).to_contain_text("purple blob")
    expect(page.locator("#labels .tag").first).to_have_text("taught from 5 images")
    expect(page.locator("#count")).to_have_text("5")
    expect(page.locator("#about")).to_contain_text("5 labels")
    expect(page.locator("#teach-images img")).to_have_count(0)
    page.click("nav a[href='#ask']")
    expect(page.locator("#headline")).to_contain_text("purple blob")
    page.click("#ask-name")  # waits until the view is shown; keys would go nowhere before
    page.locator("#ask-name").press_sequentially("purple")
    expect(page.locator("#ask-list li")).to_have_text(["purple blob"])


def test_counts_are_true_after_teaching_and_forgetting(site: Sites, visit: Visit, images: Images) -> None:
    here = site()
    page = visit.open(here, "teach")

    def everywhere(labels: int) -> None:
        expect(page.locator("#count")).to_have_text(str(labels))
        expect(page.locator("#about")).to_contain_text(f"{labels} labels")
        expect(page.locator("#model-lead")).to_contain_text(f"{labels} labels")
        card = here.get("/card")
        facts = page.locator("#facts dt", has_text="Labels with images").locator("+ dd")
        expect(facts).to_have_text(str(card["seen"]))
        assert card["labels"] == card["seen"] == len(names(here)) == labels

    everywhere(4)
    teach_images(page, images)
    everywhere(5)
    page.get_by_role("button", name="Forget blob 0").click()
    everywhere(4)
    page.click("#undo")
    everywhere(5)
    page.click("#undo")
    everywhere(4)


def test_the_image_asked_about_can_be_taught(site: Sites, visit: Visit, images: Images) -> None:
    here = site()
    page = visit.open(here)
    choose(page, *images.of(5))
    page.click("#teach-this")
    expect(page.locator("#teach-images img")).to_have_count(1)
    page.get_by_role("button", name="Remove blob 5 0.png").click()
    expect(page.locator("#teach-images img")).to_have_count(0)
    page.fill("#teach-name", "purple blob")
    page.click("#teach-go")
    expect(page.locator("#teach-fault")).to_contain_text("Give images of it first")
    assert "purple blob" not in names(here)


def test_a_label_taught_from_a_description(site: Sites, visit: Visit, images: Images) -> None:
    here, (file,) = site("clarel"), images.of(1)
    page = visit.open(here, "teach")
    page.get_by_label("Description", exact=True).first.check()
    page.fill("#teach-name", "lawn")
    page.fill("#teach-texts", "a green square\n\nthis one is green\n")
    page.click("#teach-go")
    expect(page.locator("#labels .tag")).to_have_text("taught from description")
    assert names(here)[-1] == "lawn"
    page.click("nav a[href='#ask']")
    choose(page, file)
    page.fill("#ask-name", "lawn")
    page.keyboard.press("Enter")
    found = here.post("/ask", file, label="lawn")
    assert found["probability"] > here.post("/ask", file, label="blob 2")["probability"]
    expect(page.locator("#asked .value")).to_have_text(percent(found["probability"]))


def test_a_label_taught_from_numbers(site: Sites, visit: Visit) -> None:
    here = site("eszsl")
    page = visit.open(here, "teach")
    page.get_by_label("Numbers").check()
    expect(page.locator("#vector-note")).to_contain_text("3 numbers")
    page.fill("#teach-name", "white")
    for given, said in (("1, 1, one", "“one” is not a number"), ("1 1", "3")):
        page.fill("#teach-vector", given)
        page.click("#teach-go")
        expect(page.locator("#teach-fault")).to_contain_text(said)
        visit.refusals = True  # the second is refused by the service
    page.fill("#teach-vector", "1, 1; 1")
    page.click("#teach-go")
    expect(page.locator("#labels .tag")).to_have_text("taught from numbers")
    assert names(here)[-1] == "white"


def test_what_a_model_cannot_learn_from_is_said(site: Sites, visit: Visit) -> None:
    here = site()
    page = visit.open(here, "teach")
    page.get_by_label("Description", exact=True).first.check()
    expect(page.locator("#way-note")).to_have_text(here.get("/card")["can"]["teach_texts"])
    expect(page.locator("#teach-go")).to_be_disabled()


def test_a_name_that_is_taken_is_refused_in_place(site: Sites, visit: Visit, images: Images) -> None:
    here = site()
    page = visit.open(here, "teach")
    visit.refusals = True
    page.fill("#teach-name", "blob 1")
    page.set_input_files("#choose-teach", images.of(5, 2))
    page.click("#teach-go")
    expect(page.locator("#teach-fault")).to_contain_text("blob 1")
    expect(page.locator("#teach-images img")).to_have_count(2)  # nothing typed or given is lost
    expect(page.locator("#teach-name")).to_have_value("blob 1")


def test_forget_and_undo(site: Sites, visit: Visit, images: Images) -> None:
    here = site()
    page = visit.open(here, "teach")
    expect(page.locator("#undo")).to_be_disabled()
    page.get_by_role("button", name="Forget blob 2").click()
    expect(page.locator("#labels .name")).to_have_text(["blob 0", "blob 1", "blob 3"])
    assert names(here) == ["blob 0", "blob 1", "blob 3"]
    page.get_by_role("button", name="Undo: forget blob 2").click()
    expect(page.locator("#count")).to_have_text("4")
    assert "blob 2" in names(here)
    teach_images(page, images)
    page.get_by_role("button", name="Undo: teach purple blob").click()
    expect(page.locator("#say")).to_have_text("“purple blob” is removed.")
    assert "purple blob" not in names(here)
    assert sorted(listed(page)) == sorted(names(here))


def test_a_label_taught_elsewhere_appears_with_the_next_answer(site: Sites, visit: Visit, images: Images) -> None:
    here = site()
    page = visit.open(here)
    here.post("/teach", images.of(5)[0], label="from afar")
    choose(page, *images.of(1))
    page.click("nav a[href='#teach']")
    expect(page.locator("#labels .name").first).to_have_text("from afar")


def test_the_list_can_be_filtered(site: Sites, visit: Visit) -> None:
    page = visit.open(site(), "teach")
    page.fill("#filter", "B 3")
    expect(page.locator("#labels .name")).to_have_text(["blob 3"])
    page.fill("#filter", "owl")
    expect(page.locator("#labels .name")).to_have_count(0)
    expect(page.locator("#more")).to_contain_text("No label contains this")


def test_the_card(site: Sites, visit: Visit) -> None:
    here = site()
    card = here.get("/card")
    page = visit.open(here, "model")
    view = page.locator("#view-model")
    for text in (card["model"], card["method"], card["trained"]["data"], *card["limits"]):
        expect(view).to_contain_text(text)
    expect(page.locator("#figures")).to_contain_text(f"{100 * card['figures']['accuracy']:.1f}\u00a0%")
    expect(page.locator("#figures")).to_contain_text(f"{100 * card['figures']['ece_after']:.1f}\u00a0%")
    expect(page.locator("#can .can-no")).to_have_count(sum(reason is not None for reason in card["can"].values()))
    for reason in card["can"].values():
        expect(page.locator("#can")).to_contain_text(reason or "")


def test_the_token_is_asked_for_once(site: Sites, visit: Visit, images: Images) -> None:
    here = site(token="open sesame", gallery=images.gallery(), examples=images.folder / "gallery")
    visit.refusals = True
    page = visit.open(here, ready=False)
    expect(page.get_by_role("dialog")).to_contain_text("needs a token")
    page.get_by_label("Token", exact=True).fill("guess")
    page.keyboard.press("Enter")
    expect(page.locator("#token-fault")).not_to_be_empty()
    page.get_by_label("Token", exact=True).fill("open sesame")
    page.keyboard.press("Enter")
    page.wait_for_selector("body.ready")
    expect(page.locator("#examples img")).to_have_count(12)
    choose(page, *images.of(1))
    expect(page.locator("#near img")).to_have_count(8)
    page.reload()
    page.wait_for_selector("body.ready")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_who_declines_the_token_can_try_again(site: Sites, visit: Visit) -> None:
    visit.refusals = True
    page = visit.open(site(token="secret"), ready=False)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#answer-fault")).to_be_visible()
    page.locator("#answer-fault button").click()
    page.get_by_label("Token", exact=True).fill("secret")
    page.keyboard.press("Enter")
    page.wait_for_selector("body.ready")
    expect(page.locator("#answer-fault")).to_be_hidden()


def test_a_service_that_is_read_only_offers_no_teaching(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site(read_only=True), "teach")
    expect(page.locator("#labels .name")).to_have_count(4)
    for hidden in ("#teach-form", "#undo"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(page.get_by_role("button", name="Forget")).to_have_count(0)
    expect(page.locator("#nav-teach")).to_have_text("Labels")
    page.click("nav a[href='#ask']")
    choose(page, *images.of(1))
    expect(page.locator("#teach-this")).to_be_hidden()


def reach(page: Page, selector: str, most: int = 60) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"{selector} was not reached with {most} presses of Tab")


def test_by_keyboard_alone(site: Sites, visit: Visit, images: Images) -> None:
    here = site("clarel", examples=images.gallery())
    page = visit.open(here)
    press: Any = page.keyboard.press
    choosers: list[Any] = []
    page.on("filechooser", lambda chooser: choosers.append(chooser))
    expect(page.locator("#examples img")).to_have_count(12)
    press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    press("Enter")
    reach(page, "#choose")
    press("Space")
    until(page, lambda: choosers)
    reach(page, "#examples button")
    press("Enter")
    expect(page.locator("#headline")).to_contain_text("blob 0")
    reach(page, "#bars li:nth-child(2) button")
    second = page.locator("#bars .name").nth(1).inner_text()
    expect(page.locator("#heat-note strong")).to_have_text(second)
    reach(page, "#ask-name")
    page.keyboard.type("a red square")
    press("Enter")
    expect(page.locator("#asked .name")).to_have_text("“a red square”")
    page.keyboard.press("Home")
    page.evaluate("() => document.querySelector('.brand').focus()")
    reach(page, "#nav-teach")
    press("Enter")
    reach(page, "#teach-name")
    page.keyboard.type("lawn")
    press("Tab")
    press("ArrowRight")
    reach(page, "#teach-texts")
    page.keyboard.type("a green square")
    reach(page, "#teach-go")
    press("Enter")
    expect(page.locator("#labels .name").first).to_have_text("lawn")
    reach(page, "button[aria-label='Forget lawn']")
    press("Enter")
    expect(page.locator("#undo")).to_have_text("Undo: forget lawn")
    page.keyboard.press("Shift+Tab")
    expect(page.locator("#undo")).to_be_focused()
    press("Enter")
    expect(page.locator("#labels .name").first).to_have_text("lawn")
    assert names(here)[-1] == "lawn"


def test_a_wrong_answer_is_corrected_and_the_correction_taken_back(site: Sites, visit: Visit, images: Images) -> None:
    here, (new,) = site("growing"), images.of(5)
    page = visit.open(here)
    expect(page.locator("#correct-form")).to_be_hidden()
    choose(page, new)
    before = here.post("/ask", new, label="blob 1")["probability"]
    page.fill("#correct-name", "okapi")
    page.get_by_role("button", name="Correct").click()
    expect(page.locator("#correct-fault")).to_contain_text("No label is called “okapi”")
    page.fill("#correct-name", "")
    page.locator("#correct-name").press_sequentially("blob 1")
    page.keyboard.press("Enter")
    expect(page.locator("#correct-note")).to_contain_text("Learned: this is “blob 1”.")
    assert here.post("/ask", new, label="blob 1")["probability"] != before
    (row,) = [row for row in here.get("/labels")["labels"] if row["name"] == "blob 1"]
    assert row["more"] == 1
    page.click("#correct-undo")
    expect(page.locator("#correct-note")).to_contain_text("“blob 1” is as it was before.")
    assert here.post("/ask", new, label="blob 1")["probability"] == before
    assert here.get("/labels")["undo"] is None


def test_a_taught_label_can_be_part_of_a_group(site: Sites, visit: Visit, images: Images) -> None:
    here = site("tree")
    page = visit.open(here, "teach")
    assert page.locator("#parents option").evaluate_all("(all) => all.map((one) => one.value)") == ["cold", "warm"]
    page.fill("#teach-parent", "warm")
    teach_images(page, images)
    assert here.get("/labels")["labels"][-1]["parents"] == ["warm"]
    expect(page.locator("#teach-parent")).to_have_value("")
    plain = visit.open(site(), "teach")
    expect(plain.locator("#teach-parent-box")).to_be_hidden()
