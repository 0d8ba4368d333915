"""The words of figures."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import labelwise
from labelwise.evaluate.closed import ClosedResult
from labelwise.evaluate.multilabel import MultilabelResult
from labelwise.evaluate.outliers import OutlierResult
from labelwise.words import FIGURES

SOURCE = Path(labelwise.__file__).parent
WIDTH = 52  # beside it an accuracy and its interval fit into 80 columns


@pytest.mark.parametrize(("result", "start"), [(ClosedResult, ""), (MultilabelResult, ""), (OutlierResult, "unknown_")])
def test_every_figure_has_words(result: type, start: str) -> None:
    assert {start + field.name for field in fields(result)} <= set(FIGURES)


def test_words_are_short_and_differ() -> None:
    short = {key: words for key, words in FIGURES.items() if not words.endswith(".")}  # not a whole sentence
    assert {key: words for key, words in short.items() if len(words) > WIDTH} == {}
    assert {key for key, words in FIGURES.items() if "_" in words} == set(), "no key is left as it is"


def test_every_word_is_shown_somewhere() -> None:
    places = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.html")]
    text = "".join(place.read_text() for place in places if place.name != "words.py")
    shown = {key for key in FIGURES if re.search(rf"\b{re.sub('^(unknown|pair)_', '', key)}\b", text)}
    assert set(FIGURES) - shown == set()
