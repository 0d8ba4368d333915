"""The salient share against a Grad-CAM written out picture by picture."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.images.view import View
from labelwise.methods import METHODS
from labelwise.support.errors import DataError, UnsupportedError, UsageError
from labelwise.train.model import as_float
from labelwise_papers.analyses.saliency import draw_saliency, pixel_shares, salient_share
from tests.changed import bind_model, model_of
from tests.conftest import quick
from tests.described import Table
from tests.papers.analyses.test_answers import DATA, untrained
from tests.pixels_of import px

TEST = DATA.split("test").select(range(20))


def slow_share(
    classifier: Classifier,
    image: Tensor,
    column: int,
    level: float,
    *,
    from_zero: bool = False,
    side: int | None = None,
) -> float:
    """The share of one picture, of which the network sees so many pixels a side."""
    model = model_of(classifier)
    maps = model.encoder.maps(as_float(image[None])).detach().requires_grad_()
    score = model_of(classifier).score(
        model.finish(model.encoder.pool(maps)), torch.from_numpy(classifier.label_embeddings)
    )[0]
    asked = score[column] - (score.mean() if classifier.head.penalty == "scale" else 0)
    asked.backward()
    assert maps.grad is not None
    heat = torch.zeros(maps.shape[2:])
    for channel in range(maps.shape[1]):
        heat += maps.grad[0, channel].mean() * maps.detach()[0, channel]
    heat = torch.nn.functional.interpolate(
        heat.relu()[None, None], [side or n for n in image.shape[1:]], mode="bilinear"
    )[0, 0]
    low = 0.0 if from_zero else float(heat.min())
    span = float(heat.max()) - low
    cells = [(float(v) - low) / span > level if span else False for v in heat.flatten()]
    return sum(cells) / len(cells)


@pytest.mark.parametrize("method", ["indicator", "softmax", "clarel"])
@pytest.mark.parametrize("level", [0.5, 0.2])
def test_shares_equal_a_slow_reference(method: str, level: float) -> None:
    classifier = untrained(method)
    slow = [slow_share(classifier, x, t, level) for x, t in zip(px(TEST), TEST.targets.tolist(), strict=True)]
    fast = pixel_shares(classifier, px(TEST), torch.as_tensor(TEST.targets), level, 7)
    assert fast.tolist() == pytest.approx(slow, abs=0.02)  # a pixel may lie at the level
    found = salient_share(classifier, px(TEST), torch.as_tensor(TEST.targets), level=level)
    mean = sum(slow) / len(slow)
    assert found["share"] == pytest.approx(mean, abs=0.005)
    assert found["spread"] == pytest.approx((sum((s - mean) ** 2 for s in slow) / len(slow)) ** 0.5, abs=0.01)
    assert found["spread"] > 0
    assert found["blank"] == pytest.approx(sum(s == 0 for s in slow) / len(slow))
    assert (found["images"], found["level"]) == (20, level)


@pytest.mark.parametrize("from_zero", [False, True])
def test_only_what_the_view_keeps_counts(from_zero: bool) -> None:
    whole, view = untrained("indicator"), View(crop=4)
    method = replace(quick("indicator"), view=view)
    cropped = bind_model(method.build(replace(model_of(whole).spec, view=view)), whole.labels, method)
    slow = [
        slow_share(cropped, x, t, 0.5, from_zero=from_zero, side=4)
        for x, t in zip(px(TEST), TEST.targets.tolist(), strict=True)
    ]
    fast = pixel_shares(cropped, px(TEST), torch.as_tensor(TEST.targets), 0.5, 7, from_zero)
    assert fast.tolist() == pytest.approx(slow, abs=0.02)
    assert fast.max() > 0.3  # it could not be, of all pixels: 4 of 8 a side are a quarter


@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_pictures_has_a_share(method: str) -> None:
    found = salient_share(untrained(method), px(TEST), torch.as_tensor(TEST.targets))
    assert 0 <= found["share"] < 1
    assert found["blank"] < 1 or found["share"] == 0


def test_pictures_without_a_label_are_left_out() -> None:
    classifier = untrained("indicator")
    targets = torch.where(torch.arange(20) < 8, torch.as_tensor(TEST.targets), -1)
    assert salient_share(classifier, px(TEST), targets) == salient_share(
        classifier, px(TEST)[:8], torch.as_tensor(TEST.targets)[:8]
    )
    with pytest.raises(DataError, match="no labelled image"):
        salient_share(classifier, px(TEST), torch.full((20,), -1))
    with pytest.raises(UsageError, match=r"below 1; given 1\.5"):
        salient_share(classifier, px(TEST), torch.as_tensor(TEST.targets), level=1.5)


def test_features_have_no_pixels() -> None:
    with pytest.raises(UnsupportedError, match="precomputed features"):
        salient_share(bind_model(Table(DATA.labels), DATA.labels), torch.randn(8, 4), torch.arange(8) % 4)


def test_the_picture_names_each_label_and_share() -> None:
    classifier = untrained("indicator")
    figure = draw_saliency(classifier, px(TEST)[:5], torch.as_tensor(TEST.targets)[:5])
    shares = pixel_shares(classifier, px(TEST)[:5], torch.as_tensor(TEST.targets)[:5], 0.5, 64).tolist()
    titles = [axes.get_title() for axes in figure.axes]
    said = [f"blob {t}\n{100 * s:.1f} % salient" for t, s in zip(TEST.targets.tolist(), shares, strict=False)]
    assert titles == [*said, "", "", ""]
