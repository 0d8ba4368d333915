"""A case: one classifier and the test images it is asked about, each encoded once, and all figures that follow."""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.errors import DataError, UnsupportedError, UsageError
from labelwise.evaluate.closed import ClosedResult, evaluate_closed
from labelwise.evaluate.multilabel import MultilabelResult, evaluate_multilabel
from labelwise.evaluate.ordinal import OrdinalResult
from labelwise.evaluate.part import Part
from labelwise.evaluate.retrieval import RetrievalResult, evaluate_retrieval
from labelwise.evaluate.tested import Tested
from labelwise.evaluate.verification import VerificationResult, evaluate_verification
from labelwise.evaluate.zero_shot import ZeroShotResult
from labelwise.report import findings
from labelwise.scores import Scores

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


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How quickly images are answered, from bytes or features to scores: medians. Reading files is not part of it."""

    images_per_second: float
    batch: int  # how many at a time
    milliseconds: float  # for one image alone
    device: str
    threads: int  # of the CPU that torch uses


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """One classifier, what it was asked, and all figures; None where one does not apply, and ``left_out`` says why."""

    name: str  # what the page calls it
    tested: Tested  # the images that count, encoded once; those without a name are numbered
    part: Part  # which images of the data they are, and which were left out
    speed: Speed
    log: tuple[Mapping[str, Any], ...]  # what training wrote down of each epoch
    right: Tensor  # see findings.answered
    sure: Tensor
    errors: Tensor | None  # see findings.answer_errors
    closed: ClosedResult | None
    several: MultilabelResult | None
    calibration: findings.CalibrationFigures
    confusion: Tensor | None  # how often each label (row) is taken for each [k, k]
    each: tuple[findings.LabelFigures, ...]
    unknown: findings.UnknownFigures
    zero_shot: ZeroShotResult | None
    ordinal: OrdinalResult | None
    verification: VerificationResult | None
    retrieval: RetrievalResult | None
    compared: int  # how many images were compared with each other
    plane: Tensor | None  # where labels lie on the map [k, 2]
    left_out: Mapping[str, str]

    @property
    def classifier(self) -> Classifier:
        """Whose answers they are."""
        return self.tested.classifier

    @property
    def names(self) -> tuple[str, ...]:
        """The classifier's labels."""
        return self.classifier.labels.names

    @property
    def method(self) -> str | None:
        """The name of the method that made it, where that is known."""
        return getattr(self.classifier.origin.method, "name", None)

    @property
    def parameters(self) -> int:
        """How many numbers its model learned."""
        return sum(one.numel() for one in self.classifier.model.parameters())

    @property
    def accuracy(self) -> float:
        """The share of images whose answer is right."""
        return float(self.right.double().mean())

    def __len__(self) -> int:
        return len(self.tested)


def make_case(name: str, saved: Saved, part: Part, strange: Part | None, seed: int, tell: Tell) -> Case:
    """Return the case of a classifier on images, and on strange ones if any; the seed draws where there are many."""
    classifier = saved.classifier
    split = replace(part.split, files=part.split.files or tuple(f"image {row + 1}" for row in part.rows.tolist()))
    tell(f"{name}: timing")
    speed = measure_speed(classifier, split.images)
    scores = encode(classifier, split.images, f"{name}: encoding", tell)
    tested = Tested(scores=scores, split=split, labels=part.labels, leaks=part.leaked)
    try:
        _ = tested.asked() if tested.multilabel else tested.targets
    except DataError as error:
        raise DataError(f"{name} and {part.data} do not fit. {error}") from None
    other = None if strange is None else encode(classifier, strange.split.images, f"{name}: encoding strange", tell)
    tell(f"{name}: measuring")
    figures = _figures(tested, seed) | {"unknown": findings.unknown(scores, other)}
    return Case(name=name, tested=tested, part=part, speed=speed, log=saved.log, **figures)


def _figures(tested: Tested, seed: int) -> dict[str, Any]:
    """Return the figures of a test, as a case names them."""
    left_out: dict[str, str] = {}

    def attempt(what: str, run: Callable[[Tested], T], images: Tested = tested) -> T | None:
        try:
            return run(images)
        except (DataError, UnsupportedError, UsageError) as error:
            left_out[what] = str(error)
            return None

    part = findings.some(tested, COMPARED, seed)
    right, sure = findings.answered(tested)
    several = evaluate_multilabel(tested) if tested.multilabel else None
    closed = None if several else evaluate_closed(tested)
    confusion = None if several else findings.confusion(tested)
    verification = attempt("Same or different", partial(evaluate_verification, most=PAIRS, seed=seed), part)
    return {
        "right": right,
        "sure": sure,
        "errors": findings.answer_errors(tested) if several else None,
        "closed": closed,
        "several": several,
        "calibration": findings.calibration(tested, closed or several),
        "confusion": confusion,
        "each": findings.each_label(tested, several, confusion),
        "zero_shot": attempt("Seen and unseen labels", findings.zero_shot),
        "ordinal": attempt("Ordered labels", findings.ordinal),
        "verification": verification,
        "retrieval": attempt("Retrieval", evaluate_retrieval, part),
        "compared": len(part),
        "plane": attempt("Map of labels", findings.plane),
        "left_out": left_out,
    }


def encode(classifier: Classifier, images: Tensor, what: str, tell: Tell) -> Scores:
    """Return the scores of images, telling how far it is."""
    parts = []
    for start in range(0, len(images), BATCH):
        tell(f"{what} ({start} of {len(images)} images)")
        parts.append(classifier.encode(images[start : start + BATCH]))
    return Scores(classifier, torch.cat(parts), images)


def measure_speed(classifier: Classifier, images: Tensor) -> Speed:
    """Return how quickly a classifier answers some of these images."""
    batch = min(BATCH, len(images))
    return Speed(
        images_per_second=batch / _median_seconds(classifier, images[:batch]),
        batch=batch,
        milliseconds=1000 * _median_seconds(classifier, images[:1]),
        device=classifier.model.device.type,
        threads=torch.get_num_threads(),
    )


def _median_seconds(classifier: Classifier, images: Tensor) -> float:
    """Return the median seconds of answering these images; a first round, which prepares caches, is not counted."""
    rounds: list[float] = []
    begun = time.perf_counter()
    while len(rounds) < 4 or (time.perf_counter() - begun < SECONDS and len(rounds) < 50):
        start = time.perf_counter()
        classifier.scores_of(classifier.encode(images)).log_odds.cpu()
        rounds.append(time.perf_counter() - start)
        if len(rounds) >= 2 and time.perf_counter() - begun > 10 * SECONDS:
            break
    return max(statistics.median(rounds[1:]), 1e-9)


def read_log(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the lines of a training log; none where there is no log. A line that was cut off is left out."""
    if not path.is_file():
        return ()
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):
            entries.append(json.loads(line))
    return tuple(entry for entry in entries if isinstance(entry, dict))
