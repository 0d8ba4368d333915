from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from labelwise.core.arrays import Array
from labelwise.images.describe.labels import Labels
from labelwise.methods.zero_label.clusters import balance, cluster_starts
from labelwise.methods.zero_label.label_prior import label_similarity
from labelwise.methods.zero_label.naming import (
    Evidence,
    choose_names,
    modal_shares,
    name_each,
    prior_agreement,
    reverse_order,
    vote,
)
from labelwise.support.rows import Draws, unit_rows
from labelwise.train.tensors import kmeans

HIDDEN = np.array([3, 0, 4, 1, 2])


def world(noise: float = 0.05) -> tuple[Array, Array, Array]:
    """Embeddings, the cluster of each, and label vectors whose likeness is that of the clusters, in another order."""
    draws = Draws(2)
    vectors, members = draws.normal(5, 6), np.tile(np.arange(5), 20)
    return vectors[HIDDEN][members] + noise * draws.normal(100, 6), members, vectors


def evidence_of(shares: Array | None = None) -> Evidence:
    embeddings, members, vectors = world()
    unit = unit_rows(vectors - vectors.mean(0))
    other = np.array([2, 0, 1, 4, 3])[members]
    return Evidence.of(embeddings, np.stack([members, other]), unit @ unit.T, shares)


def test_clusters_get_their_names() -> None:
    evidence = evidence_of()
    tables = name_each(evidence, 50)
    votes = vote(evidence, tables)
    assert np.array_equal(choose_names(votes), HIDDEN)
    np.testing.assert_allclose(votes.sum(1), np.ones(5))
    np.testing.assert_allclose(
        tables[0], evidence.overlaps[1] @ tables[1], atol=1e-9
    )  # the same clusters in another order


def test_an_order_is_not_mixed_with_its_reverse() -> None:
    """All clusterings count from the same end, which may be the wrong one; one answer settles it."""
    labels = Labels(names=tuple("abcde"), order=(2, 0, 3, 1, 4))
    alike = label_similarity(labels)
    turned = reverse_order(labels, alike)
    assert turned is not None
    assert turned.tolist() == [0, 4, 3, 2, 1]
    place = np.array([4, 1, 0, 3, 2])  # of each cluster, from one end
    rng, members = np.random.default_rng(0), np.tile(np.arange(5), 20)
    angle = place[members] * 0.5 + 0.05 * rng.normal(size=100)
    embeddings = np.stack([np.cos(angle), np.sin(angle)], 1)
    others = [rng.permutation(5)[members] for _ in range(6)]
    found = Evidence.of(embeddings, np.stack([members, *others]), alike)
    evidence = replace(found, turned=turned)
    right = np.argsort((2, 0, 3, 1, 4))[place]
    tables = name_each(evidence, 60)
    names = choose_names(vote(evidence, tables))
    assert np.array_equal(names, right) or np.array_equal(names, turned[right])
    assert vote(evidence, tables).max(1).min() > 0.9
    assert vote(found, name_each(found, 60)).max(1).min() < 0.7
    for one in (right, turned[right]):
        answers = {0: int(one[0])}
        tables = name_each(evidence, 60, answers)
        assert np.array_equal(choose_names(vote(evidence, tables, answers), answers), one)


def test_an_order_that_similarity_does_not_follow_is_not_turned() -> None:
    labels = Labels(names=tuple("abc"), order=(0, 1, 2))
    alike = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.3], [0.1, 0.3, 1.0]])
    assert reverse_order(labels, alike) is None
    assert reverse_order(Labels(names=tuple("abc")), alike) is None


def test_overlaps_and_sizes_are_counts() -> None:
    members = np.array([[0, 0, 0, 1, 1, 2], [1, 1, 0, 2, 2, 0]])
    found = Evidence.of(np.random.default_rng(0).normal(size=(6, 2)), members, np.eye(3))
    assert found.overlaps[1].tolist() == [[pytest.approx(1 / 3), pytest.approx(2 / 3), 0], [0, 0, 1], [1, 0, 0]]
    assert found.sizes[0].tolist() == [pytest.approx(1 / 2), pytest.approx(1 / 3), pytest.approx(1 / 6)]


def test_answers_are_kept_and_change_the_others() -> None:
    evidence = evidence_of()
    answers = {0: 1}
    votes = vote(evidence, name_each(evidence, 50, answers), answers)
    assert votes[0].tolist() == [0, 1, 0, 0, 0]
    names = choose_names(votes, answers)
    assert names[0] == 1
    assert sorted(names.tolist()) == list(range(5))


def test_shares_break_a_tie() -> None:
    """Two labels that are alike to all others the same can only be told apart by how frequent they are."""
    embeddings = np.eye(3)[[0] * 6 + [1] * 3 + [2] * 1]
    members, alike, shares = embeddings.argmax(1)[None], np.eye(3), np.array([0.3, 0.1, 0.6])
    evidence = Evidence.of(embeddings, members, alike, shares)
    assert choose_names(vote(evidence, name_each(evidence, 20))).tolist() == [2, 0, 1]


def test_balanced_clusters_have_the_sizes_asked_for() -> None:
    made = torch.Generator().manual_seed(0)
    embeddings = normalize(torch.randn(300, 4, generator=made) + torch.tensor([1.0, 0, 0, 0]), dim=1)
    start = kmeans(embeddings, 3, made)
    before = torch.bincount(start.members, minlength=3) / 300
    for sizes in (torch.full((3,), 1 / 3), torch.tensor([0.2, 0.5, 0.3])):
        found = balance(embeddings, start, sizes)
        after = torch.bincount(found.members, minlength=3) / 300
        wanted, free = sizes.sort().values, before.sort().values
        assert float((after.sort().values - wanted).abs().max()) < max(0.06, float((free - wanted).abs().max()))


def test_clusterings_come_with_the_best_first() -> None:
    embeddings, _, _ = world()
    found = cluster_starts(torch.from_numpy(embeddings), 5, 4, 0, None)
    assert [one.inertia for one in found] == sorted(one.inertia for one in found)


def test_prior_agreement() -> None:
    similarity = -np.abs(np.arange(5.0)[:, None] - np.arange(5.0))
    near, far = prior_agreement(similarity, similarity, range(5))
    assert near.all()
    assert far.all()
    near, far = prior_agreement(-similarity, similarity, range(5))
    assert not near.all()
    assert not far.all()
    near, _ = prior_agreement(-similarity[[3, 0]], similarity, [3, 0])  # some labels alone, in any order
    assert near.tolist() == [False, False]


def test_modal_shares() -> None:
    members, answers = np.array([0, 0, 0, 1, 1]), np.array([1, 1, 0, 0, 0])
    assert modal_shares(members, answers, 2).tolist() == [pytest.approx(2 / 3), 1.0]


def test_looks_name_what_likeness_cannot() -> None:
    """Where all clusters are equally alike, looks decide; an answer of a person still counts more."""
    evidence = replace(evidence_of(), clusters=np.zeros((2, 5, 5)))
    seen = np.eye(5)[HIDDEN]
    other = evidence.overlaps[1].T @ seen  # the same clusters in another order
    evidence = replace(evidence, looks=np.stack([seen, other]))
    assert np.array_equal(choose_names(vote(evidence, name_each(evidence, 20))), HIDDEN)
    answers = {0: int(HIDDEN[1])}
    assert choose_names(vote(evidence, name_each(evidence, 20, answers), answers), answers)[0] == HIDDEN[1]
