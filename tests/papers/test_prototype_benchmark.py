import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelwise.evaluation.episodes import EpisodeSettings
from labelwise.evaluation.evaluation import Evaluation
from labelwise.images.dataset import Dataset
from labelwise.images.split.divide import pool, resplit
from labelwise.methods import Encoder, Prototype, Softmax
from labelwise.methods.shared.linear import LinearModel
from labelwise.support.errors import UsageError
from labelwise.train.adversarial import Adversarial
from labelwise.train.augment import Augment
from labelwise.train.model import as_float
from labelwise_papers.attacks.pgd import Fgsm, Pgd
from labelwise_papers.attacks.robust import RobustSettings, evaluate_robust
from tests.changed import bind_model, model_of
from tests.close import assert_close
from tests.conftest import blobs
from tests.contract.subjects import trained

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import metric_learning
import prototype
from metric_learning import Means, MetricModel

BASE = Softmax(encoder=Encoder(backbone="convnet", width=8), epochs=1, batch=20, augment=Augment())


def bench(tmp_path: Path, *words: str) -> prototype.Bench:
    out = tmp_path / "r.jsonl"
    chosen = prototype.options(["--quick", "--out", str(out), "--device", "cpu", "--methods", *words])
    return prototype.Bench(chosen, 0, "job", prototype.read_known(out))


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]


def apart() -> Dataset:
    """Blobs whose last three labels are only tested."""
    data = blobs(6, per_label=30)
    targets = torch.as_tensor(pool(data).targets)
    rows = {"train": (targets < 3).nonzero()[:, 0], "test": (targets >= 3).nonzero()[:, 0]}
    return resplit(data, rows)


def test_attacked_methods_with_every_head_and_no_result_twice(tmp_path: Path) -> None:
    settings, training = RobustSettings(epsilon=0.1, attacks=(Fgsm(), Pgd(steps=2))), Adversarial(steps=1)
    for words in (["softmax"], ["softmax", "prototype"], ["softmax", "prototype"]):
        prototype.attacked(bench(tmp_path, *words), BASE, blobs(), settings, training)
    found = lines(tmp_path)
    assert [line["name"] for line in found] == ["softmax", "softmax+at", "prototype", "prototype+at"]
    assert set(found[0]["figures"]) == {"data", "softmax", "nearest mean", "cosine"}
    assert set(found[2]["figures"]) == {"data", "sim", "dol", "nearest mean", "cosine"}
    one = found[2]["figures"]["sim"]
    assert one["images"] == 12
    assert set(one["attacks"]) == {"fgsm", "pgd-2"}
    assert 0 <= one["worst"] <= one["clean"] <= 1


def test_accuracy_on_all_images_is_that_of_the_robust_protocol() -> None:
    classifier, data = trained("softmax"), blobs()
    found = prototype.under_pgd(classifier, data.split("test"), data, 0.05)
    settings = RobustSettings(epsilon=0.05, attacks=(Pgd(steps=20),))
    whole = evaluate_robust(Evaluation.of(classifier, data.split("test"), data.labels), settings)
    assert found["clean"] == whole.clean
    assert found["pgd-20"] == pytest.approx(whole.attacks["pgd-20"], abs=0.03), "other random starts"


def test_new_labels_are_measured_by_pairs_and_episodes(tmp_path: Path) -> None:
    shots = [EpisodeSettings(ways=3, shots=2, queries=5, count=4)]
    prototype.new_labels(bench(tmp_path, "prototype", "--ridges", "1", "0.01"), BASE, apart(), shots)
    (line,) = lines(tmp_path)
    assert line["figures"]["labels"] == 3
    usual, other = line["figures"]["ridges"]["1"], line["figures"]["ridges"]["0.01"]
    own = line["figures"]["retrieval"]["whitened"] | line["figures"]["verification"]["whitened"]
    assert usual == {name: own[name] for name in ("1", "map_at_r", "eer")}
    assert usual != other
    assert set(line["figures"]["retrieval"]) == {"similarity", "cosine", "sum", "whitened"}
    assert set(line["figures"]["3-way 2-shot"]) == {"taught", "nearest mean", "cosine"}


def test_a_line_cut_off_is_no_result(tmp_path: Path) -> None:
    first = {"job": "job", "name": "softmax", "seed": 0, "quick": True, "held_out": False, "set": []}
    (tmp_path / "r.jsonl").write_text(json.dumps(first) + '\n{"job": "job", "name": "proto')
    made = bench(tmp_path, "softmax", "prototype")
    assert (made.open("softmax"), made.open("prototype")) == (False, True)
    assert made.open("softmax+at")
    assert not made.open("triplet"), "not asked for"


def test_settings_are_compared_on_held_out_training_labels(tmp_path: Path) -> None:
    data, words = blobs(6), ("prototype", "--held-out", "--set", "group=3", "hidden=16")
    held = prototype.held_out(data, seed=0)
    assert sorted(set(held.split("test").targets.tolist())) == [0, 5]
    assert set(prototype.held_out(data, seed=1).split("test").targets.tolist()) == {1}
    assert sorted(set(held.split("train").targets.tolist())) == [1, 2, 3, 4]
    for _ in range(2):
        prototype.new_labels(bench(tmp_path, *words), BASE, data, [])
    (line,) = lines(tmp_path)
    assert (line["held_out"], line["set"]) == (True, ["group=3", "hidden=16"])
    assert line["figures"]["labels"] == 2
    names = dict(bench(tmp_path, *words).methods(BASE, ()))
    assert names["softmax"].epochs == 1
    assert names["prototype"].hidden == 16  # type: ignore[attr-defined]


def test_prototype_has_settings_of_its_own_which_set_overrides(tmp_path: Path) -> None:
    own = {"similarity": "cosine", "hidden": "8"}
    names = dict(bench(tmp_path, "prototype", "--set", "hidden=16").methods(BASE, (), own))
    made = names["prototype"]
    assert isinstance(made, Prototype)
    assert (made.similarity, made.hidden, made.group) == ("cosine", 16, prototype.GROUP)
    assert names["softmax"] == BASE
    prototype.new_labels(bench(tmp_path, "prototype"), BASE, apart(), [], own)
    pairs = lines(tmp_path)[0]["figures"]["verification"]
    assert pairs["similarity"]["eer"] == pytest.approx(pairs["cosine"]["eer"], abs=1e-6), "the cosine decides"


def test_rivals_keep_their_groups(tmp_path: Path) -> None:
    own = {"similarity": "both", "group": "2"}
    plain = dict(bench(tmp_path, "prototype").methods(BASE, prototype.RIVALS, own))
    assert isinstance(plain["prototype"], Prototype)
    assert (plain["prototype"].similarity, plain["prototype"].group) == ("both", 2)
    changed = dict(bench(tmp_path, "prototype", "--set", "group=3").methods(BASE, (), own))["prototype"]
    assert isinstance(changed, Prototype)
    assert (changed.similarity, changed.group) == ("both", 3)
    rival = plain["multi-similarity"]
    assert isinstance(rival, metric_learning.Metric)
    assert rival.group == 5


def test_rules_on_embeddings_alone() -> None:
    classifier, split = trained("softmax"), blobs().split("test")
    model = model_of(classifier)
    assert isinstance(model, LinearModel)
    embeddings = classifier.encode(split.images)
    means = torch.from_numpy(model.statistics.means)
    distances = np.linalg.norm(embeddings[:, None] - means.numpy(), axis=2)
    cosines = torch.cosine_similarity(torch.from_numpy(embeddings[:, None]), means, dim=2)
    found = {r: bind_model(Means(model, r), classifier.labels).scores(split.images).log_odds for r in prototype.RULES}
    assert np.array_equal(found["nearest mean"].argmax(1), distances.argmin(1))
    assert_close(found["cosine"], cosines)


@pytest.mark.parametrize("loss", prototype.RIVALS)
def test_metric_losses_train_and_teach(loss: metric_learning.LossName) -> None:
    pytest.importorskip("pytorch_metric_learning")
    from labelwise.fitting.fit import fit
    from labelwise.train.method import Run
    from labelwise.train.optimizers import Optimizer

    shared: dict[str, Any] = {
        "encoder": BASE.encoder,
        "batch": 20,
        "augment": Augment(),
        "optimizer": Optimizer(lr=0.05),
    }
    classifier = fit(blobs(), metric_learning.Metric(loss=loss, epochs=10, **shared), Run(device="cpu"))
    assert isinstance(model_of(classifier), MetricModel)
    assert classifier.origin.summary["training"]["validation_accuracy"] > 0.8
    images = as_float(blobs().split("test").images[:3])
    model = model_of(classifier)
    assert_close(model.encode_images(images), model.last(model.encoder.pool(model.encoder.maps(images))))


def test_without_the_package_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    with pytest.raises(UsageError, match='Install the extra "bench", or put the package'):
        metric_learning.build_loss("triplet", 3, 4)


def test_a_few_images_of_a_few_labels_of_every_domain() -> None:
    split = blobs().split("train")
    split = replace(split, domains=("a", "b") * (len(split) // 2))
    few = prototype._few(split, 2, 3)
    kinds = list(zip(few.domains, few.targets.tolist(), strict=True))
    assert all(kinds.count(kind) == 2 for kind in kinds)
    assert {domain for domain, _ in kinds} == {"a", "b"}
