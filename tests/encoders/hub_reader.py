"""The tiny image-text networks of ``hub``, and their tokenizer in plain Python: the package ``tokenizers`` may not be there."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from labelwise.encoders.texts import TextNetwork

HUB = Path(__file__).parent / "hub"  # written by tests/encoders/write_hub.py with torch and transformers


class Encoding:
    """The token numbers of a sentence."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)


class Words:
    """A token for each word that tokenizer.json knows."""

    def __init__(self, network: TextNetwork) -> None:
        self.words: dict[str, int] = json.loads(network.tokenizer.tobytes())["model"]["vocab"]

    def encode(self, sentence: str) -> Encoding:
        known = [self.words.get(word, self.words["<unk>"]) for word in re.findall(r"\w+|[^\w\s]+", sentence.lower())]
        return Encoding([self.words["<start>"], *known[:10], self.words["<end>"]])


def read_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextNetwork, "_reader", property(Words))


def brought(name: str, folder: Path, **config: Any) -> Path:
    """Return a copy of one of the networks, with more in its configuration."""
    import shutil

    target = folder / name
    shutil.copytree(HUB / name, target)
    plain = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(plain | config))
    return target
