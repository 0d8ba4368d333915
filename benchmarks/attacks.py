"""Our attacks against those of torchattacks, AutoAttack among them: what stands, and the time, on the same model and pictures.

    python benchmarks/attacks.py [--data digits] [--epsilon 0.1] [--images 200] [--hard] [--epochs 20] [--device cpu]

torchattacks asks for torchvision but does not use it here. Install it without what it asks for, and put it on the path:

    pip install --no-deps --target FOLDER torchattacks tqdm
    PYTHONPATH=FOLDER python benchmarks/attacks.py

A softmax classifier is trained first, with ``--hard`` on attacked pictures. Both sides get its raw scores and the same numbers of
steps and queries. "all" is AutoAttack on their side, and on ours APGD, APGD aimed at nine labels and Square, one after another.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from labelwise.core.classifier import Classifier
from labelwise.data import load
from labelwise.fitting.fit import fit
from labelwise.fitting.rebuild import model_of
from labelwise.methods import Encoder, Softmax
from labelwise.train.adversarial import Adversarial
from labelwise.train.method import Run
from labelwise.train.model import as_float
from labelwise.train.optimizers import Optimizer
from labelwise_papers.attacks.apgd import Apgd
from labelwise_papers.attacks.attack import AttackSettings, attack
from labelwise_papers.attacks.pgd import Attack, Fgsm, Pgd
from labelwise_papers.attacks.square import Square

QUERIES = 1000
Rival = Callable[[nn.Module, float], Any]  # a model and a radius to an attack of torchattacks


class Scores(nn.Module):
    """The raw scores of a classifier, as a module."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.model, self.labels = model_of(classifier), classifier.labels
        self.eval()  # torchattacks puts a model back to the mode it came in

    def forward(self, images: Tensor) -> Tensor:
        """Return scores ``[n, k]``."""
        scores: Tensor = self.model.score(self.model.encode_images(images), self.model.encode_labels(self.labels))
        return scores


def rivals(labels: int) -> dict[str, tuple[tuple[Attack, ...], Rival]]:
    """Return our attacks and theirs by name."""
    import torchattacks as ta

    aims = min(9, labels - 1)
    whole = (Apgd(), Apgd(loss="ratio", aims=aims), Square(queries=QUERIES))
    return {
        "FGSM": ((Fgsm(),), lambda m, e: ta.FGSM(m, eps=e)),
        "PGD-20": ((Pgd(steps=20),), lambda m, e: ta.PGD(m, eps=e, alpha=2.5 * e / 20, steps=20)),
        "APGD, cross-entropy": ((Apgd(steps=100),), lambda m, e: ta.APGD(m, eps=e, steps=100)),
        "APGD, DLR": ((Apgd(loss="ratio", steps=100),), lambda m, e: ta.APGD(m, eps=e, steps=100, loss="dlr")),
        "Square": ((Square(queries=QUERIES),), lambda m, e: ta.Square(m, eps=e, n_queries=QUERIES)),
        "all": (whole, lambda m, e: ta.AutoAttack(m, eps=e, n_classes=labels)),
    }


def standing(model: Scores, images: Tensor, targets: Tensor, epsilon: float, clean: Tensor) -> float:
    """Return the share of pictures that are answered rightly; raise an error if one left its ball."""
    far = (images - clean).abs().max().item()
    if far > epsilon + 1e-5 or not 0 <= images.min() <= images.max() <= 1:
        raise RuntimeError(f"A picture left its ball: {far} away, radius {epsilon}.")
    with torch.no_grad():
        return float((model(images).argmax(1) == targets).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--epsilon", type=float, default=0.1)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hard", action="store_true")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    data = load(chosen.data)
    hard = Adversarial(epsilon=chosen.epsilon, steps=7) if chosen.hard else None
    method = Softmax(encoder=Encoder(width=16), epochs=chosen.epochs, optimizer=Optimizer(lr=0.05), adversarial=hard)
    classifier = fit(data, method, Run(device=chosen.device))
    torch.set_num_threads(1)
    test = data.split("test")
    test = test.select(torch.linspace(0, len(test) - 1, min(chosen.images, len(test))).long())
    images, targets = as_float(test.images), torch.as_tensor(test.targets)
    names = [data.labels.names[i] for i in test.targets.tolist()]
    model = Scores(classifier)
    table = Table("attack", "stands, ours, %", "torchattacks, %", "seconds, ours", "torchattacks", "ratio")
    table.title = (
        f"{chosen.data}, {len(images)} pictures, epsilon {chosen.epsilon}, {'hard' if chosen.hard else 'plain'}"
    )
    for name, (own, rival) in rivals(len(data.labels)).items():
        begun = time.perf_counter()
        found = attack(classifier, test.images, names, AttackSettings(epsilon=chosen.epsilon, attacks=own, batch=1000))
        ours = standing(model, found.images.to(images), targets, chosen.epsilon, images)
        between = time.perf_counter()
        other = rival(model, chosen.epsilon)(images, targets)
        theirs = standing(model, other.to(images), targets, chosen.epsilon, images)
        spent = between - begun, time.perf_counter() - between
        cells = (100 * ours, 100 * theirs, *spent, spent[1] / spent[0])
        table.add_row(name, *(f"{cell:.1f}" for cell in cells))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
