"""What evaluate measures beside the usual figures, where it applies: labels without images, ordered and new ones, pairs."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelwise.cli.output import percent, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from labelwise.evaluate.episodes import EpisodeResult
    from labelwise.evaluate.pairs import PairsResult
    from labelwise.evaluate.tested import Tested

MOST = 2_000  # images whose pairs are compared; where there are more, so many are drawn
QUERIES, MOST_WAYS = 15, 5


@dataclass(frozen=True, eq=False)
class Figures:
    """Figures under a key of the JSON document, and the lines that say them to people."""

    key: str
    values: Any
    lines: "tuple[RenderableType, ...]"


def zero_shot(tested: "Tested", curve: Path | None) -> Figures | None:
    """Return the figures of labels without training images, None where there are none; the curve is drawn if asked for.

    Args:
        tested: test images.
        curve: where to draw the curve; then it is an error if the protocol does not apply.
    """
    from labelwise.evaluate.zero_shot import draw_curve, evaluate_zero_shot

    used = {tested.labels.names[i] for i in tested.split.present}
    unseen = tested.classifier.unseen
    if tested.multilabel or (curve is None and not (used & unseen and used - unseen)):
        return None
    result = evaluate_zero_shot(tested)
    if curve is not None:
        curve.parent.mkdir(parents=True, exist_ok=True)
        draw_curve(result).savefig(curve, dpi=120)
    about = f"zero-shot: {result.seen_labels} seen and {result.unseen_labels} unseen labels"
    table = plain_table("accuracy, averaged over labels", ">unseen (u)", ">seen (s)", ">harmonic (H)", title=about)
    table.add_row("unseen labels alone", percent(result.zero_shot), "", "")
    for words, end in ((f"all labels, gap {result.gap:.3f}", ""), ("all labels, without a gap", "_without_gap")):
        table.add_row(words, *(percent(getattr(result, each + end)) for each in ("unseen", "seen", "harmonic")))
    values = {key: value for key, value in vars(result).items() if key != "curve"}
    return Figures("zero_shot", values, ("", table, f"area under the curve of s over u: {result.area:.3f}"))


def ordinal(tested: "Tested") -> Figures | None:
    """Return the figures of ordered labels, or None where they do not apply."""
    from labelwise.evaluate.ordinal import evaluate_ordinal, find_order

    several = tested.multilabel or tested.classifier.calibration.multilabel
    if several or find_order(tested.classifier, tested.labels) is None:
        return None
    result = evaluate_ordinal(tested)
    about = f"ordered labels: {result.levels[0]} to {result.levels[-1]}"
    table = plain_table("what is said", ">accuracy", ">levels off", ">kappa (quadratic)", ">within one", title=about)
    for words, one in (("the most probable level", result.best), ("the median of probabilities", result.median)):
        kappa = "" if one.kappa is None else f"{one.kappa:.3f}"
        table.add_row(words, percent(one.accuracy), f"{one.mean_absolute_error:.3f}", kappa, percent(one.within_one))
    lines: list[RenderableType] = ["", table]
    if result.spearman is not None:
        lines.append(f"rank correlation (Spearman) of the expected rank: {result.spearman:.3f}")
    covered = f"intervals that should hold {percent(result.coverage)} hold {percent(result.covered)}"
    return Figures("ordinal", asdict(result), (*lines, f"{covered}, with {result.width:.1f} levels each"))


def learnt_pairs(tested: "Tested") -> Figures | None:
    """Return the figures of pairs where the model learnt a similarity; None where it did not, or pairs are of one kind."""
    from labelwise.model import Compares

    learnt = isinstance(tested.classifier.model, Compares) and not tested.multilabel
    return pairs(tested) if learnt else None


def pairs(tested: "Tested") -> Figures | None:
    """Return how well pairs of one label are told from others, by each score; None where pairs are of one kind."""
    from labelwise.evaluate.pairs import evaluate_pairs
    from labelwise.tasks.verify import can_verify

    if not can_verify(tested.split.targets):
        return None
    result = evaluate_pairs(tested, most=MOST)
    about = f"pairs of {result.images} pictures, by how alike they are; in %, but for minDCF"
    columns = [f">R@{k}" for k in next(iter(result.retrieval.values())).recall]
    table = plain_table("score", ">EER", ">minDCF", ">AUROC", *columns, ">MAP@R", title=about)
    for by, told in result.verification.items():
        search = result.retrieval[by]
        shares = (told.auroc, *search.recall.values(), search.precision_at_r)
        table.add_row(by, f"{100 * told.eer:.1f}", f"{told.min_dcf:.3f}", *(f"{100 * share:.1f}" for share in shares))
    return Figures("pairs", _pair_values(result), ("", table))


def _pair_values(result: "PairsResult") -> dict[str, Any]:
    """Return figures of pairs as values that JSON can hold."""
    told = {
        by: {key: getattr(one, key) for key in ("eer", "min_dcf", "auroc")} for by, one in result.verification.items()
    }
    found = {
        by: {key: getattr(one, key) for key in ("recall", "precision_at_r")} for by, one in result.retrieval.items()
    }
    return {"images": result.images, "labels": result.labels, "verification": told, "retrieval": found}


def episodes(tested: "Tested") -> Figures:
    """Return how well new labels are learnt from one and from five pictures, as far as there are enough of enough labels."""
    results = _episodes(tested)
    values = [
        {
            "ways": one.settings.ways,
            "shots": one.settings.shots,
            "accuracy": {rule: {"mean": each.mean, "error": each.error} for rule, each in one.accuracy.items()},
        }
        for one in results
    ]
    if not results:
        return Figures("episodes", values, ())
    table = plain_table("new labels from a few pictures", *(f">{rule}" for rule in results[0].accuracy))
    for one in results:
        words = f"{one.settings.ways} labels, {one.settings.shots} pictures of each"
        table.add_row(words, *(str(value) for value in one.accuracy.values()))
    return Figures("episodes", values, ("", table))


def _episodes(tested: "Tested") -> "list[EpisodeResult]":
    import torch

    from labelwise.evaluate.episodes import EpisodeSettings, evaluate_many_episodes

    targets = tested.split.targets
    sizes = torch.bincount(targets[targets >= 0])
    settings = []
    for shots in (1, 5):
        ways = min(MOST_WAYS, int((sizes >= shots + QUERIES).sum()))
        settings += [EpisodeSettings(ways=ways, shots=shots, queries=QUERIES)] if ways >= 2 else []
    return evaluate_many_episodes(tested, settings) if settings else []
