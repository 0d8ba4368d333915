"""One rule for the names of labels: what ``fit`` takes, ``teach`` and the service take, and under the same name."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.images.describe.labels import LONGEST_NAME
from labelwise.support.errors import LabelwiseError
from labelwise.tasks.teach import teach
from tests.contract.subjects import trained
from tests.server.asking import form, images_of, saved, serving

NFD = "cafe\u0301"
NAMES = {
    "café": "café",
    NFD: "café",
    "café ": "café",
    "\u00a0café\u3000": "café",
    "two words": "two words",
    "Unknown": None,
    "UNSURE": None,
    "none": None,
    "\u3164": None,
    "\u200b\u2060": None,
    "a\u2028b": None,
    "a" * LONGEST_NAME: "a" * LONGEST_NAME,
    "a" * (LONGEST_NAME + 1): None,
}


def fitted(name: str) -> str | None:
    """Return the name of a label that ``fit`` made of a name; None where it is refused."""
    features = np.random.default_rng(0).normal(size=(24, 4)).astype("f4")
    labels = [name, "other"] * 12
    try:
        return next(one for one in lw.fit((features, labels), "softmax", epochs=1).labels.names if one != "other")
    except LabelwiseError:
        return None


def fitted_from_a_folder(name: str, root: Path) -> str | None:
    for label in (name, "other"):
        (root / label).mkdir(parents=True)
        for i in range(6):
            noise = np.random.default_rng(i).integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(noise).save(root / label / f"{i}.png")
    try:
        names = set(lw.data.load(root).labels.names) - {"other"}
    except LabelwiseError:
        return None
    return names.pop() if names else None


def taught(name: str) -> str | None:
    classifier = trained("softmax")
    try:
        return teach(classifier, name, examples=classifier.scores(images_of(5, 2))).labels.names[-1]
    except LabelwiseError:
        return None


@pytest.mark.parametrize("name", NAMES)
def test_fit_and_teach_take_the_same_names(name: str, tmp_path: Path) -> None:
    assert fitted(name) == NAMES[name]
    assert taught(name) == NAMES[name]
    if len(name) < LONGEST_NAME:  # of a file's name
        assert fitted_from_a_folder(name, tmp_path / "images") == NAMES[name]


def test_the_service_takes_the_same_names(tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        for name, stored in NAMES.items():
            answer = client.post("/teach", params={"label": name}, files=form(images_of(5, 1)))
            assert answer.status_code == (400 if stored is None else 200), (name, answer.text)
            if stored is not None:
                assert answer.json()["label"] == stored
                assert client.post("/teach", params={"label": stored}, files=form(images_of(5, 1))).status_code == 409
                assert client.post("/forget", params={"label": name}).json()["label"] == stored


def test_two_spellings_of_a_name_are_one_label() -> None:
    features = np.random.default_rng(0).normal(size=(24, 4)).astype("f4")
    classifier = lw.fit((features, [NFD, "café", "other"] * 8), "softmax", epochs=1)
    assert classifier.labels.names == ("café", "other")
    assert classifier.labels.index(NFD) == 0
