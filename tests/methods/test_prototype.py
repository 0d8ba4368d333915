"""Prototypes: how they move, each term of the loss against slow loops, the heads, teaching, and training as a whole."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity, log_softmax, normalize

from labelwise.core.head import Compares
from labelwise.fitting.fit import fit
from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset, Split
from labelwise.methods import Prototype, Softmax
from labelwise.methods.prototype.method import Head, PrototypeModel, pair_loss
from labelwise.methods.shared.linear import Encoder, array
from labelwise.support.errors import UsageError
from labelwise.tasks.similarity import similarity_matrix
from labelwise.train.batches import Batch
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.model import as_float
from labelwise.train.optimizers import Optimizer
from labelwise.train.tensors import BatchRng
from tests.close import assert_close
from tests.conftest import quick
from tests.epochs import batches_of
from tests.pixels_of import px

ROOT = Path(__file__).parent.parent.parent
CPU = Run(device="cpu", seed=3)
SMALL = Prototype(
    epochs=3,
    batch=20,
    head="sim",
    group=5,
    encoder=Encoder(backbone="convnet", width=8),
    optimizer=Optimizer(lr=0.05),
    dropout=0.0,
)
HEADS: tuple[Head, ...] = ("sim", "dol", "mean")


def built(method: Prototype, data: Dataset) -> PrototypeModel:
    torch.manual_seed(0)
    return method.build(training_data(data).spec)


def a_batch(data: Dataset, rows: list[int]) -> Batch:
    train = training_data(data).train
    chosen = torch.tensor(rows)
    rng = BatchRng.from_seed(2, len(rows))
    return Batch(
        images=as_float(px(train)[chosen]), targets=torch.as_tensor(train.targets)[chosen], rows=chosen, rng=rng
    )


def test_prototypes_follow_the_mean_embedding_of_labels_in_the_batch(blob_data: Dataset) -> None:
    model = built(SMALL, blob_data)
    before = model.prototypes.clone()
    embeddings, targets = torch.randn(6, model.encoder.code_size), torch.tensor([0, 2, 2, 0, 2, 0])
    model.follow(embeddings, targets, 0.9)
    for label in range(4):
        own = embeddings[targets == label]
        wanted = 0.9 * before[label] + 0.1 * own.mean(0) if len(own) else before[label]
        assert_close(model.prototypes[label], wanted)
    assert torch.equal(model.prototypes[[1, 3]], before[[1, 3]])


def test_prototypes_are_a_buffer_that_moves_before_scores(blob_data: Dataset) -> None:
    model = built(SMALL, blob_data)
    assert "prototypes" in model.state_dict()
    assert "prototypes" not in dict(model.named_parameters())
    assert abs(float(model.prototypes.std()) - 1) < 0.1
    uniform = built(replace(SMALL, start="uniform"), blob_data).prototypes
    assert 0 <= float(uniform.min()) < float(uniform.max()) < 1
    batch = a_batch(blob_data, [0, 1, 4, 5])
    model.train()
    terms = replace(SMALL, class_weight=1, pair_weight=0, aux_weight=0).loss(model)(batch)
    assert list(terms) == ["class"]
    scores = model.compare(
        model.prototypes, model.encode_images(batch.images)
    ).T  # batch norm: training mode, same batch
    logs = log_softmax(scores, 1)
    slow = -(0.8 * logs[torch.arange(4), batch.targets] + 0.2 * logs.mean(1)).mean()
    assert_close(terms["class"], slow)


def test_trained_prototypes_have_a_gradient(blob_data: Dataset) -> None:
    method = replace(SMALL, prototypes="sgd")
    model = built(method, blob_data)
    before = model.prototypes.detach().clone()
    method.loss(model)(a_batch(blob_data, [0, 1, 4, 5]))["class"].backward()  # type: ignore[no-untyped-call]
    assert torch.equal(model.prototypes, before)
    assert model.prototypes.grad is not None
    assert float(model.prototypes.grad.abs().sum()) > 0


@pytest.mark.parametrize("smoothed", [False, True])
@pytest.mark.parametrize("targets", [[0, 1, 0, 1, 2], [0, 0, 0], [0, 1, 2]], ids=str)
def test_pair_loss(targets: list[int], smoothed: bool) -> None:
    n = len(targets)
    scores, noise = torch.randn(n, n), torch.rand(n, n) * 0.2
    same: list[float] = []
    other: list[float] = []
    for i in range(n):
        for j in range(n):
            truth = float(targets[i] == targets[j])
            if smoothed:
                truth = truth - float(noise[i, j]) if truth else float(noise[i, j])
            p = 1 / (1 + math.exp(-float(scores[i, j])))
            value = -truth * math.log(p) - (1 - truth) * math.log(1 - p)
            if i != j:
                (same if targets[i] == targets[j] else other).append(value)
    wanted = sum(sum(values) / len(values) for values in (same, other) if values)
    found = pair_loss(scores, torch.tensor(targets), noise if smoothed else None)
    assert float(found) == pytest.approx(wanted, rel=1e-4)


def test_pair_and_aux_terms(blob_data: Dataset) -> None:
    method = replace(SMALL, pair_weight=2.0, aux_weight=3.0, smoothing=0.0)
    model = built(method, blob_data).eval()
    batch = a_batch(blob_data, [0, 1, 2, 4, 5])
    terms = method.loss(model)(batch)
    embeddings = model.encode_images(batch.images)
    assert_close(terms["pair"], 2 * pair_loss(model.compare(embeddings, embeddings), batch.targets))
    logs = log_softmax(model.dense(embeddings), 1)
    assert_close(terms["aux"], -3 * logs[torch.arange(5), batch.targets].mean())
    smooth = replace(method, pair_smoothing=0.2)
    one, two = (smooth.loss(model)(a_batch(blob_data, [0, 1, 2, 4, 5]))["pair"] for _ in range(2))
    assert torch.equal(one, two), "the same draws give the same targets"
    assert not torch.equal(one, terms["pair"])


def test_margin_of_the_dense_layer(blob_data: Dataset) -> None:
    method = replace(SMALL, margin=0.4, smoothing=0.0, head="dol")
    model = built(method, blob_data).eval()
    batch = a_batch(blob_data, [0, 1, 2, 4])
    embeddings = model.encode_images(batch.images)
    cosines = cosine_similarity(embeddings[:, None], model.dense.weight[None], dim=2)
    less = cosines.clone()
    for row, target in enumerate(batch.targets.tolist()):
        less[row, target] -= 0.4
    wanted = -log_softmax(30 * less, 1)[torch.arange(4), batch.targets].mean()
    assert_close(method.loss(model)(batch)["aux"], wanted)
    labels = training_data(blob_data).labels
    assert_close(model.score(embeddings, model.encode_labels(labels)), 30 * cosines)


@pytest.mark.parametrize("similarity", ["learned", "cosine", "both"])
def test_heads_score_by_similarity_dense_layer_or_both(similarity: Any, blob_data: Dataset) -> None:
    model = built(replace(SMALL, similarity=similarity), blob_data).eval()
    labels = training_data(blob_data).labels
    embeddings = torch.randn(5, model.encoder.code_size)
    found = {}
    for head in HEADS:
        model.head = head
        found[head] = model.score(embeddings, model.encode_labels(labels))
    with torch.no_grad():
        slow = torch.cat([model.compare(model.prototypes, embedding[None]) for embedding in embeddings], 1).T
    assert_close(found["sim"], slow)
    assert_close(found["dol"], model.dense(embeddings))
    assert_close(found["mean"], (slow + model.dense(embeddings)) / 2)


def learnt(model: PrototypeModel, embeddings: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """The labels that the head of a model learns from examples."""
    made = model.export_head().labels_from_examples(array(embeddings), array(groups))
    return torch.from_numpy(made)


@pytest.mark.parametrize("margin", [None, 0.4])
def test_examples_become_a_prototype(margin: float | None, blob_data: Dataset) -> None:
    data = training_data(blob_data)
    model, _ = train(replace(SMALL, margin=margin, lifted=False), data, CPU)
    assert isinstance(model, PrototypeModel)
    images, groups = as_float(px(data.train)[:7]), torch.tensor([1, 0, 0, 1, 1, 0, 1])
    embeddings = model.encode_images(images)
    with torch.no_grad():
        means = torch.stack([embeddings[groups == group].mean(0) for group in (0, 1)])
        assert_close(model.score(embeddings, learnt(model, embeddings, groups)), model.compare(means, embeddings).T)
        for head in HEADS[1:]:
            model.head = head
            made = learnt(model, embeddings, groups)
            assert made.shape == (2, model.encode_labels(data.labels).shape[1])
            alone = learnt(model, model.encode_images(images[groups == 1]), groups[groups == 1] * 0)
            assert_close(made[1:], alone, rtol=1e-3, atol=1e-4)


def test_new_labels_are_brought_to_the_level_of_trained_ones(blob_data: Dataset) -> None:
    data = training_data(blob_data)
    model, _ = train(SMALL, data, CPU)
    assert isinstance(model, PrototypeModel)
    images, groups = as_float(px(data.train)[:6]), torch.tensor([1, 0, 0, 1, 1, 2])
    with torch.no_grad():
        embeddings, every = model.encode_images(images), model.encode_images(as_float(px(data.train)))
        level = [
            model.compare(model.prototypes[y : y + 1], every[torch.as_tensor(data.train.targets) == y].mean(0)[None])
            for y in range(4)
        ]
        scores = model.score(embeddings, learnt(model, embeddings, groups))
        for group in range(3):
            mean = embeddings[groups == group].mean(0)[None]
            lift = torch.stack(level).mean() - model.compare(mean, mean)[0, 0]
            assert_close(scores[:, group], model.compare(mean, embeddings)[0] + lift, rtol=1e-4, atol=1e-4)


def test_similarity_of_images(blob_data: Dataset) -> None:
    a, b = torch.randn(3, 64), torch.randn(5, 64)
    plain = Softmax(encoder=SMALL.encoder).build(training_data(blob_data).spec).export_head()
    assert_close(similarity_matrix(plain, np.asarray(a), np.asarray(b), "similarity"), normalize(a) @ normalize(b).T)
    found = fit(blob_data, quick("prototype"), CPU)
    test = blob_data.split("test")
    embeddings = found.encode(test.images)
    assert isinstance(found.head, Compares)
    alike = torch.from_numpy(found.head.similarity(embeddings, embeddings))
    same = torch.as_tensor(test.targets)[:, None] == torch.as_tensor(test.targets)
    other = ~torch.eye(len(test), dtype=torch.bool)
    assert float((alike[same & other] > 0).double().mean()) > 0.9
    assert float((alike[~same] < 0).double().mean()) > 0.9


@pytest.mark.parametrize(
    "changed",
    [
        {"head": "mean"},
        {"similarity": "cosine"},
        {"similarity": "both"},
        {"aux_weight": 0.0, "head": "sim"},
        {"prototypes": "sgd"},
        {"symmetric": "mean", "layers": 2, "hidden": 64},
        {"margin": 0.4, "head": "dol", "pair_smoothing": 0.1},
    ],
    ids=lambda values: "-".join(values),
)
def test_variants_learn(changed: dict[str, Any], blob_data: Dataset) -> None:
    method = quick("prototype", 30 if "aux_weight" in changed else 12)  # it helps to learn fast
    assert isinstance(method, Prototype)
    changed = {"head": "sim", **changed}
    found, test = fit(blob_data, replace(method, **changed), CPU), blob_data.split("test")
    right = found.scores(px(test)).best == torch.as_tensor(test.targets)
    assert float(right.double().mean()) > 0.9


def test_features_are_trained_on(blob_data: Dataset) -> None:
    def of(split: Split) -> Split:
        return replace(split, images=as_float(px(split)).mean((2, 3)))

    data = replace(blob_data, splits={name: of(split) for name, split in blob_data.splits.items()})
    found, test = fit(data, Prototype(epochs=30), CPU), data.split("test")
    assert float((found.scores(px(test)).best == torch.as_tensor(test.targets)).double().mean()) > 0.9


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"aux_weight": 0.0, "head": "dol"}, "aux_weight=0 leaves untrained"),
        ({"class_weight": -1.0}, "must not be negative"),
        ({"class_weight": 0.0, "pair_weight": 0.0, "aux_weight": 0.0}, "one must be above 0"),
        ({"momentum": 1.5}, '"momentum" must be from 0 to 1'),
        ({"layers": 3}, "1 or 2 layers"),
        ({"margin": 0.4, "margin_scale": 0.0}, '"margin_scale" must be above 0'),
    ],
    ids=str,
)
def test_wrong_settings(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Prototype(**values)


def test_batches_hold_groups(blob_data: Dataset) -> None:
    method = replace(SMALL, batch=15)
    data = training_data(blob_data)
    stage = next(iter(method.stages(built(method, blob_data), data)))
    for batch in batches_of(stage.batches, 1):
        counts = torch.bincount(batch.targets)
        assert all(count % 5 == 0 for count in counts.tolist())
        assert int(counts.sum()) == 15
