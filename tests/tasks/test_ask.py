"""The task ask."""

import pytest

import labelwise as lw
from labelwise.support.errors import UnsupportedError, UsageError
from tests.contract.subjects import trained


def test_ask_in_python_takes_a_label_or_a_sentence() -> None:
    classifier = trained("softmax")
    for wrong in ({}, {"label": "blob 0", "text": "x"}):
        with pytest.raises(UsageError, match="Ask about either"):
            lw.ask(classifier, "nothing.jpg", **wrong)
    with pytest.raises(UnsupportedError, match="cannot be asked about a sentence"):
        lw.ask(classifier, "nothing.jpg", text="a blob")
