"""What evaluate says of pairs of pictures and of labels that the classifier does not know."""

from typing import TYPE_CHECKING, Any

from labelwise.cli.output import note, out, plain_table, print_json

if TYPE_CHECKING:
    from labelwise.classifier import Classifier
    from labelwise.data.dataset import Split
    from labelwise.evaluate.episodes import EpisodeResult
    from labelwise.evaluate.pairs import PairsResult
    from labelwise.evaluate.tested import Tested
    from labelwise.labels import Labels

MOST = 2_000  # images whose pairs are compared; where there are more, so many are drawn
QUERIES, MOST_WAYS = 15, 5


def pair_result(tested: "Tested") -> "PairsResult | None":
    """Return the figures of pairs where the model learnt a similarity, and there are pairs of both kinds."""
    from labelwise.evaluate.pairs import evaluate_pairs
    from labelwise.model import Compares
    from labelwise.tasks.verify import can_verify

    learnt = isinstance(tested.classifier.model, Compares)
    if not learnt or tested.multilabel or not can_verify(tested.split.targets):
        return None
    return evaluate_pairs(tested, most=MOST)


def plain_pairs(found: "PairsResult") -> dict[str, Any]:
    """Return figures of pairs as values that JSON can hold."""
    pairs = {
        by: {"eer": each.eer, "min_dcf": each.min_dcf, "auroc": each.auroc} for by, each in found.verification.items()
    }
    recall = {
        by: {"recall": each.recall, "precision_at_r": each.precision_at_r} for by, each in found.retrieval.items()
    }
    return {"images": found.images, "labels": found.labels, "verification": pairs, "retrieval": recall}


def print_pairs(found: "PairsResult") -> None:
    """Print the figures of pairs, a row for each score."""
    ks = next(iter(found.retrieval.values())).recall
    about = f"pairs of {found.images} pictures, by how alike they are; in %, but for minDCF"
    columns = [f">R@{k}" for k in ks]
    table = plain_table("score", ">EER", ">minDCF", ">AUROC", *columns, ">MAP@R", title=about)
    for by, pairs in found.verification.items():
        search = found.retrieval[by]
        shares = (pairs.auroc, *search.recall.values(), search.precision_at_r)
        table.add_row(by, f"{100 * pairs.eer:.1f}", f"{pairs.min_dcf:.3f}", *(f"{100 * share:.1f}" for share in shares))
    out().print()
    out().print(table)


def all_new(classifier: "Classifier", split: "Split", labels: "Labels") -> bool:
    """Return whether the classifier knows not one label of these pictures, each of which has one."""
    from labelwise.evaluate.pairs import used_labels

    used = [] if split.truths is not None else used_labels(split, labels)
    return bool(used) and not {*used} & {*classifier.labels.names, *classifier.model.spec.labels.names}


def tell_new_labels(tested: "Tested", about: dict[str, Any], json: bool) -> None:
    """Print how well pictures of labels that the classifier does not know are compared and learnt from a few."""
    from labelwise.evaluate.pairs import evaluate_pairs
    from labelwise.tasks.verify import can_verify

    note("The classifier knows none of these labels, so it is measured on how well it compares and learns them.")
    pairs = evaluate_pairs(tested, most=MOST) if can_verify(tested.split.targets) else None
    found = _episodes(tested)
    if json:
        few = [{"ways": e.settings.ways, "shots": e.settings.shots, "accuracy": _accuracies(e)} for e in found]
        print_json({**about, "pairs": plain_pairs(pairs) if pairs else None, "episodes": few})
        return
    if pairs:
        print_pairs(pairs)
    if not found:
        return
    table = plain_table("new labels from a few pictures", *(f">{rule}" for rule in found[0].accuracy))
    for each in found:
        words = f"{each.settings.ways} labels, {each.settings.shots} pictures of each"
        table.add_row(words, *(str(value) for value in each.accuracy.values()))
    out().print()
    out().print(table)


def _accuracies(found: "EpisodeResult") -> dict[str, Any]:
    return {rule: {"mean": each.mean, "error": each.error} for rule, each in found.accuracy.items()}


def _episodes(tested: "Tested") -> "list[EpisodeResult]":
    """Return episodes of one and of five shots, as far as there are enough pictures of enough labels."""
    import torch

    from labelwise.evaluate.episodes import EpisodeSettings, evaluate_many_episodes

    targets = tested.split.targets
    sizes = torch.bincount(targets[targets >= 0])
    settings = []
    for shots in (1, 5):
        ways = min(MOST_WAYS, int((sizes >= shots + QUERIES).sum()))
        settings += [EpisodeSettings(ways=ways, shots=shots, queries=QUERIES)] if ways >= 2 else []
    return evaluate_many_episodes(tested, settings) if settings else []
