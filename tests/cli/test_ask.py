"""The verb ask."""

import json
from pathlib import Path
from typing import Any

import pytest

from labelwise.core.store import save
from tests.contract.subjects import trained


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """A saved classifier that reads sentences."""
    save(trained("clarel"), tmp_path / "reader.lw")
    return tmp_path / "reader.lw"


def test_ask(run: Any, model: Path, pictures: Path) -> None:
    image = next((pictures / "test" / "blob 3").iterdir())
    answers = {label: json.loads(run("ask", model, image, label, "--json")[1]) for label in ("blob 3", "blob 1")}
    assert answers["blob 3"]["probability"] > answers["blob 1"]["probability"]
    code, out, err = run("ask", model, image, "okapi")
    assert (code, out) == (2, "")
    assert 'No label "okapi". ' in err
    assert "teach" in err


def test_ask_about_a_sentence(run: Any, reader: Path, pictures: Path) -> None:
    image = next((pictures / "test" / "blob 0").iterdir())
    words = "ask", reader, image
    own, other = (json.loads(run(*words, "--text", f"a {what} square", "--json")[1]) for what in ("red", "blue"))
    assert own["text"] == "a red square"
    assert own["label"] is None
    assert own["probability"] > other["probability"]
    code, out, _ = run(*words, "--text", "a [red] square")
    assert code == 0
    assert out.startswith("Is it a [red] square? ")
    assert run(*words)[0] == run(*words, "blob 0", "--text", "a red square")[0] == 2


def test_a_classifier_that_reads_no_sentences_says_what_to_ask(run: Any, model: Path) -> None:
    code, out, err = run("ask", model, "no such picture.jpg", "--text", "a blob")
    assert (code, out) == (1, ""), "told before the picture is looked for"
    said = " ".join(err.split())
    assert "cannot be asked about a sentence. Ask about one of its labels: blob 0" in said
    assert "clarel" in said
