"""The verb that attacks a classifier: attack."""

from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from labelwise.cli.output import bar, note, out, percent, plain_table, print_json
from labelwise.cli.parts import SplitName, print_words, read_data
from labelwise.cli.picture_verbs import AsJson, Device, Model, open_model
from labelwise.cli.train_verbs import Data, Root, Splits
from labelwise.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from labelwise.classifier import Classifier
    from labelwise.evaluate.part import Part
    from labelwise.evaluate.robust import RobustResult, RobustSettings

SIDE = 192  # of each picture that is written, at least


def attack(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Data,
    epsilon: Annotated[str, typer.Option(help="How far a pixel may move, in [0, 1]: 8/255 or 0.03.")] = "8/255",
    images: Annotated[int, typer.Option(min=1, help="Attack at most this many pictures, drawn at random.")] = 200,
    split: SplitName = None,
    longer: Annotated[
        int | None, typer.Option(min=1, help="Also PGD of this many steps, such as 100.", show_default=False)
    ] = None,
    queries: Annotated[int, typer.Option(min=1, help="Of the attack that sees scores alone.")] = 1000,
    surrogate: Annotated[
        Path | None, typer.Option(help="Another classifier of the same labels, to transfer from.", show_default=False)
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="A folder for fooled pictures.", show_default=False)
    ] = None,
    pictures: Annotated[int, typer.Option(min=1, help="With --out, how many pictures to write.")] = 12,
    splits: Splits = None,
    root: Root = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn at random.")] = 0,
    json: AsJson = False,
    device: Device = "auto",
) -> None:
    """How little must a picture change for a wrong answer? Accuracy under attack, and whether the attack can be trusted.

    Each attack moves pixels by at most epsilon. The worst of them is the figure to quote, and only where all checks pass.
    """
    radius = parse_radius(epsilon)
    from labelwise.evaluate.part import choose_part
    from labelwise.evaluate.robust import RobustSettings, evaluate_robust
    from labelwise.evaluate.tested import Tested
    from labelwise.ops.square_attack import Square
    from labelwise.tasks.attack import GRADIENTS, scores_of

    classifier = open_model(model, device)
    scores_of(classifier)
    dataset = read_data(classifier.shape, data, root, splits)
    part = choose_part(classifier, dataset, split).draw(images, seed)
    settings = RobustSettings(
        epsilon=radius,
        attacks=(*GRADIENTS, Square(queries=queries)),
        longer=longer,
        surrogate=None if surrogate is None else open_model(surrogate, device),
        seed=seed,
    )
    result = evaluate_robust(Tested.of(classifier, part.split, part.labels), settings)
    written = [] if out_folder is None else _write(classifier, part, settings, (out_folder, pictures))
    if result.leaked:
        note(f"Warning: {percent(result.leaked)} of these images were used to train or calibrate this classifier.")
    if json:
        about = {"model": str(model), "data": data, "split": part.name, "measured": part.figures(), **asdict(result)}
        print_json(about | ({"pictures": written} if out_folder else {}))
        return
    print_words(part.words)
    _print(result, f"{data}, {part.name}: {result.images} pictures, epsilon {epsilon}")
    if out_folder is not None:
        out().print(Text(f"{out_folder}: {len(written)} pictures (clean, perturbed, difference)"))


def parse_radius(words: str) -> float:
    """Return the number that words such as 8/255 or 0.03 say."""
    from labelwise.tasks.attack import check_radius

    try:
        radius = float(Fraction(words.replace(" ", "")))
    except (ValueError, ZeroDivisionError):
        raise UsageError(f'epsilon is a number or a fraction, such as 8/255 or 0.03; given "{words}".') from None
    check_radius(radius)
    return radius


def _print(result: "RobustResult", title: str) -> None:
    table = plain_table("attack", "", ">accuracy", title=title)
    table.add_row("none", bar(result.clean), percent(result.clean))
    for name, share in result.attacks.items():
        table.add_row(name, bar(share), percent(share))
    worst = f"[bold]{percent(result.worst)}[/] ± {100 * result.error:.1f}"
    table.add_row("[bold]worst[/]", bar(result.worst), worst)
    out().print(table)
    out().print()
    checks = plain_table("check", "", "seen")
    for check in result.checks:
        said = Text("passed", style="green") if check.passed else Text("failed", style="bold red")
        checks.add_row(check.name, said, Text(check.words))
    out().print(checks)
    if result.warnings:
        out().print("[bold red]The gradients look masked: do not quote the worst figure as robustness.[/]")


def _write(
    classifier: "Classifier", part: "Part", settings: "RobustSettings", where: tuple[Path, int]
) -> list[dict[str, Any]]:
    """Write fooled pictures beside their clean ones and what was added, and return what each shows."""
    from PIL import Image

    from labelwise.evaluate.tested import align_targets
    from labelwise.tasks.attack import AttackSettings
    from labelwise.tasks.attack import attack as run

    folder, most = where
    targets = align_targets(classifier, part.split, part.labels)
    found = run(classifier, part.split.images, targets, AttackSettings(epsilon=settings.epsilon))
    folder.mkdir(parents=True, exist_ok=True)
    rows = (found.fooled & ~found.wrong).nonzero()[:most, 0].tolist()
    written = []
    for number, row in enumerate(rows):
        file = folder / f"{number:03d}.png"
        Image.fromarray(strip(found.clean[row], found.images[row], settings.epsilon)).save(file)
        label = part.labels.names[int(part.split.targets[row])]
        written.append({"file": str(file), "label": label, "answer": found.answers[row]})
    return written


def strip(clean: "Tensor", perturbed: "Tensor", epsilon: float) -> "NDArray[np.uint8]":
    """Return a picture ``[c, h, w]``, the perturbed one and their difference (grey is none) side by side, ``[H, W, 3]``."""
    import torch

    panels = torch.stack([clean, perturbed, (perturbed - clean) / (2 * epsilon) + 0.5]).cpu().clamp(0, 1)
    times = max(1, -(-SIDE // panels.shape[3]))
    panels = panels.expand(-1, 3, -1, -1).repeat_interleave(times, 2).repeat_interleave(times, 3)
    whole = panels.permute(2, 0, 3, 1).flatten(1, 2)
    made: NDArray[np.uint8] = (whole * 255).round().to(torch.uint8).numpy()
    return made
