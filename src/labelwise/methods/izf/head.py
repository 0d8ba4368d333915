"""Labels by density under an invertible flow, in NumPy; the inverse flow generates features of labels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from labelwise.core.saved_parts import shaped
from labelwise.images.describe.labels import Labels
from labelwise.methods.izf.generated_head import GeneratedHead, noise
from labelwise.methods.shared.head import ZeroShotHead, leaky, linear
from labelwise.support.rows import segment_mean

Array = npt.NDArray[Any]
CLAMP = 2.0  # no log-scale of a coupling is larger than this, or smaller than minus this
ATAN = 0.636  # brings the arc tangent to (-1, 1)
SLOPE = 0.01  # of a leaky activation below zero
# The share of the squared error of a predicted mean to subtract from squared distances, chosen like ``gaussian.SPREAD_SHARE``.
TAKEN_OFF = 0.2


@dataclass(frozen=True, eq=False, kw_only=True)
class FlowSteps:
    """An invertible map of vectors ``[n, size]``; its arrays are the state of ``flow.Flow``."""

    state: Mapping[str, Array]
    activation: Literal["leaky_relu", "relu"] = "leaky_relu"

    def forward(self, v: Array) -> tuple[Array, Array | float]:
        """Return where the vectors go ``[n, size]``, and the log of |det Jacobian| there ``[n]``, or one for all."""
        log_det: Array | float = 0.0
        for step in self.steps():
            v, log_det_part = self._forward(step, v)
            log_det = log_det + log_det_part
        return v, log_det

    def inverse(self, z: Array) -> Array:
        """Return the vectors that ``forward`` takes to these."""
        for step in reversed(self.steps()):
            z = self._inverse(step, z)
        return z

    def steps(self) -> list[str]:
        """Return the names of the steps, in order."""
        names = {".".join(name.split(".")[:3]) for name in self.state if name.startswith("blocks.")}
        steps = sorted(names, key=lambda name: [int(part) for part in name.split(".")[1:]])
        return [*steps, "last"] if "last.order" in self.state else steps

    def _forward(self, step: str, v: Array) -> tuple[Array, Array | float]:
        state = self.state
        if f"{step}.order" in state:
            return v[:, state[f"{step}.order"]], 0.0
        if f"{step}.shift" in state:
            scale = state[f"{step}.log_scale"]
            return (v - state[f"{step}.shift"]) * np.exp(scale), scale.sum()
        if f"{step}.factors" in state:
            v = v[:, state[f"{step}.permutation.order"]] @ self.upper(step).T
            return v + v @ np.tril(state[f"{step}.factors"], -1).T, state[f"{step}.log_diagonal"].sum()
        first, second = self._halves(v)
        scale, shift = self._affine(f"{step}.by_first", first)
        second = shift + second * np.exp(scale)
        log_det = scale.sum(1)
        scale, shift = self._affine(f"{step}.by_second", second)
        return np.concatenate([shift + first * np.exp(scale), second], 1), log_det + scale.sum(1)

    def _inverse(self, step: str, z: Array) -> Array:
        state = self.state
        if f"{step}.back" in state:
            return z[:, state[f"{step}.back"]]
        if f"{step}.shift" in state:
            inverse: Array = state[f"{step}.shift"] + z * np.exp(-state[f"{step}.log_scale"])
            return inverse
        if f"{step}.factors" in state:
            lower = solve_triangular(np.tril(state[f"{step}.factors"], -1), z.T, lower=True, unit_diagonal=True)
            before: Array = solve_triangular(self.upper(step), lower).T
            return before[:, state[f"{step}.permutation.back"]]
        first, second = self._halves(z)
        scale, shift = self._affine(f"{step}.by_second", second)
        first = (first - shift) / np.exp(scale)
        scale, shift = self._affine(f"{step}.by_first", first)
        return np.concatenate([first, (second - shift) / np.exp(scale)], 1)

    def upper(self, step: str) -> Array:
        """Return the upper triangle of a step that is a matrix."""
        upper: Array = np.triu(self.state[f"{step}.factors"], 1) + np.diag(np.exp(self.state[f"{step}.log_diagonal"]))
        return upper

    def _halves(self, v: Array) -> tuple[Array, Array]:
        half = v.shape[1] - v.shape[1] // 2
        return v[:, :half], v[:, half:]

    def _affine(self, name: str, half: Array) -> tuple[Array, Array]:
        hidden_units = linear(half, self.state[f"{name}.hidden.weight"], self.state[f"{name}.hidden.bias"])
        hidden_units = leaky(hidden_units, SLOPE if self.activation == "leaky_relu" else 0.0)
        outputs = linear(hidden_units, self.state[f"{name}.out.weight"], self.state[f"{name}.out.bias"])
        middle = outputs.shape[1] // 2
        return np.arctan(outputs[:, :middle]) * (CLAMP * ATAN), outputs[:, middle:]


@dataclass(frozen=True, eq=False, kw_only=True)
class Latents:
    """A fixed linear map, then a flow where one was trained: features ``[n, z]`` to latents ``[n, z]`` and back.

    The first latents are the semantic part, in which labels differ.
    """

    weight: Array = shaped("z", "z")
    inverse_weight: Array = shaped("z", "z")
    mean: Array = shaped("z")
    log_det: float = 0.0
    spread: Array = shaped(
        "z"
    )  # the standard deviation of each latent inside a label, with which features are generated
    flow: FlowSteps | None = None

    def forward(self, features: Array) -> tuple[Array, Array | float]:
        """Return latents ``[n, z]`` and log|det| ``[n]``, or one for all."""
        z = (features - self.mean) @ self.weight
        if self.flow is None:
            return z, self.log_det
        z, log_det_part = self.flow.forward(z)
        return z, self.log_det + log_det_part

    def inverse(self, latents: Array) -> Array:
        """Return the features ``[n, z]`` that have these latents."""
        z = latents if self.flow is None else self.flow.inverse(latents)
        back: Array = self.mean + z @ self.inverse_weight
        return back

    def generate(self, labels: Labels, semantic: Array, count: int, seed: int) -> Array:
        """Return features ``[k, count, z]`` of labels with these semantic parts ``[k, s]``."""
        centres = np.pad(semantic, ((0, 0), (0, len(self.spread) - semantic.shape[1])))
        latents = noise(labels, (count, len(self.spread)), seed)
        return np.stack(
            [self.inverse(centre + self.spread * own) for centre, own in zip(centres, latents, strict=True)]
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelMap:
    """The means of labels among the latents, from descriptions and, for trained labels, from images; see ``gaussian``."""

    length: float | None = None  # semantic parts are label vectors of this length; None: what follows makes them
    anchors: Array = shaped("k", "_a")  # vectors of the trained labels, to which others are compared
    weights: Array = shaped("k", "_q")  # the likeness to them times this is the semantic part by description
    own: Array = shaped("k", "s")  # what trained labels add to it
    likeness_inverse: Array = shaped("k", "k")  # of the regression on descriptions
    doubt: Array = shaped(2)  # how wrong a semantic part by description may be, see `gaussian.Regression.doubt`
    kernel_width: float = 0.0

    @classmethod
    def unsolved(cls, k: int, a: int, s: int, q: int, length: float | None) -> Self:
        """Return the map of k labels with vectors ``[a]`` before anything is solved."""
        shapes = {"anchors": (k, a), "weights": (k, q), "own": (k, s), "likeness_inverse": (k, k), "doubt": (2,)}
        arrays: dict[str, Any] = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        return cls(length=length, **arrays)

    def semantic(self, vectors: Array, places: Mapping[int, int]) -> Array:
        """Return the semantic parts ``[k, s]`` of labels by their vectors; ``places`` are rows and their places among trained labels."""
        if self.length is not None:
            return vectors * self.length
        semantic: Array = kernel(vectors, self.anchors, self.kernel_width) @ self.weights
        for row, place in places.items():
            semantic[row] += self.own[place]
        return semantic

    def taken_off(self, vectors: Array, places: Mapping[int, int]) -> Array:
        """Return the correction of squared distances to labels ``[k]`` for means predicted from descriptions."""
        if self.length is not None:
            return np.zeros(len(vectors), vectors.dtype)
        likeness = kernel(vectors, self.anchors, self.kernel_width)
        self_similarity = np.ones(len(vectors), vectors.dtype) if self.kernel_width else (vectors**2).sum(1)
        variance = np.maximum(self_similarity - ((likeness @ self.likeness_inverse) * likeness).sum(1), 0)
        penalty: Array = TAKEN_OFF * np.maximum(self.doubt[0] + self.doubt[1] * variance, 0)
        penalty[list(places)] = 0
        return penalty


@dataclass(frozen=True, eq=False, kw_only=True)
class IzfHead(ZeroShotHead):
    """Labels by density: the score is log p(v | y) up to a number that no label changes, linear in the image embedding.

    An image embedding is the semantic part and then the log-density of the free part, the determinant included, on the scale of
    the training images. The latter has no weight in scores; it says how familiar an image is.
    """

    kind: ClassVar[str] = "izf"

    flow: Latents
    label_map: LabelMap
    semantic: int  # how many latents, the first ones, are the semantic part
    density_mean: float  # of the log-density over training images
    density_std: float

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, semantic + 1]``."""
        z, log_det = self.flow.forward(self.comparable(features))
        own, free = z[:, : self.semantic], z[:, self.semantic :]
        free_density = log_det - 0.5 * ((free**2).sum(1) + free.shape[1] * math.log(2 * math.pi))
        return np.concatenate([own, ((free_density - self.density_mean) / self.density_std)[:, None]], 1)

    def embed_labels(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, semantic + 2]``: c(y), no weight of the rest, and minus half its squared length."""
        vectors, places = self.vectors(labels), trained_places(self.labels, labels)
        embeddings = _as_embeddings(self.label_map.semantic(vectors, places))
        embeddings[:, -1] += 0.5 * self.label_map.taken_off(vectors, places)
        return embeddings

    def outlier_score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return minus the log-density under the best label ``[n]``."""
        own, free_density = embeddings[:, :-1], embeddings[:, -1] * self.density_std + self.density_mean
        common = free_density - 0.5 * ((own**2).sum(1) + self.semantic * math.log(2 * math.pi))
        densities: Array = self.score(embeddings, label_embeddings).max(1) + common
        return -densities

    def generate(self, labels: Labels, count: int, seed: int) -> Array:
        """Return features ``[k, count, z]`` of each label, generated from its description."""
        semantic = self.label_map.semantic(self.vectors(labels), trained_places(self.labels, labels))
        return self.flow.generate(labels, semantic, count, seed)

    def labels_from_examples(self, embeddings: Array, groups: Array) -> Array:
        """Return label embeddings ``[g, semantic + 2]``: the mean semantic part of the examples, shrunk if there are few.

        Means of trained labels have a covariance B. With a variance w inside a label, the best guess of the mean from m
        examples is B (B + w I / m)^-1 times their mean, and it is off by some variance. What trained labels' embeddings, made from
        descriptions, are off their means by is another; scores are levelled by half the difference.
        """
        sizes, present = np.bincount(groups), self.statistics.counts > 0
        means = segment_mean(embeddings[:, :-1].astype(np.float64), groups, len(sizes))
        known = self.statistics.means[present, :-1].astype(np.float64)
        centre = known.mean(0)
        values, axes = np.linalg.eigh((known - centre).T @ (known - centre) / len(known))
        inside = max(float(np.diagonal(self.statistics.within)[:-1].astype(np.float64).mean()), 1e-12)
        places = {row: row for row in range(len(self.labels))}
        predictions = self.label_map.semantic(self.vectors(self.labels), places)[present].astype(np.float64)
        distance = ((known - predictions) ** 2).sum(1).mean()
        values, covariance = np.maximum(values, 0), inside / sizes[:, None]
        share = values / (values + covariance)
        rows = _as_embeddings((centre + ((means - centre) @ axes * share) @ axes.T).astype(np.float32))
        rows[:, -1] += (0.5 * (covariance[:, 0] * share.sum(1) - distance)).astype(np.float32)
        return rows


@dataclass(frozen=True, eq=False, kw_only=True)
class IzfSoftmaxHead(GeneratedHead):
    """Labels by a softmax layer on real and generated features, as latents: there no direction is steeper than another."""

    kind: ClassVar[str] = "izf_softmax"

    flow: Latents
    label_map: LabelMap

    def latents(self, features: Array) -> Array:
        """Return the latents of features ``[n, z]``."""
        return self.flow.forward(features)[0]

    def generate(self, labels: Labels, count: int, seed: int) -> Array:
        """Return features ``[k, count, z]`` of each label, generated from its description."""
        semantic = self.label_map.semantic(self.vectors(labels), trained_places(self.labels, labels))
        return self.flow.generate(labels, semantic, count, seed)


def trained_places(known: Labels, labels: Labels) -> dict[int, int]:
    """Return the rows of labels that were trained, and their places among the trained ones."""
    places = {name: place for place, name in enumerate(known.names)}
    return {row: places[name] for row, name in enumerate(labels.names) if name in places}


def _as_embeddings(semantic: Array) -> Array:
    bias = -0.5 * (semantic**2).sum(1, keepdims=True)
    return np.concatenate([semantic, np.zeros_like(bias), bias], 1)


def kernel(vectors: Array, anchors: Array, width: float) -> Array:
    """Return the similarities ``[m, k]`` of vectors ``[m, a]`` and anchors ``[k, a]``; see ``gaussian.Choice.width``."""
    products: Array = vectors @ anchors.T
    if not width:
        return products
    own = (anchors * anchors).sum(1)
    squares = (vectors * vectors).sum(1)[:, None] + own - 2 * products
    usual = 2 * own.mean() - 2 * (anchors.mean(0) ** 2).sum()  # the mean squared distance of two anchors
    values: Array = np.exp(-width * np.maximum(squares, 0) / max(float(usual), 1e-12))
    return values
