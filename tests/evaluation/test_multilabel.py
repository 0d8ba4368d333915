"""Figures where several labels may be true, against scikit-learn and loops over single questions."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.core.metrics import expected_calibration_error
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.evaluation import Evaluation, align_targets
from labelwise.evaluation.multilabel import evaluate_multilabel
from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import DataError, UnsupportedError
from labelwise_papers.analyses.answers import answer_calibration, asked_pairs, yes_rates
from labelwise_papers.analyses.probe import probe_embeddings
from tests.changed import bind_model, changed, made_from
from tests.described import Table
from tests.pixels_of import px

LABELS = Labels(names=("a", "b", "c", "d"))


def known_scores(n: int = 80, seed: int = 0) -> tuple[Classifier, Split, Tensor]:
    """A model whose images are its scores, of which three labels are asked truly; the fourth is never true."""
    made = torch.Generator().manual_seed(seed)
    truths = torch.rand(n, 4, generator=made) < torch.tensor([0.5, 0.2, 0.7, 0.0])
    truths[:5] = False
    scores = torch.randn(n, 4, generator=made) + 1.5 * truths
    bound = bind_model(Table(LABELS), LABELS)
    classifier = changed(
        bound, scale=bound.calibration.scale * 1.5, offset=bound.calibration.offset - 1, multilabel=True
    )
    return classifier, Split(images=scores, targets=truths), truths


def test_figures_equal_scikit_learn() -> None:
    classifier, split, truths = known_scores()
    found = evaluate_multilabel(Evaluation.of(made_from(classifier, px(split)[:8]), split, LABELS))
    p = (px(split) * 1.5 - 1).sigmoid().numpy()
    y, yes = truths.numpy(), p >= 0.5
    wanted = [float(average_precision_score(y[:, j], p[:, j])) for j in range(3)]
    assert [found.average_precision[name] for name in "abc"] == pytest.approx(wanted)
    assert found.average_precision["d"] is None
    assert found.mean_average_precision == pytest.approx(np.mean(wanted))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found.micro_f1 == pytest.approx(f1_score(y, yes, average="micro"))
    assert found.macro_f1 == pytest.approx(f1_score(y[:, :3], yes[:, :3], average="macro"))
    assert found.exact == pytest.approx(np.mean([(a == b).all() for a, b in zip(y, yes, strict=True)]))
    assert found.answer_ece == pytest.approx(expected_calibration_error(p.ravel(), y.ravel()), abs=1e-6)
    assert (found.images, found.asked, found.leaked, found.kept) == (80, 4, 0.1, 1.0)
    assert 0 < found.exact < 1


def test_truths_follow_the_names_of_labels() -> None:
    classifier, split, truths = known_scores()
    order = [2, 0, 3, 1]
    moved = Split(images=px(split), targets=truths[:, order])
    names = Labels(names=tuple("cadb"))
    assert evaluate_multilabel(Evaluation.of(classifier, moved, names)) == evaluate_multilabel(
        Evaluation.of(classifier, split, LABELS)
    )
    assert (
        yes_rates(Evaluation.of(classifier, moved, names))["calibrated"]["right"]
        == yes_rates(Evaluation.of(classifier, split, LABELS))["calibrated"]["right"]
    )


def test_labels_that_only_one_side_knows() -> None:
    classifier, split, truths = known_scores()
    fewer = Split(images=px(split), targets=truths[:, :3])
    found = evaluate_multilabel(Evaluation.of(classifier, fewer, LABELS.select(["a", "b", "c"])))
    assert found.asked == 3
    assert list(found.average_precision) == ["a", "b", "c"]
    with pytest.raises(DataError, match=r"have no column for these labels: d. Forget them"):
        align_targets(classifier, fewer, LABELS.select(["a", "b", "c"]))
    with pytest.raises(DataError, match=r"does not know these labels of the data: c. Teach them"):
        evaluate_multilabel(Evaluation.of(classifier.remove("c"), split, LABELS))
    assert evaluate_multilabel(Evaluation.of(classifier.remove("d"), split, LABELS)).asked == 3  # true of no image
    bare = Split(images=px(split), targets=torch.zeros_like(truths))
    with pytest.raises(DataError, match="No label is true of any of these images"):
        evaluate_multilabel(Evaluation.of(classifier, bare, LABELS))


def test_asked_pairs_are_one_true_and_one_wrong_label_of_each_image() -> None:
    classifier, split, truths = known_scores()
    truths[7] = True
    split = replace(split, targets=truths)
    scores, pairs = asked_pairs(Evaluation.of(classifier, split, LABELS), seed=1)
    assert len(scores) == 80
    assert truths[pairs.right].all()
    assert not truths[pairs.wrong].any()
    assert pairs.right[0].tolist() == truths.any(1).nonzero()[:, 0].tolist()
    assert pairs.wrong[0].tolist() == [row for row in range(80) if row != 7]
    _, other = asked_pairs(Evaluation.of(classifier, split, LABELS), seed=2)
    assert not torch.equal(pairs.wrong[1], other.wrong[1])


def test_rates_and_calibration_equal_loops() -> None:
    classifier, split, truths = known_scores()
    _, pairs = asked_pairs(Evaluation.of(classifier, split, LABELS), seed=3)
    rates = yes_rates(Evaluation.of(classifier, split, LABELS), seed=3)
    for scores, found in ((px(split), rates["raw"]), (px(split) * 1.5 - 1, rates["calibrated"])):
        yes = (scores > 0).tolist()
        true = truths.tolist()
        every = [(yes[i][j], true[i][j]) for i in range(80) for j in range(4)]
        assert found["right"] == pytest.approx(np.mean([said for said, right in every if right]))
        assert found["every_wrong"] == pytest.approx(np.mean([said for said, right in every if not right]))
        drawn = zip(*(part.tolist() for part in pairs.wrong), strict=True)
        assert found["wrong"] == pytest.approx(np.mean([yes[i][j] for i, j in drawn]))
    result = answer_calibration(Evaluation.of(classifier, split, LABELS), seed=3)
    assert result["every"]["pairs"] == 320
    assert result["balanced"]["pairs"] == len(pairs.right[0]) + len(pairs.wrong[0])
    wanted = [
        expected_calibration_error(s.sigmoid().flatten(), truths.flatten()) for s in (px(split), px(split) * 1.5 - 1)
    ]
    assert [result["every"]["before"]["ece"], result["every"]["after"]["ece"]] == pytest.approx(wanted, abs=1e-6)


def test_accuracy_of_one_label_is_not_measured_on_several() -> None:
    classifier, split, _ = known_scores()
    with pytest.raises(DataError, match="evaluate_multilabel"):
        evaluate_closed(Evaluation.of(classifier, split, LABELS))


def test_a_probe_chooses_one_label_so_it_refuses_several() -> None:
    classifier, split, _ = known_scores()
    with pytest.raises(UnsupportedError, match="several may be true"):
        probe_embeddings(Evaluation.of(classifier, split, LABELS), Evaluation.of(classifier, split, LABELS))
