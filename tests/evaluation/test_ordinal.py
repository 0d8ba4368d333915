"""The figures of ordered labels against scikit-learn and scipy."""

import pytest
import torch
from scipy.stats import spearmanr
from sklearn import metrics as reference

from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.ordinal import evaluate_ordinal, find_order
from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import DataError, UsageError
from tests.pixels_of import px
from tests.tasks.levels import saying, told

NAMES = ("c", "a", "d", "b")  # a is the lowest
ORDER = (2, 0, 3, 1)
LEVELS = ("a", "b", "c", "d")


def drawn(n: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    """Return probabilities of levels ``[n, 4]``, lowest first, and true levels that follow them roughly."""
    made = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 4, (n,), generator=made)
    far = (torch.arange(4) - truth[:, None] - torch.randn(n, 1, generator=made)).square()
    return (-far + torch.randn(n, 4, generator=made)).double().softmax(1), truth


def as_split(levels: torch.Tensor, truth: torch.Tensor, names: tuple[str, ...] = NAMES) -> Split:
    """Return pictures that get these probabilities from a classifier of NAMES, with targets into ``names``."""
    places = torch.tensor([names.index(level) for level in LEVELS])
    return Split(images=saying(levels[:, torch.tensor(ORDER)]), targets=places[truth])


def test_figures_agree_with_scikit_learn_and_scipy() -> None:
    levels, truth = drawn()
    labels = Labels(names=NAMES, order=ORDER)
    found = evaluate_ordinal(Evaluation.of(told(labels), as_split(levels, truth), labels))
    assert found.images == 300
    assert found.levels == LEVELS
    medians = [next(i for i in range(4) if sum(row[: i + 1]) >= 0.5) for row in levels.tolist()]
    for figures, said in ((found.best, levels.argmax(1).tolist()), (found.median, medians)):
        assert figures.accuracy == pytest.approx(reference.accuracy_score(truth, said))
        assert figures.mean_absolute_error == pytest.approx(reference.mean_absolute_error(truth, said))
        assert figures.kappa == pytest.approx(reference.cohen_kappa_score(truth, said, weights="quadratic"))
        near = [abs(a - b) <= 1 for a, b in zip(said, truth.tolist(), strict=True)]
        assert figures.within_one == pytest.approx(sum(near) / 300)
    assert found.best != found.median
    ranks = (levels * torch.arange(4)).sum(1)
    assert found.spearman == pytest.approx(spearmanr(ranks, truth).statistic, abs=1e-4)


def test_intervals_hold_at_least_what_they_promise_where_probabilities_are_right() -> None:
    made = torch.Generator().manual_seed(1)
    levels = torch.randn(4000, 4, generator=made).double().softmax(1)
    truth = torch.multinomial(levels, 1, generator=made)[:, 0]
    labels = Labels(names=NAMES, order=ORDER)
    for coverage in (0.5, 0.8):
        found = evaluate_ordinal(Evaluation.of(told(labels), as_split(levels, truth), labels), coverage=coverage)
        assert coverage < found.covered < coverage + 0.2
        assert 1 < found.width < 4
    assert evaluate_ordinal(Evaluation.of(told(labels), as_split(levels, truth), labels), coverage=1.0).covered == 1.0


def test_whose_order_counts() -> None:
    ordered, bare = Labels(names=NAMES, order=ORDER), Labels(names=NAMES)
    other = Labels(names=("e", *reversed(NAMES)), order=(9, 1, 2, 3, 4))
    assert find_order(told(bare), bare) is None
    assert find_order(told(bare), ordered) == list(LEVELS)
    assert find_order(told(ordered), bare) == list(LEVELS)
    assert find_order(told(ordered), other) == list(reversed(NAMES))
    assert find_order(told(ordered), other.select(["a", "b"])) == list(LEVELS)  # these rank some labels only
    levels, truth = drawn()
    split = as_split(levels, truth, other.names)
    assert evaluate_ordinal(Evaluation.of(told(ordered), split, other)).levels == ("b", "d", "a", "c")
    assert evaluate_ordinal(Evaluation.of(told(ordered), split, other), order=LEVELS).levels == LEVELS
    with pytest.raises(UsageError, match="no order"):
        evaluate_ordinal(Evaluation.of(told(bare), as_split(levels, truth), bare))


def test_images_of_one_level_have_no_correlation() -> None:
    levels, truth = drawn(20)
    labels = Labels(names=NAMES, order=ORDER)
    found = evaluate_ordinal(Evaluation.of(told(labels), as_split(levels, truth * 0), labels))
    assert found.spearman is None
    assert found.best.kappa is None
    assert found.median.mean_absolute_error == pytest.approx(
        sum(next(i for i in range(4) if sum(row[: i + 1]) >= 0.5) for row in levels.tolist()) / 20
    )


def test_images_without_a_label_are_left_out() -> None:
    levels, truth = drawn(30)
    labels = Labels(names=NAMES, order=ORDER)
    split = as_split(levels, truth)
    half = Split(images=px(split), targets=torch.where(torch.arange(30) < 15, torch.as_tensor(split.targets), -1))
    assert evaluate_ordinal(Evaluation.of(told(labels), half, labels)) == evaluate_ordinal(
        Evaluation.of(told(labels), split.select(range(15)), labels)
    )
    with pytest.raises(DataError, match="no labelled test image"):
        evaluate_ordinal(
            Evaluation.of(told(labels), Split(images=px(split), targets=torch.as_tensor(split.targets) * 0 - 1), labels)
        )
    several = Split(images=saying([[1, 1, 1, 1]]), targets=torch.ones(1, 4).bool())
    with pytest.raises(DataError, match="evaluate_multilabel"):
        evaluate_ordinal(Evaluation.of(told(labels), several, labels))
