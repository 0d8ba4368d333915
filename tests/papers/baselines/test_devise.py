"""DeViSE: its ranking loss pair by pair, and what its stages train."""

import pytest
import torch

from labelwise.fitting.zero_shot import plan_runs
from labelwise.methods import Encoder
from labelwise.methods.shared.zero_shot import BilinearModel
from labelwise.support.errors import UsageError
from labelwise.train.batches import Batch
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.tensors import BatchRng
from labelwise.train.train_data import TrainData
from labelwise_papers.baselines.devise import Devise
from tests.changed import bind_model
from tests.conftest import blobs
from tests.described import by_vector


def final(method: Devise) -> TrainData:
    return plan_runs(by_vector(), method, 0).final


@pytest.mark.parametrize("margin", [0.1, 2.0])
def test_the_loss_equals_a_loop(margin: float) -> None:
    method = Devise(margin=margin)
    data = final(method)
    model = method.build(data.spec)
    (stage,) = method.stages(model, data)
    torch.nn.init.normal_(model.weights, std=0.5, generator=torch.Generator().manual_seed(0))
    embeddings, targets = model.encode_all(data.train.images)[:12], data.train.targets[:12]
    batch = Batch(images=embeddings, targets=targets, rows=torch.arange(12), rng=BatchRng.from_seed(0, 12))
    found = stage.loss(batch)
    vectors, total = model.vectors(data.labels), 0.0
    for embedding, target in zip(embeddings, targets.tolist(), strict=True):
        scores = [float(embedding @ model.weights.detach() @ vector) for vector in vectors]
        total += sum(max(0.0, margin - scores[target] + s) for i, s in enumerate(scores) if i != target)
    assert list(found) == ["rank"]
    assert float(found["rank"].detach()) == pytest.approx(total / 12, rel=1e-4)


def test_the_map_is_trained_on_embeddings_and_nothing_else() -> None:
    method = Devise()
    data = final(method)
    model = method.build(data.spec)
    (stage,) = method.stages(model, data)
    assert [p.shape for p in stage.parameters] == [model.weights.shape]
    assert stage.parameters[0] is model.weights
    assert 0 < float(model.weights.detach().std()) < 0.02
    assert stage.batches.split.images.shape == (len(data.train), model.encoder.code_size)  # type: ignore[attr-defined]
    torch.testing.assert_close(stage.batches.split.images.norm(dim=1), torch.ones(len(data.train)))  # type: ignore[attr-defined]


def test_pictures_train_an_encoder_and_then_the_map() -> None:
    method = Devise(epochs=2, encoder=Encoder(backbone="convnet", width=4))
    data = plan_runs(blobs(), method, 0).final
    model = method.build(data.spec)
    stages = method.stages(model, data)
    first = next(stages)
    assert first.name == "devise encoder"
    assert all(p is not model.weights for p in first.parameters)
    second = next(stages)
    assert (second.name, len(second.parameters)) == ("devise", 1)
    assert second.batches.split.images.ndim == 2  # type: ignore[attr-defined]
    with pytest.raises(StopIteration):
        next(stages)
    assert (model.statistics.counts > 0).all(), "what learning from examples needs is kept at the end"


def test_training_ranks_the_right_label_first() -> None:
    method = Devise(epochs=15)
    data = final(method)
    model, _ = train(method, data, Run(device="cpu"))
    assert isinstance(model, BilinearModel)
    best = bind_model(model, data.labels).scores(data.train.images).best
    assert float((best == data.train.targets).double().mean()) > 0.9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"margin": 0.0}, '"margin" must be above 0; given 0.0'),
        ({"margin": -1.0}, '"margin" must be above 0; given -1.0'),
        ({"power": 0.0}, '"power" must be above 0 and at most 1; given 0.0'),
        ({"batch": 0}, 'Setting "batch" must be at least 1; given 0'),
    ],
)
def test_wrong_settings(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Devise(**wrong)  # type: ignore[arg-type]
