"""Verify: do two pictures show the same label, be it known or not? A score of the pair, and a threshold fitted on held-out pairs."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier, Verifier
from labelwise.core.detection import det_curve, threshold_at
from labelwise.core.metrics import equal_error
from labelwise.core.model import LabelModel
from labelwise.core.pairs import draw_pairs
from labelwise.core.platt import fit_platt
from labelwise.core.scores import Scores
from labelwise.images.targets import several_true
from labelwise.support.errors import DataError, UsageError
from labelwise.tasks.similarity import By, all_alike, compared, row_alike

Rule = Literal["eer"] | float
PAIRS = 50_000  # of each kind that a rule is fitted on, at most
CHUNK = 4_096  # pairs scored at a time
TABLE = 4_096  # images up to which a table of all pairs is held


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What is said of a pair of pictures."""

    score: float  # larger is more alike
    same: bool  # whether the score reaches the threshold
    probability: float  # of "same", if as many pairs are the same as are different


def verify(first: Scores, second: Scores, *, by: By | None = None) -> list[Verification]:
    """Return for each pair whether both pictures show the same label, the order of the two being of no account.

    One picture is compared with each of several others. ``by`` is the score that the verifier was fitted for, or None.
    """
    rule = check_verifier(first.classifier, by)
    counts = [len(first), len(second)]
    if counts[0] != counts[1] and 1 not in counts:
        raise UsageError(f"Pairs need as many first pictures as second ones, or one of either; given {counts}.")
    one, other = (part.embeddings.expand(max(counts), -1) for part in (first, second))
    scores = pair_scores(first.classifier.model, one, other, rule.by).double().cpu()
    chances = (scores * rule.scale + rule.offset).sigmoid()
    return [
        Verification(score=score, same=score >= rule.threshold, probability=chance)
        for score, chance in zip(scores.tolist(), chances.tolist(), strict=True)
    ]


def check_verifier(classifier: Classifier, by: By | None) -> Verifier:
    """Return the classifier's verifier, or raise an error where there is none, or none for this score."""
    rule = classifier.verifier
    if rule is None:
        raise UsageError(
            "This classifier has no threshold for pairs of pictures yet. Fit one on held-out labelled pictures: "
            'fit_verification(classifier, data.split("val")) in Python, "labelwise calibrate" in the shell.'
        )
    if by not in (None, rule.by):
        raise UsageError(
            f'The threshold for pairs of pictures was fitted for the score "{rule.by}"; given by="{by}". '
            f'Fit another: fit_verification(classifier, data.split("val"), by="{by}").'
        )
    return rule


def fit_verifier(
    scores: Scores, targets: Tensor, rule: Rule = "eer", *, by: By = "similarity", seed: int = 0
) -> Classifier:
    """Return the classifier with a threshold for pairs of pictures, fitted on images that training never saw.

    Their labels ``[n]``, -1 where there is none, may be ones that the classifier does not know. The rule is ``eer``, where both
    kinds of error are equally frequent, or the share of different pairs to accept at most; ``by`` is the score, as in ``retrieve``.
    """
    if several_true(targets):
        raise DataError(
            "Several labels may be true of these images, so two of them are neither the same nor different."
        )
    classifier = scores.classifier
    same, different = scored_pairs(classifier.model, scores.embeddings, targets, by, (PAIRS, seed))
    verifier = verifier_of(same, different, rule, by)
    return replace(classifier, verifier=verifier, origin=classifier.origin.with_images(scores.images))


def verifier_of(same: Tensor, different: Tensor, rule: Rule, by: By) -> Verifier:
    """Return the threshold for pairs of pictures from the scores of pairs of one label ``[p]`` and of different labels ``[q]``."""
    curve = det_curve(same, different)
    eer, threshold = equal_error(curve)
    if rule != "eer":
        _check_share(rule, len(different))
        threshold = threshold_at(curve, rule)
    truth = torch.cat([torch.ones(len(same)), torch.zeros(len(different))]).bool()
    scale, offset = fit_platt(torch.cat([same, different])[:, None], truth[:, None])
    offset -= float(torch.tensor(len(same) / len(different)).log())  # as if both kinds were equally frequent
    return Verifier(by=by, threshold=threshold, rule=rule, eer=eer, scale=scale, offset=offset)


def can_verify(targets: Tensor) -> bool:
    """Return whether there is a pair of one label and a pair of different labels among targets ``[n]``."""
    counts = torch.bincount(targets[targets >= 0])
    return int((counts > 0).sum()) > 1 and int(counts.max()) > 1


def scored_pairs(
    model: LabelModel, embeddings: Tensor, targets: Tensor, by: By, draw: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Return the scores of pairs of one label ``[p]`` and of pairs of different labels ``[q]``, on the CPU.

    ``targets [n]`` are -1 where an image has no label; ``draw`` is how many pairs of each kind there may be, and the seed.
    """
    if not can_verify(targets):
        raise DataError(
            "Pairs need at least two images of one label and one image of another; "
            f"given {int((targets >= 0).sum())} labelled images of {len(set(targets.tolist()) - {-1})} labels."
        )
    same, different = map(torch.from_numpy, draw_pairs(targets.cpu(), *draw))
    embeddings, by = compared(model, embeddings, by)
    n, d = embeddings.shape
    if by != "cosine" and n <= TABLE and n * n <= d * (len(same) + len(different)):
        # A learned similarity of all pairs is quick, for each embedding passes its first layer once.
        with torch.no_grad():
            alike = all_alike(model, embeddings.float(), embeddings.float(), by)
        table = ((alike + alike.T) / 2).double().cpu()
        return table[*same.T], table[*different.T]
    one, other = (pair_scores(model, embeddings, embeddings, by, rows).double().cpu() for rows in (same, different))
    return one, other


def pair_scores(model: LabelModel, first: Tensor, second: Tensor, by: By, rows: Tensor | None = None) -> Tensor:
    """Return the score of each pair ``[p]``, the same for (a, b) as for (b, a): the mean where a similarity is not.

    ``rows [p, 2]`` says which rows of embeddings ``[n, d]`` and ``[m, d]`` make a pair; None pairs row i with row i.
    """
    if rows is None:
        rows = torch.arange(len(first))[:, None].expand(-1, 2)
    out = [first.new_empty(0, dtype=torch.float32)]
    with torch.no_grad():
        for part in torch.split(rows.to(first.device), CHUNK):
            a, b = first[part[:, 0]].float(), second[part[:, 1]].float()
            alike = row_alike(model, a, b, by)
            symmetric = by in ("cosine", "whitened")
            out.append(alike if symmetric else (alike + row_alike(model, b, a, by)) / 2)
    return torch.cat(out)


def _check_share(share: Rule, different: int) -> None:
    """Raise an error unless the share of different pairs to accept can be told from so many of them."""
    if isinstance(share, str) or not 0 < share < 1:
        raise UsageError(f'The rule is "eer" or a share of different pairs between 0 and 1; given {share}.')
    if share * different < 1:
        raise DataError(
            f"{different} pairs of different labels cannot tell a share of {share:g} false accepts; "
            f"that takes at least {1 / share:.0f}. Give more held-out images, or a larger share."
        )
