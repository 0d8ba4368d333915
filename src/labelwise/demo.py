"""The tour: a folder of images as a person has it; then a trained network, new species from images, from sentences, or without any label."""

import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.text import Text

from labelwise.api import teach
from labelwise.core.classifier import Classifier
from labelwise.core.metrics import confusion_matrix
from labelwise.core.store import save
from labelwise.data import Dataset, Split, finches
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.zero_shot import evaluate_zero_shot
from labelwise.fitting.fit import fit
from labelwise.images.images import Array
from labelwise.images.overview import contact_sheet
from labelwise.images.sets.finches import finches_unseen
from labelwise.methods import Clarel, Encoder, Indicator, ZeroLabel
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.train.method import Run
from labelwise.train.networks.patches import find_patches
from labelwise.train.pretraining import write_encoder

EXAMPLES = 5
SPECIES, PHOTOS, SIDE = 8, 20, 192  # of the folder of images: its labels, images of each, and their side in pixels
HELD_OUT = "blushing tit"  # the species that is discovered later


def run(out: Path, epochs: int | None = None) -> None:
    """Train, compare, teach, ask and draw; everything is written below ``out``."""
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    whole, name = finches(), HELD_OUT
    console.rule("[bold]1. A folder of images, as you would do it with your own")
    _own_images(console, whole, name, out)
    console.rule("[bold]2. Training a network from scratch: all species")
    known, new = without(whole, name)
    console.print(
        f"{len(whole.labels)} species of drawn finches, 48 x 48 pixels. "
        f"The [bold]{name}[/] is kept back: no model sees it in training."
    )
    contact_sheet(whole, out / "finches.png", images=3)
    network = fit(known, replace(Indicator(), epochs=epochs) if epochs else Indicator(), Run(progress=True))
    console.rule(f"[bold]3. Teaching the {name} from {EXAMPLES} images, without training")
    taught = teach(network, name, examples=new["train"].images.select(range(EXAMPLES)))
    _print_taught(console, network, taught, whole, name)
    model, photo = out / "finches.lw", out / "inbox" / f"{name} 1.jpg"
    save(taught, model, overwrite=True)
    console.rule("[bold]4. Asking")
    _type(console, "ask", model, photo, name)
    _type(console, "explain", model, photo, name, "--out", out / "why.png")
    _type(console, "report", model, "finches", "--unknown", "digits", "--out", out / "report.html")
    console.rule("[bold]5. Species that no image shows, from sentences alone")
    _describe_species(console, out, epochs)
    console.rule("[bold]6. Images and attributes of species, and not one label")
    _name_without_labels(console, whole, out)
    console.rule("[bold]Done")
    console.print(
        f"Images and the classifier are in [bold]{out}[/]: finches.png and why.png; "
        "answers.html shows the first part's answers and report.html the network, to open in a browser."
    )
    console.print(f"Try: labelwise evaluate {shlex.quote(str(model))} finches --unknown digits")


def _own_images(console: Console, data: Dataset, name: str, out: Path) -> None:
    """Write some species as image files, and type the commands of the main job: fit, evaluate, classify, teach."""
    places = [out / place for place in ("photos", "inbox", name, "photos.lw", "more.lw")]
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
    photos, inbox, examples, model, more = places
    train, test = data.split("train"), data.split("test")
    for label in [name, *[other for other in data.labels.names if other != name][:SPECIES]]:
        target = data.labels.index(label)
        own, others = (split.images.values[split.targets == target] for split in (train, test))
        _write_images(own[:3] if label == name else own[:PHOTOS], examples if label == name else photos / label)
        _write_images(others[:2], inbox, f"{label} ")
    console.print(
        f"Drawn birds represent photos: {SPECIES} species with {PHOTOS} JPEG files each in [bold]{photos}[/], new ones in "
        f"[bold]{inbox}[/], and three of another species, the {name}."
    )
    _type(console, "fit", photos, "--out", model)
    _type(console, "evaluate", model, photos)
    _type(console, "classify", model, inbox, "--csv", out / "answers.csv", "--out", out / "answers.html")
    _type(console, "teach", model, name, examples, "--out", more)
    _type(console, "classify", more, *sorted(inbox.glob(f"{name}*")), "--top", "2")


def _write_images(images: Array, folder: Path, begin: str = "") -> None:
    """Write images ``[n, 3, h, w]`` as JPEG files of the size of a small photo."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images, 1):
        image = Image.fromarray(image.transpose(1, 2, 0)).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
        image.save(folder / f"{begin}{number}.jpg", quality=90)


def _type(console: Console, *words: str | Path) -> None:
    """Show a command and run it as a person would; one that fails ends the tour."""
    command = [str(word) for word in words]
    console.print(Text(f"\n$ {shlex.join(['labelwise', *command])}", "bold green"))
    sys.stdout.flush()
    code = subprocess.run([sys.executable, "-m", "labelwise", *command], check=False).returncode
    if code:
        raise SystemExit(code)


def _describe_species(console: Console, out: Path, epochs: int | None) -> None:
    """Train on species with images, ask about species with sentences, and add one more by a sentence."""
    data = finches_unseen()
    method = Clarel(epochs=epochs or 40, encoder_epochs=epochs or 12)
    classifier = fit(data, method, Run(progress=True))
    figures = evaluate_zero_shot(Evaluation.of(classifier, data.split("test"), data.labels))
    name = sorted(classifier.unseen)[0]
    texts = data.labels.texts[data.labels.index(name)] if data.labels.texts else ()
    console.print(f'{len(classifier.unseen)} species have no image. The {name}: "{texts[0]}"')
    console.print(
        f"Their test images, among these species alone: {100 * figures.zero_shot:.1f} % right (guessing: "
        f"{100 / figures.unseen_labels:.1f} %). Among all {len(data.labels)}: {100 * figures.unseen:.1f} % of theirs and "
        f"{100 * figures.seen:.1f} % of the others; without holding back the others "
        f"{100 * figures.unseen_without_gap:.1f} % and {100 * figures.seen_without_gap:.1f} %."
    )
    taught = teach(classifier, "snowy finch", texts="a small white bird with a short beak")
    save(taught, out / "described.lw", overwrite=True)
    console.print(f'"snowy finch", added by one sentence: {len(taught.labels)} labels in {out / "described.lw"}.')


def _name_without_labels(console: Console, data: Dataset, out: Path) -> None:
    """Find an encoder without labels, group the images, name the groups by attributes, and say how far that goes."""
    started = time.perf_counter()
    file, settings = out / "patches.safetensors", Encoder(backbone="patches")
    write_encoder(file, find_patches(torch.from_numpy(data.split("train").images.values)), settings, {})
    method = ZeroLabel(encoder=replace(settings, weights=str(file), frozen=True))
    named = fit(data, method)
    seconds = time.perf_counter() - started
    test, k = data.split("test"), len(data.labels)
    pairs = confusion_matrix(named.scores(test.images).best, test.targets, k)
    right, best = (float(pairs[range(k), order].sum() / len(test)) for order in (range(k), best_matching(pairs)))
    save(named, out / "named.lw", overwrite=True)
    console.print(
        f"{100 * right:.1f} % of test images are named right (guessing: {100 / k:.1f} %), in {seconds:.0f} s. With the best names "
        f"for the same groups it would be {100 * best:.1f} %."
    )
    console.print(
        "This is a start, not a classifier to rely on: most names are wrong, and another seed may do no better than guessing. "
        f"Put names right with: labelwise name {shlex.quote(str(out / 'named.lw'))} finches --ask 5",
        style="dim",
    )


def without(data: Dataset, name: str) -> tuple[Dataset, dict[str, Split]]:
    """Return the data without one label, and the images of that label by split."""
    position = data.labels.index(name)
    others = {k: s.select(s.targets != position) for k, s in data.splits.items()}
    apart = {k: s.select(s.targets == position) for k, s in data.splits.items()}
    return replace(data, splits=others), apart


def _print_taught(console: Console, before: Classifier, after: Classifier, data: Dataset, name: str) -> None:
    test = data.split("test")
    new = test.targets == data.labels.index(name)
    scores = after.scores(test.images)
    old_scores = scores.of(before)
    truth = np.array([after.labels.index(data.labels.names[t]) for t in test.targets.tolist()])
    hit, hit_before = scores.best == truth, old_scores.best == truth
    change = float(abs(scores.log_odds[:, :-1] - old_scores.log_odds).max())
    console.print(f"{name}: {100 * hit[new].mean():.1f} % of its test images are now named right (before: none).")
    console.print(
        f"The other species: {100 * hit_before[~new].mean():.1f} % before, {100 * hit[~new].mean():.1f} % after."
    )
    console.print(f"Largest change of a score of another species: {change:.1e}.")
