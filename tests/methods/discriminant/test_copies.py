"""Copies of images are told from images that are merely alike."""

import numpy as np
import pytest

from labelwise.methods.discriminant import copies
from labelwise.methods.discriminant.copies import copy_groups, join_groups, square_distances
from labelwise.methods.discriminant.leave_one_out import Floats, Ints


@pytest.mark.parametrize("size", [3, 8, 200])
def test_copies_are_grouped_and_hardly_anything_else(size: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, size)) + 3 * np.tile(np.eye(3, size), (100, 1))
    targets = np.arange(300) % 3
    again = rows[:60] + 0.005 * rng.normal(size=(60, size))
    groups = copy_groups(np.concatenate([rows, again]), np.concatenate([targets, targets[:60]]))
    assert (groups[:60] == groups[300:]).all()
    assert len(set(groups[:300].tolist())) > 0.9 * 300


def test_a_narrow_mode_of_a_label_is_no_burst() -> None:
    """Sketches among photos: near each other beside the photos, yet as far apart as their own neighbours."""
    rng = np.random.default_rng(0)
    sketches, photos = 0.35 * rng.normal(size=(60, 200)), rng.normal(size=(60, 200))
    groups = copy_groups(np.concatenate([sketches, photos, sketches[:5] + 0.01]), np.zeros(125, np.int64))
    assert (groups[:5] == groups[120:]).all()
    assert len(set(groups[:120].tolist())) == 120


def tiles(rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Images of a label that are much alike, and of another that differs from it in one direction: tiles without and with a crack."""
    rows = np.concatenate([0.07 * rng.normal(size=(200, 100)), rng.normal(size=(50, 100))])
    rows[200:220] = 0.07 * rng.normal(size=(20, 100))
    rows[200:220, 0] += 0.2
    return rows, np.repeat([0, 1], [200, 50])


def test_what_images_of_different_labels_share_makes_no_copy() -> None:
    rng = np.random.default_rng(0)
    rows, targets = tiles(rng)
    away = rows - np.stack([rows[targets == label].mean(0) for label in (0, 1)])[targets]
    alike = square_distances(away[targets == 0]) < copies.COPY_DISTANCE * 2 * (away**2).sum() / 248
    assert alike.mean() > 0.5  # by the constant alone they would be copies
    groups = copy_groups(np.concatenate([rows, rows[:3] + 0.001]), np.append(targets, [0, 0, 0]))
    assert (groups[:3] == groups[250:]).all()
    assert len(set(groups.tolist())) > 240


def test_a_copy_under_another_label_is_none() -> None:
    rows = np.random.default_rng(1).normal(size=(40, 30))
    targets = np.arange(40) % 2
    groups = copy_groups(np.concatenate([rows, rows[:1]]), np.concatenate([targets, 1 - targets[:1]]))
    assert groups[0] != groups[40]


def test_groups_of_the_data_are_joined_with_copies() -> None:
    groups = join_groups(np.array([0, 1, 1, 2, 3, 4]), ["burst", "", "burst", "", "other", "other"])
    assert groups.tolist() == [0, 0, 0, 1, 2, 2]
    assert join_groups(np.array([0, 1, 1]), ()).tolist() == [0, 1, 1]


def test_some_rows_say_in_how_many_directions_all_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    residuals = np.random.default_rng(3).normal(size=(600, 8)) * np.arange(1, 9)
    slow = float((residuals**2).sum() ** 2 / ((residuals.T @ residuals) ** 2).sum())
    for most, near in ((600, 1e-5), (200, 0.15)):
        monkeypatch.setattr(copies, "MOST_ROWS", most)
        assert copies._effective_dimensions(residuals) == pytest.approx(slow, rel=near)


@pytest.mark.parametrize("degrees", [1e-3, 0.5, 3.0, 40.0, 900.0])
def test_the_share_of_a_chi_square_is_that_of_scipy(degrees: float) -> None:
    chi2 = pytest.importorskip("scipy.stats").chi2
    for chance in (1e-6, 1e-3, 0.2):
        wanted = min(chi2.ppf(chance, degrees) / degrees, copies.COPY_DISTANCE)
        assert copies._chi_square_share(degrees, chance) == pytest.approx(wanted, rel=1e-6, abs=1e-12)


def test_of_many_of_a_label_those_near_each_other_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(200, 30)) * np.linspace(3, 0.5, 30)
    rows = np.concatenate([rows, rows[:40] + 0.002 * rng.normal(size=(40, 30))])
    targets = np.tile(np.arange(40), 6) % 2
    whole = copy_groups(rows, targets)
    sizes = list[int]()

    def counted(some: Floats, others: Floats | None = None) -> Floats:
        if others is None:
            sizes.append(len(some))
        return square_distances(some, others)

    monkeypatch.setattr(copies, "square_distances", counted)
    monkeypatch.setattr(copies, "MOST_COMPARED", 32)
    windows = copy_groups(rows, targets)
    assert max(sizes) == 32
    assert sum(sizes) < 3 * len(rows)  # not one pair of all
    assert (windows[:40] == windows[200:]).all()
    assert (whole[:40] == whole[200:]).all()
