"""The scikit-learn estimators keep its contract, and answer as ``lw.fit`` does."""

import pickle
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.encoders import choose
from labelwise.support.errors import DataError, UsageError

sklearn = pytest.importorskip("sklearn", minversion="1.6")
from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_predict  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from labelwise.sklearn import LabelwiseClassifier, LabelwiseEncoder  # noqa: E402

Rows = tuple[np.ndarray, np.ndarray]
COLOURS = {"red": (200, 30, 30), "green": (30, 190, 40), "blue": (40, 40, 210)}


@parametrize_with_checks([LabelwiseClassifier(), LabelwiseEncoder()])  # type: ignore[untyped-decorator]
def test_scikit_learn_finds_no_fault(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def rows() -> Rows:
    draws = np.random.default_rng(0)
    y = np.array(["ash", "beech", "cedar"])[np.arange(90) % 3]
    return draws.normal(size=(90, 12)) + 2 * np.eye(3, 12)[np.arange(90) % 3], y


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    folder, draws = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    paths, names = [], []
    for name, colour in COLOURS.items():
        for i in range(8):
            pixels = np.clip(np.array(colour) + draws.normal(0, 30, (40, 48, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{name}{i}.png")
            paths.append(str(folder / f"{name}{i}.png"))
            names.append(name)
    return paths, names


def forms(paths: Iterable[str]) -> dict[str, Any]:
    """Return the same images in every form."""
    opened = [Image.open(path) for path in paths]
    return {
        "paths": list(map(Path, paths)),
        "column": np.array(list(paths), object),
        "pil": opened,
        "content": [Path(path).read_bytes() for path in paths],
        "arrays": np.stack([np.asarray(one) for one in opened]),
        "list of arrays": [np.asarray(one) for one in opened],
    }


def test_images_in_every_form_get_the_same_answers(photos: tuple[list[str], list[str]]) -> None:
    paths, names = photos
    model = LabelwiseClassifier().fit(paths, names)
    assert model.classes_.tolist() == sorted(COLOURS)
    assert model.score(paths, names) == 1
    wanted = model.predict_proba(paths)
    np.testing.assert_allclose(wanted.sum(1), 1, atol=1e-9)
    for form, images in forms(paths).items():
        np.testing.assert_allclose(model.predict_proba(images), wanted, atol=1e-6, err_msg=form)
    np.testing.assert_allclose(model.classifier_.predict_proba(paths), wanted, atol=1e-6)
    same = lw.fit((paths, names), "discriminant", encoder={"frozen": True})
    np.testing.assert_allclose(same.select(model.classes_.tolist()).predict_proba(paths), wanted, atol=1e-6)


def test_features_of_the_encoder_give_the_classifier_of_the_images(photos: tuple[list[str], list[str]]) -> None:
    paths, names = photos
    piped = make_pipeline(LabelwiseEncoder(), LabelwiseClassifier()).fit(paths, names)
    assert piped[:-1].transform(paths[:2]).shape == (2, 1280)
    assert len(piped[0].get_feature_names_out()) == 1280
    np.testing.assert_allclose(
        piped.predict_proba(paths), LabelwiseClassifier().fit(paths, names).predict_proba(paths), atol=1e-6
    )
    crossed = cross_val_predict(piped, np.array(paths), np.array(names), cv=3, n_jobs=2)
    assert np.mean(crossed == names) > 0.9


def test_the_encoder_is_chosen_as_fit_does(
    photos: tuple[list[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "known_encoders", lambda: [replace(choose.PACKAGED[0], name="best", at_hand=True)])
    assert LabelwiseEncoder().fit(photos[0]).encoder_ == "best"
    with pytest.raises(UsageError, match="best"):
        LabelwiseClassifier().fit(*photos)
    assert LabelwiseEncoder(encoder="efficientnet_lite0").fit(photos[0]).encoder_ == "efficientnet_lite0"
    with pytest.raises(NotFittedError):
        LabelwiseEncoder().transform(photos[0])


def test_searches_pipelines_copies_and_pickles(rows: Rows) -> None:
    x, y = rows
    piped = make_pipeline(StandardScaler(), LabelwiseClassifier())
    search = GridSearchCV(piped, {"labelwiseclassifier__class_weight": [None, "balanced"]}, cv=3, n_jobs=2).fit(x, y)
    assert search.best_score_ > 0.8
    model = search.best_estimator_
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(x), model.predict_proba(x))
    assert not hasattr(clone(model)[-1], "classifier_")


def test_examples_in_pieces_give_the_classifier_of_all(rows: Rows) -> None:
    x, y = rows
    known = y != "cedar"
    model = LabelwiseClassifier().partial_fit(x[known], y[known], classes=np.unique(y))
    assert model.classes_.tolist() == ["ash", "beech"], "a label counts from its first example on"
    model.partial_fit(x[~known], y[~known])
    order = np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)])
    whole = LabelwiseClassifier().fit(x[order], y[order])
    assert np.array_equal(model.predict_proba(x), whole.predict_proba(x))
    with pytest.raises(ValueError, match="do not name: larch"):
        model.partial_fit(x[:1], ["larch"], classes=["ash"])


@pytest.mark.parametrize("seed", range(3))
def test_a_weight_counts_as_copies(seed: int) -> None:
    draws = np.random.default_rng(seed)
    x, y, weights = draws.normal(size=(60, 10)), np.arange(60) % 4, draws.integers(0, 5, 60)
    again = draws.permutation(np.repeat(np.arange(60), weights))
    weighted = LabelwiseClassifier().fit(x, y, sample_weight=weights)
    copied = LabelwiseClassifier().fit(x[again], y[again])
    new = draws.normal(size=(50, 10))
    assert np.array_equal(weighted.predict_proba(new), copied.predict_proba(new))
    first, second = (one.classifier_.scores(new.astype(np.float32)) for one in (weighted, copied))
    assert np.array_equal(first.outlier_score, second.outlier_score)
    assert np.array_equal(first.yes, second.yes)


def test_calibration_counts_weights(rows: Rows) -> None:
    x, y = rows
    noisy = x + np.random.default_rng(2).normal(scale=1.5, size=x.shape)
    plain = LabelwiseClassifier().fit(noisy, y)
    sure = plain.predict_proba(noisy).max(1)
    wrong = plain.predict(noisy) != y
    doubtful = LabelwiseClassifier().fit(noisy, y, sample_weight=np.where(wrong, 9.0, 1.0))
    assert doubtful.predict_proba(noisy).max(1).mean() < sure.mean() - 0.05
    told = [one.classifier_.origin.summary["leave_one_out"]["accuracy"] for one in (plain, doubtful)]
    assert told[1] < told[0] - 0.1


def test_labels_of_large_weight_are_answered_more_often(rows: Rows) -> None:
    x, y = rows
    noisy = x + np.random.default_rng(2).normal(scale=3, size=x.shape)
    often = LabelwiseClassifier(class_weight={"ash": 100.0, "beech": 1.0, "cedar": 1.0}).fit(noisy, y).predict(noisy)
    plain = LabelwiseClassifier().fit(noisy, y).predict(noisy)
    assert (often == "ash").mean() > (plain == "ash").mean() + 0.2


def test_an_image_of_weight_zero_is_left_out(rows: Rows) -> None:
    x, y = rows
    weights = (np.arange(90) % 5 > 0).astype(float)
    model = LabelwiseClassifier().fit(x, y, sample_weight=weights)
    alone = LabelwiseClassifier().fit(x[weights > 0], y[weights > 0])
    assert np.array_equal(model.predict_proba(x), alone.predict_proba(x))
    heavy = LabelwiseClassifier().fit(x, y, sample_weight=np.where(y == "ash", 4.0, 1.0))
    assert not np.allclose(heavy.predict_proba(x), LabelwiseClassifier().fit(x, y).predict_proba(x))


def test_labels_keep_their_type_and_two_have_one_decision() -> None:
    draws = np.random.default_rng(1)
    x, y = draws.normal(size=(40, 6)), np.arange(40) % 2 * 7
    x[:, 0] += y
    model = LabelwiseClassifier().fit(x, y)
    assert set(model.predict(x).tolist()) == {0, 7}
    assert np.array_equal(model.decision_function(x) > 0, model.predict(x) == 7)
    assert model.classifier_.labels.names == ("0", "7")


def test_what_cannot_be_used_is_said(photos: tuple[list[str], list[str]], rows: Rows, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    model = LabelwiseClassifier().fit(*photos)
    with pytest.raises(DataError, match=r"broken\.jpg"):
        model.predict([str(tmp_path / "broken.jpg")])
    with pytest.raises(ValueError, match="fitted to 12 features; given images"):
        LabelwiseClassifier().fit(*rows).predict(photos[0])
    with pytest.raises(ValueError, match="give one"):
        LabelwiseClassifier().fit(photos[0], photos[1][:-1])
