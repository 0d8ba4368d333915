"""The words of figures."""

from dataclasses import fields

import pytest

from labelwise.cli.evaluate import FOLDED
from labelwise.evaluation.closed_set import ClosedResult
from labelwise.evaluation.folds import FoldsResult
from labelwise.evaluation.multilabel import MultilabelResult
from labelwise.evaluation.outliers import OutlierResult
from labelwise.support.text import FIGURES

WIDTH = 52  # beside it an accuracy and its interval fit into 80 columns


@pytest.mark.parametrize(("result", "start"), [(ClosedResult, ""), (MultilabelResult, ""), (OutlierResult, "unknown_")])
def test_every_figure_has_words(result: type, start: str) -> None:
    assert {start + field.name for field in fields(result)} <= set(FIGURES)


def test_figures_of_cross_validation_have_words() -> None:
    assert set(FOLDED) <= {field.name for field in fields(FoldsResult)}
    assert set(FOLDED) <= set(FIGURES)


def test_words_are_short() -> None:
    short = {key: words for key, words in FIGURES.items() if not words.endswith(".")}  # not a whole sentence
    assert {key: words for key, words in short.items() if len(words) > WIDTH} == {}
    assert {key for key, words in FIGURES.items() if "_" in words} == set(), "no key is left as it is"
