"""A sentence encoder of four words, and a classifier of colours that is a vocabulary."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelwise as lw
from labelwise.images.dataset import Dataset
from labelwise.images.describe.labels import Labels
from tests.conftest import blobs
from tests.encoders.samples import save_tiny

MEANINGS = {"red": 0, "scarlet": 0, "green": 1, "emerald": 1, "blue": 2, "azure": 2, "yellow": 3}


class Reader:
    """Sentences as the colours that they name; other words say nothing."""

    def encode(self, texts: Sequence[str]) -> Any:
        vectors = np.full((len(texts), 5), 1e-3, np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                vectors[row, MEANINGS.get(word, 4)] += 1 if word in MEANINGS else 0.05
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def read_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelwise.images.describe.sentences.minilm", Reader)
    monkeypatch.setattr("labelwise.fitting.by_words.find_spec", lambda name: object())


def colours(folder: Path) -> Path:
    """A saved classifier of three colours, whose labels are the words that there are."""
    data = blobs(3, per_label=30)
    names = ("Red", "Green", "Blue")
    data = Dataset(name="colours", labels=Labels(names=names), splits={"train": data.splits["train"]})
    lw.save(lw.fit(data, "discriminant", encoder=str(save_tiny(folder))), folder / "colours.lw")
    return folder / "colours.lw"


def pictures() -> tuple[Any, Any]:
    """Images of three colours that no classifier saw, and which each is."""
    data = blobs(3, per_label=30, seed=5).splits["test"]
    return data.images, data.targets
