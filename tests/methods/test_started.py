"""Heads on features that are not trained: they begin with the closed form, and training has to earn its time."""

import pytest
import torch
from torch import Tensor, nn

from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.fitting.fit import fit
from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Indicator, Prototype, Softmax
from labelwise.methods.discriminant.copies import copy_groups
from labelwise.methods.discriminant.method import Discriminant
from labelwise.methods.discriminant.whitening import closed_form_rows
from labelwise.methods.shared.image_method import StartedMethod
from labelwise.methods.shared.linear import StartedModel
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.tensors import linear_scores
from labelwise.train.train_data import TrainData
from tests.changed import model_of

CPU = Run(device="cpu")
KINDS: list[StartedMethod] = [
    Softmax(),
    Indicator(),
    Indicator(negatives=2),
    Prototype(epochs=3),
    Prototype(epochs=3, head="mean"),
]


def features(shift: float = 0.0, rows: int = 240) -> Dataset:
    """Features of six labels that vary most where labels do not differ, none negative unless shifted."""
    made = torch.Generator().manual_seed(3)
    targets = torch.arange(rows) % 6
    means = torch.randn(6, 30, generator=made) * 0.5
    spread = torch.linspace(0.2, 3.0, 30)[torch.randperm(30, generator=made)]
    images = (means[targets] + spread * torch.randn(rows, 30, generator=made) + 3).clamp_min(0) ** 2 - shift
    half = rows // 2
    splits = {
        "train": Split(images=images[:half], targets=targets[:half]),
        "test": Split(images=images[half:], targets=targets[half:]),
    }
    return Dataset(name="features", labels=Labels(names=tuple("abcdef")), splits=splits)


def right(data: Dataset, method: StartedMethod | Discriminant) -> float:
    test = data.split("test")
    return float((fit(data, method, CPU).scores(test.images).best == test.targets).mean())


@pytest.mark.parametrize("method", KINDS, ids=lambda m: f"{m.name}-{getattr(m, 'head', '')}")
def test_level_with_the_closed_form(method: StartedMethod) -> None:
    data = features()
    assert right(data, method) >= right(data, Discriminant()) - 0.03


@pytest.mark.parametrize("method", [Softmax(), Indicator()], ids=["softmax", "indicator"])
def test_begins_with_the_closed_form_and_stops_at_once_without_a_gain(
    method: StartedMethod, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = training_data(features())
    merits = iter([0.0, -1.0, -2.0])
    monkeypatch.setattr(StartedModel, "likelihood", lambda *_: next(merits))  # a third epoch would raise StopIteration
    model, _ = train(method, data, CPU)
    assert isinstance(model, StartedModel)
    embeddings = model.encode_all(data.val.images)
    scores = model.score(embeddings, model.encode_labels(data.labels))
    rows, targets = model.encode_all(data.train.images).numpy(), data.train.targets.numpy()
    solved = closed_form_rows(rows, targets, 6, copy_groups(rows, targets))
    closed = linear_scores(embeddings, torch.from_numpy(solved))
    torch.testing.assert_close(scores.log_softmax(1), closed.log_softmax(1), atol=1e-3, rtol=1e-3)


def test_held_out_images_are_solved_with_in_the_end_unless_they_are_the_users() -> None:
    data = features()
    model = model_of(fit(data, Softmax(), CPU))
    assert isinstance(model, StartedModel)
    assert model.statistics.counts.sum() == len(data.split("train"))
    train, test = data.split("train"), data.split("test")
    own = Dataset(name="own", labels=data.labels, splits={"train": train, "val": test})
    model = model_of(fit(own, Softmax(), CPU))
    assert isinstance(model, StartedModel)
    assert model.statistics.counts.sum() == len(train)


@pytest.mark.parametrize(("shift", "kind"), [(0.0, "root"), (5.0, "unit")])
def test_roots_of_features_none_of_which_is_negative(shift: float, kind: str) -> None:
    model = model_of(fit(features(shift), Softmax(), CPU))
    assert isinstance(model, StartedModel)
    assert model.feature_map == kind


def test_false_trains_from_nothing_on_standardised_features() -> None:
    model = model_of(fit(features(), Indicator(closed_form=False, epochs=2), CPU))
    assert isinstance(model, StartedModel)
    assert not model.started
    assert bool(model.encoder.mean.any())


def test_saved_and_loaded(tmp_path: object) -> None:
    data, folder = features(), f"{tmp_path}/heads.lw"
    classifier = fit(data, Prototype(epochs=2), CPU)
    save(classifier, folder)
    images = data.split("test").images
    torch.testing.assert_close(load(folder).scores(images).raw, classifier.scores(images).raw)


@pytest.mark.parametrize("fails", [False, True])
def test_one_thread_while_it_trains(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data: TrainData = training_data(features())
    before, seen = torch.get_num_threads(), set()
    torch.set_num_threads(2)
    encode = StartedModel.encode_images

    def watched(model: StartedModel, images: Tensor) -> Tensor:
        if model.training:
            seen.add(torch.get_num_threads())
            if fails:
                raise RuntimeError("stopped")
        return encode(model, images)

    monkeypatch.setattr(StartedModel, "encode_images", watched)
    try:
        if fails:
            with pytest.raises(RuntimeError, match="stopped"):
                train(Softmax(epochs=1), data, CPU)
        else:
            train(Softmax(epochs=1), data, CPU)
        assert seen == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_nothing_but_label_embeddings_may_lie_between_features_and_scores() -> None:
    from labelwise.train.networks.encoder import Encoder

    model = model_of(fit(features(), Softmax(encoder=Encoder(code_size=4), epochs=2), CPU))
    assert isinstance(model, StartedModel)
    assert not model.started
    assert isinstance(model.encoder.project, nn.Linear)
