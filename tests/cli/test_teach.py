"""The verbs teach and forget."""

import json
from pathlib import Path
from typing import Any


def test_teach_classify_forget(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    taught, left = tmp_path / "taught.lw", tmp_path / "left.lw"
    examples = sorted((pictures / "val" / "blob 0").iterdir())
    code, out, _ = run("teach", model, "a new blob", *examples, "--out", taught)
    assert code == 0
    assert f"learnt from {len(examples)} images" in " ".join(out.split())
    found = json.loads(run("classify", taught, pictures / "test" / "blob 0", "--json", "--top", 5)[1])
    assert "a new blob" in [entry["label"] for entry in found["predictions"][0]["top"]]
    assert run("forget", taught, "a new blob", "--out", left)[0] == 0
    code, _, err = run("teach", model, "x", tmp_path / "nowhere", "--out", tmp_path / "y")
    assert code == 1
    assert "no such file" in err.lower()
    assert not (tmp_path / "y").exists()
