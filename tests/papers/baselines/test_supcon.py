"""Contrast and then a linear layer: what each stage trains, views, resuming, and encoders with nothing to train."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.arrays import LENGTH
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.fitting.fit import fit
from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset, Split
from labelwise.methods.shared.linear import Encoder
from labelwise.support.errors import Interrupted, UsageError
from labelwise.support.settings import override
from labelwise.train.augment import Augment
from labelwise.train.batches import Batch
from labelwise.train.contrastive import TwoViews, contrastive_augment
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.model import LabelModel, as_float
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.optimizers import Optimizer
from labelwise.train.tensors import BatchRng
from labelwise_papers.baselines.supcon import Supcon, SupconModel, standard, supervised_contrastive
from tests.close import assert_close
from tests.epochs import batches_of
from tests.pixels_of import px
from tests.stopping import stopped_at

CPU = Run(device="cpu", seed=3)
ROOT = Path(__file__).parents[3]
SMALL = Supcon(
    epochs=3, head_epochs=3, batch=20, encoder=Encoder(backbone="convnet", width=8), optimizer=Optimizer(lr=0.05)
)


def state(model: torch.nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(model.state_dict())


def test_each_stage_trains_its_part(blob_data: Dataset) -> None:
    data = training_data(blob_data)
    torch.manual_seed(0)
    model = SMALL.build(data.spec)
    stages = SMALL.stages(model, data)
    contrast = next(stages)
    wanted = [*model.encoder.parameters(), *model.projection.parameters()]
    assert {id(p) for p in contrast.parameters} == {id(p) for p in wanted}
    assert contrast.epochs == 3
    head = next(stages)
    assert {id(p) for p in head.parameters} == {id(model.head.weight), id(model.head.bias)}
    assert head.optimizer == SMALL.head_optimizer
    before = state(model)
    for batch in batches_of(head.batches, 1):
        sum(head.loss(batch).values()).backward()  # type: ignore[union-attr]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items()), "statistics moved"
    assert all(p.grad is None for p in wanted)


def test_contrast_is_the_loss_of_both_views(blob_data: Dataset) -> None:
    """The views of a batch are those that augmenting its stored images twice gives, in the right places."""
    data = training_data(blob_data)
    method = replace(SMALL, augment=Augment(flip=True, noise=0.1))
    torch.manual_seed(0)
    model = method.build(data.spec).eval()
    stage = next(iter(method.stages(model, data)))
    batch = next(iter(batches_of(stage.batches, 5)))
    assert batch.images.shape == (20, 2, 3, 8, 8)
    assert not torch.equal(batch.images[:, 0], batch.images[:, 1])
    near = (batch.images - as_float(data.train.images[batch.rows])[:, None]).flatten(2).abs().mean(2)
    mirrored = (batch.images.flip(-1) - as_float(data.train.images[batch.rows])[:, None]).flatten(2).abs().mean(2)
    assert torch.minimum(near, mirrored).max() < 0.15, "a view is not of its image"
    first, second = (model.projection(model.encode_images(batch.images[:, view])) for view in (0, 1))
    targets = torch.cat([batch.targets, batch.targets])
    expected = supervised_contrastive(torch.cat([first, second])[:, None], targets, 0.1)
    torch.testing.assert_close(stage.loss(batch)["contrast"], expected, rtol=1e-4, atol=1e-5)


def test_views_are_the_same_in_parts() -> None:
    images = torch.randint(0, 256, (12, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    change = TwoViews(contrastive_augment((3, 8, 8)))
    whole = change(images, BatchRng.from_seed(4, 12))
    parts = []
    for rows in (slice(0, 5), slice(5, 12)):
        parts.append(change(images[rows], BatchRng(torch.Generator().manual_seed(4), rows, 12)))
    torch.testing.assert_close(torch.cat(parts), whole)


def test_contrast_draws_images_of_a_label_together(blob_data: Dataset) -> None:
    data = training_data(blob_data)
    method = replace(SMALL, epochs=20, augment=Augment())

    def margin(model: SupconModel) -> float:
        """How much more alike two images of one label are than two of different labels."""
        model.eval()
        with torch.no_grad():
            rows = normalize(model.projection(model.encode_images(as_float(data.val.images))), dim=1)
        same = data.val.targets[:, None] == data.val.targets
        alike = rows @ rows.T
        return float(alike[same].mean() - alike[~same].mean())

    torch.manual_seed(CPU.seed)
    start = margin(method.build(data.spec))
    model, _ = train(method, data, CPU)
    assert isinstance(model, SupconModel)
    assert margin(model) > max(0.8, start + 0.3)


def test_scores_of_the_layer_are_those_it_was_trained_with(blob_data: Dataset) -> None:
    """The layer is trained on standardised embeddings and then written for embeddings as they are."""
    data = training_data(blob_data)
    torch.manual_seed(0)
    model = SMALL.build(data.spec)
    stages = SMALL.stages(model, data)
    next(stages)
    batch = next(iter(batches_of(next(stages).batches, 1)))
    inputs = batch.images
    np.testing.assert_allclose(float(inputs.square().sum(1).mean().sqrt()), LENGTH, rtol=0.3)
    expected = model.head(inputs)
    assert next(stages, None) is None
    embeddings = model.eval().encode_images(as_float(data.train.images[batch.rows]))
    found = model.score(embeddings, model.encode_labels(data.labels))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert model.statistics.counts.sum() == len(data.train)


def test_embeddings_that_do_not_vary_are_left_alone() -> None:
    mean, scale = standard(torch.full((5, 4), 3.0))
    assert mean.tolist() == [3.0] * 4
    assert scale.isfinite().all()


@pytest.fixture(scope="module")
def whole(blob_data: Dataset) -> LabelModel:
    """The model of a run that nothing interrupts."""
    return train(SMALL, training_data(blob_data), CPU)[0]


# 80 images make 4 steps an epoch of the contrast and 10 of the layer: 12 steps, then 30.
@pytest.mark.parametrize("step", [1, 6, 12, 13, 30, 42])
def test_an_interrupted_run_continues_to_the_same_weights(
    step: int, tmp_path: Path, blob_data: Dataset, whole: LabelModel
) -> None:
    data, run = training_data(blob_data), replace(CPU, folder=tmp_path / "run")
    with stopped_at(step), pytest.raises(Interrupted, match="contrast" if step <= 12 else "head"):
        train(SMALL, data, run)
    resumed, _ = train(SMALL, data, replace(run, resume=True))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


@pytest.mark.parametrize("place", ["standard", "SupconModel.fit_statistics"])
def test_a_run_that_broke_outside_a_stage_continues(
    place: str, tmp_path: Path, blob_data: Dataset, whole: LabelModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, run = training_data(blob_data), replace(CPU, folder=tmp_path / "run")

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"labelwise_papers.baselines.supcon.{place}", broken)
        with pytest.raises(KeyboardInterrupt):
            train(SMALL, data, run)
    resumed, _ = train(SMALL, data, replace(run, resume=True))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("weights") / "convnet.safetensors"
    save_file(build_backbone("convnet", (3, 8, 8), 8).state_dict(), path)
    return str(path)


def features(data: Dataset) -> Dataset:
    """The same data with the mean colours of both halves as features."""

    def of(split: Split) -> Split:
        return replace(split, images=as_float(px(split)).reshape(-1, 3, 8, 2, 4).mean((2, 4)).flatten(1))

    return replace(data, splits={name: of(split) for name, split in data.splits.items()})


def test_an_encoder_with_nothing_to_train_is_an_error(weights: str, blob_data: Dataset) -> None:
    frozen = Encoder(backbone="convnet", width=8, weights=weights, frozen=True)
    with pytest.raises(UsageError, match=r"nothing of this one is trained.*code_size.*softmax"):
        fit(blob_data, Supcon(encoder=frozen), CPU)
    with pytest.raises(UsageError, match="nothing of this one is trained"):
        fit(features(blob_data), Supcon(), CPU)


@pytest.mark.parametrize("kind", ["frozen", "features"])
def test_a_code_size_is_trained_on_fixed_features(kind: str, weights: str, blob_data: Dataset, tmp_path: Path) -> None:
    encoder = Encoder(backbone="convnet", width=8, weights=weights, frozen=True, code_size=8)
    data = features(blob_data) if kind == "features" else blob_data
    method = Supcon(encoder=encoder if kind == "frozen" else Encoder(code_size=8), epochs=10)
    test = data.split("test")
    classifier = fit(data, method, CPU)
    scores = classifier.scores(test.images).log_odds
    assert (scores.argmax(1) == np.asarray(test.targets)).mean() > 0.9
    save(classifier, tmp_path / "model.lw")
    assert_close(load(tmp_path / "model.lw").scores(test.images).log_odds, scores, atol=1e-4)


def test_augmentation_follows_the_images() -> None:
    colour, grey = contrastive_augment((3, 32, 32)), contrastive_augment((1, 32, 32))
    assert colour.flip
    assert not grey.flip
    assert colour.scale == grey.scale is not None
    assert contrastive_augment((512,)) == Augment()
    images = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    assert TwoViews(grey)(images, BatchRng.from_seed(0, 4)).shape == (4, 2, 1, 8, 8)


@pytest.mark.parametrize("name", ["temperature", "projection_size", "head_epochs", "epochs"])
def test_settings_are_checked(name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}.* must be .*; given 0"):
        override(SMALL, {name: "0"})


def test_a_batch_of_one_image_each_has_a_gradient(blob_data: Dataset) -> None:
    """Images that share no label still have their own views as positives."""
    data = training_data(blob_data)
    torch.manual_seed(0)
    model = SMALL.build(data.spec)
    images, targets = torch.rand(4, 2, 3, 8, 8), torch.arange(4)
    batch = Batch(images=images, targets=targets, rows=targets, rng=BatchRng.from_seed(0, 4))
    SMALL.loss(model)(batch)["contrast"].backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.projection.parameters())
