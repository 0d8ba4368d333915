"""Fits of features, ordinary and hostile: what is left out, and that everything stays finite."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from labelwise.core.head import Array
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant import fit as fit_module
from labelwise.methods.discriminant.fit import DiscriminantFit, fit_discriminant, with_second_opinion


def labels(k: int, vectors: Array | None = None) -> Labels:
    return Labels(names=tuple(map(str, range(k))), vectors=vectors)


def drawn(counts: list[int], d: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    targets = np.repeat(np.arange(len(counts)), counts)
    rows = 1.5 * rng.normal(size=(len(counts), d))[targets] + rng.normal(size=(len(targets), d)) + 1
    return np.maximum(rows, 0).astype(np.float32), targets


def check_finite(one: DiscriminantFit) -> None:
    head, left = one.head, one.leave_one_out()
    arrays = [head.rows, head.whitening.root, head.whitening.centre, left.scores, left.outlier_scores]
    arrays += [left.own_scores, left.margin_ratio, np.array([head.whitening.noise, head.whitening.sharpness])]
    assert all(np.isfinite(array).all() for array in arrays)
    assert head.rows.dtype == head.whitening.root.dtype == left.scores.dtype == np.float32


HOSTILE = {
    "one image of a label": drawn([30, 1, 20, 2], 20),
    "one image each": drawn([1] * 12, 20),
    "identical images": (np.repeat(drawn([5, 5, 5, 5], 30)[0], 3, 0), np.repeat(np.repeat(np.arange(4), 5), 3)),
    "all images the same": (np.ones((12, 6), np.float32), np.arange(12) % 3),
    "all zeros": (np.zeros((12, 6), np.float32), np.arange(12) % 3),
    "more labels than features": drawn([1] * 30 + [2] * 30, 16),
    "three images": (np.array([[1, 2, 0], [2, 0, 1], [0, 1, 1]], np.float32), np.array([0, 0, 1])),
    "negative features": (drawn([20, 20], 8)[0] - 3, drawn([20, 20], 8)[1]),
    "constant features": (np.pad(drawn([20] * 4, 10)[0], ((0, 0), (0, 5)), constant_values=2), drawn([20] * 4, 10)[1]),
    "huge features": (1e18 * drawn([20] * 4, 10)[0], drawn([20] * 4, 10)[1]),
    "tiny features": (1e-18 * drawn([20] * 4, 10)[0], drawn([20] * 4, 10)[1]),
    "fewer images than features": drawn([3] * 5, 1280),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_features_make_finite_heads(case: str) -> None:
    rows, targets = HOSTILE[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_finite(fit_discriminant(rows, targets, labels(int(targets.max()) + 1)))


def test_negative_features_have_no_root() -> None:
    rows, targets = HOSTILE["negative features"]
    head = fit_discriminant(rows, targets, labels(2)).head
    assert not head.rooted
    assert_allclose(head.embed(2 * rows), rows / np.linalg.norm(rows, axis=1, keepdims=True), rtol=1e-6)
    assert fit_discriminant(*drawn([20, 20], 8), labels(2)).head.rooted


def test_rows_left_out_are_scored_as_after_a_fit_without_them() -> None:
    """With many rows nearly: ridge, sharpness and prior stay those of all rows."""
    rows, targets = drawn([60] * 4, 12)
    one = fit_discriminant(rows, targets, labels(4))
    left = one.leave_one_out()
    for row in range(0, 240, 17):
        rest = np.arange(240) != row
        head = fit_discriminant(rows[rest], targets[rest], labels(4)).head
        scores = head.score(head.embed(rows[row : row + 1]), head.rows)[0]
        assert_allclose(left.scores[row], scores, atol=0.03 * float(np.abs(left.scores).max()))


def test_images_left_out_with_their_label_are_scored_as_after_a_fit_without_it() -> None:
    """Nearly, as above; the kernel regression exactly, but for its width, ridge and share."""
    rows, targets = drawn([60] * 5, 12)
    one = with_second_opinion(fit_discriminant(rows, targets, labels(5)))
    left, alone = one.leave_one_out("labels"), one.leave_one_out("copies")
    assert np.isneginf(left.scores[np.arange(300), targets]).all()
    assert (left.nearest >= alone.nearest).all()
    for label in range(5):
        own, rest = targets == label, targets != label
        others = fit_discriminant(rows[rest], np.unique(targets[rest], return_inverse=True)[1], labels(4)).head
        scores = others.score(others.embed(rows[own]), others.rows)
        best = np.delete(left.scores[own], label, 1)
        if one.kernel is not None:
            best -= np.delete(one.kernel.leave_out(np.flatnonzero(own), targets[own]), label, 1)
        assert_allclose(best.max(1), scores.max(1), atol=0.15 * float(np.abs(scores).max()))
        assert np.corrcoef(best.max(1), scores.max(1))[0, 1] > 0.98


def test_images_of_a_group_are_left_out_together() -> None:
    rows, targets = drawn([20] * 3, 60)
    groups = [f"group {i // 5}" if i < 20 else "" for i in range(60)]
    left = fit_discriminant(rows, targets, labels(3), groups).leave_one_out()
    assert left.usable.all()
    assert [len(set(left.groups[start : start + 5])) for start in range(0, 20, 5)] == [1] * 4
    assert len(set(left.groups.tolist())) == 44
    whole = fit_discriminant(rows, targets, labels(3), ["all"] * 20 + [""] * 40).leave_one_out()
    assert not whole.usable[:20].any()
    assert whole.usable[20:].all()


def test_of_very_many_images_some_whole_groups_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, targets = drawn([40] * 4, 12)
    one = fit_discriminant(rows, targets, labels(4))
    whole = one.leave_one_out()
    monkeypatch.setattr(fit_module, "most_rows", lambda k: 50)
    some = replace(one).leave_one_out()  # which nothing was asked of before
    assert 30 < len(some.rows) <= 50
    assert_allclose(some.scores, whole.scores[some.rows], rtol=1e-4, atol=1e-4)


def test_described_labels_are_expected_where_their_descriptions_say() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 4)).astype(np.float32)
    centres = vectors @ rng.normal(size=(4, 16))
    targets = np.repeat(np.arange(30), 10)
    rows = np.maximum(centres[targets] + 0.5 * rng.normal(size=(300, 16)) + 3, 0).astype(np.float32)
    one = fit_discriminant(rows, targets, labels(30, vectors[:30]))
    check_finite(one)
    new = Labels(names=tuple(f"new {i}" for i in range(10)), vectors=vectors[30:])
    images = np.maximum(centres[30:] + 3, 0).astype(np.float32)
    best = one.head.score(one.head.embed(images), one.head.embed_labels(new)).argmax(1)
    assert (best == np.arange(10)).mean() >= 0.8
