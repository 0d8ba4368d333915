"""Joint embeddings: they add up to the score, and their plane shows the labels that an image fits best."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from labelwise.core.arrays import linear_scores
from labelwise.core.classifier import Classifier
from labelwise.evaluation.plane import Projection
from labelwise.images.dataset import Split
from labelwise.methods import METHODS
from labelwise.methods.indicator.method import IndicatorModel
from labelwise.support.errors import DataError, UnsupportedError, UsageError
from labelwise_papers.analyses.joint import JointView, draw_joint, joint_embeddings, joint_view
from tests.changed import model_of
from tests.close import assert_close
from tests.conftest import blobs
from tests.papers.analyses.test_answers import untrained
from tests.pixels_of import px

DATA = blobs(6, 20)
TRAIN, IMAGE = DATA.split("train"), px(DATA.split("test"))[0]


def view_of(classifier: Classifier, train: Split, *, projection: Projection = "pca", most: int = 10) -> JointView:
    known, image = classifier.scores(train.images), classifier.scores(IMAGE)
    return joint_view(known, torch.as_tensor(train.targets), image, projection=projection, most=most)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("clarel", "indicator", "prototype")])
def test_joint_embeddings_and_a_bias_add_up_to_the_score(method: str) -> None:
    classifier = untrained(method, DATA)
    known = classifier.scores(px(TRAIN))
    embeddings = joint_embeddings(known, np.asarray(TRAIN.targets))
    biases = classifier.label_embeddings[TRAIN.targets, -1]
    wanted = np.take_along_axis(known.raw, np.asarray(TRAIN.targets)[:, None], 1)[:, 0]
    assert_close(embeddings.sum(1) + biases, wanted, atol=1e-5, rtol=1e-4)


def test_joint_embeddings_of_an_indicator_are_those_of_the_paper() -> None:
    classifier = untrained("indicator", DATA)
    model = model_of(classifier)
    assert isinstance(model, IndicatorModel)
    with torch.no_grad():
        h = model.encode_images(px(TRAIN) / 255) * model.label_encoder.of_inputs(
            torch.eye(6)[torch.as_tensor(TRAIN.targets)]
        )
        score = (model.predictor.weight * h).sum(1) + model.predictor.bias
    known = classifier.scores(px(TRAIN))
    assert_close(joint_embeddings(known, np.asarray(TRAIN.targets)), h, atol=1e-6, rtol=1e-4)
    assert_close(known.raw[np.arange(len(known)), TRAIN.targets], score, atol=1e-5, rtol=1e-4)


def test_a_score_that_is_not_linear_has_no_joint_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="clarel does not score by weights"):
        joint_embeddings(untrained("clarel", DATA).scores(px(TRAIN)), np.asarray(TRAIN.targets))
    classifier = untrained("softmax", DATA)
    monkeypatch.setattr(type(classifier.head), "score", lambda _, z, embeddings: linear_scores(z, embeddings) ** 2)
    with pytest.raises(UnsupportedError, match="no joint code"):
        joint_embeddings(classifier.scores(px(TRAIN)), np.asarray(TRAIN.targets))


@pytest.mark.parametrize("most", [4, 10])
def test_the_view_equals_a_slow_reference(most: int) -> None:
    classifier = untrained("indicator", DATA)
    view = view_of(classifier, TRAIN, most=most)
    scores = classifier.scores(IMAGE[None]).log_odds[0].tolist()
    best = sorted(range(6), key=lambda i: -scores[i])[:most]
    assert view.names == tuple(f"blob {i}" for i in best)
    model = model_of(classifier)
    assert isinstance(model, IndicatorModel)
    weights = model.label_encoder(slice(None)).detach().numpy()
    image_embedding = classifier.encode(IMAGE[None])[0]
    clouds = {
        i: classifier.encode(px(TRAIN)[torch.as_tensor(TRAIN.targets) == i]) * weights[i].astype(np.float64)
        for i in best
    }
    for place, label in enumerate(best):
        centre = clouds[label].mean(0)
        spread = np.mean([np.sum((row - centre) ** 2) for row in clouds[label]]) ** 0.5
        wanted = np.linalg.norm(image_embedding * weights[label] - centre) / spread
        assert float(view.distances[place]) == pytest.approx(wanted, rel=1e-4)
        assert int((view.targets == place).sum()) == len(clouds[label])
    stacked = np.concatenate([clouds[i] for i in best])
    axes = np.linalg.eigh(np.cov(stacked.T))[1][:, -2:]
    lengths = np.sort(np.linalg.norm((stacked - stacked.mean(0)) @ axes, axis=1))
    assert np.sort(np.linalg.norm(view.points, axis=1)) == pytest.approx(lengths, rel=1e-3, abs=1e-4)
    star = [np.linalg.norm((image_embedding * weights[i] - stacked.mean(0)) @ axes) for i in best]
    assert np.linalg.norm(view.asked, axis=1) == pytest.approx(star, rel=1e-3, abs=1e-4)


def test_a_label_with_too_few_images_has_no_distance() -> None:
    classifier = untrained("indicator", DATA)
    kept = (torch.as_tensor(TRAIN.targets) != 2) | (
        torch.arange(len(TRAIN)) == int((torch.as_tensor(TRAIN.targets) == 2).nonzero()[0])
    )
    kept &= torch.as_tensor(TRAIN.targets) != 4
    view = view_of(classifier, TRAIN.select(kept.nonzero()[:, 0]))
    nameless = [n for n, far in zip(view.names, view.distances.tolist(), strict=True) if far != far]
    assert sorted(nameless) == ["blob 2", "blob 4"]
    with pytest.raises(DataError, match="at least three training images"):
        view_of(classifier, TRAIN.select([0, 1]))


def test_umap_is_asked_for_and_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = untrained("indicator", DATA)
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(UsageError, match="pip install umap-learn; or choose pca"):
        view_of(classifier, TRAIN, projection="umap")

    class FirstTwo:
        def __init__(self, **settings: Any) -> None:
            assert settings == {"n_components": 2, "random_state": 0}

        def fit_transform(self, rows: Any) -> Any:
            return rows[:, :2]

        transform = fit_transform

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=FirstTwo))
    view = view_of(classifier, TRAIN, projection="umap")
    assert np.array_equal(view.points, joint_embeddings(classifier.scores(px(TRAIN)), np.asarray(TRAIN.targets))[:, :2])
    assert draw_joint(view).axes[0].get_xlabel() == "UMAP 1"
    with pytest.raises(UsageError, match='given "tsne"'):
        view_of(classifier, TRAIN, projection="tsne")  # type: ignore[arg-type]


def test_the_picture_has_a_dot_for_each_image_and_a_large_star_for_the_truth() -> None:
    points = torch.arange(12.0).view(6, 2)
    view = JointView(
        names=("a", "b", "c"),
        points=np.asarray(points),
        targets=np.asarray(torch.tensor([0, 1, 0, 1, 1, 0])),
        asked=np.asarray(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])),
        distances=np.asarray(torch.ones(3)),
        projection="pca",
    )
    figure = draw_joint(view, "b")
    (axes,) = figure.axes
    dots, stars = axes.collections[:3], axes.collections[3:]
    assert [len(each.get_offsets()) for each in dots] == [3, 3, 0]
    assert np.array_equal(np.concatenate([each.get_offsets() for each in stars]), view.asked)
    sizes = [float(each.get_sizes()[0]) for each in stars]
    assert sizes[1] > sizes[0] == sizes[2]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "c"]
    assert "an image of b" in figure.get_suptitle()
