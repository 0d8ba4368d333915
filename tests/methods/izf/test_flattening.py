"""What images tell of their texts, against regressions and covariances written out."""

import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor

from labelwise.methods.izf import flattening
from labelwise.methods.izf.flattening import PARTS, PENALTY, TEXT_FLOOR, CaptionRelevance


def pairs(n: int = 60) -> tuple[Tensor, Tensor]:
    """Images, and texts of which three numbers tell of images and three do not."""
    made = torch.Generator().manual_seed(2)
    images, loud = torch.randn(n, 8, generator=made), torch.randn(n, 3, generator=made)
    return images, torch.cat([images[:, :3], 5 * loud], 1)


def test_texts_are_predicted_by_images_of_other_parts() -> None:
    images, texts = pairs()
    rows, found = images - images.mean(0), CaptionRelevance.of(images, texts)
    predicted = found.predict @ texts.double()
    penalty = PENALTY * float(rows.square().sum(1).mean())
    for part in range(PARTS):
        own = torch.arange(len(rows)) % PARTS == part
        ridge = Ridge(alpha=penalty, fit_intercept=False).fit(rows[~own].double(), texts[~own].double())
        torch.testing.assert_close(
            predicted[own], torch.from_numpy(ridge.predict(rows[own].double())), rtol=1e-5, atol=1e-6
        )


def test_directions_weigh_by_the_root_of_their_share_that_is_told() -> None:
    images, texts = pairs(2000)
    found = CaptionRelevance.of(images, texts)
    weights = found.weights(texts)
    assert float(weights[3:].norm()) < 0.2 * float(weights[:3].norm()), "what no image tells hardly weighs"
    centred = (texts - texts.mean(0)).double()
    whole = centred.T @ centred
    values, axes = torch.linalg.eigh(whole)
    root = axes @ torch.diag((values + TEXT_FLOOR * values.mean()).sqrt()) @ axes.T
    crossed = centred.T @ found.predict @ centred
    told = torch.linalg.eigvalsh(torch.linalg.inv(root) @ (crossed + crossed.T) @ torch.linalg.inv(root) / 2)
    squares = torch.linalg.eigvalsh((root @ weights).T @ (root @ weights))
    torch.testing.assert_close(squares, told.clamp_min(0).sort().values, rtol=1e-6, atol=1e-8)


def test_only_so_many_images_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flattening, "MOST", 25)
    images, texts = pairs()
    found = CaptionRelevance.of(images, texts)
    assert len(found.texts) == len(found.predict) == 20
    torch.testing.assert_close(found.texts, texts[::3])
