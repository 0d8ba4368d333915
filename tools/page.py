"""Open the page on the demo's classifier, with a gallery and pictures to try: ``make page``.

Where ``make demo`` has not been run, a smaller classifier is trained first. All pictures are drawn anew, so none of them was
seen in training or evaluation.
"""

import argparse
import random
import threading
import time
import urllib.request
import webbrowser
from pathlib import Path

from PIL import Image, ImageDraw

from labelwise.core.store import save
from labelwise.demo import HELD_OUT, without
from labelwise.fitting.fit import fit
from labelwise.images.images import read_all
from labelwise.images.sets.finches import finches
from labelwise.methods import Indicator
from labelwise.server.running import serve
from labelwise.server.settings import Service
from labelwise.train.method import Run

FRESH = 1_000  # a seed that no split of the demo is drawn with
PER_SPECIES, SHOWN = 12, 8
IMAGE = (3, 48, 48)
EPOCHS = 6


def draw_pictures(folder: Path) -> tuple[Path, Path]:
    """Return a gallery of drawn birds and a folder of examples, written unless they are there."""
    gallery, examples = folder / "gallery", folder / "examples"
    if examples.exists():
        return gallery, examples
    for place in (gallery, examples):
        place.mkdir(parents=True)
    data = finches(seed=FRESH, per_species=PER_SPECIES)
    counts = dict.fromkeys(data.labels.names, 0)
    for split in data.splits.values():
        for image, target in zip(read_all(split.images, IMAGE), split.targets.tolist(), strict=True):
            name = data.labels.names[target]
            counts[name] += 1
            chosen = counts[name] == 1 and target % (len(data.labels) // SHOWN) == 0
            place = examples if chosen else gallery
            Image.fromarray(image.transpose(1, 2, 0)).save(place / f"{name} {counts[name]}.png")
    scribble().save(examples / "scribble.png")
    return gallery, examples


def scribble() -> Image.Image:
    """Return a picture that is no bird."""
    drawn, pen = Image.new("RGB", (96, 96), (240, 240, 235)), random.Random(1)
    for _ in range(30):
        ImageDraw.Draw(drawn).line([pen.randrange(96) for _ in range(4)], fill=(20, 20, 20), width=2)
    return drawn


def small_model(path: Path) -> None:
    """Train for a moment on all species but one, which can then be taught."""
    print(
        f"No {path.parent / 'finches.lw'} (make demo writes one): training a smaller classifier. The {HELD_OUT} is kept back."
    )
    known, _ = without(finches(), HELD_OUT)
    save(fit(known, Indicator(epochs=EPOCHS), Run(progress=True)), path)


def open_page(url: str) -> None:
    """Open the browser once the service answers."""
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=2).close()
            break
        except OSError:
            time.sleep(0.2)
    print(f"The page: {url}   (Ctrl-C stops the service)")
    webbrowser.open(url)


def main() -> None:
    """Prepare, serve and open."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="where make demo writes")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    model = given.folder / "finches.lw"
    if not model.exists():
        model = given.folder / "small.lw"
        if not model.exists():
            small_model(model)
    gallery, examples = draw_pictures(given.folder / "page")
    threading.Thread(target=open_page, args=(f"http://127.0.0.1:{given.port}",), daemon=True).start()
    serve(Service(model=model, port=given.port, gallery=gallery, examples=examples))


if __name__ == "__main__":
    main()
