"""Measure `prototype` against its rivals on real data: one JSON line for each result, in FILE.

    python benchmarks/prototype.py --jobs mnist cifar10 pacs cub omniglot audio --out results.jsonl [--seeds 0 1]
                                   [--methods softmax prototype ...] [--device cuda] [--data-root FOLDER] [--quick]
                                   [--held-out] [--set KEY=VALUE ...]

Each job trains every method with the same encoder, epochs, batches and schedule, and measures it on test images. Results that
FILE already has are not repeated, and an unfinished training run continues from its checkpoint beside FILE, so the same command
goes on after an interruption. ``--held-out`` measures on every fifth training label, others for each of five seeds, kept from training, in place of the new labels
(cub, omniglot, audio): settings given by ``--set`` are compared there, never on test labels. ``--quick`` runs all jobs on small parts of
the data in about a minute on a CPU: it proves that they run, and its figures mean nothing.

What a job measures, and a guess of its minutes for one seed on an H200 (all methods; not measured):

- mnist (8): clean, FGSM, PGD-40, PGD-100, APGD, Square at 0.3, with and without adversarial training.
- cifar10 (30): clean, FGSM, PGD-7, PGD-20, APGD, Square at 8/255, likewise; ResNet-18, 30 epochs of one cycle, PGD-7, averaged weights.
- pacs (10): leave one domain out, strict and oracle choice among epochs; ResNet-18 from scratch at 64 pixels.
- cub (6): retrieval and verification on the 100 labels that training never saw, at 64 pixels.
- omniglot (8): episodes of 5 and 20 ways, 1 and 5 shots, labels turned by quarter circles.
- audio (3): verification, retrieval and episodes of the 20 speakers of AudioMNIST that training never saw; x-vectors.

Heads of one trained `prototype` are measured side by side: ``sim`` (the learned similarity), ``dol`` (the dense output layer), and on
the same codes ``nearest mean`` and ``cosine``. Rivals need pytorch-metric-learning: see benchmarks/metric_learning.py.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from metric_learning import GROUPS, LossName, Means, Metric, Rule

from labelwise.core.classifier import Classifier, Origin
from labelwise.data import load
from labelwise.evaluation.episodes import EpisodeSettings, evaluate_episodes
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.protocols import measure_retrieval, measure_verification
from labelwise.evaluation.retrieval import evaluate_retrieval
from labelwise.evaluation.verification import evaluate_verification
from labelwise.fitting.fit import fit
from labelwise.fitting.rebuild import model_of
from labelwise.images.dataset import Dataset, Split
from labelwise.methods import Encoder, ImageMethod, Prototype, Softmax
from labelwise.methods.shared.head import TrainedHead
from labelwise.methods.shared.linear import LinearModel
from labelwise.methods.shared.statistics import whiten
from labelwise.support.errors import DataError
from labelwise.support.settings import override
from labelwise.train.adversarial import Adversarial
from labelwise.train.augment import Augment
from labelwise.train.method import Run
from labelwise.train.model import LabelModel
from labelwise.train.optimizers import Optimizer
from labelwise_papers.analyses.domains import evaluate_domain_views, with_head
from labelwise_papers.attacks.apgd import Apgd
from labelwise_papers.attacks.attack import AttackSettings, attack
from labelwise_papers.attacks.pgd import Attack, Fgsm, Pgd
from labelwise_papers.attacks.robust import RobustSettings, evaluate_robust
from labelwise_papers.attacks.square import Square
from labelwise_papers.benchmarks.rotations import rotated
from tests.changed import bind_model

RULES: tuple[Rule, ...] = get_args(Rule)
GROUP = 5  # images of a label that stand together in a batch of `prototype`, as in the paper; of rivals see ``Metric``
RIVALS: tuple[LossName, ...] = get_args(LossName)


@dataclass(frozen=True)
class Bench:
    """What all jobs share: options, results so far, and where they go."""

    chosen: argparse.Namespace
    seed: int
    job: str
    known: set[str] = field(default_factory=set)

    @property
    def quick(self) -> bool:
        """Whether to prove only that jobs run."""
        return bool(self.chosen.quick)

    def open(self, name: str) -> bool:
        """Return whether a result is asked for and not there yet."""
        method = name.split("+")[0]
        return self.key(name) not in self.known and (not self.chosen.methods or method in self.chosen.methods)

    def key(self, name: str) -> str:
        """Return what a result is found by."""
        return json.dumps([self.job, name, self.seed, self.quick, self.chosen.held_out, self.chosen.set])

    def run(self, name: str) -> Run:
        """Return where and how a method is trained; an unfinished run continues."""
        marks = ["quick"] * self.quick + ["held-out"] * self.chosen.held_out + self.chosen.set
        place = self.chosen.out.with_suffix(".runs") / "-".join([self.job, name, str(self.seed), *marks])
        return Run(seed=self.seed, device=self.chosen.device, folder=place, resume=True, progress=not self.quick)

    def write(self, name: str, begun: float, figures: Any) -> None:
        """Append a result."""
        line = {"job": self.job, "name": name, "seed": self.seed, "quick": self.quick}
        line |= {"held_out": self.chosen.held_out, "set": self.chosen.set, "figures": figures}
        line |= {"seconds": round(time.monotonic() - begun, 1), "device": _device_name(), "torch": torch.__version__}
        with self.chosen.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.known.add(self.key(name))
        print(f"{self.job} {name} seed {self.seed}: {json.dumps(figures)[:300]} ({line['seconds']} s)", flush=True)

    def data(self, name: str, per_label: int, labels: int = 6) -> Dataset:
        """Return a data set, or where it is quick so many labels of each split and images of each label."""
        data = load(name, root=self.chosen.data_root)
        if not self.quick:
            return data
        return replace(data, splits={part: _few(split, per_label, labels) for part, split in data.splits.items()})

    def methods(
        self, base: ImageMethod, rivals: tuple[LossName, ...], own: Mapping[str, str] | None = None
    ) -> Iterator[tuple[str, ImageMethod]]:
        """Yield every method with the settings of one, and `prototype` with its own; where it is quick, for one epoch."""
        if self.quick:
            base = replace(base, epochs=1, batch=20)
        shared = {name: getattr(base, name) for name in (each.name for each in fields(ImageMethod))}
        prototype = override(Prototype(group=GROUP, **shared), own or {})
        found: dict[str, ImageMethod] = {"softmax": Softmax(**shared), "prototype": prototype}
        for loss in rivals[: 1 if self.quick else None]:
            found[loss] = Metric(loss=loss, group=GROUPS[loss], **shared)
        for name, method in found.items():
            changes = dict(pair.split("=", 1) for pair in self.chosen.set)
            yield (
                name,
                override(method, {key: value for key, value in changes.items() if hasattr(method, key.split(".")[0])}),
            )


def _few(split: Split, per_label: int, labels: int) -> Split:
    kinds = sorted(set(zip(split.domains or [""] * len(split), split.targets.tolist(), strict=True)))
    domains = sorted({domain for domain, _ in kinds})
    kept = {kind for domain in domains for kind in [k for k in kinds if k[0] == domain and k[1] >= 0][:labels]}
    counts: dict[tuple[str, int], int] = dict.fromkeys(kept, 0)
    rows = []
    for row, kind in enumerate(zip(split.domains or [""] * len(split), split.targets.tolist(), strict=True)):
        if kind in counts and counts[kind] < per_label:
            counts[kind] += 1
            rows.append(row)
    return split.select(rows)


def _device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def small(bench: Bench, backbone: str, width: int) -> Encoder:
    """Return an encoder of the published width, or of a small one where it is quick."""
    return Encoder(backbone=backbone, width=width if bench.quick else None)


def heads(classifier: Classifier, method: ImageMethod) -> Iterator[tuple[str, LabelModel, Classifier]]:
    """Yield a model and its classifier for every way in which a trained model names labels."""
    origin = Origin(train_digests=classifier.origin.train_digests)
    for name, view in views(method).items():
        model = view(model_of(classifier))
        yield name, model, replace(bind_model(model, classifier.labels), origin=origin)


def views(method: ImageMethod) -> dict[str, Callable[[LabelModel], LabelModel]]:
    """Return every way in which models of a method name labels: their own, and rules on the same codes."""
    own: dict[str, Callable[[LabelModel], LabelModel]] = {"": lambda model: model}
    if isinstance(method, Prototype):
        own = {name: partial(with_head, name) for name in ("sim", "dol")}
    return {**own, **{rule: partial(with_rule, rule) for rule in RULES}}


def with_rule(rule: Rule, model: LabelModel) -> LabelModel:
    """Return a model that names labels by this rule on the codes of another."""
    assert isinstance(model, LinearModel)
    return Means(model, rule)


def attacked(bench: Bench, base: ImageMethod, data: Dataset, settings: RobustSettings, training: Adversarial) -> None:
    """Measure accuracy under attack of every method, without and with adversarial training."""
    test, count = data.split("test"), 12 if bench.quick else bench.chosen.attacked
    images = test.select(torch.linspace(0, len(test) - 1, min(count, len(test))).long())
    for adversarial in (None, training):
        for name, method in bench.methods(base, RIVALS[:1]):
            full = f"{name}+at" if adversarial else name
            if not bench.open(full):
                continue
            begun = time.monotonic()
            classifier = fit(data, replace(method, adversarial=adversarial), bench.run(full))
            figures: dict[str, Any] = {"data": data.name}
            for head, model, one in heads(classifier, method):
                own = head not in RULES
                few = settings if own or bench.quick else replace(settings, attacks=(Pgd(), Apgd()))
                figures[head or name] = asdict(evaluate_robust(Evaluation.of(one, images, data.labels), few, model))
                if own and not bench.quick:
                    figures[head or name]["all images"] = under_pgd(one, test, data, settings.epsilon, model)
            bench.write(full, begun, figures)


def under_pgd(
    classifier: Classifier, split: Split, data: Dataset, epsilon: float, model: LabelModel | None = None
) -> dict[str, float]:
    """Return the accuracy on all images of a split, as they are and under PGD of 20 steps."""
    names = [data.labels.names[target] for target in split.targets.tolist()]
    settings = AttackSettings(epsilon=epsilon, attacks=(Pgd(steps=20),), batch=500)
    found = attack(classifier, split.images, names, settings, model)
    return {"images": len(split), "clean": float((~found.wrong).double().mean()), "pgd-20": found.accuracy}


def attacks(bench: Bench, *pgd: Pgd) -> tuple[Attack, ...]:
    """Return the attacks of a job."""
    if bench.quick:
        return (Fgsm(), Pgd(steps=2))
    return (Fgsm(), *pgd, Apgd(), Apgd(loss="ratio"), Square())


def mnist(bench: Bench) -> None:
    """Digits, attacked at 0.3."""
    base = Softmax(encoder=small(bench, "lenet", 4), epochs=20, batch=256, augment=Augment(padding=2), clip=None)
    base = replace(base, optimizer=Optimizer(name="adam", lr=2e-3, weight_decay=0.0))
    paper = Pgd(steps=40, step_size=1 / 30)
    settings = RobustSettings(epsilon=0.3, batch=500, attacks=attacks(bench, paper, replace(paper, steps=100)))
    training = Adversarial(epsilon=0.3, steps=1 if bench.quick else 20, step_size=0.1, loss="scores", warmup=0.3)
    attacked(bench, base, bench.data("mnist", per_label=8), settings, training)


def cifar10(bench: Bench) -> None:
    """CIFAR-10, attacked at 8/255. Quick without the data: finches of 32 pixels in their place, and said in the result."""
    try:
        data = bench.data("cifar10", per_label=8)
    except DataError:
        if not bench.quick:
            raise
        data = bench.data("finches", per_label=8)
        splits = {name: replace(part, images=part.images[:, :, 8:40, 8:40]) for name, part in data.splits.items()}
        data = replace(data, name="finches in place of cifar10", splits=splits)
    base = Softmax(encoder=small(bench, "resnet18", 16), epochs=30, batch=256, augment=Augment(padding=4, flip=True))
    base = replace(base, optimizer=Optimizer(lr=0.2, weight_decay=5e-4), average=0.999)
    settings = RobustSettings(batch=500, attacks=attacks(bench, Pgd(steps=7), Pgd(steps=20)))
    attacked(bench, base, data, settings, Adversarial(steps=1 if bench.quick else 7, loss="scores"))


def pacs(bench: Bench) -> None:
    """PACS, one domain left out."""
    augment = Augment(size=64, scale=(0.5, 1), flip=True, brightness=0.3, contrast=0.3, saturation=0.3, grey=0.1)
    base = Softmax(encoder=small(bench, "resnet18", 16), epochs=20, batch=120, augment=augment)
    base = replace(base, optimizer=Optimizer(name="adamw", lr=2e-3, weight_decay=0.05))
    data = bench.data("pacs", per_label=4)
    for name, method in bench.methods(base, RIVALS[:1]):
        if not bench.open(name):
            continue
        begun, every = time.monotonic(), 0 if bench.quick else 5
        domains = ("sketch",) if bench.quick else ()
        found = evaluate_domain_views(data, method, bench.run(name), views=views(method), every=every, domains=domains)
        figures: dict[str, Any] = {}
        for view, one in found.items():
            each = {held.domain: {"strict": held.strict.test, "oracle": held.oracle.test} for held in one.domains}
            figures[view or name] = {"strict": one.strict, "oracle": one.oracle, "domains": each}
        bench.write(name, begun, figures)


def new_labels(
    bench: Bench,
    base: ImageMethod,
    data: Dataset,
    shots: list[EpisodeSettings],
    own: Mapping[str, str] | None = None,
) -> None:
    """Measure every method, `prototype` with its own settings, on labels that training never saw: pairs of images, and episodes."""
    data = held_out(data, bench.seed) if bench.chosen.held_out else data
    for name, method in bench.methods(base, RIVALS, own):
        if not bench.open(name):
            continue
        begun = time.monotonic()
        classifier = fit(data, method, bench.run(name))
        tested = Evaluation.of(classifier, data.split("test"))
        figures: dict[str, Any] = {"data": data.name} | _plain(tested)
        if bench.chosen.ridges:
            figures["ridges"] = whitened_otherwise(classifier, data.split("test"), bench.chosen.ridges)
        for settings in shots:
            result = evaluate_episodes(tested, settings)
            figures[f"{settings.ways}-way {settings.shots}-shot"] = {
                rule: asdict(each) for rule, each in result.accuracy.items()
            }
        bench.write(name, begun, figures)


def whitened_otherwise(classifier: Classifier, split: Split, ridges: list[float]) -> dict[str, dict[str, float]]:
    """Return recall at 1, mean average precision at R and EER by the cosine of codes that are whitened with other ridges."""
    head, found = classifier.head, {}
    assert isinstance(head, TrainedHead)
    tested = Evaluation.of(classifier, split)
    for ridge in ridges:
        white = whiten(tested.scores.embeddings, head.unit_mean, head.unit_within, ridge)
        otherwise = replace(tested, scores=classifier.scores_of(white))
        near = evaluate_retrieval(otherwise, by="cosine", ks=(1,))
        eer = evaluate_verification(otherwise, by="cosine").eer
        found[f"{ridge:g}"] = {"1": near.recall[1], "map_at_r": near.precision_at_r, "eer": eer}
    return found


def held_out(data: Dataset, seed: int) -> Dataset:
    """Return the data with every fifth training label as test, others for each of five seeds, and nothing of the real test labels."""
    train = data.split("train")
    kinds = sorted(set(train.targets.tolist()))
    held = torch.from_numpy(np.isin(train.targets, kinds[seed % 5 :: 5]))
    rows = {"train": (~held).nonzero()[:, 0], "test": held.nonzero()[:, 0]}
    return replace(data, splits={name: train.select(each) for name, each in rows.items()})


def _plain(tested: Evaluation) -> dict[str, Any]:
    verification = measure_verification(tested, most=len(tested))
    pairs = {by: {"eer": each.eer, "min_dcf": each.min_dcf} for by, each in verification.items()}
    retrieval = measure_retrieval(tested, most=len(tested))
    recall = {by: {**each.recall, "map_at_r": each.precision_at_r} for by, each in retrieval.items()}
    labels = len(tested.split.present)
    return {"images": len(tested), "labels": labels, "verification": pairs, "retrieval": recall}


def cub(bench: Bench) -> None:
    """Retrieval of birds: the first 100 labels train, the others are searched. All methods with averaged weights.

    `prototype` with the cosine inside S, groups of two, targets that are not smoothed, three times the weight on the dense layer, and
    cosines in that layer: of what was compared on held-out training labels, it has the highest recall at 1 by the cosine; see
    docs/results/few-shot.md.
    """
    augment = Augment(size=64, scale=(0.4, 1), flip=True, brightness=0.3, contrast=0.3, saturation=0.3)
    base = Softmax(encoder=small(bench, "resnet18", 16), epochs=60, batch=120, augment=augment, average=0.999)
    base = replace(base, optimizer=Optimizer(name="adamw", lr=2e-3, weight_decay=0.05))
    own = {"similarity": "both", "group": "2", "smoothing": "0", "aux_weight": "3", "margin": "0", "margin_scale": "16"}
    new_labels(bench, base, bench.data("cub200/retrieval", per_label=8), [], own)


def omniglot(bench: Bench) -> None:
    """Episodes of characters of other alphabets; `prototype` with the kind of S and the groups that were chosen for cub."""
    base = Softmax(encoder=small(bench, "resnet12", 4), epochs=12, batch=120, augment=Augment(padding=2, rotation=10))
    base = replace(base, optimizer=Optimizer(name="adamw", lr=2e-3, weight_decay=0.05))
    count, ways = (20, (3,)) if bench.quick else (600, (5, 20))
    shots = [EpisodeSettings(ways=w, shots=s, count=count, seed=bench.seed) for w in ways for s in (1, 5)]
    own = {"similarity": "both", "group": "2"}
    data = rotated(bench.data("omniglot", per_label=20, labels=3))
    new_labels(bench, base, data, shots, own)


def audio(bench: Bench) -> None:
    """Other speakers; `prototype` compares by the cosine, with a learned scale, and all three of its scores rank alike.

    Chosen on the eight held-out training speakers (``--held-out --set encoder.width=64 epochs=20``), mostly with one seed: log-mel energies
    without silence against cepstral coefficients less their mean; no noise, since 0.002 nearly drowns the sounds, whose median root
    mean square is 0.003; the cosine against the learned similarity, each also with AM-softmax; the pair loss once or three times (two
    seeds). Rivals keep the settings they come with. The 60 epochs and the published width are not chosen but given.
    """
    base = Softmax(encoder=small(bench, "xvector_mel_8k", 16), epochs=60, batch=120, augment=Augment())
    base = replace(base, optimizer=Optimizer(name="adamw", lr=2e-3, weight_decay=0.05))
    count, ways = (20, 2) if bench.quick else (600, 5)
    shots = [EpisodeSettings(ways=ways, shots=s, count=count, seed=bench.seed) for s in (1, 5)]
    own = {"similarity": "cosine", "pair_weight": "3"}
    new_labels(bench, base, bench.data("audiomnist", per_label=20), shots, own)


JOBS: dict[str, Callable[[Bench], None]] = {
    "mnist": mnist,
    "cifar10": cifar10,
    "pacs": pacs,
    "cub": cub,
    "omniglot": omniglot,
    "audio": audio,
}


def options(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--methods", nargs="+", choices=("softmax", "prototype", *RIVALS), default=[])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--attacked", type=int, default=1000, help="test images that all attacks are run on")
    parser.add_argument("--held-out", action="store_true", help="measure new labels on held-out training labels")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of every method that has them"
    )
    parser.add_argument(
        "--ridges", type=float, nargs="+", default=[], help="whiten codes of new labels with these, too"
    )
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args(words)


def read_known(path: Path) -> set[str]:
    """Return the keys of the results in a file."""
    if not path.exists():
        return set()
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    names = ("job", "name", "seed", "quick", "held_out", "set")
    return {json.dumps([line[name] for name in names]) for line in lines}


def main(words: list[str] | None = None) -> None:
    chosen = options(words)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    known = read_known(chosen.out)
    for seed in chosen.seeds:
        for job in chosen.jobs:
            JOBS[job](Bench(chosen, seed, job, known))


if __name__ == "__main__":
    main()
