"""What a person types first in Python: lw.fit, lw.load, lw.evaluate, lw.report, and the verbs of a classifier."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.support.errors import DataError, UsageError

COLOURS = {"red": (200, 30, 30), "green": (30, 190, 40), "blue": (40, 40, 210)}
PER_LABEL = 12


def draw(rng: np.random.Generator, colour: Sequence[int]) -> Image.Image:
    """Return an image of one colour with noise, so that labels are easy and images differ."""
    pixels = np.clip(np.array(colour) + rng.normal(0, 30, (40, 48, 3)), 0, 255)
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("my photos"), np.random.default_rng(0)
    for label, colour in COLOURS.items():
        (folder / label).mkdir()
        for i in range(PER_LABEL):
            draw(rng, colour).save(folder / label / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def classifier(photos: Path) -> lw.Classifier:
    return lw.fit(photos)


def files(photos: Path) -> list[Path]:
    return sorted(photos.rglob("*.png"))


def names(photos: Path) -> list[str]:
    return [file.parent.name for file in files(photos)]


def test_a_folder_is_fitted_and_answers(classifier: lw.Classifier, photos: Path) -> None:
    assert set(classifier.labels.names) == set(COLOURS)
    assert list(classifier.predict(files(photos))) == names(photos)


@pytest.mark.parametrize("form", ["str", "dataset", "paths", "arrays", "images", "generators", "open files"])
def test_data_may_come_in_any_form(photos: Path, form: str) -> None:
    images = [Image.open(file).convert("RGB") for file in files(photos)]
    data = {
        "str": str(photos),
        "dataset": lw.data.load(photos),
        "paths": (files(photos), names(photos)),
        "arrays": (np.stack([np.asarray(image) for image in images]), np.array(names(photos))),
        "images": (images, names(photos)),
        "generators": ((file for file in files(photos)), (name for name in names(photos))),
        "open files": ([io.BytesIO(file.read_bytes()) for file in files(photos)], names(photos)),
    }[form]
    fitted = lw.fit(data)
    assert list(fitted.predict(images[::PER_LABEL])) == names(photos)[::PER_LABEL]


def test_images_may_come_in_any_form(classifier: lw.Classifier, photos: Path) -> None:
    file = files(photos)[0]
    image = Image.open(file).convert("RGB")
    forms = [file, str(file), [file], file.read_bytes(), image, np.asarray(image), photos / file.parent.name]
    expected = classifier.predict_proba([file])[0]
    for form in forms:
        np.testing.assert_allclose(classifier.predict_proba(form)[0], expected, atol=1e-6)


def test_method_and_settings_are_named(photos: Path) -> None:
    assert lw.fit(photos, "discriminant", seed=1).labels.names
    with pytest.raises(UsageError, match="Did you mean"):
        lw.fit(photos, "discriminent")
    with pytest.raises(UsageError, match="sauce"):
        lw.fit(photos, "discriminant", sauce="vectors")


def test_data_that_is_none_is_told_what_would_work() -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        lw.fit("nowhere/at/all")
    with pytest.raises(UsageError, match=r"lw\.fit\(\(images, labels\)\)"):
        lw.fit(3)
    with pytest.raises(DataError, match="2 images but 3"):
        lw.fit((np.zeros((2, 8, 8, 3), np.uint8), ["a", "b", "c"]))
    x = np.random.default_rng(0).random((4, 6))
    for blank in (None, float("nan")):
        with pytest.raises(UsageError, match=r"1 of 4 images have no label .* in row 2"):
            lw.fit((x, ["a", "b", blank, "a"]))
    assert lw.fit((x, [True, False, True, False])).labels.names == ("False", "True")


def test_a_call_that_cannot_work_names_one_that_does(classifier: lw.Classifier, photos: Path) -> None:
    with pytest.raises(UsageError, match=r'data\.split\("test"\)\.images'):
        classifier.predict(lw.data.load(photos))
    with pytest.raises(UsageError, match=r'teach\("owl", images\)'):
        classifier.teach(files(photos), "owl")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="of one label only"):
        lw.fit((files(photos), ["red"] * len(files(photos))))
    with pytest.raises(UsageError, match=r"lw\.fit\(\(images, labels\)\)"):
        lw.fit(files(photos), names(photos))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="classifier comes first"):
        lw.classify(files(photos), classifier)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"images\[\.\.\., :3\]"):
        lw.fit((np.zeros((4, 8, 8, 4), np.uint8), list("abab")), encoder={"frozen": True})


def test_several_labels_of_an_image_are_named(photos: Path) -> None:
    several = [["warm", name] if name == "red" else [name] for name in names(photos)]
    classifier = lw.fit((files(photos), several), "indicator", epochs=2)
    assert classifier.labels.names == ("blue", "green", "red", "warm")
    assert classifier.calibration.multilabel
    table = np.array([[name in each for name in classifier.labels.names] for each in several])
    with pytest.raises(UsageError, match=r'lw\.fit\(\(images, \[\["owl", "wren"\], \[\]\]\)\)'):
        lw.fit((files(photos), table))


def test_features_are_cached_as_in_the_shell(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path))
    lw.fit((files(photos), names(photos))).predict(photos)

    def encode(*_: object) -> None:
        raise AssertionError("an image was encoded again")

    monkeypatch.setattr("labelwise.encoders.onnx.OnnxEncoder.__call__", encode)
    lw.fit((files(photos), names(photos))).predict(photos)


def test_a_classifier_has_the_verbs(classifier: lw.Classifier, photos: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    grey = [draw(rng, (120, 120, 120)) for _ in range(5)]
    taught = classifier.teach("grey", grey[:4])
    assert isinstance(taught, lw.Classifier)
    assert list(taught.predict(grey[4:])) == ["grey"]
    assert "grey" not in taught.forget("grey").labels.names
    file = files(photos)[0]
    assert classifier.classify(file)[0].label == names(photos)[0]
    assert classifier.ask(file, names(photos)[0])[0].yes
    assert classifier.scores(file).raw.shape == (1, 3)
    assert classifier.explain(file).heat.ndim == 2
    assert len(classifier.verify(file, files(photos)[1])) == 1
    (matches,) = classifier.retrieve(file, photos, k=3)
    assert matches[0].file == str(file)
    assert [Path(match.file).parent for match in matches] == [file.parent] * 3
    assert len(classifier.outliers(photos)) == len(files(photos))
    taught.save(tmp_path / "colours.lw")
    again = lw.load(tmp_path / "colours.lw")
    assert isinstance(again, lw.Classifier)
    np.testing.assert_array_equal(again.predict_proba(files(photos)), taught.predict_proba(files(photos)))


def test_the_functions_say_the_same(classifier: lw.Classifier, photos: Path) -> None:
    assert lw.classify(classifier, photos)[0] == classifier.classify(photos)[0]
    figures = lw.evaluate(classifier, photos)
    assert figures.accuracy is not None
    assert figures.confusion is not None
    assert figures.accuracy > 0.9
    assert figures.confusion.shape == (3, 3)
    assert len(figures.labels) == 3
    assert str(figures) == figures.table()
