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

from labelwise.core import Classifier, LabelModel, Labels, Spec, as_float
from labelwise.data.dataset import Split
from labelwise.errors import DataError
from labelwise.evaluate.closed import align_targets
from labelwise.evaluate.multilabel import asked_truths
from labelwise.evaluate.part import Part

BATCH = 256
SECONDS = 0.4  # how long each timing goes on, about

Tell = Callable[[str], None]


class Coded(LabelModel):
    """A model whose images are the codes that another made of them, so that many questions encode once."""

    def __init__(self, inner: LabelModel, size: int) -> None:
        super().__init__(Spec(shape=(size,), labels=inner.spec.labels))
        self.inner = inner
        for name in ("reads", "exclusive", "fitted_together", "added_apart", "balance"):
            setattr(self, name, getattr(inner, name))

    def encode_images(self, images: Tensor) -> Tensor:
        """Return the codes ``[n, d]`` as they are."""
        return images

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label codes ``[k, e]``."""
        return self.inner.encode_labels(labels)

    def score(self, image_codes: Tensor, label_codes: Tensor) -> Tensor:
        """Return the score of every pair ``[n, k]``."""
        return self.inner.score(image_codes, label_codes)

    def unfamiliarity(self, image_codes: Tensor, label_codes: Tensor) -> Tensor | None:
        """Return how unfamiliar images are ``[n]``, or None."""
        return self.inner.unfamiliarity(image_codes, label_codes)

    def similarity(self, queries: Tensor, gallery: Tensor) -> Tensor:
        """Return how alike images are ``[n, m]``."""
        return self.inner.similarity(queries, gallery)

    def matched(self, queries: Tensor, others: Tensor) -> Tensor:
        """Return how alike the rows of both are ``[n]``."""
        return self.inner.matched(queries, others)

    @property
    def whitens(self) -> bool:
        """Whether the model knows how codes vary inside a label."""
        return self.inner.whitens

    def whitened(self, codes: Tensor) -> Tensor:
        """Return whitened codes ``[n, d]``."""
        return self.inner.whitened(codes)


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
        classifier: as it is.
        coded: the same, for codes in place of images.
        split: the test images that count, codes in place of images; targets and truths as the data have them. Images
            without a name are numbered.
        images: the same images as the model takes them ``[n, ...]``.
        labels: what targets and truths are about.
        targets: the place of each label among the classifier's ``[n]``; -1 is none.
        scores: calibrated ``[n, k]``, on the CPU.
        strange: codes of images of none of the labels, if any.
        part: which images of the data they are, and which were left out.
        leaked: share of the images that the classifier was made from.
        speed: how quickly it answers.
        log: what training wrote down of each epoch.
    """

    name: str
    classifier: Classifier
    coded: Classifier
    split: Split
    images: Tensor
    labels: Labels
    targets: Tensor
    scores: Tensor
    strange: Tensor | None
    part: Part
    leaked: float
    speed: Speed
    log: tuple[Mapping[str, Any], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The classifier's labels."""
        return self.classifier.labels.names

    @property
    def several(self) -> bool:
        """Whether several labels may be true of one image."""
        return self.split.truths is not None

    def file(self, row: int) -> str:
        """Return the name of an image."""
        return self.split.files[row]


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
    kept = replace(part.split, files=part.split.files or tuple(f"image {row + 1}" for row in part.rows.tolist()))
    targets = _targets(name, classifier, part)
    images = kept.images
    tell(f"{name}: timing")
    speed = measure_speed(classifier, images)
    codes = encode(classifier, images, f"{name}: encoding", tell)
    coded = replace(classifier, model=Coded(classifier.model, codes.shape[1]), seen=None)
    with torch.no_grad():
        scores = coded.scores_of_codes(codes).cpu()
    other = None
    if strange is not None:
        other = encode(classifier, strange.split.images, f"{name}: encoding strange", tell)
    return Case(
        name=name,
        classifier=classifier,
        coded=coded,
        split=replace(kept, images=codes.cpu()),
        images=images,
        labels=part.labels,
        targets=targets,
        scores=scores,
        strange=other,
        part=part,
        leaked=float(part.leaked.double().mean()),
        speed=speed,
        log=saved.log,
    )


def _targets(name: str, classifier: Classifier, part: Part) -> Tensor:
    """Return the place of each label among the classifier's ``[n]``, -1 where there is none or several may be true."""
    try:
        if part.split.truths is None:
            return align_targets(classifier, part.split, part.labels)
        asked_truths(classifier, part.split, part.labels)
    except DataError as error:
        raise DataError(f"{name} and {part.data} do not fit. {error}") from None
    return torch.full((len(part.split),), -1)


def encode(classifier: Classifier, images: Tensor, what: str, tell: Tell) -> Tensor:
    """Return the codes of images ``[n, d]`` as floats, telling how far it is."""
    parts = []
    for start in range(0, len(images), BATCH):
        tell(f"{what} ({start} of {len(images)} images)")
        parts.append(classifier.encode(images[start : start + BATCH]).float())
    return torch.cat(parts)


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
        with torch.no_grad():
            codes = classifier.model.encode_images(as_float(images.to(classifier.model.device)))
            classifier.scores_of_codes(codes.float()).cpu()
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
