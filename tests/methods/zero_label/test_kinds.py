import numpy as np

from labelwise.images.describe.words import name_vectors, packaged_vectors
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.kinds import KINDS, kind_looks, kind_shares, looks_fit
from labelwise.methods.zero_label.looks import LOOKS

NAMES = ("carrot", "lake", "bus", "sofa", "wolf", "beetle")
TRUE = ("fruit", "landscape", "vehicle", "furniture", "mammal", "insect")


def test_every_word_of_the_table_is_known_and_every_look_is_one() -> None:
    _, report = name_vectors(list(KINDS), packaged_vectors())
    assert not any(report.missing)
    assert kind_looks().shape == (len(KINDS), len(LOOKS))
    assert bool((kind_looks() != 0).any(1).all())


def test_a_name_is_of_its_kind() -> None:
    shares = kind_shares(NAMES)
    np.testing.assert_allclose(shares.sum(1), np.ones(len(NAMES)))
    best = [list(KINDS)[i].split(",")[0] for i in shares.argmax(1).tolist()]
    assert sum(one == other for one, other in zip(best, TRUE, strict=True)) >= 5


def test_clusters_that_look_like_kinds_get_names_of_these_kinds() -> None:
    order = np.array([3, 0, 5, 1, 4, 2])
    rows = [next(i for i, kind in enumerate(KINDS) if kind.startswith(TRUE[j])) for j in order.tolist()]
    measured = kind_looks()[rows] * np.linspace(0.1, 30, len(LOOKS)) + 7  # of any unit
    fit = looks_fit(np.stack([measured, measured[::-1]]), NAMES)
    assert np.array_equal(best_matching(fit[0]), order)
    np.testing.assert_allclose(fit[1], fit[0][::-1])


def test_looks_that_are_all_the_same_say_nothing() -> None:
    assert not looks_fit(np.ones((len(NAMES), len(LOOKS))), NAMES).any()
