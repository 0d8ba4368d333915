"""Coarser answers: they walk down the tree, they are wrong no more often than promised, and a saved or taught classifier keeps them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import labelwise as lw
from labelwise.calls import as_dataset
from labelwise.core.coarser import Tree
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UnsupportedError, UsageError

WIDTH, PAIRS = 8, 4
PARENTS = (("finch", "bird"), ("finch", "bird"), ("owl", "bird"), ("pike",))
NAMES = ("siskin", "serin", "barn owl", "luce")


def draw(n: int, seed: int, spread: float = 1.8) -> tuple[np.ndarray, np.ndarray]:
    """Features of four pairs of labels: the labels of a pair are near each other."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(0)
    pairs = 3 * fixed.normal(size=(PAIRS, WIDTH))
    centres = np.repeat(pairs, 2, 0) + 0.7 * fixed.normal(size=(2 * PAIRS, WIDTH))
    targets = rng.integers(2 * PAIRS, size=n)
    return (centres[targets] + spread * rng.normal(size=(n, WIDTH))).astype(np.float32), targets


def fitted(n: int = 400, spread: float = 1.8) -> lw.Classifier:
    features, targets = draw(n, 1, spread)
    data = as_dataset((features, [f"label {target}" for target in targets]))
    parents = tuple((f"pair {int(name[-1]) // 2}",) for name in data.labels.names)
    return lw.fit(replace(data, labels=replace(data.labels, parents=parents)))


def test_a_path_starts_with_the_most_probable_group_and_stays_inside_it() -> None:
    tree = Tree.of(Labels(names=NAMES, parents=PARENTS))
    probabilities = np.array([[0.3, 0.25, 0.05, 0.4]])
    assert tree.steps(probabilities).probabilities[0].tolist() == pytest.approx([0.6, 0.55, 0.3])
    answers = [tree.answers(probabilities, limit)[0][0] for limit in (0.2, 0.5, 0.58, 0.7)]
    assert answers == [("bird", "finch", "siskin"), ("bird", "finch"), ("bird",), ()]


def test_steps_are_sums_over_the_labels_of_a_group() -> None:
    rng = np.random.default_rng(0)
    parents = tuple((f"genus {i // 2}", f"family {i // 6}") for i in range(18))
    labels = Labels(names=tuple(f"species {i}" for i in range(18)), parents=parents)
    probabilities = rng.dirichlet(np.full(18, 0.5), 200)
    answers = Tree.of(labels).answers(probabilities, 0.45)
    for row, (path, value) in zip(probabilities, answers, strict=True):
        inside = list(range(18))
        expected: list[tuple[str, float]] = []
        for names in ([path[1] for path in parents], [path[0] for path in parents], list(labels.names)):
            sums = {
                name: sum(row[i] for i in inside if names[i] == name) for name in sorted({names[i] for i in inside})
            }
            best = max(sums, key=lambda name: sums[name])
            expected.append((best, sums[best]))
            inside = [i for i in inside if names[i] == best]
        sure = [pair for pair in expected if pair[1] > 0.45]
        assert path == tuple(name for name, _ in sure)
        assert value == pytest.approx(sure[-1][1] if sure else 1)


def test_a_label_may_be_the_parent_of_others() -> None:
    labels = Labels(names=("sparrow", "house sparrow", "tit"), parents=((), ("sparrow",), ()))
    tree = Tree.of(labels)
    ((path, value),) = tree.answers(np.array([[0.3, 0.5, 0.2]]), 0.6)
    assert path == ("sparrow",)
    assert value == pytest.approx(0.8)
    assert tree.answers(np.array([[0.3, 0.5, 0.2]]), 0.4)[0][0] == ("sparrow", "house sparrow")
    assert tree.mistakes(np.array([[0.3, 0.5, 0.2]]), np.array([0]))[0] == pytest.approx(0.5)
    assert labels.groups == ()


@pytest.mark.parametrize("promise", [0.05, 0.1, 0.2])
def test_answers_are_wrong_as_often_as_promised(promise: float) -> None:
    classifier = fitted()
    features, targets = draw(6000, 2)
    answers = classifier.scores(features).coarser(promise)
    wrong = [
        bool(path) and path[-1] not in (f"label {t}", f"pair {t // 2}")
        for (path, _), t in zip(answers, targets, strict=True)
    ]
    assert promise - 0.03 < np.mean(wrong) < promise + 0.03
    assert {len(path) for path, _ in answers} >= {1, 2}
    flat = lw.fit((draw(400, 1)[0], [f"label {t}" for t in draw(400, 1)[1]]))
    sure = [bool(path) for path, _ in flat.scores(features).coarser(promise)]
    assert np.mean([bool(path) for path, _ in answers]) > np.mean(sure)


def test_where_labels_err_less_than_is_allowed_all_answers_are_labels() -> None:
    classifier = fitted(spread=0.1)
    assert {len(path) for path, _ in classifier.scores(draw(200, 2, 0.1)[0]).coarser(0.05)} == {2}


def test_too_few_images_for_a_promise_leave_all_unsure() -> None:
    assert {path for path, _ in fitted(60).scores(draw(5, 2)[0]).coarser(0.001)} == {()}


def test_predictions_say_parents_and_survive_saving(tmp_path: Path) -> None:
    classifier, (features, _) = fitted(), draw(80, 2)
    predictions = classifier.classify(features, max_error=0.05)
    assert {one.label[:4] for one in predictions} >= {"labe", "pair", "unsu"}
    for one in predictions:
        if one.label.startswith("label"):
            assert one.parents == (f"pair {int(one.label[-1]) // 2}",)
        if one.label.startswith("pair"):
            assert one.parents == ()
            assert one.labels == (one.label,)
            assert one.probability >= one.top[0][1]
        assert one.known == (one.label not in ("unsure", "unknown"))
        assert one.parents is not None or one.label == "unknown"
    classifier.save(tmp_path / "tree.lw")
    assert lw.load(tmp_path / "tree.lw").classify(features, max_error=0.05) == predictions


def test_a_taught_label_gives_its_parent_and_joins_the_tree() -> None:
    far = (9 + np.random.default_rng(5).normal(size=(20, WIDTH))).astype(np.float32)
    taught = fitted().teach("far", far[:5], parent="pair 1").teach("farther", -far[:5], parent="new")
    assert taught.labels.parents is not None
    assert taught.labels.parents[-2:] == (("pair 1",), ("new",))
    (path, _) = taught.scores(far[5:6]).coarser(0.1)[0]
    assert path == ("pair 1", "far")
    assert taught.forget("far").labels.parents == (*taught.labels.parents[:-2], ("new",))


def test_the_parents_of_a_parent_are_known_from_other_labels() -> None:
    labels = Labels(names=NAMES, parents=PARENTS).add("canary").with_parent("canary", "finch")
    assert labels.parents is not None
    assert labels.parents[-1] == ("finch", "bird")
    assert labels.add("kestrel").parents == (*labels.parents, ())
    assert labels.with_parent("canary", "barn owl").parents == (*PARENTS, ("barn owl", "owl", "bird"))


def test_parents_that_are_no_tree_are_refused() -> None:
    with pytest.raises(UsageError, match="same parents everywhere"):
        Labels(names=("a", "b"), parents=(("x", "y"), ("x", "z")))
    with pytest.raises(UsageError, match="its own parent"):
        Labels(names=("a",), parents=(("x", "a"),))
    with pytest.raises(UsageError, match="reserved"):
        Labels(names=("a",), parents=(("unknown",),))
    assert Labels(names=("a", "b"), parents=(("a",), ("x",))).parents == ((), ("x",))


def test_what_cannot_be_promised_is_refused() -> None:
    classifier, features = fitted(), draw(2, 2)[0]
    with pytest.raises(UsageError, match="between 0 and 1"):
        classifier.classify(features, max_error=5)
    with pytest.raises(UsageError, match="Remove the thresholds"):
        classifier.with_thresholds({"label 0": 0.3}).classify(features, max_error=0.1)
    bare = replace(classifier, calibration=classifier.calibration.bare())
    with pytest.raises(UnsupportedError, match="not calibrated"):
        bare.classify(features, max_error=0.1)
