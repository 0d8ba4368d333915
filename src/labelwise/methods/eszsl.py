"""ESZSL: labels without images from attribute vectors, in closed form (Romera-Paredes and Torr, 2015).

A bilinear score z.V.s between an image embedding z and a label vector s is fitted to 1 for the right label and 0 for the
others by least squares, with one penalty for each side: V = (Z'Z + gamma I)^-1 Z'Y S (S'S + lambda I)^-1. One
eigendecomposition of each Gram matrix gives the solution for every pair of penalties, so both are chosen on labels held
out of training in the time of a single fit. Embeddings and vectors are centred and of unit length. Otherwise, labels near
the average one win too often.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from labelwise.core.head import Array
from labelwise.methods.discriminant.leave_one_out import segment_sums
from labelwise.methods.shared.linear import array
from labelwise.methods.shared.zero_shot import BilinearModel, ZeroShotMethod, best_on_validation
from labelwise.support.errors import UsageError
from labelwise.support.processes import on_one_thread
from labelwise.support.settings import check_range, setting
from labelwise.train.method import Method
from labelwise.train.model import LabelModel
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData

IMAGE_PENALTIES = tuple(10.0 ** (step / 2) for step in range(-2, 5))
LABEL_PENALTIES = tuple(10.0 ** (step / 2) for step in range(-6, 4))


class Solutions(NamedTuple):
    """The closed form for every pair of penalties."""

    images: Array  # eigenvectors of Z'Z [d, d]
    image_values: Array  # its eigenvalues [d]
    labels: Array  # eigenvectors of S'S [a, a]
    label_values: Array  # its eigenvalues [a]
    middle: Array  # Z'Y S between both sets of eigenvectors [d, a]

    @classmethod
    @on_one_thread
    def of(cls, embeddings: Array, targets: Array, vectors: Array) -> "Solutions":
        """Return the solutions for image embeddings ``[n, d]`` with labels ``[n]`` and label vectors ``[k, a]``."""
        image_values, images = np.linalg.eigh(embeddings.T @ embeddings)
        label_values, labels = np.linalg.eigh(vectors.T @ vectors)
        sums = segment_sums(embeddings, targets, len(vectors))
        middle = images.T @ sums.T @ vectors @ labels  # sums' is Z'Y, with 1 for the right label and 0 for the others
        return cls(images, np.maximum(image_values, 0), labels, np.maximum(label_values, 0), middle)

    def weights(self, image_penalty: float, label_penalty: float) -> Array:
        """Return V ``[d, a]``."""
        inner = self.middle / (self.image_values[:, None] + image_penalty) / (self.label_values + label_penalty)
        return np.asarray(self.images @ inner @ self.labels.T)

    def scores(self, embeddings: Array, vectors: Array) -> Iterator[tuple[tuple[float, ...], Array]]:
        """Yield each pair of penalties and the scores of embeddings ``[n, d]`` against vectors ``[k, a]`` under it."""
        rotated_images, ends = embeddings @ self.images, vectors @ self.labels
        for label_penalty in LABEL_PENALTIES:
            label_weights = self.middle @ (ends / (self.label_values + label_penalty)).T
            for image_penalty in IMAGE_PENALTIES:
                yield (
                    (image_penalty, label_penalty),
                    rotated_images @ (label_weights / (self.image_values[:, None] + image_penalty)),
                )


@dataclass(frozen=True, kw_only=True)
class Eszsl(ZeroShotMethod):
    """Closed-form zero-shot from label vectors: seconds of linear algebra on features."""

    name: ClassVar[str] = "eszsl"

    image_penalty: float | None = setting(None, "Gamma; none: chosen on held-out labels.")
    label_penalty: float | None = setting(None, "Lambda; none: chosen on held-out labels.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.image_penalty is None) != (self.label_penalty is None):
            raise UsageError("Give both penalties, image_penalty and label_penalty, or neither.")
        check_range(self, "above 0", "image_penalty", "label_penalty")

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the stage of the image encoder, if there is one to train; then solve."""
        assert isinstance(model, BilinearModel)
        yield from self.train_encoder(model, data)
        embeddings = array(model.encode_all(data.train.images))
        solutions = Solutions.of(embeddings, array(data.train.targets), array(model.vectors(data.labels)))
        if self.image_penalty is not None and self.label_penalty is not None:
            pair: tuple[float, ...] = (self.image_penalty, self.label_penalty)
        else:
            val = array(model.encode_all(data.val.images)) if len(data.val) else embeddings[:0]
            pair = best_on_validation(solutions.scores(val, array(model.vectors(data.known))), data, (1.0, 1.0))
        model.solve(torch.from_numpy(solutions.weights(*pair)), pair)
        model.fit_statistics(data.train)

    def settle(self, model: LabelModel) -> Method:
        """Return the settings with the penalties that the trial chose."""
        assert isinstance(model, BilinearModel)
        image_penalty, label_penalty = model.penalties
        return replace(self, image_penalty=image_penalty, label_penalty=label_penalty)
