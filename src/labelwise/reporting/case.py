"""A case: one classifier and the test images it is asked about, each encoded once, and all figures that follow."""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.core.metrics import confusion_matrix
from labelwise.core.scores import Scores
from labelwise.evaluation.closed import evaluate_closed
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.multilabel import evaluate_multilabel
from labelwise.evaluation.retrieval import evaluate_retrieval
from labelwise.evaluation.test_set import TestSet
from labelwise.evaluation.verification import evaluate_verification
from labelwise.reporting import findings
from labelwise.support.errors import DataError, UnsupportedError, UsageError
from labelwise.support.rows import draw_rows

BATCH = 256
COMPARED = 2_000  # images compared with each other, at most
PAIRS = 50_000  # pairs of each kind behind the DET curve, at most
SECONDS = 0.4  # how long each timing goes on, about

Tell = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, eq=False, kw_only=True)
class Saved:
    """A classifier, and what its training wrote down of each epoch."""

    classifier: Classifier
    log: tuple[Mapping[str, Any], ...] = ()


class Case:
    """One classifier, the images it was asked about, and all figures; None where one does not apply, and ``left_out`` says why."""

    def __init__(self, name: str, saved: Saved, part: TestSet, strange: TestSet | None, seed: int, tell: Tell) -> None:
        self.name, self.part, self.log = name, part, saved.log
        self.classifier = classifier = saved.classifier
        self.names = classifier.labels.names
        self.method: str | None = getattr(classifier.origin.method, "name", None)
        self.parameters = sum(one.numel() for one in classifier.model.parameters())
        split = replace(part.split, files=part.split.files or tuple(f"image {row + 1}" for row in part.rows.tolist()))
        tell(f"{name}: timing")
        self.speed = measure_speed(classifier, split.images)
        scores = encode(classifier, split.images, f"{name}: encoding", tell)
        self.evaluation = evaluation = Evaluation(scores=scores, split=split, labels=part.labels, leaks=part.leaked)
        try:
            _ = evaluation.asked() if evaluation.multilabel else evaluation.targets
        except DataError as error:
            raise DataError(f"{name} and {part.data} do not fit. {error}") from None
        other = None if strange is None else encode(classifier, strange.split.images, f"{name}: encoding strange", tell)
        tell(f"{name}: measuring")
        self.right, self.sure = findings.answered(evaluation)
        self.accuracy = float(self.right.double().mean())
        several = evaluation.multilabel
        self.several = evaluate_multilabel(evaluation) if several else None
        self.closed = None if several else evaluate_closed(evaluation)
        self.errors = findings.answer_errors(evaluation) if several else None  # [n, k]
        self.calibration = findings.calibration(evaluation, self.closed or self.several)
        answers = None if several else scores.best
        self.confusion = (
            None
            if answers is None
            else torch.from_numpy(confusion_matrix(answers, evaluation.targets, len(self.names)))
        )
        self.each = findings.each_label(evaluation, self.several, self.confusion)
        self.unknown = findings.unknown(scores, other)
        self.left_out: dict[str, str] = {}
        some = evaluation[draw_rows(len(evaluation), COMPARED, seed)] if len(evaluation) > COMPARED else evaluation
        self.compared = len(some)
        self.verification = self._attempt(
            "Same or different", partial(evaluate_verification, most=PAIRS, seed=seed), some
        )
        self.zero_shot = self._attempt("Seen and unseen labels", findings.zero_shot, evaluation)
        self.ordinal = self._attempt("Ordered labels", findings.ordinal, evaluation)
        self.retrieval = self._attempt("Retrieval", evaluate_retrieval, some)
        self.plane = self._attempt("Map of labels", findings.plane, evaluation)

    def __len__(self) -> int:
        return len(self.evaluation)

    def _attempt(self, what: str, run: Callable[[Evaluation], T], images: Evaluation) -> T | None:
        try:
            return run(images)
        except (DataError, UnsupportedError, UsageError) as error:
            self.left_out[what] = str(error)
            return None


def encode(classifier: Classifier, images: Tensor, what: str, tell: Tell) -> Scores:
    """Return the scores of images, telling how far it is."""
    parts = []
    for start in range(0, len(images), BATCH):
        tell(f"{what} ({start} of {len(images)} images)")
        parts.append(classifier.encode(images[start : start + BATCH]))
    return Scores(classifier, np.concatenate(parts), images)


def measure_speed(classifier: Classifier, images: Tensor) -> dict[str, Any]:
    """Return how quickly images are answered, from bytes or features to scores: medians. Reading files is not part of it."""
    images = images[:BATCH].clone()  # themselves: features of files may be kept, and then nothing is encoded
    batch = len(images)
    return {
        "images_per_second": batch / _median_seconds(classifier, images),
        "batch": batch,  # how many at a time
        "milliseconds": 1000 * _median_seconds(classifier, images[:1]),  # for one image alone
        "device": classifier.model.device.type,
        "threads": torch.get_num_threads(),  # of the CPU that torch uses
    }


def _median_seconds(classifier: Classifier, images: Tensor) -> float:
    """Return the median seconds of answering these images; a first round, which prepares caches, is not counted."""
    times = [time.perf_counter()]
    while len(times) < 3 or (len(times) <= 50 and times[-1] - times[0] < (SECONDS if len(times) > 4 else 10 * SECONDS)):
        _ = classifier.scores_of(classifier.encode(images)).log_odds
        times.append(time.perf_counter())
    return max(statistics.median(end - start for start, end in pairwise(times[1:])), 1e-9)


def read_log(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the lines of a training log; none where there is no log. A line that was cut off is left out."""
    if not path.is_file():
        return ()
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):
            entries.append(json.loads(line))
    return tuple(entry for entry in entries if isinstance(entry, dict))
