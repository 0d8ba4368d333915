import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.core.load import load
from labelwise.core.saved_parts import pack
from labelwise.core.store import save
from labelwise.evaluation.naming import cluster_images
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Encoder, Softmax, ZeroLabel
from labelwise.methods.zero_label.head import NamedHead
from labelwise.methods.zero_label.rename import name_clusters, uncertain_clusters
from labelwise.methods.zero_label.transport import ClusteringSettings, Matching
from labelwise.support.errors import UnsupportedError, UsageError
from tests.changed import model_of

STRUCTURE = ZeroLabel(restarts=3, search=50)
SHORT = Matching(steps=6, batch=30, iterations=50)
TRANSPORT = ZeroLabel(
    naming="transport", restarts=3, clustering=ClusteringSettings(steps=6, batch=40, iterations=50), matching=SHORT
)
CPU = lw.Run(device="cpu")


def world(shuffled: bool = False, labelled: bool = True) -> Dataset:
    """Features of five labels that are as alike as the labels' vectors, which have other numbers."""
    made = torch.Generator().manual_seed(7)
    vectors = torch.randn(5, 4, generator=made)
    means = vectors @ torch.linalg.qr(torch.randn(12, 12, generator=made))[0][:4]
    targets = torch.arange(5).repeat(40)
    images = means[targets] + 0.2 * torch.randn(200, 12, generator=made)
    if shuffled:
        targets = targets[torch.randperm(200, generator=made)]
    if not labelled:
        targets = torch.full_like(targets, -1)
    rows = {"train": slice(0, 140), "test": slice(140, 200)}
    splits = {name: Split(images=images[part], targets=targets[part]) for name, part in rows.items()}
    return Dataset(name="world", labels=Labels(names=tuple("abcde"), vectors=vectors), splits=splits)


def head_of(classifier: Classifier) -> NamedHead:
    assert isinstance(classifier.head, NamedHead)
    return classifier.head


def accuracy(classifier: Classifier) -> float:
    test = world().split("test")
    return float((classifier.scores(test.images).best == torch.as_tensor(test.targets)).double().mean())


@pytest.mark.parametrize("method", [STRUCTURE, TRANSPORT], ids=["structure", "transport"])
def test_no_label_is_read(method: ZeroLabel) -> None:
    """True targets, random targets and none at all give the same weights and the same calibration, bit for bit."""
    runs = [lw.fit(data, method, CPU) for data in (world(), world(shuffled=True), world(labelled=False))]
    first = {**pack(runs[0].head).arrays, **model_of(runs[0]).state_dict()}
    for run in runs[1:]:
        other = {**pack(run.head).arrays, **model_of(run).state_dict()}
        assert all(np.array_equal(first[name], other[name]) for name in first)
        assert (run.calibration.temperature, run.familiarity.rule) == (
            runs[0].calibration.temperature,
            runs[0].familiarity.rule,
        )


def test_structure_names_what_it_never_saw() -> None:
    assert accuracy(lw.fit(world(), STRUCTURE, CPU)) > 0.95


def test_another_seed_is_another_run() -> None:
    runs = [lw.fit(world(), TRANSPORT, lw.Run(device="cpu", seed=seed)) for seed in (0, 1)]
    assert not np.array_equal(head_of(runs[0]).opinions, head_of(runs[1]).opinions)


def test_transport_lowers_its_loss_and_takes_the_best_restart() -> None:
    fitted = [
        lw.fit(world(), replace(TRANSPORT, matching=replace(SHORT, steps=steps, lr=1e-3)), CPU) for steps in (4, 40)
    ]
    found = [model_of(one) for one in fitted]
    losses = [model.restarts.head_losses for model in found if model.restarts is not None]
    assert bool((losses[1] < losses[0]).all())
    best = int(losses[1].argmin())
    assert found[1].restarts is not None
    torch.testing.assert_close(found[1].head.weight, found[1].restarts.best_heads[best])
    report = fitted[1].origin.summary["naming"]
    assert report["losses"]
    assert list(report["losses"]) == sorted(report["losses"])


@pytest.mark.parametrize(
    "matching",
    [Matching(guided=False), Matching(guided=False, initial="random"), Matching(initial="random")],
    ids=["B", "C", "D"],
)
def test_ablations_run(matching: Matching) -> None:
    method = replace(TRANSPORT, matching=replace(matching, steps=4, batch=30, iterations=50))
    assert np.isfinite(lw.fit(world(), method, CPU).label_embeddings).all()


@pytest.mark.parametrize("method", [STRUCTURE, TRANSPORT], ids=["structure", "transport"])
def test_saved_and_renamed(method: ZeroLabel, tmp_path: Path) -> None:
    classifier = lw.fit(world(), method, CPU)
    save(classifier, tmp_path / "a.lw")
    loaded = load(tmp_path / "a.lw")
    images = world().split("test").images
    torch.testing.assert_close(loaded.scores(images).log_odds, classifier.scores(images).log_odds)
    label = uncertain_clusters(loaded)[0].others[:1]
    answers = {uncertain_clusters(loaded)[0].cluster: label[0][0] if label else "a"}
    one, two = name_clusters(loaded, answers), name_clusters(classifier, answers)
    torch.testing.assert_close(one.scores(images).log_odds, two.scores(images).log_odds)


def test_answers_make_the_naming_right() -> None:
    classifier = lw.fit(world(), STRUCTURE, CPU)
    names = head_of(classifier).names.tolist()
    wrong = {cluster: "abcde"[(label + 1) % 5] for cluster, label in enumerate(names)}
    broken = name_clusters(classifier, wrong)
    assert accuracy(broken) < 0.05
    assert broken.origin.summary["answers"] == {str(cluster): name for cluster, name in wrong.items()}
    right = name_clusters(broken, {cluster: "abcde"[label] for cluster, label in enumerate(names)})
    images = world().split("test").images
    torch.testing.assert_close(right.scores(images).log_odds, classifier.scores(images).log_odds)
    np.testing.assert_allclose(head_of(right).statistics.means, head_of(classifier).statistics.means)
    assert {doubt.probability for doubt in uncertain_clusters(right)} == {1.0}
    assert accuracy(classifier) > 0.95, "the classifier itself must not change"


def test_answers_are_checked() -> None:
    classifier = lw.fit(world(), STRUCTURE, CPU)
    with pytest.raises(UsageError, match="numbered 0 to 4; given 9"):
        name_clusters(classifier, {9: "a"})
    other = lw.fit(world(), Softmax(epochs=1), CPU)
    with pytest.raises(UnsupportedError, match="names no clusters"):
        uncertain_clusters(other)


def test_examples_belong_to_their_cluster() -> None:
    classifier, train = lw.fit(world(), STRUCTURE, CPU), world().split("train")
    clusters = cluster_images(classifier, train.images, 5)
    for own, label in zip(clusters, head_of(classifier).names.tolist(), strict=True):
        assert set(torch.as_tensor(train.targets)[list(own.nearest)].tolist()) == {label}


def test_summary_tells_a_run_without_labels() -> None:
    classifier = lw.fit(world(), STRUCTURE, CPU)
    found: dict[str, Any] = classifier.origin.summary["naming"]
    assert sum(found["sizes"]) == pytest.approx(1, abs=1e-3)
    told = {doubt.label: doubt.probability for doubt in uncertain_clusters(classifier)}
    assert list(found["certainty"]) == pytest.approx([told[name] for name in "abcde"], abs=1e-4)
    assert all(0 <= share <= 1 for share in found["agreement"])
    assert found["cohesion"] == (1.0,) * 5
    assert len(found["losses"]) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"naming": "guess"}, "structure"),
        ({"restarts": 0}, "restarts"),
        ({"matching": Matching(gradient="envelope")}, "envelope"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ZeroLabel(**settings)


def test_an_encoder_with_random_weights_is_an_ablation(blob_data: Dataset) -> None:
    method = ZeroLabel(encoder=Encoder(backbone="convnet", width=8), restarts=2, search=10)
    assert np.isfinite(lw.fit(blob_data, method, CPU).label_embeddings).all()


PACK = Path(os.environ.get("LABELWISE_DATA", "")) / "cifar10_simclr_r18_pca128.npz"


@pytest.mark.skipif("LABELWISE_DATA" not in os.environ or not PACK.is_file(), reason="needs the CIFAR-10 features")
def test_clusters_of_real_features_are_stable() -> None:
    with np.load(PACK) as pack:
        images = torch.from_numpy(pack["f"][:4000].astype(np.float32))
    names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    part = Split(images=images, targets=torch.full((len(images),), -1))
    data = Dataset(name="features", labels=Labels(names=names), splits={"train": part})
    found = lw.fit(data, ZeroLabel(restarts=3, search=100), CPU).origin.summary["naming"]
    assert max(found["sizes"]) < 0.16
    assert found["near"] > 0.5


def test_what_was_read_to_compare_labels_is_not_needed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A classifier named by sentences opens, answers and is renamed where the extra for them is missing."""
    data = world()
    named = replace(data, labels=Labels(names=("cat", "dog", "ship", "truck", "frog")))
    monkeypatch.setattr(
        "labelwise.methods.zero_label.label_prior.encode_sentences",
        lambda texts, _: (torch.eye(len(texts), 7) + torch.rand(7)).numpy(),
    )
    classifier = lw.fit(named, replace(STRUCTURE, prior="sentences"), CPU)
    save(classifier, tmp_path / "named.lw")

    def missing(*_: object) -> None:
        raise AssertionError("sentences were read again")

    monkeypatch.setattr("labelwise.methods.zero_label.label_prior.encode_sentences", missing)
    opened = load(tmp_path / "named.lw")
    torch.testing.assert_close(
        opened.scores(data.split("test").images).log_odds, classifier.scores(data.split("test").images).log_odds
    )
    assert head_of(opened).alike.any()
    assert np.array_equal(head_of(opened).alike, head_of(classifier).alike)
    renamed = name_clusters(opened, {0: "frog"}).head
    assert isinstance(renamed, NamedHead)
    assert renamed.names[0] == 4


@pytest.mark.parametrize(("installed", "prior"), [(True, "sentences"), (False, "words")])
def test_sentences_are_read_where_they_can_be(installed: bool, prior: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself naming goes by words and sentences if the extra is there, and says by what it went."""
    read: list[str] = []

    def encode(texts: list[str], _: str) -> Any:
        read.extend(texts)
        return torch.eye(len(texts), 20).numpy()

    monkeypatch.setattr("labelwise.images.describe.minilm.find_spec", lambda _: object() if installed else None)
    monkeypatch.setattr("labelwise.methods.zero_label.label_prior.encode_sentences", encode)
    monkeypatch.setattr("labelwise.methods.zero_label.kinds.encode_sentences", encode)
    method = ZeroLabel(encoder=Encoder(backbone="convnet", width=4), restarts=1, search=5, smooth=5)
    classifier = lw.fit(pictures(), method, CPU)
    assert classifier.origin.summary["naming"]["prior"] == prior
    assert ("a photo of a oak" in read) == installed
    assert any("reptile" in text for text in read) == installed


def pictures(grey: bool = False) -> Dataset:
    """Pictures of three names, of random texture, and coloured as such things are."""
    made = torch.Generator().manual_seed(3)
    targets = torch.arange(3).repeat(30)
    colours = torch.tensor([[0.2, 0.4, 0.9], [0.3, 0.6, 0.2], [0.9, 0.6, 0.1]])  # sea, tree, fruit
    images = (colours[targets][:, :, None, None] + 0.1 * torch.randn(90, 3, 16, 16, generator=made)).clamp(0, 1)
    images = images.mean(1, keepdim=True).expand(-1, 3, -1, -1) if grey else images
    splits = {"train": Split(images=(images * 255).byte().contiguous(), targets=targets)}
    return Dataset(name="p", labels=Labels(names=("salmon", "oak", "apricot")), splits=splits)


def test_pictures_are_named_by_their_looks(tmp_path: Path) -> None:
    """What looks say is kept, so that answers are weighed with it later; it can be left out, and older folders have none."""
    data = pictures()
    method = ZeroLabel(encoder=Encoder(backbone="convnet", width=4), restarts=2, search=10, smooth=5)
    classifier = lw.fit(data, method, CPU)
    seen = head_of(classifier).looks
    assert seen is not None
    assert seen.shape == (2, 3, 3)
    assert seen.any()
    right = (
        (classifier.scores(data.split("train").images).best == torch.as_tensor(data.split("train").targets))
        .double()
        .mean()
    )
    assert right > 0.9
    save(classifier, tmp_path / "a.lw")
    kept = head_of(load(tmp_path / "a.lw")).looks
    assert kept is not None
    assert np.array_equal(kept, seen)
    assert head_of(lw.fit(data, replace(method, looks=False), CPU)).looks is None


def test_features_and_attributes_have_no_looks() -> None:
    assert head_of(lw.fit(world(), STRUCTURE, CPU)).looks is None
    data = pictures()
    given = replace(data, labels=replace(data.labels, vectors=torch.eye(3)))
    method = ZeroLabel(encoder=Encoder(backbone="convnet", width=4), restarts=1, search=5, smooth=5)
    assert head_of(lw.fit(given, method, CPU)).looks is None


def test_one_clustering_for_all_restarts_and_a_layer_with_a_bias(tmp_path: Path) -> None:
    method = replace(
        TRANSPORT,
        clustering=replace(TRANSPORT.clustering, shared=True),
        matching=replace(TRANSPORT.matching, bias=True, lr=1e-2),
    )
    classifier = lw.fit(world(), method, CPU)
    model = model_of(classifier)
    assert model.restarts is not None
    d, r = model.encoder.code_size, method.restarts
    assert model.restarts.best_centres.shape == (1, 5, d)
    assert model.restarts.best_heads.shape == (r, 5, d + 1)
    opinions = torch.from_numpy(head_of(classifier).opinions)
    torch.testing.assert_close(opinions, model.restarts.best_heads[model.restarts.head_losses.argsort()])
    assert bool((model.head.bias != 0).all())
    save(classifier, tmp_path / "a.lw")
    images = world().split("test").images
    again = load(tmp_path / "a.lw").scores(images).log_odds
    torch.testing.assert_close(again, classifier.scores(images).log_odds)
