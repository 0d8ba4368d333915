"""Izf against plain formulas: the closed form, the density, the way back, and what a trial may choose."""

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import labelwise as lw
from labelwise.api import teach
from labelwise.core.balance import balance_curve
from labelwise.data import load
from labelwise.fitting.zero_shot import fit_zero_shot, plan_runs
from labelwise.images.describe.labels import Labels
from labelwise.methods import Izf
from labelwise.methods.izf.gaussian import SPREAD_SHARE, Gaussians, GaussianSettings
from labelwise.methods.izf.generated import GeneratedSoftmax
from labelwise.methods.izf.generated_head import fit_softmax, noise
from labelwise.methods.izf.head import TAKEN_OFF
from labelwise.methods.izf.model import LENGTHS, FlowModel, IzfModel
from labelwise.methods.registry import method_of
from labelwise.methods.shared.head import Centre
from labelwise.methods.shared.linear import array
from labelwise.methods.shared.zero_shot import label_folds
from labelwise.support.errors import UsageError
from labelwise.support.rows import unit_rows
from labelwise.support.settings import from_plain, to_plain
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.optimizers import Optimizer
from labelwise.train.train_data import TrainData
from tests.changed import bind_model
from tests.core.test_balance import harmonic, slow_curve
from tests.described import DIAGONAL, UNSEEN, by_text, by_vector
from tests.epochs import batches_of
from tests.pixels_of import px

RUN = Run(device="cpu")
SET: dict[str, Any] = {"shrink": 2.0, "width": 0.5, "penalty": 0.2, "own": 0.3, "vector_power": 0.7, "flat": 0.2}
SMALL: dict[str, Any] = {**SET, "hidden": 16, "blocks": 3, "batch": 32, "optimizer": Optimizer(name="adam", lr=3e-3)}


def final() -> TrainData:
    return plan_runs(by_vector(), Izf(), 0).final


def trial(seed: int = 4) -> TrainData:
    found = plan_runs(by_vector(noise=2.0, seed=seed), Izf(), 0).trial
    assert found is not None
    return found


def trained(method: Izf, data: TrainData) -> FlowModel:
    model, _ = train(method, data, RUN)
    assert isinstance(model, FlowModel)
    return model


def likeness(a: Tensor, b: Tensor, width: float, usual: float) -> float:
    return float(a @ b) if width == 0 else math.exp(-width * float((a - b).square().sum()) / usual)


def slow_scores(
    embeddings: Tensor, targets: Tensor, vectors: Tensor, asked: tuple[Tensor, Tensor], choice: GaussianSettings
) -> Tensor:
    """Log-likelihoods of images under trained labels and others, up to a number for each image; each label left out by hand."""
    k, images, others = len(vectors), *asked
    means = torch.stack([embeddings[targets == i].mean(0) for i in range(k)])
    centre = means.mean(0)
    inside = torch.stack(
        [(embeddings[targets == i] - means[i]).T @ (embeddings[targets == i] - means[i]) for i in range(k)]
    )
    counts = torch.bincount(targets, minlength=k)
    within = (inside / counts[:, None, None]).mean(0)
    within = within + choice.shrink * within.diagonal().mean() * torch.eye(len(within), dtype=embeddings.dtype)
    pairs = [float((a - b).square().sum()) for a in vectors for b in vectors]
    usual = sum(pairs) / len(pairs)

    def belief(vector: Tensor, rows: list[int]) -> tuple[Tensor, float]:
        """The mean of a label, minus the centre, and its variance, by regression on some trained labels."""
        table = [[likeness(a, vectors[j], choice.width, usual) for j in rows] for a in (*vectors[rows], vector)]
        whole = torch.tensor(table, dtype=embeddings.dtype)
        inverse = torch.linalg.inv(whole[:-1] + choice.penalty * torch.eye(len(rows), dtype=embeddings.dtype))
        share = whole[-1] @ inverse
        return share @ (means[rows] - centre), likeness(vector, vector, choice.width, usual) - float(share @ whole[-1])

    every = list(range(k))
    alone = [belief(vectors[i], [j for j in every if j != i]) for i in every]
    missed = means - centre - torch.stack([mean for mean, _ in alone])
    wrong = torch.tensor([float(off @ torch.linalg.solve(within, off)) for off in missed])
    variances = torch.tensor([variance for _, variance in alone])
    apart = variances - variances.mean()
    slope = max(0.0, float((apart @ (wrong - wrong.mean())) / apart.square().sum()))
    wide = within + SPREAD_SHARE * missed.T @ missed / k
    scores = []
    for row, vector in enumerate((*vectors, *others)):
        mean, variance = belief(vector, every)
        taken = TAKEN_OFF * max(0.0, float(wrong.mean()) + slope * (variance - float(variances.mean())))
        if row < k:
            mean, taken = mean + choice.own * (means[row] - centre - mean), 0.0
        off = images - centre - mean
        scores.append(-0.5 * (off @ torch.linalg.inv(wide) * off).sum(1) + 0.5 * taken)
    return torch.stack(scores, 1)


@pytest.mark.parametrize("width", [0.0, 0.5])
@pytest.mark.parametrize(("d", "k"), [(9, 5), (4, 7)])
def test_the_closed_form_is_the_gaussian_formula(width: float, d: int, k: int) -> None:
    made = torch.Generator().manual_seed(1)
    embeddings, vectors, images, others = (
        torch.randn(*size, generator=made, dtype=torch.float64) for size in ((60, d), (k, 3), (6, d), (4, 3))
    )
    targets = torch.arange(60) % k
    choice = GaussianSettings(shrink=0.7, width=width, penalty=0.3, own=0.4)
    wanted = slow_scores(embeddings, targets, vectors, (images, others), choice)
    found = Gaussians.of(embeddings, targets, vectors)
    ((_, scores),) = found.scores(images, torch.cat([vectors, others]), (choice,))
    torch.testing.assert_close(torch.as_tensor(scores).diff(dim=1), wanted.diff(dim=1), rtol=1e-5, atol=1e-5)
    front, labels = found.solve(choice)
    z = (images - front["mean"]) @ front["weight"]
    every = torch.cat([vectors, others]).numpy()
    c = torch.from_numpy(labels.semantic(every, {row: row for row in range(k)}))
    own = torch.stack([-0.5 * (z[:, : c.shape[1]] - one).square().sum(1) for one in c], 1)
    latent = own - 0.5 * z[:, c.shape[1] :].square().sum(1, keepdim=True)
    torch.testing.assert_close(latent[:, :k], wanted[:, :k], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(front["weight"] @ front["inverse_weight"], torch.eye(d, dtype=torch.float64))
    assert float(front["log_det"]) == pytest.approx(float(torch.linalg.slogdet(front["weight"])[1]))


def test_without_epochs_the_model_is_the_closed_form() -> None:
    data = final()
    model = trained(Izf(epochs=0, **SET), data)
    assert model.flow is None
    embeddings = model.encode_features(px(data.train)).double()
    vectors, every = model.vectors(data.labels).double(), model.vectors(data.known).double()
    others = every[len(vectors) :]
    wanted = slow_scores(embeddings, data.train.targets, vectors, (embeddings[:9], others), GaussianSettings(**SET))
    scores = bind_model(model, data.known).scores(data.train.images[:9]).log_odds
    torch.testing.assert_close(torch.as_tensor(scores).diff(dim=1).double(), wanted.diff(dim=1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("start", ["closed", "labels", "random"])
def test_scores_are_densities_of_the_flow_and_the_way_back_is_exact(start: Any) -> None:
    data = final()
    model = trained(Izf(start=start, epochs=4, **SMALL), data)
    assert isinstance(model, IzfModel)
    features = model.encode_features(px(data.train)[:7])
    with torch.no_grad():
        embeddings, labels = model.embed(features), model.encode_labels(data.known)
    given = model.latents(features)[0].detach()
    torch.testing.assert_close(model.features_from(given), features, rtol=0, atol=1e-3)
    jacobian = torch.autograd.functional.jacobian(lambda v: model.latents(v[None])[0][0], features[0])  # type: ignore[no-untyped-call]
    d, e = features.shape[1], model.semantic
    log_det = float(torch.linalg.slogdet(jacobian)[1])
    log_p = []
    for c, taken in zip(model.semantic_part(data.known), model.taken_off(data.known), strict=True):
        off = given[0] - torch.cat([c, torch.zeros(d - e)])
        log_p.append(log_det - 0.5 * float(off.square().sum() - taken) - d / 2 * math.log(2 * math.pi))
    assert bool(model.taken_off(data.known)[len(data.labels) :].all()) == (start != "random")
    assert not model.taken_off(data.labels).any()
    scores = model.score(embeddings, labels)[0]
    torch.testing.assert_close(scores - scores[0], torch.tensor(log_p) - log_p[0], rtol=1e-3, atol=1e-2)
    unfamiliar = model.export_head().outlier_score(array(embeddings), array(labels))
    assert unfamiliar[0] == pytest.approx(-max(log_p), rel=1e-3, abs=1e-2)


def test_training_starts_at_the_closed_form_and_lowers_the_loss() -> None:
    data, method = final(), Izf(epochs=1, **SMALL)
    model = method.build(data.spec)
    stage = next(method.stages(model, data))
    plain = trained(Izf(epochs=0, **SET), data)
    torch.testing.assert_close(model.latents(px(data.train)), plain.latents(px(data.train)))
    batch = next(iter(batches_of(stage.batches, 0)))
    parameters = list(stage.parameters)
    before = stage.loss(batch)
    assert set(before) == {"flow", "centre", "mmd"}
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        torch.stack(list(stage.loss(batch).values())).sum().backward()  # type: ignore[no-untyped-call]
        assert all(p.grad is not None and p.grad.isfinite().all() for p in parameters)
        optimizer.step()
    after = stage.loss(batch)
    assert sum(term.item() for term in after.values()) < sum(term.item() for term in before.values())


def merit(model: FlowModel, data: TrainData) -> float:
    bound = bind_model(model, data.known)
    scores = model.score(torch.from_numpy(bound.encode(data.val.images)), torch.from_numpy(bound.label_embeddings))
    seen = torch.arange(len(data.known)) < len(data.labels)
    return max(harmonic(u, s) for _, u, s in slow_curve(scores, data.val.targets, seen))


@pytest.mark.parametrize("lr", [3e-3, 1.0])
def test_training_never_makes_the_trial_worse(lr: float) -> None:
    data = trial()
    closed = merit(trained(Izf(epochs=0, **SET), data), data)
    method = Izf(epochs=5, **{**SMALL, "optimizer": Optimizer(name="adam", lr=lr)})
    model = trained(method, data)
    assert merit(model, data) >= closed - 1e-9
    settled = method.settle(model)
    assert isinstance(settled, Izf)
    assert settled.epochs == int(model.trained_epochs) <= 5
    if lr == 1.0:
        assert settled.epochs == 0, "a rate that destroys the flow must leave the closed form"


def test_the_closed_form_is_chosen_on_held_out_labels_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    data = trial()
    found = fit_zero_shot(by_vector(noise=2.0, seed=4), Izf(epochs=0), RUN)
    settled: Any = method_of(found)
    solution = trained(Izf(epochs=0), data).solution
    assert solution is not None
    assert {name: getattr(settled, name) for name in GaussianSettings._fields} == solution._asdict()
    monkeypatch.setattr("labelwise.methods.izf.method.label_folds", lambda only: iter([only]))
    model = trained(Izf(epochs=0), data)
    assert model.solution is not None
    best, chosen = merit(model, data), model.solution._asdict()
    ends = {
        "shrink": (1.0, 30.0),
        "width": (0.0, 0.5),
        "penalty": (0.03, 0.3),
        "own": (0.0, 0.75),
        "vector_power": (1.0, 0.7),
        "flat": (0.0, 0.25),
    }
    tried = [
        merit(trained(Izf(epochs=0, **{**chosen, name: value}), data), data) for name in ends for value in ends[name]
    ]
    assert best >= max(tried) - 1e-9
    assert min(tried) < best
    settled = Izf(epochs=0).settle(model)
    assert {name: getattr(settled, name) for name in ends} == chosen


def test_the_gap_is_the_best_over_all_folds() -> None:
    made = by_vector(
        labels=10, noise=2.0, seed=4
    )  # seven labels for three without images: the trial is the first of three folds
    data = plan_runs(made, Izf(), 0).trial
    assert data is not None
    model = trained(Izf(epochs=0), data)
    assert isinstance(model, IzfModel)
    assert model.solution is not None
    assert len(model.held_out) == 3
    fitted = fit_zero_shot(made, Izf(epochs=0), RUN)
    gap = fitted.origin.summary["balance"]["gap"]
    bound = bind_model(model, data.known)
    own = bound.scores(data.val.images).raw[:, : len(data.labels)]
    unit = float(own.std(1).mean())

    def mean_harmonic(penalty: float) -> float:
        pairs = [curve.at(penalty) for curve in model.held_out]
        return sum(2 * u * s / max(u + s, 1e-12) for u, s in pairs) / 3

    tried = max(mean_harmonic(step / 200) for step in range(-600, 600))
    assert mean_harmonic(gap / unit) >= tried - 1e-9
    assert mean_harmonic(gap / unit + 1) < tried - 0.01
    seen = torch.arange(len(data.known)) < len(data.labels)
    first = balance_curve(bound.scores(px(data.val)).raw / unit, data.val.targets, seen)
    for penalty in (-0.5, 0.0, 0.5):
        assert model.held_out[0].at(penalty) == pytest.approx(first.at(penalty), abs=0.02)


def test_held_out_labels_are_as_many_as_those_without_images() -> None:
    data = trial()
    assert (len(data.known), data.without_images) == (9, 3)
    model = trained(Izf(epochs=0), data)
    assert isinstance(model, IzfModel)
    assert len(model.held_out) == 4
    assert [len(fold.unseen or ()) for fold in label_folds(data)] == [3, 2, 2, 2]


@pytest.mark.parametrize("labels", [3, 4, 5, 6, 7])
def test_few_described_labels_are_enough(labels: int) -> None:
    data = by_vector(labels)
    classifier = lw.fit(data, "izf", RUN)
    assert len(classifier.unseen) == 1 + (labels > 5)
    test, seen = data.split("test"), [i for i in range(labels) if i not in UNSEEN]
    shown = test.select(np.flatnonzero(np.isin(test.targets, seen)))
    best = classifier.select([data.labels.names[i] for i in seen]).scores(shown.images).best
    assert (np.array(seen)[best] == shown.targets).mean() > 0.9


def test_labels_may_lie_where_the_closed_form_puts_them_while_the_flow_begins_at_random() -> None:
    data = final()
    closed, random = (trained(Izf(start=start, epochs=1, **SMALL), data) for start in ("closed", "labels"))
    for part in ("semantic_part", "taken_off"):
        torch.testing.assert_close(getattr(closed, part)(data.known), getattr(random, part)(data.known))
    features = random.encode_features(px(data.train))
    low, high = (getattr(random.front(features), end)(0) for end in ("amin", "amax"))
    torch.testing.assert_close(low, torch.zeros_like(low), atol=1e-5, rtol=0)
    torch.testing.assert_close(high, torch.ones_like(high), atol=1e-5, rtol=0)


def test_texts_of_images_say_which_directions_of_label_vectors_count() -> None:
    data = plan_runs(by_text(own=True, unseen=DIAGONAL), Izf(), 0).final
    model, plain = (trained(Izf(**{**SET, "flat": 0.0}), each) for each in (data, without_texts(data)))
    assert isinstance(model, FlowModel)
    features = model.encode_features(px(data.train))
    found = model.caption_relevance(replace(data, train=replace(data.train, images=features)))
    assert found is not None
    assert plain.caption_relevance(without_texts(data)) is None
    centre = Centre.of(model.source.of(data.labels), 0.7)
    wanted = centre(model.source.of(data.known)) @ found.weights(centre.even(found.texts))
    np.testing.assert_allclose(model.vectors(data.known), unit_rows(wanted), rtol=1e-3, atol=1e-3)
    assert not torch.allclose(model.vectors(data.known), plain.vectors(data.known), atol=0.05)
    attributes = replace(data, labels=replace(data.labels, vectors=torch.ones(len(data.labels), model.vector_size)))
    assert model.caption_relevance(attributes) is None, "vectors of labels that are not those of their texts"


def without_texts(data: TrainData) -> TrainData:
    return replace(data, train=replace(data.train, texts=()))


@pytest.mark.parametrize(("without", "count"), [(0, 3), (18, 3), (4, 3), (3, 4), (1, 5)])
def test_each_label_is_held_out_once_with_all_of_its_images(without: int, count: int) -> None:
    data = replace(trial(), without_images=without)
    folds = list(label_folds(data))
    assert len(folds) == count
    assert sorted(name for fold in folds if fold.unseen for name in fold.unseen.names) == sorted(data.known.names)
    for fold in folds:
        assert fold.unseen is not None
        k, images = len(fold.labels), len(fold.train) + len(fold.val)
        assert int(fold.train.targets.max()) < k
        assert images == len(data.train) + len(data.val)
        assert set(fold.val.targets.tolist()) == set(range(len(fold.known)))
        for split in (fold.train, fold.val):  # targets moved with their images
            for image, target in list(zip(px(split), split.targets.tolist(), strict=True))[::7]:
                whole = data.train.join(data.val)
                (row,) = (px(whole) == image).all(1).nonzero()[:, 0].tolist()
                assert data.known.names[int(whole.targets[row])] == fold.known.names[target]


def test_the_length_of_label_vectors_is_chosen_on_held_out_labels() -> None:
    data, method = trial(), Izf(start="random", epochs=3, **SMALL)
    model = trained(method, data)
    assert model.label_map.length in LENGTHS
    best = merit(model, data)
    alone = {length: trained(replace(method, label_length=length), data) for length in LENGTHS}
    assert best >= max(merit(one, data) for one in alone.values()) - 0.15  # orders of images differ
    settled = method.settle(model)
    assert isinstance(settled, Izf)
    assert settled.label_length == model.label_map.length
    head: Any = model.export_head()
    first = head.generate(data.known.select([data.known.names[0]]), 50, 0)[0]
    semantic = model.latents(torch.from_numpy(first))[0][:, : model.semantic]
    torch.testing.assert_close(semantic, model.semantic_part(data.known)[:1].expand_as(semantic), rtol=1e-3, atol=0.05)


def test_generated_features_follow_the_label_and_nothing_else() -> None:
    data = final()
    model = trained(Izf(epochs=2, **SMALL), data)
    head: Any = model.export_head()
    made = torch.from_numpy(head.generate(data.known, 400, 0))
    assert made.shape == (len(data.known), 400, 20)
    alone = head.generate(data.known.select([data.known.names[3]]), 400, 0)
    torch.testing.assert_close(torch.from_numpy(alone)[0], made[3])
    assert not np.array_equal(head.generate(data.known, 400, 1), made)
    features, targets = model.encode_features(px(data.train)), data.train.targets
    for label in range(len(data.labels)):
        real = features[targets == label].mean(0)
        nearest = (made.mean(1) - real).norm(dim=1).argmin()
        assert int(nearest) == label
    assert np.array_equal(noise(data.labels, (3,), 0)[2], noise(data.labels.select([data.labels.names[2]]), (3,), 0)[0])


@pytest.mark.parametrize("head", ["nbc", "softmax"])
def test_a_label_is_taught_by_its_vector(head: Any) -> None:
    data = by_vector()
    found = fit_zero_shot(replace(data, labels=data.labels), Izf(epochs=0, head=head), RUN)
    name = data.labels.names[5]  # one without training images
    assert name in found.unseen
    assert data.labels.vectors is not None
    again = teach(found.remove(name), name, vector=data.labels.vectors[5])
    test = data.split("test")
    rows = test.targets == 5
    assert again.labels.names[-1] == name
    right = again.scores(px(test)[rows]).best == len(again.labels) - 1
    assert float(right.mean()) > 0.8
    kept = [other for other in data.labels.names if other != name]
    torch.testing.assert_close(
        again.select(kept).scores(px(test)).log_odds, found.select(kept).scores(px(test)).log_odds, rtol=1e-5, atol=1e-4
    )


def test_softmax_reaches_the_optimum() -> None:
    made = torch.Generator().manual_seed(2)
    targets = torch.arange(60) % 3
    features = torch.randn(60, 4, generator=made) + 2 * torch.eye(3, 4)[targets]
    found = torch.from_numpy(fit_softmax(features.numpy(), targets.numpy(), np.zeros((3, 5)), 0.01, steps=200))
    weights = found.clone().requires_grad_()
    scores = features @ weights[:, :-1].T + weights[:, -1]
    loss = torch.nn.functional.cross_entropy(scores, targets) + 0.005 * weights[:, :-1].square().sum()
    (gradient,) = torch.autograd.grad(loss, weights)
    assert float(gradient.abs().max()) < 1e-4


def test_softmax_layer_sees_real_and_generated_features_only() -> None:
    data = final()
    model = trained(Izf(epochs=0, head="softmax", **SET), data)
    assert isinstance(model, GeneratedSoftmax)
    kept = torch.from_numpy(model.real).float()
    train_features = model.encode_features(px(data.train))
    assert float(torch.cdist(kept, train_features).amin(1).max()) < 1e-2
    assert set(model.real_targets.tolist()) == set(range(len(data.labels)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": -1}, '"epochs" must be at least 1'),
        ({"epochs": 0, "shrink": 0.0}, '"shrink" must be above 0; given 0.0'),
        ({"width": -1.0}, '"width" must be 0 or more; given -1.0'),
        ({"head": "svm"}, '"head" is one of nbc, softmax; given "svm"'),
        ({"start": "warm"}, '"start" is one of closed, labels, random; given "warm"'),
        ({"start": "random"}, "has to be trained: set epochs"),
        ({"blocks": 0}, '"blocks" must be at least 1'),
        ({"generated": 0}, '"generated" must be at least 1'),
        ({"head_penalty": 0.0}, '"head_penalty" must be above 0'),
    ],
)
def test_wrong_settings(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Izf(**wrong)


def test_settings_survive_as_plain_values() -> None:
    method = Izf(epochs=0, **SET)
    assert from_plain(Izf, to_plain(method)) == method


def test_long_vectors_need_the_closed_start() -> None:
    labels = Labels(names=("a", "b"), vectors=torch.randn(2, 30))
    spec = replace(final().spec, labels=labels)
    Izf(epochs=1, **SMALL).build(spec)
    with pytest.raises(UsageError, match=r"at most as many numbers as a feature \(20\); given 30"):
        Izf(start="random", epochs=1, **SMALL).build(spec)


PACK = Path(os.environ.get("LABELWISE_DATA", "missing")) / "cub_res50.npz"


@pytest.mark.skipif(not PACK.exists(), reason="LABELWISE_DATA has no features of CUB")
def test_the_way_back_is_exact_on_real_features() -> None:
    data = plan_runs(load("cub"), Izf(), 0).final
    some = data.train.select(torch.arange(0, len(data.train), 12))
    few = replace(data, train=replace(some, images=px(some)[:, :512]))
    method = Izf(epochs=2, hidden=64, batch=64, shrink=3.0, width=0.25, penalty=0.03)
    model = trained(method, few)
    features = model.encode_features(px(few.train))
    with torch.no_grad():
        z, _ = model.latents(features)
        assert float((model.features_from(z) - features).abs().max()) < 1e-3
        assert float((model.latents(model.features_from(z))[0] - z).abs().max()) < 1e-2
