"""Saved classifiers whose files were made to harm: each is refused in words, and nothing but the folder is read."""

from pathlib import Path

import pytest

from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.support.errors import StoreError
from tests.contract.subjects import trained
from tests.core.test_store_numbers import say
from tests.encoders.samples import save_tiny


@pytest.mark.parametrize(
    "name", ["transformers:some/net", "timm:hf-hub:some/net", "https://example.org/net", "elsewhere.onnx"]
)
def test_an_encoder_that_lies_elsewhere_is_never_fetched(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path).rename("elsewhere.onnx")
    Path("tiny.json").rename("elsewhere.json")
    save(trained("softmax"), tmp_path / "m")
    say(
        tmp_path / "m",
        "encoder",
        {"kind": "shared", "name": name, "id": "x", "shape": [3, 8, 8], "width": 5, "view": {}},
    )
    with pytest.raises(StoreError, match=f'No encoder "{name}"'):
        load(tmp_path / "m")
