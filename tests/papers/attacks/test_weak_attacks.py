import torch

from labelwise_papers.attacks.pgd import Pgd, Problem
from labelwise_papers.attacks.weak import OfProbabilities


def problem(confidence: float) -> Problem:
    """Two labels, told by the sum of the pixels' distances from a half, the surer the larger ``confidence`` is."""
    images = torch.full((4, 1, 2, 2), 0.6)
    return Problem(
        scores=lambda x: torch.stack([(x - 0.5).flatten(1).sum(1), -(x - 0.5).flatten(1).sum(1)], 1) * confidence,
        images=images,
        targets=torch.zeros(4, dtype=torch.int64),
        epsilon=torch.full((4,), 0.3),
    )


def fooled(attack: Pgd | OfProbabilities, confidence: float) -> int:
    return int(attack(problem(confidence), torch.Generator().manual_seed(0)).fooled.sum())


def test_an_attack_that_is_shown_saturated_probabilities_finds_nothing() -> None:
    attack = Pgd(steps=10, random_start=False)
    assert fooled(attack, 1e4) == 4
    assert fooled(OfProbabilities(attack), 1e4) == 0


def test_probabilities_that_do_not_saturate_serve_as_well_as_scores() -> None:
    attack = Pgd(steps=10, random_start=False)
    assert fooled(attack, 1.0) == fooled(OfProbabilities(attack), 1.0) == 4
    assert OfProbabilities(attack).name == "pgd-10, of probabilities"
