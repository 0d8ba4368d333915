"""The result of ``evaluate``: every figure of a classifier on a test set, as attributes, JSON and tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from labelwise.core.metrics import balanced_interval, confusion_matrix, f1_scores, wilson
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.multilabel import MultilabelResult
from labelwise.evaluation.operating import Operating
from labelwise.evaluation.tables import as_text, tables
from labelwise.evaluation.test_set import TestSet


@dataclass(frozen=True, kw_only=True)
class LabelFigures:
    """The figures of one label."""

    label: str
    images: int  # test images with this label
    recall: float | None  # share of its images with this answer; None without images
    precision: float | None  # share of these answers that are right; None without answers
    recall_interval: tuple[float, float]  # 95 % (Wilson)
    precision_interval: tuple[float, float]
    mistaken: tuple[str, int] | None = None  # the most frequent wrong answer for its images, and its rate
    average_precision: float | None = None  # average precision
    f1: float | None = None  # if several labels may be true

    @classmethod
    def of(cls, label: str, images: int, answers: int, hits: int, **more: Any) -> Self:
        """Return recall and precision with intervals, from the counts of images, answers and hits."""
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
    """Return the figures of each label, from the record if several labels may be true, else from the confusion ``[k, k]``."""
    if confusion is not None:
        precisions = {entry.label: entry.average_precision for entry in operating}
        return _exclusive_figures(evaluation.classifier.labels.names, confusion, precisions)
    assert several is not None
    scores, truths = evaluation.asked_labels()
    accepted = scores.agreed
    f1 = f1_scores(accepted, truths)[1].tolist()
    return tuple(
        LabelFigures.of(
            name, images, answers, hits, average_precision=several.average_precision[name], f1=f1[i] if images else None
        )
        for i, (name, images, answers, hits) in enumerate(
            zip(
                scores.classifier.labels.names,
                truths.sum(0).tolist(),
                accepted.sum(0).tolist(),
                (accepted & truths).sum(0).tolist(),
                strict=True,
            )
        )
    )


def _exclusive_figures(
    names: tuple[str, ...], counts: NDArray[np.int64], precisions: Mapping[str, float]
) -> tuple[LabelFigures, ...]:
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    images, answers, hits = counts.sum(1).tolist(), counts.sum(0).tolist(), counts.diagonal().tolist()
    most_confused, confusion_rates = wrong.argmax(1).tolist(), wrong.max(1).tolist()
    return tuple(
        LabelFigures.of(
            name,
            images[i],
            answers[i],
            hits[i],
            mistaken=(names[most_confused[i]], confusion_rates[i]) if confusion_rates[i] else None,
            average_precision=precisions.get(name),
        )
        for i, name in enumerate(names)
    )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Figures:
    """The figures of a classifier on a test set.

    >>> figures = lw.evaluate(classifier, data)
    >>> 0 <= figures.accuracy <= 1
    True
    >>> figures.confusion.shape == (len(figures.label_names), len(figures.label_names))
    True
    """

    test_set: TestSet  # the test images, and the excluded ones
    label_names: tuple[str, ...]  # labels of the rows and columns of ``confusion``
    leaked: float  # share of test images seen in training or calibration; should be 0
    labels: tuple[LabelFigures, ...]  # per label; empty if the classifier knows none of them
    confusion: (
        NDArray[np.int64] | None
    )  # counts [k, k]: rows are true labels, columns answers; None with several labels
    results: Mapping[str, Any]  # protocol results, see ``protocols.PROTOCOLS``
    left_out: Mapping[str, str]  # reasons why other protocols do not apply
    operating: tuple[Operating, ...] = ()  # precision and recall of each label by threshold
    unknown_set: TestSet | None = None  # out-of-distribution images

    @property
    def images(self) -> int:
        """The number of measured images."""
        return len(self.test_set.split)

    @property
    def accuracy(self) -> float | None:
        """The share of right answers, or of fully right answers if several labels may be true; None for new labels."""
        if "multilabel" in self.results:
            return float(self.results["multilabel"].exact)
        return float(self.results["closed"].accuracy) if "closed" in self.results else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the accuracy (Wilson score interval)."""
        return None if self.accuracy is None else wilson(self.accuracy, self.images)

    @property
    def balanced_accuracy(self) -> float | None:
        """The accuracy averaged over labels."""
        return self.results["closed"].balanced_accuracy if "closed" in self.results else None

    @property
    def balanced_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the balanced accuracy."""
        if self.balanced_accuracy is None:
            return None
        recalls = [(label.recall, label.images) for label in self.labels if label.recall is not None]
        return balanced_interval(*map(list, zip(*recalls, strict=True)))

    @property
    def mean_average_precision(self) -> float | None:
        """The average precision, averaged over labels; None if no label has any."""
        precisions = [label.average_precision for label in self.operating]
        return sum(precisions) / len(precisions) if precisions else None

    @property
    def calibration_error(self) -> float | None:
        """The expected calibration error (ECE) of answers, or of yes/no answers if several labels may be true."""
        if "multilabel" in self.results:
            return float(self.results["multilabel"].answer_ece)
        return float(self.results["closed"].ece) if "closed" in self.results else None

    @cached_property
    def baseline(self) -> tuple[str, float] | None:
        """The most frequent label, and the accuracy of always predicting it."""
        if self.confusion is None or not self.confusion.any():
            return None
        counts = self.confusion.sum(1)
        return self.label_names[int(counts.argmax())], float(counts.max() / counts.sum())

    def __repr__(self) -> str:
        share = "" if self.accuracy is None else f", accuracy {100 * self.accuracy:.1f} %"
        return f"<Figures: {self.images} images of {self.test_set.data}{share}; {', '.join(self.results)}>"

    def __str__(self) -> str:
        return self.table()

    def as_json(self) -> dict[str, Any]:
        """Return all figures as JSON values."""
        plain: dict[str, Any] = {
            "data": self.test_set.data,
            "split": self.test_set.name,
            "measured": self.test_set.figures(),
            **({"measured_unknown": self.unknown_set.figures()} if self.unknown_set else {}),
        }
        for name, record in self.results.items():
            values = to_json(record)
            if name in ("closed", "multilabel"):
                plain |= values
            elif name == "unknown":
                plain |= {f"unknown_{key}": value for key, value in values.items()}
            else:
                plain[name] = values
        if self.accuracy is None:
            return plain | {"images": self.images, "leaked": self.leaked}
        if self.baseline:
            plain["baseline"] = {"label": self.baseline[0], "accuracy": self.baseline[1]}
        plain |= {"interval": to_json(self.interval), "balanced_interval": to_json(self.balanced_interval)}
        plain |= {"mean_average_precision": self.mean_average_precision}
        plain |= {"labels": to_json(self.labels), "thresholds": to_json(self.operating)}
        return plain if self.confusion is None else plain | {"confusion": self.confusion_list()}

    def confusion_list(self) -> list[dict[str, Any]]:
        """Return each pair of true label and answer that occurs, with its count."""
        assert self.confusion is not None
        return [
            {
                "true": self.label_names[row],
                "answer": self.label_names[column],
                "count": int(self.confusion[row, column]),
            }
            for row, column in zip(*self.confusion.nonzero(), strict=True)
        ]

    def confusions(self) -> list[tuple[str, str, int]]:
        """Return the true label, the wrong answer and the count of each confusion, most frequent first."""
        if self.confusion is None:
            return []
        wrong = self.confusion.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[: np.count_nonzero(wrong)]
        pairs = (divmod(int(cell), len(wrong)) for cell in order)
        return [(self.label_names[row], self.label_names[column], int(wrong[row, column])) for row, column in pairs]

    def table(self) -> str:
        """Return all figures as text."""
        return as_text(tables(self))


def confusion_of(evaluation: Evaluation) -> NDArray[np.int64]:
    """Return counts ``[k, k]`` of images with one label: rows are true labels, columns answers."""
    scores, targets = evaluation.labelled()
    return np.asarray(confusion_matrix(np.asarray(scores.best), targets, len(evaluation.classifier.labels)))


def to_json(value: Any) -> Any:
    """Convert to JSON values: infinite numbers and NaN become None, curves are omitted."""
    if hasattr(value, "tolist"):
        return to_json(value.tolist())
    if is_dataclass(value) and not isinstance(value, type):
        return to_json({name: part for name, part in vars(value).items() if name != "curve"})
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
