"""Figures of each label: recall and precision with their intervals, average precision, and what it is mistaken for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from labelwise.core.metrics import f1_scores, wilson
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.multilabel import MultilabelResult
from labelwise.evaluation.operating import Operating


@dataclass(frozen=True, kw_only=True)
class LabelFigures:
    """Figures of one label."""

    label: str
    images: int  # test images of it
    recall: float | None  # the share of its images with this answer; None without images
    precision: float | None  # the share of these answers that is right; None without any
    recall_interval: tuple[float, float]  # 95 %, Wilson
    precision_interval: tuple[float, float]
    mistaken: tuple[str, int] | None = None  # the wrong answer that its images get most often, and how often
    average_precision: float | None = None  # the mean precision over its images, ranked by their probability
    f1: float | None = None  # where several labels may be true

    @classmethod
    def of(cls, label: str, images: int, answers: int, hits: int, **more: Any) -> Self:
        """Return recall and precision with their intervals, from how many images have the label, get it, and both."""
        recall, precision = (hits / count if count else None for count in (images, answers))
        return cls(
            label=label,
            images=images,
            recall=recall,
            precision=precision,
            recall_interval=wilson(recall or 0.0, images),
            precision_interval=wilson(precision or 0.0, answers),
            **more,
        )


def label_figures(
    evaluation: Evaluation,
    several: MultilabelResult | None,
    confusion: NDArray[np.int64] | None,
    operating: Sequence[Operating],
) -> tuple[LabelFigures, ...]:
    """Return the figures of each label, from the record where several labels may be true, else from the confusion ``[k, k]``."""
    if confusion is not None:
        ranked = {one.label: one.average_precision for one in operating}
        return _exclusive_figures(evaluation.classifier.labels.names, confusion, ranked)
    assert several is not None
    scores, truths = evaluation.asked()
    yes = scores.agreed
    f1 = f1_scores(yes, truths)[1].tolist()
    return tuple(
        LabelFigures.of(
            name, images, answers, hits, average_precision=several.average_precision[name], f1=f1[i] if images else None
        )
        for i, (name, images, answers, hits) in enumerate(
            zip(
                scores.classifier.labels.names,
                truths.sum(0).tolist(),
                yes.sum(0).tolist(),
                (yes & truths).sum(0).tolist(),
                strict=True,
            )
        )
    )


def _exclusive_figures(
    names: tuple[str, ...], counts: NDArray[np.int64], ranked: Mapping[str, float]
) -> tuple[LabelFigures, ...]:
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    images, answers, hits = counts.sum(1).tolist(), counts.sum(0).tolist(), counts.diagonal().tolist()
    others, often = wrong.argmax(1).tolist(), wrong.max(1).tolist()
    return tuple(
        LabelFigures.of(
            name,
            images[i],
            answers[i],
            hits[i],
            mistaken=(names[others[i]], often[i]) if often[i] else None,
            average_precision=ranked.get(name),
        )
        for i, name in enumerate(names)
    )
