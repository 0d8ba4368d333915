import torch

from labelwise.images.describe.words import name_vectors, packaged_vectors
from labelwise.images.split.looks import LOOKS
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.kinds import KINDS, kind_looks, kind_shares, looks_fit

NAMES = ("carrot", "lake", "bus", "sofa", "wolf", "beetle")
TRUE = ("fruit", "landscape", "vehicle", "furniture", "mammal", "insect")


def test_every_word_of_the_table_is_known_and_every_look_is_one() -> None:
    _, report = name_vectors(list(KINDS), packaged_vectors())
    assert not any(report.missing)
    assert kind_looks().shape == (len(KINDS), len(LOOKS))
    assert bool((kind_looks() != 0).any(1).all())


def test_a_name_is_of_its_kind() -> None:
    shares = kind_shares(NAMES)
    torch.testing.assert_close(shares.sum(1), torch.ones(len(NAMES)).double())
    best = [list(KINDS)[i].split(",")[0] for i in shares.argmax(1).tolist()]
    assert sum(one == other for one, other in zip(best, TRUE, strict=True)) >= 5


def test_clusters_that_look_like_kinds_get_names_of_these_kinds() -> None:
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    rows = [next(i for i, kind in enumerate(KINDS) if kind.startswith(TRUE[j])) for j in order.tolist()]
    measured = kind_looks()[rows] * torch.linspace(0.1, 30, len(LOOKS)) + 7  # of any unit
    fit = looks_fit(torch.stack([measured, measured.flip(0)]), NAMES)
    assert torch.equal(best_matching(fit[0]), order)
    torch.testing.assert_close(fit[1], fit[0].flip(0))


def test_looks_that_are_all_the_same_say_nothing() -> None:
    assert float(looks_fit(torch.ones(len(NAMES), len(LOOKS)), NAMES).abs().max()) == 0
