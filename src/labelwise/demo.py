"""The tour: two methods on drawn birds, new species from pictures, from sentences, or without any label; questions; pictures."""

import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from labelwise.api import ask, classify, teach
from labelwise.classifier import Classifier
from labelwise.data import Dataset, Split, digits, finches
from labelwise.data.sets.finches import finches_unseen
from labelwise.demo_pictures import draw_answers, draw_finches, draw_reliability, draw_taught
from labelwise.evaluate.closed import ClosedResult, evaluate_closed
from labelwise.evaluate.outliers import evaluate_outliers
from labelwise.evaluate.tested import Tested
from labelwise.evaluate.zero_shot import evaluate_zero_shot
from labelwise.fitting.fit import fit
from labelwise.fitting.patches import find_patches
from labelwise.fitting.pretraining import write_encoder
from labelwise.methods import Clarel, Encoder, ImageMethod, Indicator, Softmax, ZeroLabel
from labelwise.ops.assignment import best_matching
from labelwise.report import ReportSettings, report
from labelwise.store import save
from labelwise.training.stages import Run

EXAMPLES = 5
HELD_OUT = "blushing tit"  # the species that is discovered later


@dataclass(frozen=True)
class Row:
    """One method's figures in the table."""

    name: str
    classifier: Classifier
    result: ClosedResult
    strange: float
    held_out: float
    seconds: float


def run(out: Path, epochs: int | None = None) -> None:
    """Train, compare, teach, ask and draw; everything is written below ``out``."""
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    console.rule("[bold]1. The data")
    whole = finches()
    name = HELD_OUT
    known, new = without(whole, name)
    console.print(
        f"{len(whole.labels)} species of drawn finches, {whole.shape[1]} x {whole.shape[2]} pixels. "
        f"The [bold]{name}[/] is kept back: no model sees it in training."
    )
    draw_finches(whole, out / "finches.png")
    console.rule("[bold]2. Training an ordinary classifier and an indicator network")
    methods: list[ImageMethod] = [Softmax(), Indicator()]
    rows = [_row(replace(m, epochs=epochs) if epochs else m, known, new) for m in methods]
    _print_table(console, rows)
    best = rows[-1].classifier
    console.rule(f"[bold]3. Teaching the {name} from {EXAMPLES} pictures, without training")
    taught = teach(best, name, examples=new["train"].images[:EXAMPLES])
    _print_taught(console, best, taught, whole, name)
    console.rule("[bold]4. Asking")
    _print_answers(console, taught, whole, name)
    save(taught, out / "finches.lw", overwrite=True)
    draw_answers(taught, whole, name, out / "why.png")
    draw_reliability([(row.name, row.classifier) for row in rows], known, out / "reliability.png")
    draw_taught(taught, new["test"].images[:16], name, out / "taught.png")
    _write_report(rows, known, out)
    console.rule("[bold]5. Species that no picture shows, from sentences alone")
    _describe_species(console, out, epochs)
    console.rule("[bold]6. Pictures and attributes of species, and not one label")
    _name_without_labels(console, whole, out)
    console.rule("[bold]Done")
    console.print(
        f"Pictures and the classifier are in [bold]{out}[/]: finches.png, why.png, reliability.png, taught.png; "
        "report.html is a page about both networks, to open in a browser."
    )
    console.print(f"Try: labelwise evaluate {out / 'finches.lw'} finches --unknown digits")


def _write_report(rows: list[Row], known: Dataset, out: Path) -> None:
    """Write a page about the last classifier, the others beside it."""
    *others, last = rows
    settings = ReportSettings(
        name=last.name,
        unknown=digits().split("test").images,
        compare={row.name: row.classifier for row in others},
        commands=(shlex.join(["labelwise", "demo", "--out", str(out)]),),
    )
    report(last.classifier, known, settings).write(out / "report.html")


def _describe_species(console: Console, out: Path, epochs: int | None) -> None:
    """Train on species with pictures, ask about species with sentences, and add one more by a sentence."""
    data = finches_unseen()
    method = Clarel(epochs=epochs or 40, encoder_epochs=epochs or 12)
    classifier = fit(data, method, Run(progress=True))
    found = evaluate_zero_shot(Tested.of(classifier, data.split("test"), data.labels))
    name = sorted(classifier.unseen)[0]
    texts = data.labels.texts[data.labels.index(name)] if data.labels.texts else ()
    console.print(f'{len(classifier.unseen)} species have no picture. The {name}: "{texts[0]}"')
    console.print(
        f"Their test pictures, among these species alone: {100 * found.zero_shot:.1f} % right (guessing: "
        f"{100 / found.unseen_labels:.1f} %). Among all {len(data.labels)}: {100 * found.unseen:.1f} % of theirs and "
        f"{100 * found.seen:.1f} % of the others; without holding back the others "
        f"{100 * found.unseen_without_gap:.1f} % and {100 * found.seen_without_gap:.1f} %."
    )
    taught = teach(classifier, "snowy finch", texts="a small white bird with a short beak")
    save(taught, out / "described.lw", overwrite=True)
    console.print(f'"snowy finch", added by one sentence: {len(taught.labels)} labels in {out / "described.lw"}.')


def _name_without_labels(console: Console, data: Dataset, out: Path) -> None:
    """Find an encoder without labels, group the pictures, name the groups by attributes, and say how far that goes."""
    started = time.perf_counter()
    file, settings = out / "patches.safetensors", Encoder(backbone="patches")
    write_encoder(file, find_patches(data.split("train").images), settings, {})
    method = ZeroLabel(encoder=replace(settings, weights=str(file), frozen=True))
    named = fit(data, method)
    seconds = time.perf_counter() - started
    test, k = data.split("test"), len(data.labels)
    said = named.scores(test.images).best
    pairs = torch.zeros(k, k).index_put_((said, test.targets), torch.ones(len(said)), accumulate=True)
    right, best = (float(pairs[range(k), order].sum() / len(said)) for order in (range(k), best_matching(pairs)))
    save(named, out / "named.lw", overwrite=True)
    console.print(
        f"{100 * right:.1f} % of test pictures are named right (guessing: {100 / k:.1f} %), in {seconds:.0f} s. With the best names "
        f"for the same groups it would be {100 * best:.1f} %."
    )
    console.print(
        "This is a start, not a classifier to rely on: most names are wrong, and another seed may do no better than guessing. "
        f"Put names right with: labelwise name {out / 'named.lw'} finches --answers 5",
        style="dim",
    )


def without(data: Dataset, name: str) -> tuple[Dataset, dict[str, Split]]:
    """Return the data without one label, and the images of that label by split."""
    place = data.labels.index(name)
    others = {k: s.select((s.targets != place).nonzero()[:, 0]) for k, s in data.splits.items()}
    apart = {k: s.select((s.targets == place).nonzero()[:, 0]) for k, s in data.splits.items()}
    return replace(data, splits=others), apart


def _row(method: ImageMethod, known: Dataset, new: dict[str, Split]) -> Row:
    classifier = fit(known, method, Run(progress=True))
    test = known.split("test")
    tested = Tested.of(classifier, test, known.labels)
    return Row(
        name=method.name,
        classifier=classifier,
        result=evaluate_closed(tested),
        strange=evaluate_outliers(tested.scores, classifier.scores(digits().split("test").images)).auroc,
        held_out=evaluate_outliers(tested.scores, classifier.scores(new["test"].images)).auroc,
        seconds=classifier.origin.summary["training"]["seconds"],
    )


def _print_table(console: Console, rows: list[Row]) -> None:
    from rich.table import Table

    table = Table("method", header_style="bold")
    for head in ("accuracy", "calibration error", "unknown: digits", "unknown: new species", "seconds"):
        table.add_column(head, justify="right")
    for row in rows:
        figures = (row.result.accuracy, row.result.ece, row.strange, row.held_out)
        table.add_row(row.name, *(f"{100 * figure:.1f} %" for figure in figures), f"{row.seconds:.0f}")
    console.print(table)
    console.print(
        "Measured on test images. The unknown columns are AUROC: 50 % is guessing, 100 % tells all apart.", style="dim"
    )


def _print_taught(console: Console, before: Classifier, after: Classifier, data: Dataset, name: str) -> None:
    test = data.split("test")
    new = test.targets == data.labels.index(name)
    scores = after.scores(test.images)
    old_scores = scores.of(before)
    truth = torch.tensor([after.labels.index(data.labels.names[t]) for t in test.targets.tolist()])
    hit = scores.best == truth
    old = (old_scores.best == truth)[~new].double().mean()
    change = float((scores.log_odds[:, :-1] - old_scores.log_odds).abs().max())
    console.print(
        f"{name}: {100 * hit[new].double().mean():.1f} % of its test pictures are now named right (before: none)."
    )
    console.print(f"The other species: {100 * old:.1f} % before, {100 * hit[~new].double().mean():.1f} % after.")
    console.print(f"Largest change of a score of another species: {change:.1e}.")


def _print_answers(console: Console, classifier: Classifier, data: Dataset, name: str) -> None:
    test = data.split("test")
    row = int((test.targets == data.labels.index(name)).nonzero()[0])
    image = test.images[row : row + 1]
    found = classify(classifier, image, top=3)[0]
    console.print(f"A test picture of the {name}. What is it? [bold]{found.label}[/] ({100 * found.probability:.0f} %)")
    for label in (name, next(x for x, _ in found.top if x != name)):
        answer = ask(classifier, image, label)[0]
        said = "[green]yes[/]" if answer.yes else "[red]no[/]"
        console.print(f"Is it the {label}? {said} ({100 * answer.probability:.1f} % yes)")
