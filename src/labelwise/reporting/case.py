"""A case of a report: one classifier, its figures on the test set, and the data of its plots."""

import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.core.classifier import Classifier
from labelwise.core.saved_parts import pack
from labelwise.encoders.encode import encode
from labelwise.evaluation.evaluate import measure
from labelwise.evaluation.protocols import COMPARED, PROTOCOLS
from labelwise.evaluation.test_set import TestSet
from labelwise.images.images import Images
from labelwise.reporting import findings
from labelwise.support.errors import DataError
from labelwise.support.files import read_text
from labelwise.support.processes import threads
from labelwise.tasks.similarity import By

BATCH = 32  # images per timed batch
PAIRS = 50_000  # most pairs of each kind for the DET curve
SECONDS = 0.4  # approximate duration of each timing
Tell = Callable[[str], None]
OPTIONAL = (
    "zero_shot",
    "ordinal",
    "promises",
    "verification",
    "retrieval",
)  # protocols whose absence the page explains


@dataclass(frozen=True, kw_only=True)
class ReportPlan:
    """Options for measuring cases."""

    protocols: Iterable[str] = ()  # additional protocols as for ``lw.evaluate``
    seed: int = 0  # random seed
    tell: Tell = lambda _: None  # receives lines of progress


@dataclass(frozen=True, eq=False, kw_only=True)
class Saved:
    """A classifier, and the log of its training."""

    classifier: Classifier
    log: tuple[Mapping[str, Any], ...] = ()


class Case:
    """One classifier and its figures; inapplicable ones are None, and ``left_out`` gives the reasons."""

    def __init__(self, name: str, saved: Saved, test_set: TestSet, unknown: TestSet | None, plan: ReportPlan) -> None:
        tell = plan.tell
        self.name, self.log, self.classifier = name, saved.log, saved.classifier
        self.names = self.classifier.labels.names
        self.method: str | None = getattr(self.classifier.origin.method, "name", None)
        self.parameters = sum(array.size for array in pack(self.classifier.head).arrays.values())
        self.test_set = test_set = _with_names(test_set)
        tell(f"{name}: encoding {len(test_set.split)} images")
        self.evaluation = evaluation = test_set.evaluate(self.classifier)
        if unknown is not None:
            tell(f"{name}: encoding {len(unknown.split)} unknown images")
            self.evaluation = replace(evaluation, outliers=self.classifier.scores(unknown.split.images))
        try:
            _ = evaluation.asked_labels() if evaluation.multilabel else evaluation.targets
        except DataError as error:
            raise DataError(f"{name} and {test_set.data} do not match. {error}") from None
        tell(f"{name}: timing")
        self.speed = measure_speed(self.classifier, test_set.split.images)
        tell(f"{name}: measuring")
        self._measure(plan, unknown)

    def _measure(self, plan: ReportPlan, unknown: TestSet | None) -> None:
        evaluation, rule = self.evaluation, self.classifier.verifier
        own: By = rule.by if rule else "similarity"
        options: dict[str, Any] = {
            "verification": {"scores": (own,), "pairs": PAIRS, "seed": plan.seed},
            "retrieval": {"scores": ("similarity",), "seed": plan.seed},
        }
        self.figures = figures = measure(evaluation, self.test_set, plan.protocols, options, unknown=unknown)
        records = figures.results
        self.closed, self.several = records.get("closed"), records.get("multilabel")
        self.zero_shot, self.ordinal, self.promises = (records.get(name) for name in OPTIONAL[:3])
        self.verification, self.retrieval = (
            next(iter(records.get(name, {}).values()), None) for name in ("verification", "retrieval")
        )
        self.compared = min(len(self), COMPARED)
        self.accuracy, self.confusion, self.each = figures.accuracy or 0.0, figures.confusion, figures.labels
        self.left_out = {PROTOCOLS[name].title: reason for name, reason in figures.left_out.items() if name in OPTIONAL}
        self.right, self.sure = findings.answer_results(evaluation)
        self.errors = findings.answer_errors(evaluation) if evaluation.multilabel else None  # [n, k]
        self.calibration = findings.calibration(evaluation, self.closed or self.several)
        self.unknown = findings.unknown(evaluation, records.get("unknown"))
        self.estimate = findings.training_estimate(self.classifier)
        self.plane: findings.Floats | None = None
        try:
            self.plane = findings.plane(evaluation)
        except DataError as error:
            self.left_out["Map of labels"] = str(error)

    def __len__(self) -> int:
        return len(self.evaluation)


def _with_names(test_set: TestSet) -> TestSet:
    """Return the test set with a name for each image."""
    if test_set.split.files:
        return test_set
    names = tuple(f"image {row + 1}" for row in test_set.rows.tolist())
    return replace(test_set, split=replace(test_set.split, files=names))


def measure_speed(classifier: Classifier, images: Images) -> dict[str, Any]:
    """Return median times from decoded images to scores, without reading files."""
    pixels = classifier.batch(images.select(range(min(BATCH, len(images)))))
    batch = len(pixels)
    return {
        "images_per_second": batch / _median_seconds(classifier, pixels),
        "batch": batch,  # batch size
        "milliseconds": 1000 * _median_seconds(classifier, pixels[:1]),  # a single image
        "runtime": classifier.encoder.runtime,
        "threads": threads(),
    }


def _median_seconds(classifier: Classifier, images: Any) -> float:
    """Return the median seconds of scoring these images, after a warm-up round."""
    image_set, times = classifier.images(images), [time.perf_counter()]
    while len(times) < 3 or (len(times) <= 50 and times[-1] - times[0] < (SECONDS if len(times) > 4 else 10 * SECONDS)):
        features = encode(classifier.encoder, image_set, cache=False, progress=False)
        np.asarray(classifier.scores_of(classifier.head.embed(features.values)).log_odds)
        times.append(time.perf_counter())
    return max(statistics.median(end - start for start, end in pairwise(times[1:])), 1e-9)


def read_log(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the lines of a training log, if there is one; an incomplete last line is skipped."""
    if not path.is_file():
        return ()
    entries = []
    for line in read_text(path).splitlines():
        with suppress(ValueError):
            entries.append(json.loads(line))
    return tuple(entry for entry in entries if isinstance(entry, dict))
