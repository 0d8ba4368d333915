"""What an encoder has words for: names, and for each a linear score of features.

The default encoder knows a thousand words, its last layer. Any classifier of the closed form knows the names of its labels.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import root_features, unit_rows
from labelwise.core.classifier import Classifier
from labelwise.core.saved_parts import shaped
from labelwise.encoders.efficientnet import LITE0
from labelwise.images.describe.sentences import encode_sentences
from labelwise.images.describe.words import split_text
from labelwise.images.sources.npz_files import read_npz
from labelwise.methods.discriminant.head import DiscriminantHead
from labelwise.support.errors import UsageError

Array = npt.NDArray[Any]
PACKED = Path(__file__).parents[2] / "images" / "describe" / "vectors" / "imagenet_words.npz"
SHARPNESS = 20.0  # of the weights that names get by the similarity of their sentences
TEMPLATE = "a photo of a {}"
UNKNOWN_BELOW = 0.72  # similarity to the nearest word below which an encoder has no word for a name


@dataclass(frozen=True, eq=False, kw_only=True)
class Vocabulary:
    """Names v, what a sentence encoder makes of them, and their linear scores of an embedding."""

    names: tuple[str, ...]
    vectors: Array = shaped("v", "a")  # of "a photo of a NAME", unit length
    rows: Array = shaped("v", "d+1")  # weights, then bias; their mean over the names is 0
    scale: Literal["plain", "unit", "root"]  # what is made of features first
    sentences: str = "minilm"  # what encodes a sentence

    def embed(self, features: Array) -> Array:
        """Return embeddings ``[n, d]`` of features."""
        if self.scale == "plain":
            return features
        return root_features(features) if self.scale == "root" else unit_rows(features)

    def read(self, sentences: list[str]) -> tuple[Array, Array]:
        """Return the linear scores ``[n, d + 1]`` of sentences, and how near each is to the nearest name ``[n]``."""
        alike = np.asarray(encode_sentences(sentences, self.sentences), np.float32) @ self.vectors.T
        nearest = alike.max(1, keepdims=True)
        weights = np.exp(SHARPNESS * (alike - nearest))
        return (weights / weights.sum(1, keepdims=True)) @ self.rows, nearest[:, 0]

    def nearest(self, sentence: str) -> str:
        """Return the name that a sentence is nearest to."""
        alike = np.asarray(encode_sentences([sentence], self.sentences)) @ self.vectors.T
        return self.names[int(alike.argmax())]


def default_vocabulary() -> Vocabulary:
    """Return the thousand words of the default encoder: its last layer."""
    packed, weights = read_npz(PACKED, "names", "vectors"), LITE0.weights()
    rows = np.concatenate([weights["_fc.weight"], weights["_fc.bias"][:, None]], 1).astype(np.float32)
    names = tuple(map(str, packed["names"].tolist()))
    return _centred(Vocabulary(names=names, vectors=packed["vectors"].astype(np.float32), rows=rows, scale="plain"))


def vocabulary_of(classifier: Classifier, sentences: str = "minilm") -> Vocabulary:
    """Return the names of a classifier of the closed form as a vocabulary of its encoder."""
    head = classifier.head
    if not isinstance(head, DiscriminantHead):
        raise UsageError(f"A vocabulary is a classifier of method discriminant; given one of {classifier.kind}.")
    vectors = encode_sentences([sentence(name) for name in head.labels.names], sentences)
    rows = np.array(head.rows, np.float32) * np.float32(classifier.calibration.scale.mean())
    scale: Literal["root", "unit"] = "root" if head.rooted else "unit"
    return _centred(
        Vocabulary(
            names=head.labels.names,
            vectors=np.asarray(vectors, np.float32),
            rows=rows,
            scale=scale,
            sentences=sentences,
        )
    )


def sentence(name: str, template: str = TEMPLATE) -> str:
    """Return what is said of a label that has a name alone.

    >>> sentence("004.Barn_Owl")
    'a photo of a Barn Owl'
    """
    return template.format(" ".join(split_text(name)[1]) or name)


def _centred(vocabulary: Vocabulary) -> Vocabulary:
    return replace(vocabulary, rows=vocabulary.rows - vocabulary.rows.mean(0))
