"""Figures of generated features against sums over pairs, and the plane."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from labelwise.core.classifier import Classifier
from labelwise.core.head import Generates
from labelwise.evaluation.evaluation import align_targets
from labelwise.evaluation.imagined import draw_imagined, evaluate_imagined
from labelwise.tasks.imagine import image_features, imagine
from tests.close import assert_close
from tests.described import UNSEEN, by_vector
from tests.generating import generating
from tests.pixels_of import px

DATA = by_vector(noise=0.15)
TEST = DATA.split("test")
WAY = torch.linalg.lstsq(
    torch.as_tensor(DATA.labels.vectors),
    torch.stack([px(TEST)[torch.as_tensor(TEST.targets) == i].mean(0) for i in range(12)]),
)
# Labels are described by where their features lie, so that the model can be right.
LABELS = replace(DATA.labels, vectors=torch.as_tensor(DATA.labels.vectors) @ WAY.solution)
DESCRIBED = frozenset(f"label {i}" for i in UNSEEN)


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return generating(LABELS, (20,), DESCRIBED)


def root_mean_square(rows: torch.Tensor) -> float:
    middle = rows.mean(0)
    return math.sqrt(sum(math.dist(row.tolist(), middle.tolist()) ** 2 for row in rows) / (len(rows) - 1))


def slow(classifier: Classifier, name: str, count: int, seed: int) -> dict[str, object]:
    model = classifier.head
    assert isinstance(model, Generates)
    rows = model.generate(classifier.labels, count, seed)[classifier.labels.index(name)]
    means = [px(TEST)[torch.as_tensor(TEST.targets) == i].mean(0).tolist() for i in range(12)]
    between = [math.dist(a, b) for i, a in enumerate(means) for b in means[:i]]
    place = classifier.labels.index(name)
    real = px(TEST)[torch.as_tensor(TEST.targets) == place]

    def right(row: torch.Tensor, skip: int = -1) -> bool:
        far = [(math.dist(row.tolist(), x.tolist()), i) for i, x in enumerate(px(TEST)) if i != skip]
        return int(torch.as_tensor(TEST.targets)[min(far)[1]]) == place

    own = (torch.as_tensor(TEST.targets) == place).nonzero()[:, 0].tolist()
    return {
        "label": name,
        "described": place in UNSEEN,
        "images": len(real),
        "offset": math.dist(rows.mean(0).tolist(), means[place]) / (sum(between) / len(between)),
        "precision": sum(right(row) for row in rows) / count,
        "real_precision": sum(right(px(TEST)[i], i) for i in own) / len(own),
        "spread": root_mean_square(rows) / root_mean_square(real),
    }


def test_figures(classifier: Classifier) -> None:
    result = evaluate_imagined(
        classifier, image_features(classifier, px(TEST)), align_targets(classifier, TEST, LABELS), count=10, seed=1
    )
    assert [one["label"] for one in result] == list(LABELS.names)
    for one in result[1:4]:
        right = slow(classifier, one["label"], 10, 1)
        assert list(one) == list(right)
        assert (one["label"], one["described"]) == (right["label"], right["described"])
        for figure in ("images", "offset", "precision", "real_precision", "spread"):
            assert one[figure] == pytest.approx(right[figure], rel=1e-3), figure


def test_a_wrong_description_is_seen_in_the_figures(classifier: Classifier) -> None:
    vectors = LABELS.vectors
    assert vectors is not None
    swapped = generating(replace(LABELS, vectors=np.roll(vectors, 1, 0)), (20,))
    good, bad = (
        evaluate_imagined(one, image_features(one, px(TEST)), align_targets(one, TEST, LABELS))
        for one in (classifier, swapped)
    )
    assert [one["precision"] for one in good] == [1.0] * 12
    assert [one["precision"] for one in bad] == [0.0] * 12
    assert max(one["offset"] for one in good) < min(one["offset"] for one in bad)
    assert all(not one["described"] for one in bad), "no label is known from a description alone"
    spreads = [one["spread"] or 0 for one in good]
    assert sum(spreads) / 12 == pytest.approx(1, abs=0.1)


def test_a_single_image_has_no_spread(classifier: Classifier) -> None:
    few = TEST.select([0, 1, 12, 13, 14])
    found = evaluate_imagined(classifier, image_features(classifier, px(few)), align_targets(classifier, few, LABELS))
    assert [(one["label"], one["images"]) for one in found] == [("label 0", 2), ("label 1", 2), ("label 2", 1)]
    assert [one["spread"] is None for one in found] == [False, False, True]


def offsets(figure: Any) -> dict[str, Any]:
    """Return the points of each cloud of a figure, by its words."""
    return {str(cloud.get_label()): np.asarray(cloud.get_offsets()) for cloud in figure.axes[0].collections}


@pytest.mark.parametrize("projection", ["pca", "tsne"])
def test_the_plane(classifier: Classifier, projection: str) -> None:
    names = ["label 2", "label 0"]
    few = TEST.select(range(60))
    found = imagine(classifier, names, px(few), count=7)
    targets = torch.as_tensor(few.targets).clone()
    targets[:3] = -1
    figure = draw_imagined(classifier, found, targets, projection)  # type: ignore[arg-type]
    clouds = offsets(figure)
    for place, name in ((2, "label 2"), (0, "label 0")):
        assert len(clouds[f"{name}, real"]) == int((targets == place).sum())
        assert len(clouds[f"{name}, generated"]) == 7
        own = clouds[f"{name}, real"].mean(0)
        centres = {words: np.linalg.norm(points.mean(0) - own) for words, points in clouds.items()}
        del centres[f"{name}, real"]
        assert min(centres, key=lambda words: centres[words]) == f"{name}, generated", "they lie with their own"
    others = [t for t in targets.tolist() if t not in (0, 2)]
    assert len(clouds["other labels, seen"]) == sum(t >= 0 and t not in UNSEEN for t in others)
    assert len(clouds["other labels, not seen"]) == sum(t < 0 or t in UNSEEN for t in others)
    words = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert words == [
        *("other labels, seen", "other labels, not seen"),
        *(f"{name}, {kind}" for name in names for kind in ("real", "generated")),
    ]
    assert sum(map(len, clouds.values())) == 60 + 14


def test_pca_keeps_the_widest_directions(classifier: Classifier) -> None:
    found = imagine(classifier, ["label 2"], px(TEST), count=5)
    points = np.concatenate([*offsets(draw_imagined(classifier, found, TEST.targets)).values()])
    rows = np.concatenate([found.gallery, found.features[0]])
    values = np.linalg.svd(rows - rows.mean(0), compute_uv=False)[:2]
    assert_close(torch.as_tensor(points).float().norm(dim=0), values, rtol=1e-4, atol=1e-4)


def test_more_labels_than_colours_are_all_drawn(classifier: Classifier) -> None:
    figure = draw_imagined(
        classifier, imagine(classifier, LABELS.names, px(TEST), count=2), torch.as_tensor(TEST.targets)
    )
    assert sum(map(len, offsets(figure).values())) == len(TEST) + 10 * 2, (
        "generated features of ten labels, and every real image"
    )
