"""The head against slow sums: scores, labels from examples and descriptions, distances."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from labelwise.core.head import Array
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.fit import DiscriminantFit, fit_discriminant
from labelwise.support.errors import UsageError

K, D = 6, 10
VECTORS = np.random.default_rng(1).normal(size=(K + 2, 3)).astype(np.float32)


def features(each: int = 12, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    centres = VECTORS @ np.random.default_rng(2).normal(size=(3, D))
    targets = np.repeat(np.arange(K), each)
    rows = np.maximum(centres[targets] + rng.normal(size=(len(targets), D)) + 2, 0)
    return rows.astype(np.float32), targets


def fitted(*, described: bool = False) -> DiscriminantFit:
    names = tuple(f"label {i}" for i in range(K))
    return fit_discriminant(*features(), Labels(names=names, vectors=VECTORS[:K] if described else None))


def test_scores_are_log_likelihood_ratios_of_gaussians() -> None:
    one = fitted()
    head, whitening = one.head, one.head.whitening
    embeddings = head.embed(features(3, 5)[0])
    covariance = np.linalg.inv(whitening.root.astype(np.float64) @ whitening.root)
    inverse = np.linalg.inv(covariance)
    weights, bias = head.rows[:, :-1].astype(np.float64) / whitening.sharpness, head.rows[:, -1] / whitening.sharpness
    means = weights @ covariance  # around the centre
    excess = 2 * bias + np.einsum("kd,de,ke->k", means, inverse, means) + 2 * weights @ whitening.centre
    away = (embeddings - whitening.centre).astype(np.float64)
    table = np.empty((len(away), K))
    for row in range(len(away)):
        for label in range(K):
            nearer = away[row] - means[label]
            table[row, label] = 0.5 * (away[row] @ inverse @ away[row] - nearer @ inverse @ nearer + excess[label])
    assert (excess > 0).all()
    assert_allclose(head.score(embeddings, head.rows), whitening.sharpness * table, rtol=1e-3, atol=1e-3)
    nearest = (away @ inverse * away).sum(1) - 2 * table.max(1)
    assert_allclose(head.outlier_score(embeddings, head.rows), nearest, rtol=1e-3, atol=1e-3)


def test_a_label_from_examples_is_their_posterior_mean() -> None:
    head = fitted().head
    prior, whitening = head.prior, head.whitening
    embeddings, groups = head.embed(features(5, 3)[0]), np.arange(30) % 4
    rows = head.labels_from_examples(embeddings, groups)
    inside = prior.axes.T @ prior.axes
    spread = prior.axes.T @ np.diag(prior.variances) @ prior.axes + prior.other_variance * (np.eye(D) - inside)
    for group in range(4):
        own = whitening(embeddings[groups == group].astype(np.float64))
        noise = prior.noise_variance / len(own) * np.eye(D)
        mean = spread @ np.linalg.inv(spread + noise) @ own.mean(0)
        assert_allclose(rows[group, :-1], whitening.sharpness * whitening.root @ mean, rtol=1e-3, atol=1e-4)


def test_distances_of_examples_are_those_to_a_label_of_the_others() -> None:
    head = fitted().head
    embeddings = head.embed(features(5, 3)[0][:7])
    for row, distance in enumerate(head.example_distances(embeddings)):
        others = np.delete(np.arange(7), row)
        label = head.labels_from_examples(embeddings[others], np.zeros(6, np.int64))
        assert distance == pytest.approx(float(head.outlier_score(embeddings[row : row + 1], label)[0]), rel=1e-4)


def test_what_is_known_of_a_label_goes_from_its_description_to_its_examples() -> None:
    head = fitted(described=True).head
    assert head.descriptions is not None
    assert head.reads_descriptions
    new = Labels(names=("new",), vectors=VECTORS[K:][:1])
    (described,) = head.embed_labels(new)
    example = head.embed(features(1, 8)[0][:1])
    both = head.label_from_both(example, new)
    many = head.label_from_both(np.repeat(example, 10_000, 0), new)
    far, middle = (float(np.abs(described[:-1] - row[:-1]).max()) for row in (many, both))
    assert 0 < middle < far
    assert_allclose(
        many[:-1], head.whitening.sharpness * head.whitening.root @ head.whitening(example)[0], rtol=2e-2, atol=2e-2
    )
    mixed = Labels(names=("label 2", "new", "label 0"), vectors=VECTORS[[2, K, 0]])
    assert_allclose(head.embed_labels(mixed), np.stack([head.rows[2], described, head.rows[0]]))
    with pytest.raises(UsageError, match="vectors of 3 numbers; given 2"):
        head.embed_labels(replace(new, vectors=np.ones((1, 2))))


def test_without_descriptions_unknown_labels_are_refused() -> None:
    head = fitted().head
    assert not head.reads_descriptions
    with pytest.raises(UsageError, match='No label "new"'):
        head.embed_labels(Labels(names=("label 1", "new")))
    with pytest.raises(UsageError, match="from examples alone"):
        head.label_from_both(head.embed(features(1)[0]), Labels(names=("new",), vectors=VECTORS[:1]))


def test_adding_a_label_changes_no_other_score() -> None:
    head = fitted().head
    embeddings = head.embed(features(2, 4)[0])
    new = head.labels_from_examples(embeddings[:2], np.zeros(2, np.int64))
    more = head.score(embeddings, np.concatenate([head.rows, new]))
    assert_allclose(more[:, :K], head.score(embeddings, head.rows), rtol=1e-6)
