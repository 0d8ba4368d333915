"""Only these labels occur: answers change, raw scores stay, and the saved classifier does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelwise as lw
from labelwise.support.errors import DataError, UsageError
from tests.conftest import blobs
from tests.encoders.hub_reader import HUB, read_in_python


@pytest.fixture(scope="module")
def fitted() -> Any:
    data = blobs(4, per_label=12)
    return lw.fit(data, "discriminant", encoder=str(HUB / "clip")), data.splits["test"].images


def test_labels_that_do_not_occur_are_not_answered(fitted: Any, tmp_path: Path) -> None:
    classifier, images = fitted
    names = classifier.labels.names
    (tmp_path / "here.txt").write_text(f"{names[2].upper()}\n{names[0]}\nsomething else\n")
    here = classifier.restrict(tmp_path / "here.txt")
    assert here.labels.names == (names[0], names[2])
    assert np.array_equal(here.scores(images).raw, classifier.scores(images).raw[:, [0, 2]])
    assert here.ask(images, names[0]) == classifier.ask(images, names[0])
    assert classifier.labels.names == names
    by_names = classifier.restrict([names[2], names[0]])
    assert np.array_equal(by_names.predict_proba(images), here.predict_proba(images))


def test_shares_weigh_probabilities_as_bayes_has_it(fitted: Any, tmp_path: Path) -> None:
    classifier, images = fitted
    names = classifier.labels.names
    equal, skewed = (
        classifier.restrict(dict(zip(names[:3], shares, strict=True))) for shares in ((1, 1, 1), (8, 1, 1))
    )
    odds = [np.log(one.predict_proba(images)) for one in (equal, skewed)]
    change = (odds[1] - odds[1][:, 1:2]) - (odds[0] - odds[0][:, 1:2])
    assert np.allclose(change, [np.log(8), 0, 0], atol=1e-3)
    (tmp_path / "here.csv").write_text(
        "label,share\n" + "".join(f"{name},{s}\n" for name, s in zip(names, (8, 1, 1, 0), strict=True))
    )
    assert np.allclose(classifier.restrict(tmp_path / "here.csv").predict_proba(images), skewed.predict_proba(images))


def test_words_are_restricted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_python(monkeypatch)
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 16, 16), np.uint8)
    classifier = lw.fit(images, names=["red", "green", "blue"], encoder=str(HUB / "clip"))
    here = classifier.restrict(["red", "blue"])
    assert set(here.predict(images)) <= {"red", "blue"}
    assert here.ask(images, text="green at night") == classifier.ask(images, text="green at night")


def test_lists_that_say_nothing_are_refused(fitted: Any, tmp_path: Path) -> None:
    classifier, _ = fitted
    file = tmp_path / "here.txt"
    file.write_text("wren\n")
    with pytest.raises(DataError, match="allows no label"):
        classifier.restrict(file)
    with pytest.raises(DataError, match="Cannot read"):
        classifier.restrict(tmp_path / "none.txt")
    table = tmp_path / "here.csv"
    table.write_text(f"label,share\n{classifier.labels.names[0]},-1\n")
    with pytest.raises(DataError, match="at least 0"):
        classifier.restrict(table)
    with pytest.raises(UsageError, match="At least one label"):
        classifier.restrict({})
