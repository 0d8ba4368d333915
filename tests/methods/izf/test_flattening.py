"""What images tell of their texts, against regressions and covariances written out; and directions that weigh less."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from labelwise.core.arrays import Array
from labelwise.methods.izf import flattening
from labelwise.methods.izf.flattening import PARTS, PENALTY, TEXT_FLOOR, CaptionRelevance, flatten
from labelwise.methods.shared.head import Centre
from labelwise.support.rows import unit_rows


def pairs(n: int = 60) -> tuple[Array, Array]:
    """Images, and texts of which three numbers tell of images and three do not."""
    draws = np.random.default_rng(2)
    images, loud = draws.normal(size=(n, 8)), draws.normal(size=(n, 3))
    return images, np.concatenate([images[:, :3], 5 * loud], 1)


def test_texts_are_predicted_by_images_of_other_parts() -> None:
    images, texts = pairs()
    rows, found = images - images.mean(0), CaptionRelevance.of(images, texts)
    predicted = found.predict @ texts
    penalty = PENALTY * float((rows**2).sum(1).mean())
    for part in range(PARTS):
        own = np.arange(len(rows)) % PARTS == part
        ridge = Ridge(alpha=penalty, fit_intercept=False).fit(rows[~own], texts[~own])
        np.testing.assert_allclose(predicted[own], ridge.predict(rows[own]), rtol=1e-5, atol=1e-6)


def test_directions_weigh_by_the_root_of_their_share_that_is_told() -> None:
    images, texts = pairs(2000)
    found = CaptionRelevance.of(images, texts)
    weights = found.weights(texts)
    assert np.linalg.norm(weights[3:]) < 0.2 * np.linalg.norm(weights[:3]), "what no image tells hardly weighs"
    centred = texts - texts.mean(0)
    values, axes = np.linalg.eigh(centred.T @ centred)
    root = axes @ np.diag(np.sqrt(values + TEXT_FLOOR * values.mean())) @ axes.T
    crossed = centred.T @ found.predict @ centred
    shares = np.linalg.eigvalsh(np.linalg.inv(root) @ (crossed + crossed.T) @ np.linalg.inv(root) / 2)
    squares = np.linalg.eigvalsh((root @ weights).T @ (root @ weights))
    np.testing.assert_allclose(squares, np.sort(np.maximum(shares, 0)), rtol=1e-6, atol=1e-8)


def test_only_so_many_images_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flattening, "MOST", 25)
    images, texts = pairs()
    found = CaptionRelevance.of(images, texts)
    assert len(found.texts) == len(found.predict) == 20
    assert np.array_equal(found.texts, texts[::3])


@pytest.mark.parametrize("flat", [0.0, 0.125, 0.25])
def test_flattening_divides_directions_by_a_power_of_their_variance(flat: float) -> None:
    rows = np.random.default_rng(3).normal(size=(40, 6)) * (9.0, 3.0, 1.0, 1.0, 0.5, 0.0)
    centre = flatten(rows, 1.0, flat)
    unit = Centre.of(rows)(rows)
    wanted = np.zeros_like(unit)
    values, axes = np.linalg.eigh(unit.T @ unit / len(unit))
    for value, axis in zip(values, axes.T, strict=True):
        if value > 1e-6 * values.mean():
            wanted += (unit @ axis)[:, None] * axis * float(value / values.mean() + 0.1) ** -flat
    np.testing.assert_allclose(centre(rows), unit_rows(wanted), rtol=1e-4, atol=1e-5)
    outside = centre(rows[:1] + np.array([0, 0, 0, 0, 0, 7.0]))
    assert abs(outside[0, 5]) < 1e-5, "what no row had is dropped"
