"""The verb attack: how little must an image change for a wrong answer?"""

from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import RenderableType
from typer import Option

from labelwise.cli.inputs import open_model, open_part
from labelwise.cli.options import Data, Model, SplitName, shared_options
from labelwise.cli.output import Bar, one_line, percent, plain_table, show, styled, warn_leaked
from labelwise.support.errors import UsageError

if TYPE_CHECKING:
    from labelwise_papers.attacks.robust import RobustResult

WRITTEN = 12  # fooled images at most


def attack(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Data,
    epsilon: Annotated[str, Option(help="How far a pixel may move, in [0, 1]: 8/255 or 0.03.")] = "8/255",
    images: Annotated[int, Option(min=1, help="Attack at most this many images, drawn at random.")] = 200,
    split: SplitName = None,
    longer: Annotated[int | None, Option(min=1, help="Also PGD of this many steps, such as 100.")] = None,
    queries: Annotated[int, Option(min=1, help="Queries of the attack that sees only scores.")] = 1000,
    surrogate: Annotated[Path | None, Option(help="Another classifier of the same labels, to transfer from.")] = None,
    out_folder: Annotated[Path | None, Option("--out", help="A folder for fooled images.")] = None,
) -> None:
    """Measure accuracy under attack, and whether to trust it.

    Each attack moves pixels by at most epsilon. Quote the worst figure, and only if all checks pass.
    """
    radius = parse_radius(epsilon)
    from labelwise_papers.attacks.attack import GRADIENTS, scores_of
    from labelwise_papers.attacks.fooled import write_fooled
    from labelwise_papers.attacks.robust import RobustSettings, evaluate_robust
    from labelwise_papers.attacks.square import Square

    classifier = open_model(model)
    scores_of(classifier)
    part = open_part(classifier, data, split).draw(images, shared_options().seed)
    settings = RobustSettings(
        epsilon=radius,
        attacks=(*GRADIENTS, Square(queries=queries)),
        longer=longer,
        surrogate=None if surrogate is None else open_model(surrogate),
        seed=shared_options().seed,
    )
    evaluation = part.evaluate(classifier)
    result = evaluate_robust(evaluation, settings)
    warn_leaked(result.leaked)
    about = {"model": str(model), "data": data, "split": part.name, "measured": part.figures(), **asdict(result)}
    title = f"{data}, {part.name}: {result.images} images, each pixel moved by at most {epsilon} (epsilon)"
    lines = [one_line(part.words), *_lines(result, title)]
    if out_folder is not None:
        about["pictures"] = write_fooled(out_folder, evaluation, radius, WRITTEN)
        lines.append(styled(f"{out_folder}: {len(about['pictures'])} images (clean, perturbed, difference)"))
    show(about, *lines)


def parse_radius(words: str) -> float:
    """Return the number that words such as 8/255 or 0.03 say."""
    from labelwise_papers.attacks.attack import check_radius

    try:
        radius = float(Fraction(words.replace(" ", "")))
    except (ValueError, ZeroDivisionError):
        raise UsageError(f'epsilon is a number or a fraction, such as 8/255 or 0.03; given "{words}".') from None
    check_radius(radius)
    return radius


def _lines(result: "RobustResult", title: str) -> list[RenderableType]:
    rows: list[tuple[RenderableType, ...]] = [
        (name, Bar(share), percent(share))
        for name, share in {"none: as they are": result.clean, **result.attacks}.items()
    ]
    worst = styled((percent(result.worst), "bold"), f" ± {100 * result.error:.1f}")
    rows.append((styled(("all of them (robust accuracy)", "bold")), Bar(result.worst), worst))
    table = plain_table("attack", "", ">accuracy", title=title, rows=rows)
    answers = {True: styled(("passed", "green")), False: styled(("failed", "bold red"))}
    checks = ((check.name, answers[check.passed], check.words) for check in result.checks)
    masked = styled(("The attacks may be too weak here (masked gradients): do not quote robust accuracy.", "bold red"))
    return [
        table,
        "",
        plain_table("can the attacks be trusted?", "", "seen", rows=checks),
        *([masked] if result.warnings else []),
    ]
