"""A case: one classifier and the test images it is asked about, each encoded once, and how quickly that went."""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.errors import DataError
from labelwise.evaluate.part import Part
from labelwise.evaluate.tested import Tested
from labelwise.scores import Scores

BATCH = 256
SECONDS = 0.4  # how long each timing goes on, about

Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class Saved:
    """A classifier, and what its training wrote down of each epoch."""

    classifier: Classifier
    log: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How quickly images are answered, from bytes or features to scores; reading files is not part of it.

    Attributes:
        images_per_second: many at a time, the median of several rounds.
        batch: how many at a time.
        milliseconds: for one image alone, the median.
        device: cpu or cuda.
        threads: of the CPU that torch uses.
    """

    images_per_second: float
    batch: int
    milliseconds: float
    device: str
    threads: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """One classifier and what it was asked.

    Attributes:
        name: what the page calls it.
        tested: the test images that count, encoded once. Images without a name are numbered.
        strange: scores of images of none of the labels, if any.
        part: which images of the data they are, and which were left out.
        speed: how quickly it answers.
        log: what training wrote down of each epoch.
    """

    name: str
    tested: Tested
    strange: Scores | None
    part: Part
    speed: Speed
    log: tuple[Mapping[str, Any], ...]

    @property
    def classifier(self) -> Classifier:
        """Whose answers they are."""
        return self.tested.classifier

    @property
    def images(self) -> Tensor:
        """The test images as the model takes them ``[n, ...]``."""
        return self.tested.split.images

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

    def __len__(self) -> int:
        return len(self.tested)

    def file(self, row: int) -> str:
        """Return the name of an image."""
        return self.tested.split.files[row]


def make_case(name: str, saved: Saved, part: Part, strange: Part | None, tell: Tell) -> Case:
    """Return the case of a classifier on a part of data.

    Args:
        name: what the page calls it.
        saved: the classifier and its training log.
        part: the images.
        strange: images of none of the labels, if any.
        tell: is told what is being done.
    """
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
    return Case(name=name, tested=tested, strange=other, part=part, speed=speed, log=saved.log)


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
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return tuple(found)
