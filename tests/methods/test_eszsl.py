"""Eszsl and ridge against direct solutions, and how they choose their penalties."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import linear_model

from labelwise.core.head import Array
from labelwise.fitting.zero_shot import fit_zero_shot, plan_runs
from labelwise.images.describe.labels import Labels
from labelwise.methods import Eszsl
from labelwise.methods.eszsl import IMAGE_PENALTIES, LABEL_PENALTIES, Solutions
from labelwise.methods.registry import method_of
from labelwise.methods.shared.centring import Centring
from labelwise.methods.shared.label_source import LabelSource
from labelwise.methods.shared.linear import array
from labelwise.methods.shared.zero_shot import BilinearModel, ZeroShotMethod
from labelwise.support.errors import DataError, UsageError
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.train_data import TrainData
from labelwise_papers.baselines.ridge import PENALTIES, Ridge
from tests.changed import bind_model, model_of
from tests.close import assert_close
from tests.core.test_balance import harmonic, slow_curve
from tests.described import by_vector, sentences

RUN = Run(device="cpu")


def problem(n: int = 40, d: int = 12, k: int = 5, a: int = 7) -> tuple[Array, Array, Array]:
    """Image embeddings, targets and label vectors in double precision; fewer labels than numbers of a vector."""
    rng = np.random.default_rng(4)
    return rng.normal(size=(n, d)), rng.integers(k, size=n), rng.normal(size=(k, a))


def direct(embeddings: Array, targets: Array, vectors: Array, penalties: tuple[float, float]) -> Array:
    """(Z'Z + gamma I)^-1 Z'Y S (S'S + lambda I)^-1, with 1 for the right label and 0 for the others."""
    right = np.zeros((len(targets), len(vectors)))
    for row, target in enumerate(targets.tolist()):
        right[row, target] = 1
    left = np.linalg.inv(embeddings.T @ embeddings + penalties[0] * np.eye(embeddings.shape[1]))
    end = np.linalg.inv(vectors.T @ vectors + penalties[1] * np.eye(vectors.shape[1]))
    return np.asarray(left @ embeddings.T @ right @ vectors @ end)


def trained(method: ZeroShotMethod, data: TrainData) -> BilinearModel:
    model, _ = train(method, data, RUN)
    assert isinstance(model, BilinearModel)
    return model


def trial(method: ZeroShotMethod) -> TrainData:
    found = plan_runs(by_vector(noise=2.0, seed=4), method, 0).trial
    assert found is not None
    return found


def merit(model: BilinearModel, data: TrainData) -> float:
    """The best harmonic mean of any gap on the validation images."""
    embeddings, vectors = model.encode_all(data.val.images), model.vectors(data.known)
    scores = (embeddings @ model.weights @ vectors.T).detach()
    seen = torch.arange(len(data.known)) < len(data.labels)
    return max(harmonic(u, s) for _, u, s in slow_curve(scores, data.val.targets, seen))


@pytest.mark.parametrize("penalties", [(0.1, 0.001), (1.0, 1.0), (100.0, 0.03), (0.3, 30.0)])
@pytest.mark.parametrize("n", [40, 6])
def test_solutions_equal_direct_inverses(penalties: tuple[float, float], n: int) -> None:
    embeddings, targets, vectors = problem(n)
    found = Solutions.of(embeddings, targets, vectors).weights(*penalties)
    np.testing.assert_allclose(found, direct(embeddings, targets, vectors, penalties), rtol=1e-8, atol=1e-10)


def test_scores_are_those_of_the_weights_for_every_pair() -> None:
    embeddings, targets, vectors = problem()
    asked, others = (np.random.default_rng(5).normal(size=size) for size in ((9, 12), (4, 7)))
    found = Solutions.of(embeddings, targets, vectors)
    pairs = dict(found.scores(asked, others))
    assert set(pairs) == {(image, label) for image in IMAGE_PENALTIES for label in LABEL_PENALTIES}
    for pair, scores in pairs.items():
        np.testing.assert_allclose(scores, asked @ found.weights(*pair) @ others.T, rtol=1e-8, atol=1e-10)


def test_eszsl_solves_on_centred_embeddings_and_vectors() -> None:
    data = plan_runs(by_vector(), Eszsl(), 0).final
    model = trained(Eszsl(image_penalty=0.5, label_penalty=2.0), data)
    embeddings, vectors = model.encode_all(data.train.images), model.vectors(data.labels)
    wanted = direct(embeddings.double().numpy(), array(data.train.targets), vectors.double().numpy(), (0.5, 2.0))
    np.testing.assert_allclose(array(model.weights), wanted, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(len(embeddings)))
    bound = bind_model(model, data.known)
    scores = embeddings @ model.weights @ model.vectors(data.known).T
    assert_close(bound.scores(data.train.images).log_odds, scores, rtol=1e-4, atol=1e-6)
    assert model.penalties == (0.5, 2.0)


@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_ridge_equals_scikit_learn(penalty: float) -> None:
    data = plan_runs(by_vector(), Ridge(), 0).final
    model = trained(Ridge(penalty=penalty), data)
    embeddings, vectors = model.encode_all(data.train.images), model.vectors(data.labels)
    reference = linear_model.Ridge(alpha=penalty, fit_intercept=False)
    reference.fit(embeddings.double().numpy(), vectors[data.train.targets].double().numpy())
    wanted = torch.from_numpy(reference.coef_.T.copy()).float()
    torch.testing.assert_close(model.weights.detach(), wanted, rtol=1e-3, atol=1e-4)
    assert model.penalties == (penalty,)


def test_eszsl_takes_the_best_pair_on_held_out_labels() -> None:
    data = trial(Eszsl())
    found = merit(trained(Eszsl(), data), data)
    every = [
        merit(trained(Eszsl(image_penalty=image, label_penalty=label), data), data)
        for image in IMAGE_PENALTIES
        for label in LABEL_PENALTIES
    ]
    assert found == pytest.approx(max(every), abs=1e-9)
    assert min(every) < max(every), "the penalties of this test should matter"


def test_ridge_takes_the_best_penalty_on_held_out_labels() -> None:
    data = trial(Ridge())
    found = merit(trained(Ridge(), data), data)
    every = [merit(trained(Ridge(penalty=penalty), data), data) for penalty in PENALTIES]
    assert found == pytest.approx(max(every), abs=1e-9)
    assert min(every) < max(every)


@pytest.mark.parametrize(("method", "plain"), [(Eszsl(), (1, 1)), (Ridge(), (1,))], ids=["eszsl", "ridge"])
def test_nothing_is_chosen_without_held_out_labels(method: ZeroShotMethod, plain: tuple[float, ...]) -> None:
    data = trial(method)
    of_seen = data.val.targets < len(data.labels)
    for mask in (of_seen, ~of_seen, of_seen & ~of_seen):
        some = replace(data, val=data.val.select(mask.nonzero()[:, 0]))
        assert trained(method, some).penalties == plain
    assert trained(method, data).penalties != plain


@pytest.mark.parametrize("method", [Eszsl(), Ridge()], ids=["eszsl", "ridge"])
def test_the_final_run_takes_the_penalties_of_the_trial(method: ZeroShotMethod) -> None:
    chosen = trained(method, trial(method)).penalties
    found = fit_zero_shot(by_vector(noise=2.0, seed=4), method, RUN)
    assert isinstance(model_of(found), BilinearModel)
    settled = method_of(found)
    if isinstance(settled, Eszsl):
        assert (settled.image_penalty, settled.label_penalty) == chosen
    else:
        assert isinstance(settled, Ridge)
        assert (settled.penalty,) == chosen


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_centring_takes_the_mean_away_and_brings_rows_to_unit_length(power: float) -> None:
    rows = torch.randn(30, 5, generator=torch.Generator().manual_seed(5)) * 3 + 2
    centring = Centring(5, power)
    centring.fit(rows)
    evened = rows if power == 1 else rows.sign() * rows.abs() ** power
    evened = evened if power == 1 else evened / evened.norm(dim=1, keepdim=True)
    wanted = evened - evened.mean(0)
    wanted = wanted / wanted.norm(dim=1, keepdim=True)
    torch.testing.assert_close(centring(rows), wanted, rtol=1e-2, atol=1e-2 if power < 1 else 1e-5)
    torch.testing.assert_close(centring(rows).norm(dim=1), torch.ones(30))
    other = rows[:1]
    torch.testing.assert_close(centring(other), centring(rows)[:1], msg="a row must not depend on the others")


@pytest.mark.parametrize("power", [1.0, 0.5, 0.1])
def test_centring_has_a_slope_at_zero(power: float) -> None:
    centring = Centring(4, power)
    for rows in (torch.zeros(2, 4), torch.tensor([[0.0, 0, 1, 2], [0, -1e-12, 3, 0]])):
        given = rows.requires_grad_()
        found = centring(given)
        found.square().cumsum(1).sum().backward()
        assert given.grad is not None
        assert bool(torch.isfinite(found).all())
        assert bool(torch.isfinite(given.grad).all())


def test_vectors_come_from_where_the_source_says() -> None:
    texts = (sentences("red star"), sentences("blue cross")[:2])
    both = Labels(names=("a", "b"), vectors=torch.eye(2), texts=texts)
    assert np.array_equal(LabelSource().of(both), np.eye(2))
    assert np.array_equal(LabelSource(source="vectors").of(both), np.eye(2))
    of_texts = LabelSource(source="texts").of(both)
    assert np.array_equal(of_texts, LabelSource().of(replace(both, vectors=None)))
    alone = [LabelSource().of(Labels(names=("one",), texts=((text,),)))[0] for text in texts[1]]
    np.testing.assert_allclose(of_texts[1], np.mean(alone, 0), rtol=1e-5)
    for source in ("auto", "vectors"):
        with pytest.raises(DataError, match=r"Nothing describes these labels.*labels\.csv"):
            LabelSource(source=source).of(Labels(names=("a",)))
    with pytest.raises(DataError, match=r"attribute columns \(numbers\)\.$"):
        LabelSource(source="vectors").of(replace(both, vectors=None))


def test_vectors_of_another_size_are_refused() -> None:
    model = trained(Ridge(), plan_runs(by_vector(), Ridge(), 0).final)
    with pytest.raises(UsageError, match="vectors of 6 numbers; given 4"):
        model.encode_labels(Labels(names=("new",), vectors=torch.ones(1, 4)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Eszsl(image_penalty=1.0), "Give both penalties"),
        (lambda: Eszsl(label_penalty=1.0), "Give both penalties"),
        (lambda: Eszsl(image_penalty=0.0, label_penalty=1.0), '"image_penalty" must be above 0; given 0.0'),
        (lambda: Eszsl(image_penalty=1.0, label_penalty=-1.0), '"label_penalty" must be above 0; given -1.0'),
        (lambda: Ridge(penalty=0.0), '"penalty" must be above 0; given 0.0'),
        (lambda: Ridge(power=0.0), '"power" must be above 0 and at most 1; given 0.0'),
        (lambda: Eszsl(power=1.5), '"power" must be above 0 and at most 1; given 1.5'),
        (lambda: Eszsl(epochs=0), 'Setting "epochs" must be at least 1; given 0'),
    ],
    ids=[
        "image alone",
        "label alone",
        "image zero",
        "label below",
        "ridge zero",
        "power zero",
        "power above",
        "epochs",
    ],
)
def test_wrong_settings(make: Callable[[], ZeroShotMethod], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
