"""A second opinion: ridge regression from images to their labels with a Gaussian kernel, every choice by exact leave-one-out.

A mean of a label says little where a label has several modes, or where what tells labels apart is small compared with what images have in common
(a crack in a tile). Kernel ridge regression (Saunders, Gammerman and Vovk, ICML 1998) looks at single images instead. With unit rows x,
centres c and targets y (1 for the label of an image, 0 for others, less 1/k),

    f(x) = k(x)' a,    k_j(x) = exp((x' c_j - 1) / w),    a = argmin |y - K a|^2 + r a'K_c a

The centres are the training images, of many a random part (Nystroem: Williams and Seeger, NIPS 2000). In coordinates z in which
Z'Z = diag(v), a row left out has the residual (y - f) / (1 - h), h = sum z^2 / (v + r); rows of a group solve (I - H) e = y - f.

f is added to the scores of the Gaussian model, so a label is still one row, and no score depends on another label.

A label that is taught later gets the regression in which the mean of its examples is one more row, with the weight of an average label. That
is an update of rank one. With S = (n/m) K_c + r I, and u the likenesses of the mean to the m centres,

    a = a_0 + g (1 - 1/k - u'a_0) / (1/w + u'g),    g = S^-1 K_c^-1 u,    a_0 = -(n/m) S^-1 1/k

A fitted label that gets more examples starts from its own weights, with their number as w.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from labelwise.core.arrays import softmax
from labelwise.core.platt import fit_temperature
from labelwise.core.saved_parts import shaped
from labelwise.methods.discriminant.leave_one_out import Floats, Ints
from labelwise.support.errors import StoreError
from labelwise.support.rows import draw_rows

MOST_CENTRES = 3_000  # the time of their decomposition grows with their cube; up to here every training image is one
SOME_CENTRES = 1_500  # of more images, which takes two decompositions
MOST_WEIGHTS = 2**22  # with more labels times centres there is no second opinion
MOST_TRIED = 500  # images to choose the width
MOST_JOINED = 1_000  # images to choose the share
WIDTHS = (0.25, 0.5, 1.0, 2.0)  # relative to the mean of 1 - x'c
RIDGES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SHARES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # of f, in units of log-odds
EXPONENTS = (0.0, 0.5, 1.0)  # of the frequencies of labels, see ``fitting.prior``
LEAST_GAIN = 0.005  # of log loss, for which the centres are worth their room
LEAST_VALUE = 1e-7  # of the largest eigenvalue of likenesses: below it they are rounding errors


@dataclass(frozen=True, eq=False, kw_only=True)
class Kernel:
    """Similarities of images to some training images, and the weights of each of these for labels."""

    centres: Floats = shaped("m", "d")
    weights: Floats = shaped("k", "m")  # a, times a share
    width: float
    ridge: float  # r
    images: float  # n, or their weights in all
    share: float = 1.0

    def __post_init__(self) -> None:
        """Refuse numbers that were not fitted: they divide by zero, or a new label takes hours."""
        numbers, m = (self.width, self.images, self.share), len(self.centres)
        fits = 0 < m <= MOST_CENTRES and 0 <= self.ridge < 1e12 and all(1e-12 < number < 1e12 for number in numbers)
        if not fits:
            raise StoreError(f"The kernel is damaged: {m} centres, ridge {self.ridge}, numbers {numbers}. Fit again.")

    def __call__(self, embeddings: Floats) -> Floats:
        """Return likenesses ``[n, m]`` of embeddings ``[n, d]`` of unit length, 1 for a centre itself; in double precision.

        For similar images x' c differs from 1 in its last digits only, and the division by a small width magnifies these.
        """
        likeness = embeddings.astype(np.float64) @ self.centres.astype(np.float64).T
        likeness -= 1
        likeness /= self.width
        return cast(Floats, np.exp(likeness, out=likeness))

    def learn(self, means: Floats) -> Floats:
        """Return the weights ``[g, m]`` of new labels from the means of their examples ``[g, d]``."""
        values, axes = self.axes
        k = len(self.weights)
        start = -self._density / k * axes @ (axes.sum(0) / (self._density * values + self.ridge))
        return self._update(np.tile(start, (len(means), 1)), means, self.images / k)

    def learn_more(self, weights: Floats, mean: Floats, count: float) -> Floats:
        """Return the weights ``[m]`` of a label from its present ones and the mean ``[d]`` of more examples."""
        return np.asarray(self._update(weights[None] / self.share, mean[None], count)[0])

    def _update(self, start: Floats, means: Floats, weight: float) -> Floats:
        likeness, (values, axes) = self(means), self.axes
        rotated = likeness @ axes / (values * (self._density * values + self.ridge)) @ axes.T
        missing = 1 - 1 / len(self.weights) - np.einsum("gm,gm->g", likeness, start)
        gain = missing / (1 / weight + np.einsum("gm,gm->g", likeness, rotated))
        weights = np.asarray(self.share * (start + gain[:, None] * rotated), np.float32)
        if not np.isfinite(weights).all():
            raise StoreError("The kernel of this classifier is damaged. Fit it again.")
        return weights

    @property
    def _density(self) -> float:
        """The number of images that each centre represents."""
        return self.images / len(self.centres)

    @cached_property
    def axes(self) -> tuple[Floats, Floats]:
        """The eigenvalues ``[q]`` of likenesses of centres that are no rounding errors, and their axes ``[m, q]``."""
        values, axes = np.linalg.eigh(self(self.centres))
        nonzero = values > LEAST_VALUE * values[-1]
        return values[nonzero], axes[:, nonzero]


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelFit:
    """A kernel that was fitted, and the training images in the coordinates in which they are left out."""

    kernel: Kernel
    rows: Floats  # z [n, q]
    weights: Floats  # of the images [n]
    targets: Ints  # their labels [n]
    shrunk: Floats  # 1 / (v + r) [q]
    solved: Floats  # from z to f [q, k]

    def leave_out(self, rows: Ints, groups: Ints) -> Floats:
        """Return f ``[m, k]`` of some training images ``[m]``, each as if its group ``[m]`` had not been there."""
        k = self.solved.shape[1]
        target, z = np.eye(k)[self.targets[rows]] - 1 / k, self.rows[rows]
        scores = target - _left_out_residuals(target - z @ self.solved, z, self.weights[rows], self.shrunk, groups)
        return np.asarray(self.kernel.share * scores, np.float32)

    def times(self, share: float) -> "KernelFit":
        """Return a copy with f multiplied by a share."""
        weights = (share * self.kernel.weights).astype(np.float32)
        kernel = replace(self.kernel, weights=weights, share=share * self.kernel.share)
        return replace(self, kernel=kernel)


def fit_kernel(embeddings: Floats, targets: Ints, k: int, groups: Ints, row_weights: Floats) -> KernelFit | None:
    """Return the kernel regression of embeddings ``[n, d]`` of unit length; None where it would have too many weights."""
    n = len(embeddings)
    most = n if n <= MOST_CENTRES and k * n <= MOST_WEIGHTS else SOME_CENTRES
    if k * min(n, most) > MOST_WEIGHTS or len(np.unique(groups)) < 2:
        return None
    some, centres = draw_rows(n, MOST_TRIED), draw_rows(n, most)
    usual = max(float(1 - (embeddings[some].mean(0) ** 2).sum()), 1e-6)
    trial = _Regression(embeddings[some], targets[some], k, groups[some], row_weights[some])
    width = min((trial.solve(trial.embeddings, share * usual)[0], share * usual) for share in WIDTHS)[1]
    whole = _Regression(embeddings, targets, k, groups, row_weights)
    return whole.solve(embeddings if len(centres) == n else embeddings[centres], width)[1]


def choose_share(
    fitted: KernelFit, scores: Floats, kernel_scores: Floats, targets: Ints, weights: Floats, counts: Floats
) -> KernelFit | None:
    """Return the fit with the share of f that is most likely for left-out images; None if it hardly helps.

    Args:
        fitted: whose share is 1.
        scores: of the Gaussian model, of images left out ``[n, k]``.
        kernel_scores: f of the same images ``[n, k]``.
        targets: their labels ``[n]``.
        weights: how much each counts ``[n]``.
        counts: how many images labels have ``[k]``: their frequencies are part of what makes images likely.
    """
    some = draw_rows(len(targets), MOST_JOINED)
    scores, kernel_scores, targets, weights = scores[some], kernel_scores[some], targets[some], weights[some]
    frequent = np.log(counts + 1)

    def loss(share: float) -> float:
        joined = (scores + share * kernel_scores).astype(np.float64)
        return min(_loss(joined, targets, weights, exponent * frequent) for exponent in EXPONENTS)

    losses = {share: loss(share) for share in (0.0, *SHARES)}
    best = min(losses, key=lambda share: losses[share])
    return fitted.times(best) if losses[0.0] - losses[best] > LEAST_GAIN else None


@dataclass(frozen=True, eq=False)
class _Regression:
    """What is regressed: images, and whether each is of a label."""

    embeddings: Floats  # [n, d]
    targets: Ints  # [n]
    k: int
    groups: Ints  # images that are left out together [n]
    weights: Floats  # [n]

    def solve(self, centres: Floats, width: float) -> tuple[float, KernelFit]:
        """Return the least squared error of images left out over all ridges, and the regression that has it."""
        none = np.empty((0, len(centres)), np.float32)
        kernel = Kernel(
            centres=centres.astype(np.float32), weights=none, width=width, ridge=0.0, images=float(self.weights.sum())
        )
        turn, z, squares = self._coordinates(kernel, every=centres is self.embeddings)
        wanted = np.eye(self.k)[self.targets] - 1 / self.k
        products = z.T @ (self.weights[:, None] * wanted)

        def error(ridge: float) -> float:
            shrunk = 1 / (squares + ridge)
            residuals = wanted - z @ (shrunk[:, None] * products)
            away: Any = _left_out_residuals(residuals, z, self.weights, shrunk, self.groups)
            return float(np.average((away**2).sum(1), weights=self.weights))

        errors = {ridge: error(ridge) for ridge in RIDGES}
        ridge = min(errors, key=lambda each: errors[each])
        shrunk = 1 / (squares + ridge)
        solved = shrunk[:, None] * products
        kernel = replace(kernel, weights=(turn @ solved).T.astype(np.float32), ridge=ridge)
        fitted = KernelFit(
            kernel=kernel, rows=z, weights=self.weights, targets=self.targets, shrunk=shrunk, solved=solved
        )
        return errors[ridge], fitted

    def _coordinates(self, kernel: Kernel, *, every: bool) -> tuple[Floats, Floats, Floats]:
        """Return the map from likenesses to z ``[m, q]``, z ``[n, q]`` and v ``[q]``; if every image is a centre, by one decomposition."""
        roots = np.sqrt(self.weights.astype(np.float64))[:, None]
        if every:
            values, axes = np.linalg.eigh(kernel(self.embeddings) * roots * roots.T)
            known = values > LEAST_VALUE * values[-1]
            squares, axes = values[known], axes[:, known]
            return roots * axes / np.sqrt(squares), axes * np.sqrt(squares) / roots, squares
        values, axes = kernel.axes
        turn = axes / np.sqrt(values)
        z = kernel(self.embeddings) @ turn
        weighted = z * roots
        squares, axes = np.linalg.eigh(weighted.T @ weighted)
        return turn @ axes, z @ axes, np.maximum(squares, 0)


def _left_out_residuals(residuals: Floats, z: Floats, weights: Floats, shrunk: Floats, groups: Ints) -> Floats:
    """Return the residuals ``[n, k]`` of rows z ``[n, q]``, each left out with its group, where H = z diag(shrunk) z' diag(weights)."""
    leverage = np.einsum("nq,nq,q->n", z, z, shrunk) * weights
    held_out: Floats = residuals / np.maximum(1 - leverage, 1e-9)[:, None]
    order = groups.argsort(kind="stable")
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    for start, size in zip(starts[sizes > 1], sizes[sizes > 1], strict=True):
        rows_here = order[start : start + size]
        matrix: Any = np.eye(size) * (1 + 1e-9) - (z[rows_here] * shrunk) @ z[rows_here].T * weights[rows_here]
        held_out[rows_here] = np.linalg.solve(matrix, residuals[rows_here])
    return held_out


def _loss(scores: Floats, targets: Ints, weights: Floats, shift: Floats) -> float:
    """Return the log loss of labels by scores ``[n, k]``, as sure as suits them best, and a shift of each label ``[k]``."""
    temperature = fit_temperature(scores, targets, weights, shift)
    likely = softmax(scores / temperature + shift)[np.arange(len(targets)), targets]
    return float(np.average(-np.log(np.maximum(likely, 1e-12)), weights=weights))
