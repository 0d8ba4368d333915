"""Make the screenshots of the documentation from the page, the labelling page and the report that this code shows.

    python tools/pictures.py [--folder demo/pictures] [--out docs/pictures] [--check FOLDER]

It fits a classifier to drawn finches, uses the images of ``tools/page.py``, starts the service on 127.0.0.1 and drives headless Chromium (``LABELWISE_CHROMIUM``
names another one). ``--check`` writes each view to FOLDER as PNG, 1280 and 390 pixels wide, to look at; the documentation does not change.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from page import draw_pictures, small_model
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from labelwise.api import teach as teach_label
from labelwise.core.load import load
from labelwise.core.store import save as save_model
from labelwise.data import finches
from labelwise.demo import EXAMPLES, HELD_OUT, without
from labelwise.fitting.fit import fit
from labelwise.methods import Indicator
from labelwise.train.method import Run

LARGEST = 150_000  # bytes of a screenshot in the documentation
WIDTHS = (1280, 390)
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--use-fake-device-for-media-stream")
EXAMPLE = "chapel tit 1.png"  # resembles the species that is taught
LABELWISE = (sys.executable, "-m", "labelwise")
SCROLLS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@contextmanager
def running(*words: str | Path) -> Iterator[str]:
    """Run a verb that serves a page, and yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    service = subprocess.Popen([*LABELWISE, *map(str, words), "--port", str(port)], stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        while service.poll() is None:
            try:
                urllib.request.urlopen(url, timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        yield url
    finally:
        service.terminate()
        service.wait()


def save(page: Page, file: Path, *, height: int = 0) -> None:
    """Write the whole page, or the top of it, and complain of a page that scrolls sideways."""
    if page.evaluate(SCROLLS):
        print(f"{file.name}: the page scrolls sideways")
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)  # the end of transitions
    shot = file.with_name("screenshot.png")
    page.screenshot(path=shot, full_page=True)
    with Image.open(shot) as whole:
        image = whole.convert("RGB").crop((0, 0, whole.width, min(whole.height, height or whole.height)))
    shot.unlink()
    for quality in range(90, 40, -10):
        image.save(file, quality=quality, method=6)
        if file.suffix == ".png" or file.stat().st_size <= LARGEST:
            break


def ask(page: Page, url: str, example: str, questions: tuple[str, ...] = (), *, heat: bool = False) -> None:
    """Ask about one of the example images, with or without a heat map, then about labels."""
    page.goto(url)
    page.set_input_files("#choose", example)
    for awaited in ("#bars button.row", "#near img", "#examples img", "#heat-note strong"):
        page.wait_for_selector(awaited)
    page.set_checked("#heat-on", heat)
    for name in questions:
        page.fill("#ask-name", name)
        with page.expect_response("**/ask*"):
            page.press("#ask-name", "Enter")
    if heat:
        page.locator("#bars button.row").first.click()
    page.wait_for_load_state("networkidle")


def teach(page: Page, url: str, name: str, examples: list[Path]) -> None:
    """Teach a label from five images."""
    page.goto(f"{url}/#teach")
    page.fill("#teach-name", name)
    page.set_input_files("#choose-teach", examples)
    page.wait_for_selector(f"#teach-images li:nth-child({len(examples)}) img")
    page.click("#teach-go")
    page.wait_for_selector("#labels .tag")
    page.wait_for_load_state("networkidle")


def open_page(page: Page, url: str) -> None:
    """Open an address, and wait until it is still."""
    page.goto(url)
    page.wait_for_load_state("networkidle")


def label(page: Page, url: str, view: str) -> None:
    """Open a view of the labelling page: the first question, one that asks yes or no, the labels, or the export."""
    page.goto(f"{url}/#{view}")
    page.wait_for_selector("body.ready")
    page.wait_for_load_state("networkidle")


def answer_sheets(page: Page, url: str, most: int = 60) -> None:
    """Answer sheets with the name that most of their files carry, until a question is about one image."""
    label(page, url, "ask")
    for _ in range(most):
        files = page.locator("#sheet .tile img").evaluate_all("(all) => all.map((one) => one.alt).filter(Boolean)")
        names = [Path(file).stem.rsplit(" ", 1)[0] for file in files]
        if len(files) <= 1:
            return
        page.fill("#name", max(names, key=names.count))
        with page.expect_response("**/actions"):
            page.press("#name", "Enter")
        page.wait_for_timeout(100)


def make_files(folder: Path) -> dict[str, Path]:
    """Train two classifiers without the species that is taught, unless they are there, and write the reports."""
    folder.mkdir(parents=True, exist_ok=True)
    gallery, examples = draw_pictures(folder / "page")
    known, new = without(finches(), HELD_OUT)
    model, small = folder / "finches.lw", folder / "small.lw"
    if not model.exists():
        save_model(fit(known, Indicator(), Run(progress=True)), model)
    if not small.exists():
        small_model(small)
    for source, name in ((model, "birds.lw"), (small, "fewer-epochs.lw")):  # the reports ask about all species
        taught = teach_label(load(source), HELD_OUT, examples=new["train"].images.select(range(EXAMPLES)))
        save_model(taught, folder / name, overwrite=True)
    commands = {
        "report": ("report", "birds.lw", "finches", "--unknown", "digits"),
        "report_compare": ("report", "birds.lw", "finches", "--compare", "fewer-epochs.lw"),
        "first-sheet": ("classify", "birds.lw", "page/gallery"),
    }
    for name, words in commands.items():
        subprocess.run([*LABELWISE, *words, "--out", f"{name}.html"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    pages = {name: folder / f"{name}.html" for name in commands}
    return {"model": model, "gallery": gallery, "examples": examples, **pages}


def document(browser: Browser, files: dict[str, Path], urls: tuple[str, str], out: Path) -> None:
    """Write the screenshots of the documentation."""
    out.mkdir(parents=True, exist_ok=True)
    url, labelling = urls
    page = browser.new_page(viewport={"width": 1120, "height": 800})
    label(page, labelling, "ask")
    save(page, out / "page-label.webp", height=960)
    example = str(files["examples"] / EXAMPLE)
    ask(page, url, example, ("plumed tit",), heat=True)
    save(page, out / "page-heat.webp", height=960)
    teach(page, url, HELD_OUT, sorted(files["gallery"].glob(f"{HELD_OUT}*"))[:5])
    save(page, out / "page-teach.webp", height=820)
    ask(page, url, example)
    save(page, out / "page-ask.webp")
    for name, scheme in (("report", "light"), ("report_compare", "dark"), ("first-sheet", "light")):
        page.set_viewport_size({"width": 1080, "height": 800})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        open_page(page, files[name].absolute().as_uri())
        save(page, out / f"{name}.webp", height=1000)
    page.close()


def check(browser: Browser, files: dict[str, Path], urls: tuple[str, str], out: Path) -> None:
    """Write every view in both widths as PNG."""
    out.mkdir(parents=True, exist_ok=True)
    url, labelling = urls
    example = str(files["examples"] / EXAMPLE)
    for width in WIDTHS:
        page = browser.new_page(viewport={"width": width, "height": 800})
        for heat in (False, True):
            ask(page, url, example, heat=heat)
            save(page, out / f"{'heat' if heat else 'ask'}-{width}.png")
        for view in ("compare", "model"):
            open_page(page, f"{url}/#{view}")
            save(page, out / f"{view}-{width}.png")
        teach(page, url, HELD_OUT, sorted(files["gallery"].glob(f"{HELD_OUT}*"))[:5])
        save(page, out / f"teach-{width}.png")
        label(page, labelling, "ask")
        save(page, out / f"label-{width}.png")
        answer_sheets(page, labelling)
        save(page, out / f"label-one-{width}.png")
        for view in ("labels", "export"):
            page.goto("about:blank")
            label(page, labelling, view)
            save(page, out / f"label-{view}-{width}.png")
        for name in ("report", "report_compare", "first-sheet"):
            open_page(page, files[name].absolute().as_uri())
            save(page, out / f"{name}-{width}.png")
        page.close()


def main() -> None:
    """Prepare, serve, and take the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("demo/pictures"), help="where the classifiers and reports go"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs/pictures")
    parser.add_argument("--check", type=Path, help="write every view here instead")
    given = parser.parse_args()
    files = make_files(given.folder)
    chromium = os.environ.get("LABELWISE_CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as empty, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        shown = ("--gallery", files["gallery"], "--examples", files["examples"])
        with (
            running("serve", files["model"], *shown, "--state", Path(empty, "state")) as url,
            running("label", files["gallery"], "--out", Path(empty, "project")) as labelling,
        ):
            if given.check is None:
                document(browser, files, (url, labelling), given.out)
            else:
                check(browser, files, (url, labelling), given.check)
        browser.close()


if __name__ == "__main__":
    main()
