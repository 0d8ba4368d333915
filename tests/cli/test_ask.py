"""The verb ask."""

import json
from pathlib import Path
from typing import Any


def test_ask(run: Any, model: Path, pictures: Path) -> None:
    image = next((pictures / "test" / "blob 3").iterdir())
    answers = {label: json.loads(run("ask", model, image, label, "--json")[1]) for label in ("blob 3", "blob 1")}
    assert answers["blob 3"]["probability"] > answers["blob 1"]["probability"]
    code, out, err = run("ask", model, image, "okapi")
    assert (code, out) == (2, "")
    assert 'No label "okapi". ' in err
    assert "teach" in err


def test_ask_about_a_sentence(run: Any, model: Path, pictures: Path) -> None:
    folders = Path(__file__).parents[1] / "golden"
    image = folders / "data" / "described" / "test" / "red cross" / "0.png"
    words = "ask", folders / "folders" / "clarel.lw", image
    own, other = (json.loads(run(*words, "--text", f"a {what}", "--json")[1]) for what in ("red cross", "blue square"))
    assert own["text"] == "a red cross"
    assert own["label"] is None
    assert own["probability"] > other["probability"]
    code, out, _ = run(*words, "--text", "a [red] cross")
    assert code == 0
    assert out.startswith("Is it a [red] cross? ")
    assert run(*words)[0] == run(*words, "red cross", "--text", "a red cross")[0] == 2


def test_a_classifier_that_reads_no_sentences_says_what_to_ask(run: Any, model: Path) -> None:
    code, out, err = run("ask", model, "no such picture.jpg", "--text", "a blob")
    assert (code, out) == (1, ""), "told before the picture is looked for"
    said = " ".join(err.split())
    assert "cannot be asked about a sentence. Ask about one of its labels: blob 0" in said
    assert "clarel" in said
