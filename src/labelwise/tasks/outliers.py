"""Outliers: which pictures are none of the labels?

Two signs count. A picture may get little confidence: no label's yes is probable. Or it may be unfamiliar: its code
points away from those of all training pictures, as with a drawing shown to a model of photographs, where confidence
says nothing. Each sign is measured in standard deviations of known pictures, and the stronger one is the score.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core import Classifier, OutlierRule
from labelwise.data.pictures import Pictures, as_batch

MEMORY = 5_000  # training codes kept
NEAREST = 3  # which of the nearest of them counts
Sign = Literal["both", "confidence", "familiarity"]


@dataclass(frozen=True)
class Outlier:
    """How little a picture fits: its outlier score, larger is stranger, and whether it is past the limit."""

    score: float
    flagged: bool


def outliers(classifier: Classifier, pictures: Pictures) -> list[Outlier]:
    """Return the outlier score of each picture."""
    images = as_batch(pictures, classifier.model.spec.shape)
    scores = outlier_scores(classifier, classifier.encode(images))
    flags = flag_outliers(classifier, scores)
    return [Outlier(score, flag) for score, flag in zip(scores.tolist(), flags.tolist(), strict=True)]


def outlier_scores(classifier: Classifier, codes: Tensor, sign: Sign = "both") -> Tensor:
    """Return outlier scores ``[n]`` of image codes ``[n, d]``, from both signs or from one of them alone."""
    signs = _signs(classifier, codes)
    rule = classifier.outlier or OutlierRule(centre=(0.0, 0.0), spread=(1.0, 1.0), limit=float("inf"))
    centre, spread = signs.new_tensor(rule.centre), signs.new_tensor(rule.spread)
    scaled = (signs - centre) / spread
    if sign == "both" and classifier.memory is not None:
        return scaled.amax(1)
    return scaled[:, 1 if sign == "familiarity" else 0]


def flag_outliers(classifier: Classifier, scores: Tensor) -> Tensor:
    """Return ``[n]`` whether each outlier score is past the classifier's limit."""
    return scores > (float("inf") if classifier.outlier is None else classifier.outlier.limit)


def fit_outlier_rule(classifier: Classifier, codes: Tensor, keep: float) -> OutlierRule:
    """Return the rule under which the share ``keep`` of these held-out known images counts as known.

    Args:
        classifier: already calibrated, so that its confidence means something.
        codes: image codes of held-out images of known labels ``[n, d]``.
        keep: the share to keep.
    """
    signs = _signs(classifier, codes)
    centre, spread = signs.mean(0).tolist(), signs.std(0, correction=0).clamp_min(1e-6).tolist()
    rule = OutlierRule(centre=(centre[0], centre[1]), spread=(spread[0], spread[1]), limit=0.0)
    scores = outlier_scores(replace(classifier, outlier=rule), codes)
    return replace(rule, limit=float(torch.quantile(scores, keep)))


def remember(classifier: Classifier, images: Tensor) -> Classifier:
    """Return the classifier with the codes of these images added to its memory of familiar ones.

    Args:
        classifier: any classifier.
        images: images ``[n, ...]``, or what ``model.prepare`` made of them.
    """
    if len(images) > MEMORY:
        rows = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:MEMORY]
        images = images[rows.to(images.device)]
    codes = normalize(classifier.encode(images).float(), dim=1)
    known = [] if classifier.memory is None else [classifier.memory]
    return replace(classifier, memory=torch.cat([*known, codes]))


def _signs(classifier: Classifier, codes: Tensor) -> Tensor:
    """Return lack of confidence, as log odds, and unfamiliarity, as the model tells it or a cosine distance: ``[n, 2]``."""
    confidence = classifier.confidence(classifier.scores_of_codes(codes))
    doubt = -torch.logit(confidence, eps=1e-12)
    told = classifier.model.unfamiliarity(codes, classifier.codes)
    if told is not None:
        return torch.stack([doubt, told.double()], 1)
    if classifier.memory is None:
        return torch.stack([doubt, torch.zeros_like(doubt)], 1)
    parts = [
        (part @ classifier.memory.T).topk(min(NEAREST, len(classifier.memory))).values[:, -1]
        for part in torch.split(normalize(codes.float(), dim=1), 1024)
    ]
    near = torch.cat(parts) if parts else codes.new_zeros(0)
    return torch.stack([doubt, 1 - near.double()], 1)
