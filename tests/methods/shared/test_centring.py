import numpy as np
import pytest
import torch
from sklearn import decomposition
from torch.nn.functional import normalize

import labelwise as lw
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import ZeroLabel
from labelwise.methods.shared.centring import Centring
from labelwise.methods.zero_label.clusters import PCA
from labelwise.support.errors import UsageError
from tests.contract.subjects import roundtrip


def rows(n: int = 80, d: int = 12, seed: int = 0) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    return torch.rand(n, d, generator=made) * torch.arange(1, d + 1)


def test_products_are_those_of_principal_components() -> None:
    made = PCA(12, 4)
    made.fit(rows())
    unit = normalize(rows(), dim=1).numpy()
    fitted = decomposition.PCA(4).fit(unit)
    other = rows(20, seed=1)
    expected = normalize(torch.from_numpy(fitted.transform(normalize(other, dim=1).numpy())).float(), dim=1)
    found = made(other)
    assert found.shape == (20, 12)
    torch.testing.assert_close(found @ found.T, expected @ expected.T, atol=1e-5, rtol=1e-5)
    assert torch.linalg.matrix_rank(found) == 4


@pytest.mark.parametrize("most", [12, 128])
def test_short_rows_are_centred_alone(most: int) -> None:
    made, plain = PCA(12, most), Centring(12)
    for each in (made, plain):
        each.fit(rows())
    torch.testing.assert_close(made(rows(5, seed=1)), plain(rows(5, seed=1)))


def test_directions_are_saved() -> None:
    made, again = PCA(12, 4), PCA(12, 4)
    made.fit(rows())
    again.load_state_dict(made.state_dict())
    torch.testing.assert_close(again(rows(5)), made(rows(5)))


def wide(noise: float) -> Dataset:
    """Embeddings of 200 numbers: four classes in a few directions, and noise in all of them."""
    made = torch.Generator().manual_seed(0)
    targets = torch.arange(4).repeat(60)
    centres = torch.randn(4, 200, generator=made)
    embeddings = (centres[targets] + noise * torch.randn(240, 200, generator=made)) * (
        1 + torch.rand(240, 1, generator=made)
    )
    parts = {"train": slice(0, 160), "val": slice(160, 200), "test": slice(200, 240)}
    splits = {name: Split(images=embeddings[part], targets=targets[part]) for name, part in parts.items()}
    return Dataset(name="wide", labels=Labels(names=("cat", "dog", "ship", "truck")), splits=splits)


def test_a_model_of_long_embeddings_uses_them_and_is_saved_whole() -> None:
    data = wide(0.5)
    classifier = lw.fit(data, ZeroLabel(prior="words", directions=8), lw.Run(device="cpu"))
    embeddings = classifier.encode(data.split("test").images)
    assert np.linalg.matrix_rank(embeddings) == 8
    again = roundtrip(classifier)
    torch.testing.assert_close(again.encode(data.split("test").images), embeddings)
    assert np.array_equal(
        again.scores(data.split("test").images).best, classifier.scores(data.split("test").images).best
    )


def test_naming_by_transport_takes_embeddings_as_they_are() -> None:
    model = ZeroLabel(naming="transport", directions=8).build(
        lw.Spec(shape=(200,), labels=Labels(names=("cat", "dog")))
    )
    assert type(model.centring) is Centring


def test_the_number_of_directions_is_checked() -> None:
    with pytest.raises(UsageError, match='"directions" must be at least 1'):
        ZeroLabel(directions=0)
