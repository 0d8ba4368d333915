"""An image has the same features and the same probabilities, to the bit, however it is asked about."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.core.arrays import Array
from labelwise.core.classifier import Classifier
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.encoders.registry import is_installed
from labelwise.images.file_images import FileImages
from labelwise.jobs.job import Job
from labelwise.jobs.local import run_here
from labelwise.methods import Discriminant
from tests.contract.subjects import trained
from tests.server.conftest import start

Answers = dict[str, tuple[bytes, list[float]]]  # the features of each file and the probabilities of its labels


def draw(folder: Path, word: str = "photo", count: int = 3, channel: int = 0) -> list[Path]:
    """Draw image files of several sizes and kinds, mostly of one colour."""
    rng, files = np.random.default_rng(channel), []
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        small = rng.integers(0, 150, (6 + i, 9, 3), dtype=np.uint8)
        small[..., channel] += 60
        files.append(folder / f"{word} {i}.{'jpg' if i == 1 else 'png'}")
        Image.fromarray(small).resize((90 + 40 * i, 120 + 7 * i)).save(files[-1])
    return files


def by_softmax(folder: Path) -> Path:
    """Save a small classifier that was trained."""
    save(trained("softmax"), folder / "m.lw")
    return folder / "m.lw"


def by_default(folder: Path) -> Path:
    """Save a classifier of the default encoder, fitted to a few drawn images."""
    for channel, label in enumerate(("red", "green", "blue")):
        draw(folder / "train" / label, label, 6, channel)
    lw.fit(folder / "train", Discriminant()).save(folder / "m.lw")
    return folder / "m.lw"


def asked(classifier: Classifier, files: list[Path], given: Callable[[Path], object] = str) -> Answers:
    """Ask about each image alone, as a person would give it."""
    answers = {}
    for file in files:
        image = given(file)
        features = classifier.features(image).values
        answers[file.name] = (features.tobytes(), classifier.scores(image).probabilities[0].tolist())
    return answers


def together(classifier: Classifier, images: list[str], files: list[Path]) -> Answers:
    """Ask about all images at once."""
    features, scores = classifier.features(images).values, classifier.scores(images)
    known = {
        Path(name).name: (row.tobytes(), probabilities.tolist())
        for name, row, probabilities in zip(images, features, scores.probabilities, strict=True)
    }
    return {file.name: known[file.name] for file in files}


def pixels(file: Path) -> Array:
    with Image.open(file) as image:
        return np.asarray(image.convert("RGB"))


def opened(file: Path) -> Image.Image:
    return Image.open(file)


def tops(rows: list[dict[str, object]]) -> dict[str, float]:
    return {str(row["label"]): float(str(row["probability"])) for row in rows}


@pytest.mark.parametrize("make", [by_softmax, by_default])
def test_an_image_has_the_same_features_and_probabilities_however_it_is_asked_about(
    make: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if make is by_default and not is_installed():
        pytest.skip("the default encoder is not installed")
    folder = make(tmp_path)
    files = draw(tmp_path / "photos")
    monkeypatch.setenv("LABELWISE_CACHE", "off")
    classifier = load(folder)
    alone = asked(classifier, files)
    assert len({features for features, _ in alone.values()}) == 3, "images differ"
    assert asked(classifier, files, Path.read_bytes) == alone
    assert asked(classifier, files, opened) == alone
    assert {name: answer for name, answer in asked(classifier, files, pixels).items() if name.endswith("png")} == {
        name: answer for name, answer in alone.items() if name.endswith("png")
    }, "a JPEG file may be decoded smaller than it is"
    everything = [str(file) for file in (*files, *sorted(tmp_path.glob("train/*/*")))]
    assert together(classifier, everything, files) == alone
    assert together(classifier, everything[::-1], files) == alone
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "cache"))
    for _ in ("computed", "read"):
        assert together(load(folder), everything, files) == alone
    names = classifier.labels.names
    of_names = {name: dict(zip(names, row, strict=True)) for name, (_, row) in alone.items()}
    assert over_http(folder, files, len(names)) == of_names
    assert by_job(folder, files, len(names), tmp_path / "job") == of_names


def over_http(folder: Path, files: list[Path], count: int) -> dict[str, dict[str, float]]:
    """Return the probabilities of a service."""
    site = start(folder)
    try:
        return {file.name: tops(site.post("/classify", file, top=count)["top"]) for file in files}
    finally:
        site.stop()


def by_job(folder: Path, files: list[Path], count: int, out: Path) -> dict[str, dict[str, float]]:
    """Return the probabilities of a job of two processes, each image in a block of its own."""
    dataset = pytest.importorskip("pyarrow.dataset")
    job = Job(question="classify", model=str(folder), images=FileImages(files), folder=str(out), size=1, top=count)
    job.begin()
    run_here(job, 2, lambda _: None)
    return {Path(row["file"]).name: tops(row["top"]) for row in dataset.dataset(job.folder).to_table().to_pylist()}
