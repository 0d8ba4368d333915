"""Promises are measured on the answers that people get, and only on images that were kept out of training."""

from dataclasses import replace

import numpy as np
import pytest

import labelwise as lw
from labelwise.evaluation.promises import COVERAGES, ERRORS, PromiseResult
from labelwise.reporting import plots
from labelwise.support.errors import UsageError
from tests.core.test_coarser import draw, fitted

ASKED = {"promises": {"coverage": 0.9}}


def named(targets: np.ndarray) -> list[str]:
    return [f"label {target}" for target in targets]


def measured(classifier: lw.Classifier, **asked: float) -> PromiseResult:
    features, targets = draw(1500, 2)
    figures = lw.evaluate(classifier, (features, named(targets)), protocols={"promises": asked})
    result: PromiseResult = figures.results["promises"]
    return result


def test_measured_shares_are_those_of_the_answers() -> None:
    classifier = fitted()
    features, targets = draw(1500, 2)
    result = measured(classifier, coverage=0.9)
    assert [one.promise for one in result.errors] == list(ERRORS)
    for one in result.errors:
        answers = classifier.classify(features, max_error=one.promise)
        truths = [(name, f"pair {target // 2}") for name, target in zip(named(targets), targets, strict=True)]
        wrong = [
            bool(answer.labels) and answer.label not in truth for answer, truth in zip(answers, truths, strict=True)
        ]
        words = np.array([answer.label[:4] for answer in answers])
        assert one.wrong == pytest.approx(np.mean(wrong))
        assert one.depths == pytest.approx([(words == "labe").mean(), (words == "pair").mean()])
        assert (one.unsure, one.unknown) == pytest.approx(((words == "unsu").mean(), (words == "unkn").mean()))
        assert sum(one.depths) + one.unsure + one.unknown == pytest.approx(1)
    for two in result.lists:
        lists = [[label for label, _ in answer.top] for answer in classifier.classify(features, coverage=two.promise)]
        assert two.covered == pytest.approx(np.mean([t in row for t, row in zip(named(targets), lists, strict=True)]))
        assert two.size == pytest.approx(np.mean([len(row) for row in lists]))
        assert two.single == pytest.approx(np.mean([len(row) == 1 for row in lists]))


def test_promises_hold_on_new_images_of_the_same_kind() -> None:
    result = measured(fitted(), coverage=0.9)
    assert all(one.wrong <= one.promise + 0.03 for one in result.errors)
    assert all(one.covered >= one.promise - 0.03 for one in result.lists)


def test_values_that_are_asked_for_are_added_and_lists_are_measured_only_if_asked() -> None:
    classifier = fitted()
    assert measured(classifier).lists == ()
    assert [one.promise for one in measured(classifier, coverage=0.7).lists] == [0.7, *COVERAGES]
    assert [one.promise for one in measured(classifier, max_error=0.15).errors] == [0.02, 0.05, 0.1, 0.15, 0.2]


def test_images_of_training_do_not_count() -> None:
    classifier = fitted()
    (seen, targets), (new, more) = draw(400, 1), draw(600, 2)
    both = (np.concatenate([seen, new]), named(np.concatenate([targets, more])))
    figures = lw.evaluate(classifier, both, protocols=ASKED)
    assert figures.leaked == 0  # evaluate leaves them out by itself
    assert figures.results["promises"].images == 600
    every = lw.evaluate(classifier, both, split="all", protocols=ASKED)
    assert every.leaked == pytest.approx(0.4)
    assert every.results["promises"] == figures.results["promises"]
    only = lw.evaluate(classifier, (seen, named(targets)), split="all", protocols=ASKED)
    assert "trained on all" in only.left_out["promises"]
    one_out = lw.evaluate(classifier, (seen, named(targets)), protocols=ASKED)
    assert one_out.test_set.left_out is not None, "leave-one-out chose the limits, so it would confirm them"
    assert "trained on all" in one_out.left_out["promises"]
    unknown = replace(classifier, origin=replace(classifier.origin, train_digests=None))
    assert "no hashes" in lw.evaluate(unknown, both, protocols=ASKED).left_out["promises"]


def test_without_parents_promises_are_measured_only_if_asked() -> None:
    features, targets = draw(400, 1)
    classifier = lw.fit((features, named(targets)))
    new, truth = draw(300, 2)
    usual = lw.evaluate(classifier, (new, named(truth)))
    assert "--max-error" in usual.left_out["promises"]
    asked = lw.evaluate(classifier, (new, named(truth)), protocols={"promises": {"max_error": 0.1}})
    assert all(len(one.depths) == 1 for one in asked.results["promises"].errors)
    wrong = lw.evaluate(classifier, (new, named(truth)), protocols={"promises": {"max_error": 1.5}})
    assert "between 0 and 1" in wrong.left_out["promises"]
    with pytest.raises(UsageError, match='No protocol "promise"'):
        lw.evaluate(classifier, (new, named(truth)), protocols={"promise": {}})


def test_tables_and_plots_show_every_promise() -> None:
    features, targets = draw(300, 2)
    figures = lw.evaluate(fitted(), (features, named(targets)), protocols=ASKED)
    text, result = str(figures), figures.results["promises"]
    assert "promised and measured, 300 images kept out of training" in text
    assert "at most 5 % wrong" in text
    assert "90 % of lists hold the label" in text
    assert plots.promised_errors(result).svg.count("<circle") == len(ERRORS)
    assert plots.promised_lists(result).svg.count("<circle") == len(COVERAGES)
