"""Methods of studies: found by name and in no list, and each does what its paper's code does."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from labelwise.fitting.training import training_data
from labelwise.images.images import FeatureRows
from labelwise.methods import METHODS, Encoder
from labelwise.methods.zero_label.sinkhorn import SinkhornSettings, sinkhorn
from labelwise.methods.zero_label.transport import Clustering, Matching
from labelwise.support.errors import UsageError
from labelwise.train.data import TensorSplit
from labelwise.train.method import Run
from labelwise.train.model import Spec
from labelwise.train.tensors import BatchRng
from labelwise_papers.analyses.named import evaluate_with_labels
from labelwise_papers.baselines.as_published import AuthorsPrototype, DomainBatches, Noisy, TorchIndicator
from labelwise_papers.baselines.authors_naming import AuthorsZeroLabel, early_sinkhorn
from labelwise_papers.plugin import STUDIES
from tests.conftest import blobs

SMALL = Encoder(backbone="convnet", width=8)
EARLY = SinkhornSettings(epsilon=0.01, iterations=60)


def test_studies_are_found_by_name_and_in_no_list() -> None:
    assert all(name in METHODS and METHODS[name].name == name for name in STUDIES)
    assert not set(STUDIES) & set(METHODS)


def test_half_of_the_images_get_noise_of_three_sizes() -> None:
    images = torch.full((3000, 1, 8, 8), 0.4)
    added = Noisy(None)(images, BatchRng.seeded(0, 3000)).sub(0.4).amax((1, 2, 3))
    quiet = added < 1e-6
    assert 0.45 < float(quiet.float().mean()) < 0.55
    sizes = np.histogram(added[~quiet].numpy(), [0, 0.1, 0.2, 0.3001])[0] / int((~quiet).sum())
    assert np.allclose(sizes, 1 / 3, atol=0.04)
    assert float(Noisy(None)(torch.full((64, 1, 8, 8), 0.95), BatchRng.seeded(0, 64)).max()) == 1


def test_a_batch_holds_as_many_images_of_every_domain() -> None:
    domains = tuple("a" if row < 30 else "b" if row < 40 else "c" for row in range(47))
    split = TensorSplit(images=torch.zeros(47, 3, 4, 4), targets=torch.arange(47) % 3, domains=domains)
    batches = DomainBatches(split=split, size=12)
    plan = batches.plan(1)
    assert len(plan) == len(batches) == 7
    for rows in plan:
        assert [[domains[row] for row in rows].count(name) for name in "abc"] == [4, 4, 4]
    shown = torch.cat(plan).tolist()
    assert len({row for row in shown if row < 30}) == 28, "no image of the largest domain twice in an epoch"
    assert {row for row in shown if row >= 30} == set(range(30, 47)), "the others begin again"
    assert batches.plan(2)[0].tolist() != plan[0].tolist()


def test_the_indicator_starts_as_torch_starts_layers() -> None:
    data = blobs(4)
    spec = Spec(shape=(3, 16, 16), labels=data.labels)
    model = TorchIndicator(encoder=SMALL).build(spec)
    first = model.label_encoder.first
    assert float(first.weight.detach().abs().max()) <= 1 / 4**0.5
    assert float(first.bias.detach().abs().max()) > 0
    assert float(model.predictor.weight.detach().std()) > 0


def test_batches_of_domains_need_domains() -> None:
    method = AuthorsPrototype(encoder=SMALL, batch_of_domains=True, batch=12)
    with pytest.raises(UsageError, match="at least two"):
        method.batches(training_data(blobs(3)))


def test_early_iterations_meet_the_marginal_that_comes_last() -> None:
    generator = torch.Generator().manual_seed(0)
    cost = torch.rand(3, 40, 12, generator=generator)
    columns = torch.rand(3, 12, generator=generator)
    columns = columns / columns.sum(1, keepdim=True)
    for last, axis, wanted in (("columns", -2, columns), ("rows", -1, torch.full((3, 40), 1 / 40))):
        plan = early_sinkhorn(cost, columns, settings=EARLY, last=last).plan  # type: ignore[arg-type]
        other = plan.sum(-1 if axis == -2 else -2)
        assert torch.allclose(plan.sum(axis), wanted, atol=1e-5)
        assert float((other - (columns if axis == -1 else 1 / 40)).abs().max()) > 1e-4, "stopped early"


def test_many_iterations_come_to_the_same_plan_as_ours() -> None:
    cost = torch.rand(2, 30, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exact = sinkhorn(cost, settings=SinkhornSettings(epsilon=0.1, iterations=500, tolerance=1e-9)).plan
    settings = SinkhornSettings(epsilon=0.1, iterations=500)
    early = early_sinkhorn(cost * 1.0, settings=settings)
    assert early.iterations < 60
    assert float((early.plan - exact).abs().max()) < 0.01


def test_copies_of_a_sample_count_as_often_as_they_are() -> None:
    cost = torch.rand(20, 4, generator=torch.Generator().manual_seed(2))
    times = torch.tensor([3, 1, 10, 6])
    together = early_sinkhorn(cost, times / 20, settings=EARLY, last="rows")
    apart = early_sinkhorn(cost.repeat_interleave(times, 1), torch.full((20,), 1 / 20), settings=EARLY, last="rows")
    assert together.iterations == apart.iterations
    assert torch.allclose(together.cost, apart.cost, rtol=1e-3)


def test_the_true_order_names_true_classes_rightly_before_training() -> None:
    data = blobs(4, per_label=20)
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 12))
    splits = {
        name: replace(
            split, images=FeatureRows((centres[split.targets] + 0.1 * rng.normal(size=(len(split), 12))).astype("f4"))
        )
        for name, split in data.splits.items()
    }
    data = replace(data, splits=splits)
    shared = Clustering(steps=1, batch=20, shared=True, gradient="unrolled")
    settings: dict[str, Any] = {
        "naming": "transport",
        "restarts": 3,
        "centre": False,
        "clusters": "labels",
        "clustering": shared,
    }
    once = Matching(steps=1, batch=20, gradient="unrolled")
    found = {
        order: evaluate_with_labels(data, AuthorsZeroLabel(order=order, matching=once, **settings), Run(device="cpu"))
        for order in ("true", "many")
    }
    assert found["true"]["mean"] == 1
    assert found["many"]["mean"] < 1
