"""Methods of studies: found by name and in no list, and each does what its paper's code does."""

import numpy as np
import pytest
import torch

from labelwise.fitting.training import training_data
from labelwise.methods import METHODS, Encoder
from labelwise.support.errors import UsageError
from labelwise.train.model import Spec
from labelwise.train.tensors import BatchRng
from labelwise.train.train_data import TensorSplit
from labelwise_papers.baselines.as_published import AuthorsPrototype, DomainBatches, Noisy, TorchIndicator
from labelwise_papers.plugin import STUDIES
from tests.conftest import blobs

SMALL = Encoder(backbone="convnet", width=8)


def test_studies_are_found_by_name_and_in_no_list() -> None:
    assert all(name in METHODS and METHODS[name].name == name for name in STUDIES)
    assert not set(STUDIES) & set(METHODS)


def test_half_of_the_images_get_noise_of_three_sizes() -> None:
    images = torch.full((3000, 1, 8, 8), 0.4)
    added = Noisy(None)(images, BatchRng.from_seed(0, 3000)).sub(0.4).amax((1, 2, 3))
    quiet = added < 1e-6
    assert 0.45 < float(quiet.float().mean()) < 0.55
    sizes = np.histogram(added[~quiet].numpy(), [0, 0.1, 0.2, 0.3001])[0] / int((~quiet).sum())
    assert np.allclose(sizes, 1 / 3, atol=0.04)
    assert float(Noisy(None)(torch.full((64, 1, 8, 8), 0.95), BatchRng.from_seed(0, 64)).max()) == 1


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
