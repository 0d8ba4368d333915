"""``lw.evaluate``: every figure that applies, from one call."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import labelwise as lw
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.evaluation import Evaluation
from labelwise.support.errors import UsageError
from labelwise.support.text import as_json
from tests.cli.folders import write_folders
from tests.conftest import blobs, squares
from tests.contract.subjects import trained
from tests.evaluation.test_verification import noisy
from tests.pixels_of import px

NAMES = blobs().labels.names
DATA = replace(blobs(), splits={"test": noisy(blobs().split("test"))})


def test_figures_are_those_of_the_answers() -> None:
    classifier, test = trained("softmax"), DATA.split("test")
    figures = lw.evaluate(classifier, DATA)
    best, truth = np.asarray(classifier.scores(test.images).best), np.asarray(test.targets)
    assert figures.accuracy == pytest.approx((best == truth).mean())
    assert figures.accuracy is not None
    assert figures.interval is not None
    assert figures.interval[0] < figures.accuracy < figures.interval[1]
    recalls = [(best[truth == i] == i).mean() for i in range(4)]
    assert figures.balanced_accuracy == pytest.approx(np.mean(recalls))
    assert [one.recall for one in figures.labels] == pytest.approx(recalls)
    assert figures.baseline == (NAMES[0], 0.25)
    assert figures.confusion is not None
    for i, one in enumerate(figures.labels):
        assert one.label == figures.label_names[i]
        assert one.images == figures.confusion[i].sum() == (truth == i).sum()
        assert one.precision == pytest.approx((truth[best == i] == i).mean())
    wrong = figures.confusion - np.diag(figures.confusion.diagonal())
    assert [count for _, _, count in figures.confusions()] == sorted(wrong[wrong > 0].tolist(), reverse=True)
    closed = evaluate_closed(Evaluation.of(classifier, test))
    assert figures.results["closed"] == closed
    assert figures.calibration_error == closed.ece
    assert list(figures.results) == ["closed"]


def test_figures_read_as_text_and_json() -> None:
    figures = lw.evaluate(trained("softmax"), DATA, unknown=np.zeros((3, 8, 8, 3), np.uint8), protocols=["retrieval"])
    table = figures.table()
    assert "right (accuracy)" in table
    assert all(name in table for name in NAMES)
    assert "EER" not in table
    assert len(repr(figures)) < 200
    document = figures.as_json()
    assert as_json(document)
    assert document["accuracy"] == figures.accuracy
    assert document["unknown_auroc"] == figures.results["unknown"].auroc
    assert sum(one["count"] for one in document["confusion"]) == document["images"] == figures.images
    assert [one["label"] for one in document["labels"]] == list(NAMES)
    assert set(document["retrieval"]) == {"cosine", "whitened"}


def test_data_of_every_form_give_the_same_figures(tmp_path: Path) -> None:
    write_folders(tmp_path / "pictures", DATA)
    classifier, test = trained("softmax"), DATA.split("test")
    whole = lw.evaluate(classifier, tmp_path / "pictures")
    words = test.words(NAMES)
    for data in ((px(test).numpy(), words), (px(test).numpy(), np.asarray(test.targets))):
        figures = lw.evaluate(classifier, data)
        assert figures.accuracy == whole.accuracy
        assert figures.images == whole.images
    with pytest.raises(UsageError, match="80 images and 79 labels"):
        lw.evaluate(classifier, (px(test).numpy(), words[1:]))
    with pytest.raises(UsageError, match="Data must be a path, a Dataset, or images"):
        lw.evaluate(classifier, [1, 2, 3])  # type: ignore[arg-type]


def test_of_several_labels_each_is_measured() -> None:
    data = squares(60)
    classifier = trained("multilabel")
    if classifier.labels.names != data.labels.names:
        pytest.skip("this subject has other labels")
    figures = lw.evaluate(classifier, data)
    assert figures.confusion is None
    assert figures.accuracy == figures.results["multilabel"].exact
    assert all(one.average_precision is not None for one in figures.labels if one.images)


def test_a_report_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    path = lw.report(trained("softmax"), DATA, tmp_path / "page.html", examples=1)
    assert path == tmp_path / "page.html"
    assert "<h2>Confusion matrix</h2>" in path.read_text()
    with pytest.raises(UsageError, match=r"is an \.html file"):
        lw.report(trained("softmax"), DATA, tmp_path / "page.pdf")
