"""Attacks on classifiers: every method with pictures, and one whose smallest radius is known in closed form."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from labelwise.core.classifier import Classifier
from labelwise.fitting.fit import fit
from labelwise.images.describe.labels import Labels
from labelwise.methods import METHODS, Encoder, Softmax
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.train.adversarial import Adversarial
from labelwise.train.method import Run
from labelwise.train.model import as_float
from labelwise.train.networks.backbones import build_backbone
from labelwise_papers.attacks.attack import AttackSettings, attack, scores_of
from labelwise_papers.attacks.pgd import Pgd, margin
from labelwise_papers.attacks.square import Square
from tests.changed import bind_model, changed, exact, model_of
from tests.conftest import squares
from tests.described import Table
from tests.papers.analyses.test_answers import DATA, untrained
from tests.papers.attacks.pixels import pictures, pixels
from tests.pixels_of import px


def smallest_radii(classifier: Classifier, images: torch.Tensor) -> list[float]:
    """The lead of the best label over another one falls by the sum of absolute differences of weights, per radius."""
    found = []
    weights = torch.from_numpy(classifier.label_embeddings)
    for row in as_float(images).flatten(1) @ weights.T:
        best = int(row.argmax())
        ways = [
            float((row[best] - row[k]) / (weights[best] - weights[k]).abs().sum()) for k in range(len(row)) if k != best
        ]
        found.append(min(ways))
    return found


def test_bisection_finds_the_smallest_radius_of_a_linear_classifier() -> None:
    classifier, images = pixels(), pictures(12)
    found = attack(classifier, images, settings=AttackSettings(epsilon=0.2, bisections=12))
    assert found.radii is not None
    slow = smallest_radii(classifier, images)
    for radius, least in zip(found.radii.tolist(), slow, strict=True):
        assert radius == pytest.approx(least, rel=0.03) if least < 0.199 else radius == float("inf")
    assert any(least < 0.199 for least in slow)
    moved = (found.images - found.clean).abs().flatten(1).amax(1)
    assert bool((moved[found.fooled] <= found.radii[found.fooled] + 1e-6).all())


def test_what_is_fooled_is_what_can_be() -> None:
    classifier, images = pixels(), pictures(40)
    found = attack(classifier, images, settings=AttackSettings(epsilon=0.05))
    assert found.fooled.tolist() == [least < 0.05 for least in smallest_radii(classifier, images)]
    assert 0 < found.accuracy < 1
    said = exact(classifier, found.images).best.tolist()
    assert found.answers == tuple(classifier.labels.names[i] for i in said)
    assert torch.equal(found.clean, as_float(images))
    assert not found.wrong.any()


def test_pictures_that_are_answered_wrongly_are_left_as_they_are() -> None:
    classifier, images = pixels(), pictures(10)
    right = classifier.scores(images).best
    names = [classifier.labels.names[(int(t) + row % 2) % 3] for row, t in enumerate(right)]
    found = attack(classifier, images, names, AttackSettings(epsilon=0.03, bisections=2))
    assert found.wrong.tolist() == [row % 2 == 1 for row in range(10)]
    assert bool(found.fooled[found.wrong].all())
    assert torch.equal(found.images[found.wrong], found.clean[found.wrong])
    assert found.radii is not None
    assert bool((found.radii[found.wrong] == 0).all())


def test_batches_and_seeds() -> None:
    classifier, images = pixels(), pictures(9)
    ways = AttackSettings(epsilon=0.04, attacks=(Square(queries=20),))
    first, again = (attack(classifier, images, settings=ways).images for _ in range(2))
    assert torch.equal(first, again)
    other = attack(classifier, images, settings=replace(ways, seed=1)).images
    assert not torch.equal(first, other)
    whole = attack(classifier, images, settings=AttackSettings(epsilon=0.04))
    parts = attack(classifier, images, settings=AttackSettings(epsilon=0.04, batch=2))
    assert torch.equal(whole.fooled, parts.fooled)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_attacked_through_its_gradients(method: str) -> None:
    classifier = untrained(method)
    if not np.isfinite(classifier.label_embeddings).all():  # a generator that was not trained yet
        classifier = changed(classifier, label_embeddings=torch.randn(classifier.label_embeddings.shape).numpy())
    few, modes = px(DATA.split("test"))[:6], [module.training for module in model_of(classifier).modules()]
    before = torch.from_numpy(classifier.scores(few).log_odds)
    targets = before.argmax(1)
    found = attack(classifier, few, settings=AttackSettings(epsilon=0.1, attacks=(Pgd(steps=4),)))
    after = torch.from_numpy(exact(classifier, found.images).log_odds)
    assert bool((margin(after, targets) > margin(before, targets)).all())
    assert float((found.images - found.clean).abs().max()) <= 0.1 + 1e-6
    assert torch.equal(found.fooled, after.argmax(1) != targets)
    assert [module.training for module in model_of(classifier).modules()] == modes
    assert all(parameter.grad is None for parameter in model_of(classifier).parameters())


def test_a_frozen_encoder_lets_gradients_through(tmp_path: Path) -> None:
    torch.manual_seed(1)
    path = tmp_path / "convnet.safetensors"
    save_file(build_backbone("convnet", DATA.shape or (), 8).state_dict(), path)
    encoder = Encoder(backbone="convnet", width=8, weights=str(path), frozen=True)
    classifier = fit(DATA, Softmax(encoder=encoder, epochs=10), Run(device="cpu"))
    images = px(DATA.split("test"))
    classifier.encode(images)  # features that are kept must not stand in for the pictures
    found = attack(classifier, images, settings=AttackSettings(epsilon=0.2, attacks=(Pgd(steps=10),)))
    assert found.accuracy < 0.5
    with pytest.raises(UsageError, match="these are features"):
        fit(DATA, Softmax(encoder=encoder, epochs=1, adversarial=Adversarial()), Run(device="cpu"))


def test_what_cannot_be_attacked_says_why() -> None:
    with pytest.raises(UnsupportedError, match="precomputed features"):
        scores_of(bind_model(Table(Labels(names=("a", "b"))), Labels(names=("a", "b"))))
    several = untrained("multilabel", squares())
    with pytest.raises(UnsupportedError, match="Several labels may be true"):
        attack(changed(several, multilabel=True), px(squares().split("test"))[:2])
    with pytest.raises(UnsupportedError, match="one label only"):
        scores_of(pixels().select(["label 1"]))
    with pytest.raises(UsageError, match="one label for each of the 3"):
        attack(pixels(), pictures(3), torch.tensor([0, 1]))
    with pytest.raises(UsageError, match="places among the 3 labels"):
        attack(pixels(), pictures(2), torch.tensor([0, 3]))
    with pytest.raises(UsageError, match="divide by 255"):
        AttackSettings(epsilon=8)
    with pytest.raises(UsageError, match="at least one"):
        AttackSettings(attacks=())
