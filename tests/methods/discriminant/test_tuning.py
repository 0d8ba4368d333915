"""Tuning a pretrained encoder: chosen by validation images alone, saved with the classifier, resumed as any training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import linear

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
from labelwise.methods.discriminant.tuning import PACE, TuningLayer
from labelwise.support.errors import Interrupted, UsageError
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.networks.backbones import build_backbone
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


def method(weights: str, **settings: object) -> Discriminant:
    encoder = Encoder(backbone="convnet", width=8, weights=weights, frozen=True)
    tune = Tune(**{"rates": (3e-3,), "steps": 150, "minutes": 0.0, "batch": 32, "flip": False, **settings})  # type: ignore[arg-type]
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
    spoilt = fit(data, method(weights, rates=(3.0,), steps=6), CPU)
    plain = fit(data, replace(method(weights), tune=None), CPU)
    assert spoilt.origin.summary["tuning"]["rate"] is None
    assert spoilt.origin.method == plain.origin.method
    state = model_of(plain).state_dict()
    assert all(torch.equal(value, state[name]) for name, value in model_of(spoilt).state_dict().items())
    assert spoilt.origin.summary["leave_one_out"] == plain.origin.summary["leave_one_out"]
    assert "did not pay" in next(tuning_lines(spoilt))


def test_validation_images_choose(weights: str, data: Dataset) -> None:
    """Validation images make one trial the best, and wrong labels of them none; test images change nothing."""
    part = training_data(data, 0)
    model, _ = train(method(weights, rates=(1e-4, 3e-3)), part, CPU)
    assert isinstance(model, DiscriminantModel)
    likelihoods = [trial.likelihood for trial in model.trials]
    assert [trial.rate for trial in model.trials] == [None, 1e-4, 3e-3]
    assert likelihoods.index(max(likelihoods)) == 2
    head = model.export_head()
    scores = torch.from_numpy(head.score(head.embed(model.head_features(px(part.val)).numpy()), head.rows))
    assert -float(torch.nn.functional.cross_entropy(scores, part.val.targets)) == pytest.approx(
        max(likelihoods), rel=1e-4
    )
    wrong = replace(part, val=replace(part.val, targets=(part.val.targets + 1) % LABELS))
    other, _ = train(method(weights, rates=(1e-4, 3e-3)), wrong, CPU)
    assert isinstance(other, DiscriminantModel)
    assert other.trials[2].likelihood < likelihoods[2] - 0.1  # as probable as chance: no trial is better than another
    assert other.trials[0].likelihood < model.trials[2].likelihood
    none = replace(data, splits={"train": data.split("train")})
    with_test, without = (fit(each, method(weights, steps=3), CPU) for each in (data, none))
    assert with_test.origin.summary["tuning"] == without.origin.summary["tuning"]


def test_batch_norms_stay_and_weights_move(weights: str, data: Dataset) -> None:
    part = training_data(data, 0)
    start = method(weights).build(part.spec).encoder.backbone.state_dict()
    model, _ = train(method(weights), part, CPU)
    assert isinstance(model, DiscriminantModel)
    state = model.encoder.backbone.state_dict()
    moved = {name for name, value in state.items() if not torch.equal(value, start[name])}
    assert moved
    assert not any("running" in name for name in moved)
    assert not any(p.requires_grad for p in model.encoder.backbone.parameters())


def test_a_run_goes_on_where_it_stopped(
    weights: str, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = fit(data, method(weights, rates=(1e-3, 3e-3), steps=12), CPU)
    run = replace(CPU, folder=tmp_path / "run", checkpoint_seconds=0.0)
    steps, plain = [0], TuningLayer.forward

    def stops(head: TuningLayer, features: Tensor) -> Tensor:
        steps[0] += 1
        if steps[0] == 18:  # in the second stage
            raise RuntimeError("the power is gone")
        return plain(head, features)

    monkeypatch.setattr(TuningLayer, "forward", stops)
    with pytest.raises((RuntimeError, Interrupted)):
        fit(data, method(weights, rates=(1e-3, 3e-3), steps=12), run)
    monkeypatch.undo()
    steps[0] = 100

    def counts(head: TuningLayer, features: Tensor) -> Tensor:
        steps[0] += 1
        return plain(head, features)

    monkeypatch.setattr(TuningLayer, "forward", counts)
    result = fit(data, method(weights, rates=(1e-3, 3e-3), steps=12), replace(run, resume=True))
    assert 0 < steps[0] - 100 < 12, "what was done is not done again"
    state = model_of(wanted).state_dict()
    for name, value in model_of(result).state_dict().items():
        torch.testing.assert_close(value, state[name], msg=name)


def test_the_head_begins_with_the_closed_form_and_moves_ten_times_as_fast() -> None:
    rng = torch.Generator().manual_seed(0)
    targets = torch.arange(3).repeat_interleave(20)
    features = 5 + torch.randn(60, 6, generator=rng) + 4 * torch.eye(6)[targets]
    head = TuningLayer(features, targets, 3)
    assert float((head(features).argmax(1) == targets).double().mean()) > 0.9
    weight, bias = PACE * head.weight.detach(), PACE * head.bias.detach()
    slow = linear((features - features.mean(0)) / features.std(0, correction=0), weight, bias)
    torch.testing.assert_close(head(features), slow)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, weight_decay=0.0)
    torch.nn.functional.cross_entropy(head(features), targets).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert float((PACE * head.weight.detach() - weight).abs().max()) == pytest.approx(10 * 1e-3, rel=1e-3)


def test_what_speaks_against_it_is_told_before(weights: str, data: Dataset) -> None:
    told: list[str] = []
    fit(data, method(weights, steps=1), replace(CPU, tell=told.append))
    assert [line.split(":")[0] for line in told] == ["Tuning on a CPU does not pay"]
    frozen = fit(data, replace(method(weights), tune=None), CPU)
    summary = frozen.origin.summary

    def lines(device: str, accuracy: float, images: int) -> tuple[list[str], list[str]]:
        training = {**summary["training"], "device": device, "images": images}
        left = {**summary["leave_one_out"], "accuracy": accuracy}
        about = replace(frozen.origin, summary={**summary, "training": training, "leave_one_out": left})
        one = replace(frozen, origin=about)
        return list(before_tuning(one, Tune())), list(tuning_lines(one))

    assert lines("cuda", 0.6, 60)[0] == []
    assert "--tune will probably pay" in lines("cuda", 0.6, 60)[1][0]
    assert "seldom helps with 14 images" in lines("cuda", 0.6, 56)[0][0]
    assert "little to gain" in lines("cuda", 0.86, 60)[0][0]
    for device, accuracy, images in (("cpu", 0.6, 60), ("cuda", 0.6, 56), ("cuda", 0.76, 60)):
        assert lines(device, accuracy, images)[1] == []


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


def test_the_best_try_goes_on_for_twice_the_steps_as_long_as_validation_images_gain(
    weights: str, data: Dataset
) -> None:
    part = training_data(data, 0)
    model, _ = train(method(weights, rates=(1e-4, 3e-3), steps=10, minutes=5.0), part, CPU)
    assert isinstance(model, DiscriminantModel)
    tries = model.trials
    assert [trial.steps for trial in tries[:4]] == [0, 10, 10, 30]
    assert [trial.steps for trial in tries[3:]] == [10 * (2**place - 1) for place in range(2, len(tries) - 1)]
    assert len({trial.rate for trial in tries[3:]}) == 1
    *longer, last = [trial.likelihood for trial in tries[2:]]
    assert longer == sorted(longer), "each but the last was better than the one before"
    assert last <= longer[-1]
    short, _ = train(method(weights, rates=(1e-4, 3e-3), steps=10), part, CPU)
    assert isinstance(short, DiscriminantModel)
    assert len(short.trials) == 3, "without time no longer ones"
