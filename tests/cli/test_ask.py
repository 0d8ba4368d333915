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
