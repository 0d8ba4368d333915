"""Fit a discriminant head in closed form: seconds, no learning rate, no validation images."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import root_features
from labelwise.core.calibration import MEMORY
from labelwise.core.platt import LeaveOneOut, LeftOut, most_rows
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.beliefs import (
    Beliefs,
    MeanPrior,
    label_beliefs,
    margin_ratio,
    means_at_full_size,
    regress_means,
)
from labelwise.methods.discriminant.copies import copy_groups, join_groups
from labelwise.methods.discriminant.head import Descriptions, DiscriminantHead
from labelwise.methods.discriminant.kernel import KernelFit, choose_share, fit_kernel
from labelwise.methods.discriminant.leave_one_out import (
    Ints,
    TrainingRows,
    leave_out_cosines,
    leave_out_distances,
    leave_out_products,
    square_norms,
)
from labelwise.methods.discriminant.whitening import (
    Whitening,
    draw_groups,
    fit_whitening,
    label_shares,
    leave_out_scores,
)
from labelwise.methods.shared.label_source import LabelSource
from labelwise.support.processes import on_one_thread
from labelwise.support.rows import draw_rows, unit_rows

Array = npt.NDArray[Any]
MOST_STRANGERS, LARGEST_LABEL = (
    3_000,
    1_000,
)  # images whose whole label is left out, in all and of one label: time grows with its cube
ROWS_AT_ONCE = 512  # that are embedded: few enough for a processor's cache


@dataclass(frozen=True, eq=False, kw_only=True)
class DiscriminantFit:
    """A fitted head, and the whitened training images for leave-one-out."""

    head: DiscriminantHead
    sample: TrainingRows  # copies are groups
    plain: Beliefs  # of labels, under an isotropic prior, as leave-one-out requires
    groups: Ints  # copies, and images of one group of the data [n]
    embeddings: Array  # of the training images [n, d]
    kernel: KernelFit | None = None  # a second opinion
    left_out: dict[tuple[bool, bytes], LeaveOneOut] = field(
        init=False, repr=False, default_factory=dict
    )  # computed so far

    def leave_one_out(self, also: LeftOut = "groups") -> LeaveOneOut:
        """Return leave-one-out scores of training images; of very many images, a sample.

        Args:
            also: what is left out with an image. "groups": its group in the data, for an unbiased estimate. "copies": true copies
                only, to choose the classifier. "labels": its whole label, to simulate an unknown image.
        """
        groups = {"groups": self.groups, "copies": self.sample.groups, "labels": self.sample.targets}[also]
        key = also == "labels", groups.tobytes()  # without groups in the data, copies are the groups
        if key not in self.left_out:
            self.left_out[key] = self._leave_out(groups, also)
        return self.left_out[key]

    @on_one_thread
    def _leave_out(self, groups: Ints, also: LeftOut) -> LeaveOneOut:
        regrouped = replace(self.plain, sample=self.sample.regroup(groups))
        if also == "labels":
            rows = np.flatnonzero(np.bincount(groups)[groups] <= LARGEST_LABEL)
            rows = rows[draw_groups(groups[rows], MOST_STRANGERS)]
        else:
            rows = draw_groups(regrouped.sample.groups, most_rows(len(self.head.labels)))
        beliefs = regrouped if len(rows) == len(regrouped.sample.rows) else regrouped.select(rows)
        sample = beliefs.sample
        points = np.concatenate([beliefs.means, np.zeros_like(beliefs.means[:1])])  # and the mean of all labels
        diagonal = np.arange(len(rows)), sample.targets
        if also == "labels":
            table = self._distances_of_strangers(beliefs, points)
        else:
            table = leave_out_distances(sample, points, beliefs.other_means)
        likelihoods = leave_out_scores(table[:, :-1], sample, beliefs.excess, beliefs.other_excess)
        if also == "labels":
            likelihoods[diagonal] = -np.inf
        means, excess = means_at_full_size(sample, beliefs)
        means -= sample.rows
        own = excess - leave_out_products(sample, means, means) + table[:, -1]
        sharpness = self.head.whitening.sharpness
        scores: Array = (sharpness * (likelihoods + 0.5 * table[:, -1:])).astype(np.float32)
        own_scores: Array = (0.5 * sharpness * own).astype(np.float32)
        if self.kernel is not None:
            kernel_scores = self.kernel.leave_out(rows, sample.groups)
            scores, own_scores = scores + kernel_scores, own_scores + kernel_scores[diagonal]
        return LeaveOneOut(
            rows=rows,
            scores=scores,
            outlier_scores=(-2 * likelihoods.max(1)).astype(np.float32),
            nearest=nearest_others(self.embeddings, rows, regrouped.sample.groups),
            usable=(sample.other_counts > 0) & self.head.whitens,
            groups=sample.groups,
            own_scores=own_scores,
            margin_ratio=margin_ratio(sample, beliefs).astype(np.float32),
        )

    def _distances_of_strangers(self, beliefs: Beliefs, points: Array) -> Array:
        """Return distances ``[n, k + 1]`` to label points and to the overall mean, each image's whole label left out.

        Leaving out a label also moves the overall mean, which is 0, and the means of few images that shrink towards it.
        """
        sample, k = beliefs.sample, len(points) - 1
        raw = TrainingRows.of(self.embeddings, self.sample.targets, k, self.sample.groups, self.sample.row_weights)
        shares = label_shares(raw).astype(points.dtype)
        own = np.einsum("kd,kd->k", points[:-1], sample.means) / np.maximum(square_norms(sample.means), 1e-12)
        weights = np.append(1 - own, 1).astype(points.dtype)[:, None]
        table = np.empty((len(sample.rows), k + 1), points.dtype)
        for label in np.unique(sample.targets):
            rows = np.flatnonzero(sample.targets == label)
            centre = -shares[label] / max(1 - shares[label], 1e-6) * sample.means[label]
            some = sample.select(rows)
            table[rows] = leave_out_distances(some, points + weights * centre, some.other_means)
        return table

    def pair_cosines(self, pairs: Array) -> Array | None:
        """Return the cosines ``[p]`` of pairs ``[p, 2]`` of whitened training images, both left out."""
        return leave_out_cosines(self.sample, pairs) if self.head.whitens else None


@on_one_thread
def fit_discriminant(
    features: Array,
    targets: Array,
    labels: Labels,
    groups: Sequence[str] = (),
    source: LabelSource | None = None,
    weights: Array | None = None,
) -> DiscriminantFit:
    """Fit a head to features ``[n, d]``; the result also supports leave-one-out.

    Args:
        features: of training images, float32.
        targets: the label of each, as its position ``[n]``.
        labels: their names; where they have vectors, these predict the means of labels without images.
        groups: names of sets of images that estimates leave out together, "" for none; () for none at all. They do not
            change the head.
        source: what made the vectors of labels, and makes those of labels described later.
        weights: of images ``[n]``, above 0; None: one.
    """
    targets, rooted = np.asarray(targets, np.int64), float(features.min()) >= 0
    embeddings = _embed(features, rooted)
    copies = copy_groups(embeddings, targets)
    whitening = _in_single(fit_whitening(embeddings, targets, len(labels), copies, weights))
    sample = TrainingRows.of(whitening(embeddings), targets, len(labels), copies, weights)
    beliefs = label_beliefs(sample, whitening.noise)
    prior, expected_means, descriptions = beliefs.prior, None, None
    if labels.vectors is not None:
        descriptions, expected_means = _regress(labels, sample, prior, source or LabelSource())
        beliefs = label_beliefs(sample, whitening.noise, expected_means)
        descriptions = replace(descriptions, prior=beliefs.prior)
    plain = label_beliefs(sample, whitening.noise, expected_means, prior_labels=inf)
    means, excess = plain.shrink_small_classes(beliefs)
    head = DiscriminantHead(
        labels=labels,
        rows=whitening.label_rows(means.astype(np.float64), excess.astype(np.float64)),
        rooted=rooted,
        whitening=whitening,
        prior=prior,
        descriptions=descriptions,
    )
    return DiscriminantFit(
        head=head, sample=sample, plain=plain, groups=join_groups(copies, groups), embeddings=embeddings
    )


@on_one_thread
def with_second_opinion(fit: DiscriminantFit, shares: Array | None = None) -> DiscriminantFit:
    """Add a kernel regression to the Gaussian model, if it clearly improves the leave-one-out likelihood.

    ``shares [k]`` are label frequencies in use; None: as in training.
    """
    sample, k = fit.sample, len(fit.head.labels)
    estimate = fit.leave_one_out("copies")
    usable = np.flatnonzero(estimate.usable)
    if len(usable) < 2:
        return fit
    counts, weights = sample.counts, sample.row_weights
    if shares is not None:
        target_counts = shares * counts.sum()
        weights = weights * (target_counts / np.maximum(counts, 1))[sample.targets].astype(weights.dtype)
        counts = target_counts
    kernel = fit_kernel(fit.embeddings, sample.targets, k, sample.groups, weights)
    if kernel is None:
        return fit
    rows = estimate.rows[usable]
    kernel_scores = kernel.leave_out(estimate.rows, estimate.groups)
    scaled_kernel = choose_share(
        kernel, estimate.scores[usable], kernel_scores[usable], sample.targets[rows], weights[rows], counts
    )
    if scaled_kernel is None:
        return fit
    with_kernel = replace(fit, kernel=scaled_kernel, head=replace(fit.head, kernel=scaled_kernel.kernel))
    kernel_scores *= np.float32(scaled_kernel.kernel.share)  # exact: shares are powers of two
    own = estimate.own_scores + kernel_scores[np.arange(len(estimate.rows)), sample.targets[estimate.rows]]
    with_kernel.left_out[False, sample.groups.tobytes()] = replace(
        estimate, scores=estimate.scores + kernel_scores, own_scores=own
    )
    return with_kernel


def nearest_others(embeddings: Array, rows: Ints, groups: Ints) -> Array:
    """Return the distance ``[m]`` of some training images to the nearest one of another group ``[n]``, see ``Familiarity``."""
    memory = draw_rows(len(embeddings), MEMORY)
    cosines = np.full(len(rows), -1.0, np.float32)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[start : start + ROWS_AT_ONCE]
        similarity = embeddings[some] @ embeddings[memory].T
        similarity[groups[some][:, None] == groups[memory]] = -1
        cosines[start : start + ROWS_AT_ONCE] = similarity.max(1)
    return 1 - cosines


def _embed(features: Array, rooted: bool) -> Array:
    """Return embeddings ``[n, d]``, see ``DiscriminantHead.embed``, some rows at a time."""
    embed, embeddings = root_features if rooted else unit_rows, np.empty_like(features)
    for start in range(0, len(features), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        embeddings[rows] = embed(features[rows])
    return embeddings


def _in_single(whitening: Whitening) -> Whitening:
    """Return a whitening in single precision, for saving."""
    root, centre = (array.astype(np.float32) for array in (whitening.root, whitening.centre))
    return replace(whitening, root=root, centre=centre)


def _regress(labels: Labels, sample: TrainingRows, prior: MeanPrior, source: LabelSource) -> tuple[Descriptions, Array]:
    """Regress means on descriptions; return the regression, without its prior, and the expected mean of each held-out label."""
    mean = np.asarray(labels.vectors).astype(np.float64).mean(0).astype(np.float32)
    empty = Descriptions(source=source, mean=mean, weights=np.empty((len(mean), 0), np.float32), prior=prior)
    weights, expected_means = regress_means(empty.vectors(labels), sample.means.astype(np.float64))
    return replace(empty, weights=weights.astype(np.float32)), expected_means
