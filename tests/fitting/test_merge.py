"""Merging classifiers gives the one that a fit on all of their images gives, and refuses what cannot be merged."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import labelwise as lw
from labelwise.calls import as_dataset
from labelwise.core.arrays import features_of_roots, root_features
from labelwise.support.errors import UnsupportedError, UsageError
from tests.contract.subjects import trained


def draw(n: int, seed: int, positive: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Features of six labels that overlap."""
    rng, centres = np.random.default_rng(seed), np.random.default_rng(0).normal(size=(6, 12))
    targets = rng.integers(6, size=n)
    features = centres[targets] + 1.2 * rng.normal(size=(n, 12))
    return (np.exp(features) if positive else features).astype(np.float32), targets


def fitted(features: np.ndarray, targets: np.ndarray) -> lw.Classifier:
    return lw.fit((features, [f"label {target}" for target in targets]))


@pytest.mark.parametrize("positive", [True, False])
def test_halves_merge_into_the_fit_on_all(positive: bool) -> None:
    (features, targets), (test, _) = draw(300, 1, positive), draw(200, 2, positive)
    whole = fitted(features, targets)
    merged = lw.merge([fitted(features[:150], targets[:150]), fitted(features[150:], targets[150:])])
    assert set(merged.labels.names) == set(whole.labels.names)
    columns = [merged.labels.index(name) for name in whole.labels.names]
    one, other = merged.scores(test), whole.scores(test)
    np.testing.assert_allclose(one.probabilities[:, columns], other.probabilities, atol=2e-3)
    assert np.mean(one.unknown == other.unknown) > 0.98
    assert merged.origin.summary["leave_one_out"]["images"] == 300
    assert merged.origin.train_digests is not None
    assert len(merged.origin.train_digests) == 300


def test_labels_of_both_are_there_also_taught_ones_and_their_parents(tmp_path: Path) -> None:
    features, targets = draw(240, 1)
    first, rest = targets < 3, targets >= 2
    data = as_dataset((features[first], [f"label {target}" for target in targets[first]]))
    one = lw.fit(replace(data, labels=replace(data.labels, parents=(("low",), ("low",), ()))))
    new = np.exp(np.linspace(3, -3, 12) + 0.3 * np.random.default_rng(4).normal(size=(10, 12))).astype(np.float32)
    other = fitted(features[rest], targets[rest]).teach("far", new, parent="away")
    merged = lw.merge([one, other])
    assert merged.labels.names == ("label 0", "label 1", "label 2", "label 3", "label 4", "label 5", "far")
    assert merged.labels.parents == (("low",), ("low",), (), (), (), (), ("away",))
    assert merged.examples is not None
    assert merged.examples.counts.sum() == first.sum() + rest.sum() + 10
    assert merged.predict(new).tolist().count("far") >= 8
    merged.save(tmp_path / "merged.lw")
    again = lw.merge([lw.load(tmp_path / "merged.lw"), one])
    assert len(again.labels) == 7


def test_a_forgotten_label_is_not_merged() -> None:
    features, targets = draw(200, 1)
    one = fitted(features, targets)
    merged = lw.merge([one.forget("label 0"), fitted(features[targets > 3], targets[targets > 3])])
    assert "label 0" not in merged.labels.names


def test_roots_are_inverted() -> None:
    features = draw(20, 1, False)[0]
    np.testing.assert_allclose(
        root_features(features_of_roots(root_features(features))), root_features(features), atol=1e-5
    )


def test_what_cannot_be_merged_is_refused() -> None:
    features, targets = draw(80, 1)
    one = fitted(features, targets)
    with pytest.raises(UsageError, match="at least two"):
        lw.merge([one])
    with pytest.raises(UnsupportedError, match="features differ"):
        lw.merge([one, fitted(features[:, :9], targets)])
    with pytest.raises(UnsupportedError, match="only classifiers of discriminant"):
        lw.merge([one, trained("softmax")])
    with pytest.raises(UnsupportedError, match="stores no image of these labels"):
        lw.merge([one, replace(one, familiarity=replace(one.familiarity, targets=None))])
