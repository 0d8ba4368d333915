"""The second opinion: exact when rows are left out, part of the scores, and of no label that it does not know."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from labelwise.core.classifier import Classifier
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Discriminant
from labelwise.methods.discriminant import kernel as module
from labelwise.methods.discriminant.fit import fit_discriminant, with_second_opinion
from labelwise.methods.discriminant.head import DiscriminantHead
from labelwise.methods.discriminant.kernel import Kernel, fit_kernel
from labelwise.support.errors import StoreError
from labelwise.support.rows import unit_rows
from labelwise.tasks.teach import teach

LABELS = Labels(names=("same", "opposite", "far"))


def modes(n: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features of two labels of two modes each, with one mean between them, and of a third label beside these."""
    draws, targets = np.random.default_rng(seed), np.arange(n) % 3
    side, up = draws.choice([-1.0, 1.0], n), draws.choice([-1.0, 1.0], n)
    up = np.where(targets == 0, side, np.where(targets == 1, -side, up))
    rows = np.stack([side, up, np.full(n, 2.0), 3.0 * (targets == 2)], 1)
    return (rows + 0.2 * draws.normal(size=rows.shape)).astype(np.float32), targets


def classifier_of(n: int = 120) -> Classifier:
    x, targets = modes(n)
    return fit(Dataset(name="modes", labels=LABELS, splits={"train": Split(images=x, targets=targets)}), Discriminant())


def kernel_of(classifier: Classifier) -> Kernel | None:
    assert isinstance(classifier.head, DiscriminantHead)
    return classifier.head.kernel


def right(classifier: Classifier) -> float:
    x, targets = modes(600, seed=1)
    return float((classifier.scores_of(classifier.head.embed(x)).best == targets).mean())


def test_labels_of_one_mean_are_told_apart() -> None:
    classifier = classifier_of()
    assert kernel_of(classifier) is not None
    assert right(classifier) > 0.95
    x, targets = modes(120)
    alone = fit_discriminant(x, targets, LABELS).head
    more = modes(600, seed=1)
    assert (alone.score(alone.embed(more[0]), alone.rows).argmax(1) == more[1]).mean() < 0.85


def test_labels_that_a_mean_tells_apart_need_none() -> None:
    draws, targets = np.random.default_rng(0), np.arange(90) % 3
    x = (0.1 * draws.normal(size=(90, 8)) + np.eye(3, 8)[targets]).astype(np.float32)
    assert with_second_opinion(fit_discriminant(x, targets, LABELS)).head.kernel is None


@pytest.mark.parametrize("weighted", [False, True])
def test_a_group_left_out_is_a_refit_without_it(weighted: bool) -> None:
    x, targets = modes(40)
    rows, draws = unit_rows(x.astype(np.float64)), np.random.default_rng(2)
    groups = np.where(np.arange(40) < 12, np.arange(40) // 3, np.arange(40))
    weights = draws.uniform(0.5, 2, 40) if weighted else np.ones(40)
    fitted = fit_kernel(rows, targets, 3, groups, weights)
    assert fitted is not None
    likeness = np.exp((rows @ rows.T - 1) / fitted.kernel.width)
    wanted = np.eye(3)[targets] - 1 / 3
    ridge = fitted.kernel.ridge
    left_out = fitted.leave_out(np.arange(40), groups)
    for i in (0, 5, 20, 39):
        stay = groups != groups[i]
        # all centres stay: rows that are left out say nothing, and their likeness shapes nothing but the ridge
        normal = likeness[:, stay] @ (weights[stay, None] * likeness[stay]) + ridge * likeness
        solved = np.linalg.lstsq(normal, likeness[:, stay] @ (weights[stay, None] * wanted[stay]), rcond=1e-13)[0]
        np.testing.assert_allclose(left_out[i], likeness[i] @ solved, atol=2e-3)


def test_of_many_images_some_are_centres(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CENTRES", 200)
    monkeypatch.setattr(module, "SOME_CENTRES", 40)
    monkeypatch.setattr(module, "MOST_TRIED", 30)
    classifier = classifier_of(240)
    kernel = kernel_of(classifier)
    assert kernel is not None
    assert len(kernel.centres) == 40
    assert right(classifier) > 0.9
    monkeypatch.setattr(module, "MOST_WEIGHTS", 100)
    assert kernel_of(classifier_of(240)) is None


def test_what_leaving_out_says_is_about_true() -> None:
    about = classifier_of().origin.summary["leave_one_out"]
    assert about["low"] - 0.02 < right(classifier_of()) < about["high"] + 0.03


def test_slopes_of_scores_are_those_of_small_differences() -> None:
    classifier = classifier_of()
    assert isinstance(classifier.head, DiscriminantHead)
    rows = classifier.head.embed(modes(4, seed=2)[0].astype(np.float64))
    weights = np.array([[1.0, -1.0, 0.0]] * len(rows))
    slopes = classifier.head.slopes(rows, classifier.label_embeddings, weights)
    for column in range(rows.shape[1]):
        move = 1e-2 * np.eye(rows.shape[1])[column]  # large, since scores of the kernel are rounded to single precision
        ends = (classifier.head.score(rows + sign * move, classifier.label_embeddings) for sign in (1, -1))
        above, below = ((end * weights).sum(1) for end in ends)
        np.testing.assert_allclose(slopes[:, column], (above - below) / 2e-2, rtol=1e-2, atol=1e-2)


def test_it_is_saved_and_a_taught_label_changes_no_other_score(tmp_path: Path) -> None:
    classifier = classifier_of()
    save(classifier, tmp_path / "modes.lw")
    again = load(tmp_path / "modes.lw")
    x = modes(30, seed=3)[0]
    scores = classifier.scores_of(classifier.head.embed(x)).log_odds
    np.testing.assert_array_equal(again.scores_of(again.head.embed(x)).log_odds, scores)
    new = modes(6, seed=4)[0] * np.array([1, 1, -1, 1], np.float32)
    taught = teach(again, "under", examples=again.scores_of(again.head.embed(new)))
    np.testing.assert_array_equal(taught.scores_of(again.head.embed(x)).log_odds[:, :3], scores)
    under = taught.scores_of(again.head.embed(x * np.array([1, 1, -1, 1], np.float32)))
    assert (under.best == 3).mean() > 0.6


def test_a_taught_label_is_a_regression_with_the_mean_of_its_examples_as_one_more_row() -> None:
    draws = np.random.default_rng(0)
    rows, targets = unit_rows(draws.normal(size=(60, 30))), np.arange(60) % 3
    fitted = fit_kernel(rows, targets, 3, np.arange(60), np.ones(60))
    assert fitted is not None
    kernel, mean = fitted.times(2.0).kernel, rows[:4].mean(0)
    likeness, own = kernel(kernel.centres), kernel(mean[None])[0]
    normal = likeness @ likeness + 20 * np.outer(own, own) + kernel.ridge * likeness
    solved = np.linalg.solve(normal, -likeness.sum(1) / 3 + 20 * own * (1 - 1 / 3))
    x = kernel(unit_rows(draws.normal(size=(50, 30))))
    np.testing.assert_allclose(x @ kernel.learn(mean[None])[0], 2 * x @ solved, atol=1e-4)


def test_examples_at_once_and_one_after_another_teach_the_same() -> None:
    classifier = classifier_of()
    new = classifier.head.embed(modes(12, seed=4)[0] * np.array([1, 1, -1, 1], np.float32))
    once = teach(classifier, "under", examples=classifier.scores_of(new))
    first = teach(classifier, "under", examples=classifier.scores_of(new[:5]))
    then = teach(first, "under", examples=first.scores_of(new[5:]))
    np.testing.assert_allclose(then.label_embeddings[-1], once.label_embeddings[-1], rtol=1e-3, atol=2e-2)
    assert abs(once.label_embeddings[-1, -20:]).max() > 1e-3  # the kernel has a say


def test_fitted_labels_with_more_examples_are_still_told_apart() -> None:
    classifier = classifier_of()
    grown, more = classifier, classifier.head.embed(modes(60, seed=6)[0])
    for row, name in enumerate(LABELS.names):
        grown = teach(grown, name, examples=grown.scores_of(more[row::3]))
    assert right(grown) > right(classifier) - 0.01


def test_what_is_left_out_once_is_kept_and_equals_a_new_computation() -> None:
    x, targets = modes(120)
    groups = ["together" if row in (0, 3) else "" for row in range(120)]
    for names in ((), groups):
        fitted = with_second_opinion(fit_discriminant(x, targets, LABELS, names))
        assert fitted.kernel is not None
        assert fitted.kernel.kernel.share != 1
        new = replace(fitted)
        assert not new.left_out
        for also in ("copies", "groups", "labels"):
            kept, fresh = fitted.leave_one_out(also), new.leave_one_out(also)
            assert kept is fitted.leave_one_out(also)
            for name, value in vars(fresh).items():
                np.testing.assert_array_equal(getattr(kept, name), value, err_msg=name)
        assert (fitted.leave_one_out("copies") is fitted.leave_one_out()) == (not names)


@pytest.mark.parametrize("change", [{"width": 0.0}, {"images": 0.0}, {"share": -1.0}, {"ridge": float("inf")}, {}])
def test_a_kernel_that_nobody_fitted_is_refused(change: dict[str, float]) -> None:
    """A width of 0 made every probability NaN, no images divided by zero, and 24,000 centres took an hour to teach."""
    centres = np.zeros((2 if change else 24_000, 1), np.float32)
    numbers = {"width": 1.0, "ridge": 0.1, "images": 2.0, **change}
    with pytest.raises(StoreError, match="The kernel is damaged"):
        Kernel(centres=centres, weights=np.zeros((2, len(centres)), np.float32), **numbers)
