"""A classifier: a model, its labels, and what makes its scores mean something. It is immutable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from labelwise.core.arrays import Array
from labelwise.core.calibration import Calibration
from labelwise.core.familiarity import Familiarity
from labelwise.core.model import LabelModel, SensesFamiliarity, as_float, in_numpy, prepared
from labelwise.core.scores import NONE as NONE
from labelwise.core.scores import UNKNOWN as UNKNOWN
from labelwise.core.scores import Scores
from labelwise.images.as_images import Pictures, as_batch, as_images
from labelwise.images.describe.labels import Labels
from labelwise.images.images import Images, digest_rows
from labelwise.images.view import View
from labelwise.support.errors import UnsupportedError, UsageError, listing
from labelwise.support.rows import append_rows

PIECE = 16  # images that a CPU encodes at a time: what layers make of so few stays in its caches


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """When two images are of the same label, fitted on pairs of held-out images. See ``tasks.verify``."""

    by: Literal["similarity", "cosine", "sum", "whitened"]  # which score of a pair
    threshold: float  # a score at least as large means "same"
    rule: Literal["eer"] | float  # both errors equally frequent, or the share of different pairs that are accepted
    eer: float  # the equal error rate on those pairs
    scale: float  # with offset: sigmoid(score * scale + offset) is the probability of "same"
    offset: float  # for same and different pairs that are equally frequent


@dataclass(frozen=True, eq=False, kw_only=True)
class Origin:
    """Where a classifier came from."""

    method: object | None = None  # the settings whose build(model.spec) makes its model, so that it can be saved
    summary: Mapping[str, Any] = field(default_factory=dict)  # how it came about, plain JSON values
    train_digests: Array | None = (
        None  # [m, 16] of the images it was trained and calibrated on, so that a leak can be found
    )

    def __repr__(self) -> str:
        hashes = 0 if self.train_digests is None else len(self.train_digests)
        return (
            f"<Origin: {getattr(self.method, 'name', 'no method')}, {listing(self.summary)}; made from {hashes} images>"
        )

    def with_images(self, images: Images | None) -> Self:
        """Return it with these images, if there are any, among those that the classifier was made from."""
        if images is None or not len(images):
            return self
        more = digest_rows(images.digests())
        known = self.train_digests
        return replace(self, train_digests=more if known is None else append_rows(known, more))


@dataclass(frozen=True, eq=False, kw_only=True)
class Classifier:
    """A model bound to labels. Ask it for the scores of images; every task is a question about them."""

    model: LabelModel  # scores (image, label) pairs
    labels: Labels  # their names and what is known of them
    label_embeddings: Array  # [k, e]; adding a label is adding a row
    calibration: Calibration  # how raw scores become probabilities
    familiarity: Familiarity = field(default_factory=Familiarity)  # when an image is none of the labels
    verifier: Verifier | None = None  # when two images are of the same label; None is not chosen yet
    origin: Origin = field(default_factory=Origin)  # where it came from

    def __repr__(self) -> str:
        kind = getattr(self.origin.method, "name", type(self.model).__name__)
        return f"<Classifier: {kind}, {self.labels!r:.200}, images {' x '.join(map(str, self.shape))}>"

    @property
    def unseen(self) -> frozenset[str]:
        """The labels known from a description alone."""
        return frozenset(compress(self.labels.names, self.calibration.unseen.tolist()))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an image as the model takes it."""
        return self.model.spec.shape

    @property
    def view(self) -> View:
        """How pictures are brought to the model."""
        return self.model.spec.view

    def images(self, images: Pictures) -> Images:
        """Return whatever a person holds as images that the model can take."""
        return as_images(images, self.shape)

    def batch(self, images: Pictures) -> Tensor:
        """Return images as the model takes them: bytes ``[n, c, h, w]``, or features ``[n, a]``; see ``as_batch``."""
        return torch.from_numpy(np.array(as_batch(images, self.shape, self.view.fit), copy=None, order="C"))

    def encode(self, images: "Tensor | Images", batch: int = 256) -> Array:
        """Return image embeddings ``[n, d]``, float32, computed a batch at a time; images may be features of a frozen trunk."""
        known = prepared(self.model, images) if isinstance(images, Images) else images
        if isinstance(known, Images):
            rows = (range(start, min(start + batch, len(known))) for start in range(0, len(known), batch))
            parts = [self.encode(self.batch(known.select(some)), batch) for some in rows]
            return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)
        with torch.no_grad():
            return self._encoded(known, batch).cpu().numpy()

    def score(self, embeddings: Array) -> Array:
        """Return the model's score of each pair ``[n, k]``, from image embeddings ``[n, d]``."""
        return in_numpy(self.model.score)(embeddings, self.label_embeddings)

    def distances(self, embeddings: Array) -> Array | None:
        """Return how far embeddings ``[n, d]`` are from all that the model knows ``[n]``; None where it cannot measure that."""
        if not isinstance(self.model, SensesFamiliarity):
            return None
        return in_numpy(self.model.unfamiliarity)(embeddings, self.label_embeddings)

    def _encoded(self, images: Tensor, batch: int) -> Tensor:
        few = images.ndim == 4 and self.model.device.type == "cpu"
        parts = torch.split(images, min(batch, PIECE) if few else batch)
        encoded = [self.model.encode_images(as_float(x.to(self.model.device))) for x in parts if len(x)]
        return torch.cat(encoded).float() if encoded else torch.empty(0, 0, device=self.model.device)

    def scores(self, images: Pictures) -> Scores:
        """Return the scores of images: paths, PIL images, arrays or tensors; one or many. Each is encoded once."""
        given = self.images(images)
        return Scores(self, self.encode(given), given)

    def scores_of(
        self, embeddings: ArrayLike, raw: ArrayLike | None = None, distances: ArrayLike | None = None
    ) -> Scores:
        """Return the scores of images that were encoded before, from their embeddings ``[n, d]``.

        ``raw [n, k]`` and ``distances [n]`` replace what the model would say, such as scores of training images left out one by one.
        """
        scores = Scores(self, np.asarray(embeddings, np.float32))
        given = {"raw": raw, "distances": distances}
        vars(scores).update({name: np.asarray(value) for name, value in given.items() if value is not None})
        return scores

    def select(self, names: Sequence[str]) -> Self:
        """Return the classifier of these labels only, in this order; their scores stay the same."""
        rows = [self.labels.index(name) for name in names]
        labels, embeddings = self.labels.select(names), self.label_embeddings[rows]
        calibration, familiarity = self.calibration.select(rows), self.familiarity.select(rows)
        return replace(
            self, labels=labels, label_embeddings=embeddings, calibration=calibration, familiarity=familiarity
        )

    def remove(self, name: str) -> Self:
        """Return the classifier without one label; the other scores stay the same."""
        self.labels.index(name)
        if len(self.labels) == 1:
            raise UsageError(f'"{name}" is the only label; a classifier needs at least one.')
        return self.select([other for other in self.labels.names if other != name])

    def add(self, labels: Labels, embedding: Array, *, unseen: bool = False, width: float = 1.0) -> Self:
        """Return the classifier with one more label: ``labels`` as ``Labels.add`` returns them, and its embedding ``[e]``.

        ``width`` is by how much more than usual its images spread, see ``Familiarity``.
        """
        if self.model.fitted_together and not self.model.added_apart:
            raise UnsupportedError(
                f"{type(self.model).__name__} is fitted to all labels together; train it again to add one."
            )
        if labels.names[:-1] != self.labels.names:
            raise UsageError("A label is added at the end; the other labels must stay as they are.")
        rows = append_rows(self.label_embeddings, embedding[None])
        calibration, familiarity = self.calibration.add(unseen=unseen), self.familiarity.add(len(self.labels), width)
        return replace(self, labels=labels, label_embeddings=rows, calibration=calibration, familiarity=familiarity)

    def to(self, device: str | torch.device) -> Self:
        """Return the classifier with its model on another device (the model itself is moved)."""
        return replace(self, model=self.model.to(device))


def bind(model: LabelModel, labels: Labels) -> Classifier:
    """Return the classifier of these labels, not yet calibrated."""
    for piece in model.reads:
        if getattr(labels, piece) is None:
            raise UsageError(f'{type(model).__name__} reads the "{piece}" of labels, and these labels have none.')
    model.eval()
    embeddings = in_numpy(model.encode_labels)(labels)
    calibration = Calibration.none(len(labels), exclusive=model.exclusive, penalty=model.penalty)
    return Classifier(model=model, labels=labels, label_embeddings=embeddings, calibration=calibration)
