"""Tuning a pretrained encoder: chosen by validation images alone, saved with the classifier, resumed as any training."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from labelwise.cli.outcome import tuning_lines
from labelwise.core.classifier import MethodRecord
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.fitting.choice import FitOptions, decide
from labelwise.fitting.fit import fit
from labelwise.fitting.training import training_data
from labelwise.fitting.tuning import before_tuning
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Discriminant, Encoder
from labelwise.methods.discriminant.model import DiscriminantModel
from labelwise.methods.discriminant.tune import Tune
from labelwise.methods.discriminant.tuning import Passes
from labelwise.support.errors import Interrupted, UsageError
from labelwise.train.batches import Draw, Shard, ShuffledBatches
from labelwise.train.loop import START, train
from labelwise.train.method import Run
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.step import TrainingStep
from tests.changed import model_of
from tests.pixels_of import px

CPU = Run(device="cpu")
SIDE, LABELS = 16, 4


def pictures(each: int, seed: int) -> Split:
    """Stripes of four directions at random places, in noise, which a random network hardly tells apart."""
    rng = torch.Generator().manual_seed(seed)
    targets = torch.arange(LABELS).repeat_interleave(each)
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    angles = targets * torch.pi / LABELS
    along = x * angles.cos()[:, None, None] + y * angles.sin()[:, None, None]
    waves = (along * 1.6 + 6.3 * torch.rand(len(targets), 1, 1, generator=rng)).sin()
    noise = torch.randn(len(targets), 3, SIDE, SIDE, generator=rng)
    return Split(images=(128 + 50 * waves[:, None] + 60 * noise).clamp(0, 255).byte(), targets=targets)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("weights") / "convnet.safetensors"
    save_file(build_backbone("convnet", (3, SIDE, SIDE), 8).state_dict(), path)
    return str(path)


@pytest.fixture(scope="module")
def data() -> Dataset:
    labels = Labels(names=("across", "up", "down", "left"))
    return Dataset(name="stripes", labels=labels, splits={"train": pictures(24, 0), "test": pictures(16, 1)})


@pytest.fixture(scope="module")
def tuned_model(weights: str, data: Dataset) -> DiscriminantModel:
    """The model whose encoder was tuned on the training images; tests read it."""
    model, _ = train(method(weights), training_data(data, 0), CPU)
    assert isinstance(model, DiscriminantModel)
    return model


def method(weights: str, **settings: object) -> Discriminant:
    encoder = Encoder(backbone="convnet", width=8, weights=weights, frozen=True)
    tune = Tune(**{"rates": (3e-3,), "steps": 150, "batch": 32, "flip": False, **settings})  # type: ignore[arg-type]
    return Discriminant(encoder=encoder, tune=tune)


def test_what_pays_is_kept_saved_and_answers_alike(weights: str, data: Dataset, tmp_path: Path) -> None:
    tuned = fit(data, method(weights), CPU)
    about = tuned.origin.summary["tuning"]
    frozen, trained = about["trials"]
    assert about["rate"] == trained["rate"] == 3e-3
    assert frozen["rate"] is None
    assert trained["likelihood"] > frozen["likelihood"]
    assert "leave_one_out" not in tuned.origin.summary, "images that trained the encoder say nothing of it"
    assert tuned.origin.summary["training"]["validation_accuracy"] == trained["accuracy"]
    test = data.split("test")
    plain = fit(data, replace(method(weights), tune=None), CPU)
    right = [float((each.scores(px(test)).best == test.targets).mean()) for each in (plain, tuned)]
    assert right[1] > right[0] + 0.2
    assert not any(name.startswith("tuning") for name in model_of(tuned).state_dict()), (
        "the head was for training alone"
    )
    save(tuned, tmp_path / "tuned.lw")
    again = load(tmp_path / "tuned.lw")
    assert again.origin.method == MethodRecord.of(method(weights))
    np.testing.assert_allclose(again.scores(test.images).raw, tuned.scores(test.images).raw, atol=1e-3, rtol=1e-4)
    assert "encoder tuned (learning rate 0.003, 150 steps)" in next(tuning_lines(again))


def test_where_it_does_not_pay_the_classifier_is_that_without_tuning(weights: str, data: Dataset) -> None:
    data = replace(data, splits={**data.splits, "val": pictures(30, 2)})
    spoilt = fit(data, method(weights, rates=(30.0,), steps=6), CPU)
    plain = fit(data, replace(method(weights), tune=None), CPU)
    assert spoilt.origin.summary["tuning"]["rate"] is None
    assert spoilt.origin.method == plain.origin.method
    state = model_of(plain).state_dict()
    assert all(torch.equal(value, state[name]) for name, value in model_of(spoilt).state_dict().items())
    assert spoilt.origin.summary["leave_one_out"] == plain.origin.summary["leave_one_out"]
    assert "did not pay" in next(tuning_lines(spoilt))


def test_validation_images_choose(weights: str, data: Dataset, tuned_model: DiscriminantModel) -> None:
    """Validation images make the tuned encoder the best, and wrong labels of them do not; test images change nothing."""
    part = training_data(data, 0)
    frozen, best = tuned_model.trials
    assert (frozen.rate, best.rate) == (None, 3e-3)
    assert best.likelihood > frozen.likelihood
    assert tuned_model.rehearsal is not None
    head, val = tuned_model.rehearsal.head, tuned_model.rehearsal.data.val
    scores = torch.from_numpy(head.score(head.embed(val.images.numpy()), head.rows))
    loss = float(torch.nn.functional.cross_entropy(scores, val.targets))
    assert -loss == pytest.approx(best.likelihood, rel=1e-4)
    wrong = replace(part, val=replace(part.val, targets=(part.val.targets + 1) % LABELS))
    other, _ = train(method(weights), wrong, CPU)
    assert isinstance(other, DiscriminantModel)
    assert other.trials[1].likelihood < best.likelihood - 0.1
    none = replace(data, splits={"train": data.split("train")})
    with_test, without = (fit(each, method(weights, steps=3), CPU) for each in (data, none))
    assert with_test.origin.summary["tuning"] == without.origin.summary["tuning"]


def test_all_images_train_in_the_end_and_the_trial_calibrates(
    weights: str, data: Dataset, tuned_model: DiscriminantModel
) -> None:
    rehearsal = tuned_model.rehearsal
    assert rehearsal is not None
    val = training_data(data, 0).val
    assert not torch.allclose(rehearsal.data.val.images, tuned_model.head_features(px(val)), atol=1e-2)
    assert tuned_model.spread(training_data(data, 0).train.images) == pytest.approx(rehearsal.spread, rel=1e-4)
    whole = replace(data, own_splits=False)
    tuned = fit(whole, method(weights, steps=20), CPU)
    about = tuned.origin.summary
    assert (about["training"]["images"], about["calibration"]["images"]) == (
        160,
        about["training"]["validation_images"],
    )
    assert tuned.familiarity.memory is not None
    assert len(tuned.familiarity.memory) == 160
    assert tuned.origin.train_digests is not None
    assert len(tuned.origin.train_digests) == 160


def test_batch_norms_stay_and_weights_move(weights: str, data: Dataset, tuned_model: DiscriminantModel) -> None:
    start = method(weights).build(training_data(data, 0).spec).encoder.backbone.state_dict()
    state = tuned_model.encoder.backbone.state_dict()
    moved = {name for name, value in state.items() if not torch.equal(value, start[name])}
    assert moved
    assert not any("running" in name for name in moved)
    assert not any(p.requires_grad for p in tuned_model.encoder.backbone.parameters())


@pytest.mark.parametrize("stop", [20, 50])
def test_a_run_goes_on_where_it_stopped(
    stop: int, weights: str, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the trial, and in the training on all images."""
    settings = method(weights, steps=30)
    wanted = fit(data, settings, CPU)
    run = replace(CPU, folder=tmp_path / "run", checkpoint_seconds=0.0)
    taken, plain = [0], TrainingStep.take

    def stops(self: TrainingStep, draw: Draw, number: int) -> dict[str, Tensor]:
        taken[0] += 1
        if taken[0] == stop:
            raise RuntimeError("the power is gone")
        return plain(self, draw, number)

    monkeypatch.setattr(TrainingStep, "take", stops)
    with pytest.raises((RuntimeError, Interrupted)):
        fit(data, settings, run)
    taken[0] = 100
    result = fit(data, settings, replace(run, resume=True))
    assert taken[0] - 100 == 61 - stop, "what was done is not done again"
    state = model_of(wanted).state_dict()
    for name, value in model_of(result).state_dict().items():
        torch.testing.assert_close(value, state[name], msg=name)


def test_what_speaks_against_it_is_told_before(weights: str, data: Dataset) -> None:
    told: list[str] = []
    fit(data, method(weights, steps=1), replace(CPU, tell=told.append))
    assert [line.split(":")[0] for line in told] == ["Tuning on a CPU does not pay"]
    frozen = fit(data, replace(method(weights), tune=None), CPU)
    summary = frozen.origin.summary

    def lines(device: str, accuracy: float, images: int) -> list[str]:
        training = {**summary["training"], "device": device, "images": images}
        left = {**summary["leave_one_out"], "accuracy": accuracy}
        about = replace(frozen.origin, summary={**summary, "training": training, "leave_one_out": left})
        return list(tuning_lines(replace(frozen, origin=about)))

    assert list(before_tuning("cuda", 15)) == []
    assert "seldom helps with 14 images" in next(before_tuning("cuda", 14))
    assert "--tune will probably pay" in lines("cuda", 0.6, 60)[0]
    for device, accuracy, images in (("cpu", 0.6, 60), ("cuda", 0.6, 56), ("cuda", 0.76, 60)):
        assert lines(device, accuracy, images) == []


def test_what_cannot_be_tuned_is_refused(data: Dataset) -> None:
    split = data.split("train")
    features = replace(data, splits={"train": replace(split, images=torch.rand(len(split), 12))})
    with pytest.raises(UsageError, match="holds features"):
        fit(features, Discriminant(tune=Tune()), CPU)
    for wrong in ({"rates": ()}, {"rates": (0.0,)}, {"steps": 0}, {"smoothing": 1.0}):
        with pytest.raises(UsageError):
            Tune(**wrong)


def test_the_shell_asks_for_it(weights: str, data: Dataset) -> None:
    options = FitOptions(
        settings={"tune": "{}", "tune.steps": "7", "encoder.weights": weights, "encoder.backbone": "convnet"}
    )
    decision = decide(data, options)
    assert isinstance(decision.method, Discriminant)
    assert decision.method.tune == Tune(steps=7)
    assert decide(data, replace(options, settings={})).method != decision.method
    with pytest.raises(UsageError, match='No setting "tune'):
        decide(data, replace(options, method="softmax"))


def test_a_rate_that_does_not_help_is_followed_by_the_next(weights: str, data: Dataset) -> None:
    part = training_data(data, 0)
    model, _ = train(method(weights, rates=(30.0, 3e-3), steps=80), part, CPU)
    assert isinstance(model, DiscriminantModel)
    frozen, spoilt, tuned = model.trials
    assert spoilt.steps == tuned.steps == 80
    assert spoilt.likelihood < frozen.likelihood < tuned.likelihood
    again, _ = train(method(weights, rates=(3e-3, 30.0), steps=80), part, CPU)
    assert isinstance(again, DiscriminantModel)
    assert [trial.rate for trial in again.trials] == [None, 3e-3]


def test_the_clock_ends_training_and_the_learning_rate_comes_down_in_time(
    weights: str, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that goes a quarter of a second each step: 40 seconds, whatever they hold."""
    part, now, rates = training_data(data, 0), [0.0], list[float]()
    take = TrainingStep.take

    def slowly(self: TrainingStep, draw: Draw, number: int) -> dict[str, Tensor]:
        rates.append(self.lr(number))
        now[0] += 0.25
        return take(self, draw, number)

    monkeypatch.setattr(TrainingStep, "take", slowly)
    monkeypatch.setattr("labelwise.train.loop.time", SimpleNamespace(monotonic=lambda: now[0]))
    model, _ = train(method(weights, steps=None, minutes=40 / 60), part, CPU)
    assert isinstance(model, DiscriminantModel)
    assert len(model.trials) == 2
    assert model.trials[1].steps == pytest.approx(80 + START, abs=1), "the other half is for training on all images"
    assert len(rates) == pytest.approx(160 + 2 * START, abs=2)
    rates = rates[: model.trials[1].steps]
    assert rates[0] == rates[START - 1] == pytest.approx(3e-3 / 25), "the clock starts when steps go at their pace"
    assert max(rates) == pytest.approx(3e-3, rel=0.02)
    peak = rates.index(max(rates))
    assert peak == pytest.approx(8 + START, abs=2)
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] < 0.01 * 3e-3


def test_batches_go_on_pass_after_pass(data: Dataset) -> None:
    split = training_data(data, 0).train
    passes = Passes(ShuffledBatches(split=split, size=16), 12, torch.zeros((), dtype=torch.int64))
    whole = [draw.rows.tolist() for draw in passes.epoch(7, 0, Shard())]
    assert [len(rows) for rows in whole] == [16] * 12
    assert int(passes.taken) == 12
    each = len(passes.batches)
    assert each < 12
    assert len({row for rows in whole[:each] for row in rows}) == 16 * each, "an image once a pass"
    for start in (3, each, each + 2):
        assert [draw.rows.tolist() for draw in passes.epoch(7, start, Shard())] == whole[start:]
