"""The page where one asks about an image: how it gets there, the answers, the questions, why, and what is near."""

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser import REQUIRED, until
from tests.pixels_of import px
from tests.server.conftest import Images, Site, Visit

if os.environ.get(REQUIRED) != "1":
    pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

Sites = Callable[..., Site]

DROP = """([selector, files]) => {
  const transfer = new DataTransfer();
  for (const [name, type, data] of files) {
    transfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name, {type}));
  }
  const target = document.querySelector(selector);
  for (const kind of ["dragenter", "dragover", "drop"]) {
    target.dispatchEvent(new DragEvent(kind, {dataTransfer: transfer, bubbles: true, cancelable: true}));
  }
}"""
PASTE = DROP.replace('for (const kind of ["dragenter", "dragover", "drop"])', 'for (const kind of ["paste"])').replace(
    "new DragEvent(kind, {dataTransfer", "new ClipboardEvent(kind, {clipboardData"
)
HEAT = "() => document.getElementById('heat').toDataURL()"
BLANK = """() => { const {width, height} = document.getElementById('heat');
  return Object.assign(document.createElement('canvas'), {width, height}).toDataURL() }"""


def sent(*files: Path, kind: str = "image/png") -> list[list[str]]:
    return [[file.name, kind, base64.b64encode(file.read_bytes()).decode()] for file in files]


def percent(value: float) -> str:
    if value < 0.001:
        return "<\u00a00.1\u00a0%"
    return ">\u00a099.9\u00a0%" if value > 0.999 else f"{100 * value:.1f}\u00a0%"


def shown(page: Page, rows: str = "#bars") -> list[tuple[str, str]]:
    found = page.locator(f"{rows} button.row")
    names, values = found.locator(".name").all_inner_texts(), found.locator(".value").all_inner_texts()
    return list(zip(names, values, strict=True))


def heat_of(page: Page, name: str) -> str:
    """The image that the heat map is, once the note says that it is of this name."""
    expect(page.locator("#heat-note strong")).to_have_text(name)
    return str(page.evaluate(HEAT))


def choose(page: Page, *files: Path) -> None:
    page.set_input_files("#choose", list(files))
    page.wait_for_selector("#bars button.row")


def test_bars_are_the_answers_of_classify(site: Sites, visit: Visit, images: Images) -> None:
    here, (file,) = site(), images.of(1)
    page = visit.open(here)
    choose(page, file)
    found = here.post("/classify", file, top=6)
    assert found["label"] == "blob 1"
    assert shown(page) == [(row["label"], percent(row["probability"])) for row in found["top"]]
    expect(page.locator("#headline")).to_contain_text("blob 1")
    expect(page.locator("#headline .sure")).to_have_text(percent(found["probability"]))
    expect(page.locator("#none-value")).to_have_text("no")
    widths = page.locator("#bars .track").evaluate_all(
        "(all) => all.map((t) => t.firstChild.getBoundingClientRect().width / t.getBoundingClientRect().width)"
    )
    assert widths == pytest.approx([row["probability"] for row in found["top"]], abs=0.01)
    expect(page.locator("#say")).to_contain_text("blob 1")


@pytest.mark.parametrize("where", ["#stage", "h1"])
def test_a_dropped_image_is_asked_about(site: Sites, visit: Visit, images: Images, where: str) -> None:
    page = visit.open(site())
    page.evaluate(DROP, [where, sent(*images.of(2))])
    expect(page.locator("#headline")).to_contain_text("blob 2")
    assert page.locator("#image").evaluate("(image) => image.naturalWidth") == 8


def test_a_pasted_image_is_asked_about(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site())
    page.evaluate(PASTE, ["body", sent(*images.of(3))])
    expect(page.locator("#headline")).to_contain_text("blob 3")


def test_the_camera_takes_a_image(site: Sites, visit: Visit) -> None:
    page = visit.open(site())
    page.click("#camera")
    page.click("#shoot:enabled")
    page.wait_for_selector("#bars button.row")
    assert page.locator("#image").evaluate("(image) => image.naturalWidth") > 100
    expect(page.locator("#camera-dialog")).to_be_hidden()
    assert page.locator("#video").evaluate("(video) => video.srcObject") is None


def test_without_a_camera_there_is_no_button(site: Sites, visit: Visit) -> None:
    visit.page.add_init_script("navigator.mediaDevices.enumerateDevices = async () => []")
    page = visit.open(site())
    expect(page.locator("#camera")).to_be_hidden()


def test_examples_are_offered(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site(examples=images.gallery()))
    expect(page.locator("#examples img")).to_have_count(12)
    page.get_by_role("button", name="Example: blob 2 6").click()
    expect(page.locator("#headline")).to_contain_text("blob 2")


def test_a_large_image_is_made_smaller_before_it_is_sent(site: Sites, visit: Visit, images: Images) -> None:
    from PIL import Image

    (file,) = images.of(1)
    with Image.open(file) as small:
        small.resize((2400, 2400), Image.Resampling.NEAREST).save(file)
    page = visit.open(site())
    with page.expect_request("**/classify*") as asked:
        choose(page, file)
    assert asked.value.headers["content-type"] == "image/jpeg"
    assert page.locator("#image").evaluate("(image) => image.naturalWidth") == 1600
    expect(page.locator("#headline")).to_contain_text("blob 1")


def test_a_strange_image_is_none_of_these(site: Sites, visit: Visit, images: Images) -> None:
    here, (file,) = site(), images.of(5)
    found = here.post("/classify", file)
    assert found["label"] == "unknown"
    page = visit.open(here)
    choose(page, file)
    expect(page.locator("#headline")).to_have_text("None of these")
    expect(page.locator("#subline")).to_contain_text(found["top"][0]["label"])
    expect(page.locator("#none")).to_have_class("row none yes")
    expect(page.locator("#none-value")).to_have_text("yes")
    dot, limit = (page.locator(f"#none .{part}").bounding_box() for part in ("dot", "limit"))
    assert dot
    assert limit
    assert dot["x"] > limit["x"]


def test_a_model_of_several_labels_answers_each(site: Sites, visit: Visit, images: Images) -> None:
    from tests.conftest import squares

    here, split = site("several"), squares().split("test")
    page = visit.open(here)
    heads = []
    for row in (int(split.targets.sum(1).argmax()), int(split.targets.sum(1).argmin())):
        file = images.save(px(split)[row], f"squares {row}")
        found = here.post("/classify", file)
        with page.expect_response("**/classify*"):
            page.set_input_files("#choose", file)
        names = [answer["label"] for answer in found["answers"]]
        expect(page.locator("#bars .name")).to_have_text(names)
        expect(page.locator("#bars .said")).to_have_text(["yes" if a["yes"] else "no" for a in found["answers"]])
        heads.append(page.locator("#headline").inner_text())
    assert len(heads[0].replace(" and", ",").split(", ")) == 3
    assert heads[1] in ("No label", "None of these")


def test_ask_about_a_label_that_is_offered_while_typing(site: Sites, visit: Visit, images: Images) -> None:
    here, (file,) = site(), images.of(1)
    page = visit.open(here)
    choose(page, file)
    page.locator("#ask-name").press_sequentially("BLOB")
    expect(page.locator("#ask-list li")).to_have_text(["blob 0", "blob 1", "blob 2", "blob 3"])
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#asked .said")).to_have_text("yes")
    page.fill("#ask-name", "Blob 3")
    page.click("#ask-form button")
    expect(page.locator("#asked .said")).to_have_text(["no", "yes"])
    answers = [here.post("/ask", file, label=name) for name in ("blob 3", "blob 1")]
    assert shown(page, "#asked") == [(found["label"], percent(found["probability"])) for found in answers]
    expect(page.locator("#say")).to_contain_text("Is it blob 3? No")


def test_a_model_that_reads_no_sentence_says_so(site: Sites, visit: Visit, images: Images) -> None:
    here = site()
    page = visit.open(here)
    choose(page, *images.of(1))
    page.fill("#ask-name", "a green square")
    page.keyboard.press("Enter")
    expect(page.locator("#ask-fault")).to_contain_text(here.get("/card")["can"]["ask_text"])
    expect(page.locator("#asked li")).to_have_count(0)


def test_ask_a_sentence(site: Sites, visit: Visit, images: Images) -> None:
    here, (file,) = site("clarel"), images.of(1)
    page = visit.open(here)
    choose(page, file)
    for text in ("a green square", "a blue square"):
        page.fill("#ask-name", text)
        page.keyboard.press("Enter")
        expect(page.locator("#asked .name").first).to_have_text(f"“{text}”")
    texts = ("a blue square", "a green square")
    answers = [here.post("/ask", file, text=text)["probability"] for text in texts]
    assert answers[0] < answers[1]
    assert shown(page, "#asked") == [(f"“{t}”", percent(p)) for t, p in zip(texts, answers, strict=True)]
    heat_of(page, "“a blue square”")


def test_the_heat_map_follows_the_name_under_the_pointer(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site())
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url) if "/explain" in sent.url else None)
    choose(page, *images.of(1))
    rows = {name: page.locator("#bars button.row", has_text=name) for name in ("blob 1", "blob 2")}
    first = heat_of(page, "blob 1")
    blank = page.evaluate(BLANK)
    assert first != blank
    others = {}
    for name in ("blob 0", "blob 2", "blob 3"):
        page.locator("#bars button.row", has_text=name).hover()
        others[name] = heat_of(page, name)
    assert any(heat not in (first, blank) for heat in others.values())
    page.mouse.move(5, 5)
    assert heat_of(page, "blob 1") == first
    rows["blob 2"].focus()
    assert heat_of(page, "blob 2") == others["blob 2"]
    rows["blob 2"].click()
    page.evaluate("() => document.activeElement.blur()")
    page.mouse.move(5, 5)
    page.wait_for_timeout(300)
    assert heat_of(page, "blob 2") == others["blob 2"]
    assert sorted(asked) == sorted(set(asked))  # each is asked for once
    assert len(asked) == 4


def test_a_pointer_that_passes_by_asks_nothing(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site())
    choose(page, *images.of(1))
    heat_of(page, "blob 1")
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url))
    page.evaluate("""() => { for (const row of document.querySelectorAll('#bars .row')) {
      row.dispatchEvent(new PointerEvent('pointerenter')); row.dispatchEvent(new PointerEvent('pointerleave')); } }""")
    page.wait_for_timeout(400)
    assert not asked


def test_the_heat_map_can_be_weaker_or_off(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site())
    choose(page, *images.of(1))
    heat_of(page, "blob 1")

    def opacity() -> float:
        return float(page.locator("#heat").evaluate("(canvas) => getComputedStyle(canvas).opacity"))

    strong = opacity()
    page.locator("#heat-strength").focus()
    page.keyboard.press("Home")
    assert 0 < opacity() < strong / 2
    page.uncheck("#heat-on")
    assert opacity() == 0


def test_a_heat_map_sets_a_name_against_another(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site())
    choose(page, *images.of(1))
    alone = heat_of(page, "blob 1")
    names = page.locator("#heat-not option").evaluate_all("(all) => all.map((option) => option.value)")
    assert names[:2] == ["", "blob 1"]
    assert sorted(names[1:]) == [f"blob {i}" for i in range(len(names) - 1)]
    with page.expect_request(lambda sent: "against=blob" in sent.url):
        page.select_option("#heat-not", "blob 2")
    expect(page.locator("#heat-note")).to_have_text("Why blob 1 (orange), not blob 2 (blue)")
    assert page.evaluate(HEAT) not in (alone, page.evaluate(BLANK))
    page.locator("#bars button.row", has_text="blob 2").click()
    expect(page.locator("#heat-note")).to_have_text("Evidence for blob 2")  # not against itself
    page.select_option("#heat-not", "")
    page.locator("#bars button.row", has_text="blob 1").click()
    assert heat_of(page, "blob 1") == alone


def test_two_names_have_two_colours(site: Sites, visit: Visit, images: Images) -> None:
    left = [[float(column < 4) for column in range(8)] for _ in range(8)]
    page = visit.open(site())
    known = {"label": "blob 1", "probability": 1, "heat": left, "height": 8, "width": 8, "change": 0}
    known |= {"against": "blob 2", "heat_against": [line[::-1] for line in left]}
    page.route("**/explain*", lambda route: route.fulfill(json=known))
    choose(page, *images.of(1))
    heat_of(page, "blob 1")
    colour = """(x) => { const c = document.getElementById('heat');
      return [...c.getContext('2d').getImageData(c.width * x, c.height / 2, 1, 1).data] }"""
    (red, _, blue, _), (other_red, _, other_blue, _) = page.evaluate(colour, 0.3), page.evaluate(colour, 0.7)
    assert red > 200 > blue
    assert other_blue > 200 > other_red


def test_only_the_part_that_the_model_saw_is_coloured(site: Sites, visit: Visit, images: Images) -> None:
    from PIL import Image

    (file,) = images.of(1)
    with Image.open(file) as square:
        wide = Image.new("RGB", (24, 8))
        wide.paste(square, (8, 0))
        wide.save(file)
    heat = [[float((row, column) == (4, 4)) for column in range(8)] for row in range(8)]
    page = visit.open(site())
    known = {"label": "blob 1", "probability": 1, "heat": heat, "height": 8, "width": 8, "change": 0}
    page.route("**/explain*", lambda route: route.fulfill(json=known))
    choose(page, file)
    expect(page.locator("#headline")).to_contain_text("blob 1")
    heat_of(page, "blob 1")
    colours = """(xs) => { const c = document.getElementById('heat'); const pen = c.getContext('2d');
      return xs.flatMap((x) => [0.38, 0.45, 0.5, 0.55, 0.62].map((y) => [...pen.getImageData(c.width * x, c.height * y, 1, 1).data])) }"""
    assert all(pixel == [0, 0, 0, 115] for pixel in page.evaluate(colours, [0.1, 0.3, 0.7, 0.9]))  # dimmed
    assert not any(pixel[3] for pixel in page.evaluate(colours, [0.35, 0.42, 0.65]))  # as it is
    red, green, blue, _ = page.evaluate(colours, [0.52])[2]  # the middle of row 4 and column 4, nearly
    assert red > green > blue


def test_the_nearest_images_are_those_of_retrieve(site: Sites, visit: Visit, images: Images) -> None:
    (file,) = images.of(1)
    here = site(gallery=images.gallery())
    page = visit.open(here)
    choose(page, file)
    found = here.post("/retrieve", file, top=8)["matches"]
    expect(page.locator("#near .file")).to_have_text([match["file"] for match in found])
    expect(page.locator("#near .value")).to_have_text([f"{match['similarity']:.2f}" for match in found])
    sizes = page.locator("#near img").evaluate_all("(all) => all.map((image) => image.naturalWidth)")
    assert len(sizes) == 8
    assert all(sizes)


def test_without_a_gallery_one_line_says_why(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site())
    choose(page, *images.of(1))
    expect(page.locator("#near-note")).to_contain_text("--gallery")
    expect(page.locator("#near li")).to_have_count(0)


@pytest.mark.parametrize(
    ("name", "kind", "said"), [("notes.txt", "text/plain", "is not an image"), ("x.png", "image/png", "cannot be read")]
)
def test_what_is_no_image_is_refused_in_words(
    site: Sites, visit: Visit, tmp_path: Path, name: str, kind: str, said: str
) -> None:
    file = tmp_path / name
    file.write_text("not an image")
    page = visit.open(site())
    page.evaluate(DROP, ["#stage", sent(file, kind=kind)])
    expect(page.locator("#answer-fault")).to_contain_text(said)
    expect(page.locator("#answer-fault")).to_contain_text(name)


def test_what_the_service_says_is_shown_and_can_be_tried_again(site: Sites, visit: Visit, images: Images) -> None:
    page, busy = visit.open(site()), "Too many requests at once. Try again in a moment."
    visit.refusals = True
    page.route("**/classify*", lambda route: route.fulfill(status=503, json={"error": busy}))
    page.set_input_files("#choose", images.of(1))
    expect(page.locator("#answer-fault")).to_contain_text(busy)
    expect(page.locator("#headline")).to_have_text("No answer")
    page.unroute("**/classify*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#headline")).to_contain_text("blob 1")
    expect(page.locator("#answer-fault")).to_be_hidden()


def test_a_service_that_stops_and_comes_back(site: Sites, visit: Visit, images: Images) -> None:
    here = site()
    page = visit.open(here)
    visit.refusals = True
    here.stop()
    page.set_input_files("#choose", images.of(1))
    expect(page.locator("#offline")).to_contain_text("does not answer")
    expect(page.locator("#answer-fault")).to_contain_text("does not answer")
    site(port=int(here.url.rsplit(":", 1)[1]))
    expect(page.locator("#offline")).to_be_hidden()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#headline")).to_contain_text("blob 1")


def test_an_answer_that_comes_late_does_not_replace_a_newer_one(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site())
    held: list[Any] = []
    page.route("**/classify*", lambda route: held.append(route))
    page.set_input_files("#choose", images.of(1))
    until(page, lambda: held)
    page.unroute("**/classify*")
    page.set_input_files("#choose", images.of(2))
    expect(page.locator("#headline")).to_contain_text("blob 2")
    page.wait_for_timeout(200)
    expect(page.locator("#headline")).to_contain_text("blob 2")


SLOW = """() => { const read = createImageBitmap;
  let first = true;
  window.createImageBitmap = async (file) => {
    if (first) { first = false; await new Promise((go) => (window.go = go)); }
    const found = await read(file);
    window.reads = (window.reads ?? 0) + 1;
    return found;
  }; }"""


def test_an_image_that_is_read_slowly_does_not_replace_a_newer_one(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site())
    page.evaluate(SLOW)
    page.set_input_files("#choose", images.of(1))
    page.set_input_files("#choose", images.of(2))
    expect(page.locator("#headline")).to_contain_text("blob 2")
    page.evaluate("() => window.go()")
    until(page, lambda: page.evaluate("() => window.reads") == 2)
    page.wait_for_timeout(200)
    expect(page.locator("#headline")).to_contain_text("blob 2")


def test_several_images_are_each_answered(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site())
    files = [images.of(label)[0] for label in (0, 1, 2)]
    choose(page, *files)
    answers = page.locator("#tray .said-of")
    expect(answers).to_have_text(["blob 0", "blob 1", "blob 2"])
    expect(page.locator("#headline")).to_contain_text("blob 0")
    page.locator("#tray button").nth(2).click()
    expect(page.locator("#headline")).to_contain_text("blob 2")
    expect(page.locator("#tray button[aria-pressed=true]")).to_have_count(1)
    expect(page.locator("#tray button").nth(2)).to_have_attribute("aria-pressed", "true")
    page.evaluate(DROP, ["#stage", sent(files[1])])
    expect(page.locator("#headline")).to_contain_text("blob 1")
    expect(page.locator("#tray")).to_be_hidden()


def test_an_image_that_cannot_be_read_does_not_stop_the_others(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site())
    broken = images.folder / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n")
    choose(page, images.of(3)[0], broken, images.of(1)[0])
    expect(page.locator("#tray .said-of")).to_have_text(["blob 3", "blob 1"])
    expect(page.locator("#answer-fault")).to_contain_text("broken.png cannot be read")


def test_answers_promise_what_is_chosen(site: Sites, visit: Visit, images: Images) -> None:
    here, (file,) = site("tree"), images.of(1)
    page = visit.open(here)
    choose(page, file)
    expect(page.locator("#headline")).to_contain_text("blob")
    page.select_option("#promise", label="at most 10 % wrong")
    coarse = here.post("/classify", file, top=6, max_error="0.1")
    expect(page.locator("#headline")).to_contain_text({"unsure": "Unsure"}.get(coarse["label"], coarse["label"]))
    expect(page.locator("#subline")).to_contain_text("looks most like blob")
    page.select_option("#promise", label="a list, right for 90 %")
    covering = here.post("/classify", file, coverage="0.9")
    expect(page.locator("#bars button.row")).to_have_count(len(covering["top"]))
    expect(page.locator("#subline")).to_contain_text("90")


def test_a_model_that_promises_nothing_offers_no_choice(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site("several"))
    choose(page, *images.of(1))
    expect(page.locator("#promise-box")).to_be_hidden()


def test_a_list_of_labels_that_may_occur_is_shown_and_taken_away(site: Sites, visit: Visit, images: Images) -> None:
    visit.refusals = True
    here, (file, other) = site(), (*images.of(1), *images.of(3))
    page, bars = visit.open(here), "#bars button.row .name"
    choose(page, file, other)
    expect(page.locator("#headline")).to_contain_text("blob 1")
    page.click("#prior-box summary")
    page.fill("#prior-text", "blob 0\nBlob 2\nokapi")
    page.click("#prior-form button")
    expect(page.locator("#prior-note span")).to_have_text("Only 2 of 4 labels may occur. Not labels here: “okapi”.")
    assert {*page.locator(bars).all_inner_texts()} == {"blob 0", "blob 2"}
    expect(page.locator("#tray .said-of").nth(1)).not_to_have_text("blob 3")
    page.click("#prior-all")
    expect(page.locator("#prior-note")).to_be_hidden()
    expect(page.locator("#headline")).to_contain_text("blob 1")
    table = images.folder / "here.csv"
    table.write_text("label,share\nblob 3,1\n")
    page.set_input_files("#prior-file", table)
    expect(page.locator("#prior-note span")).to_have_text("Only 1 of 4 labels may occur.")
    expect(page.locator(bars)).to_have_text(["blob 3"])
    page.fill("#prior-text", "okapi")
    page.click("#prior-form button")
    expect(page.locator("#answer-fault")).to_contain_text("allows no label")
    page.click("#prior-all")
    expect(page.locator("#headline")).to_contain_text("blob 1")


def test_a_sentence_finds_images_of_the_gallery(site: Sites, visit: Visit, images: Images) -> None:
    here = site("clarel", gallery=images.gallery())
    page = visit.open(here)
    page.fill("#find-text", "a red blob")
    page.press("#find-text", "Enter")
    expect(page.locator("#near-title")).to_have_text("Best for “a red blob”")
    found = here.get("/search?text=a+red+blob&top=8")["matches"]
    expect(page.locator("#near .file")).to_have_text([match["file"] for match in found])
    choose(page, *images.of(1))
    expect(page.locator("#near-title")).to_have_text("Nearest images")


def test_images_are_found_by_words_only_where_the_model_reads_them(site: Sites, visit: Visit, images: Images) -> None:
    page = visit.open(site(gallery=images.gallery()))
    choose(page, *images.of(1))
    expect(page.locator("#near .file")).to_have_count(8)
    expect(page.locator("#find-form")).to_be_hidden()
