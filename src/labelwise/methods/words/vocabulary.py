"""The vocabulary of an encoder: names, each with a linear score of features.

The default encoder knows a thousand words, its last layer. Any classifier of the closed form knows the names of its labels. An
image-text encoder reads any sentence; its names are only what a single word is compared with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import linear_scores, root_features
from labelwise.core.classifier import Classifier
from labelwise.core.saved_parts import shaped
from labelwise.encoders.efficientnet import LITE0
from labelwise.encoders.hub import Hub
from labelwise.encoders.texts import TextNetwork
from labelwise.images.describe.sentences import encode_sentences
from labelwise.images.describe.words import split_text
from labelwise.images.sources.npz_files import read_npz
from labelwise.methods.discriminant.head import DiscriminantHead
from labelwise.support.errors import UsageError
from labelwise.support.rows import unit_rows

Array = npt.NDArray[Any]
PACKED = Path(__file__).parents[2] / "images" / "describe" / "vectors" / "imagenet_words.npz"
SHARPNESS = 20.0  # of the weights that names get by the similarity of their sentences
TEMPLATE = "a photo of a {}"
AT_ONCE = 512  # sentences that are compared with the names
EVERY = 4  # of the thousand words one is in the background of an image-text encoder
UNKNOWN_BELOW = 0.72  # similarity to the nearest word below which an encoder has no word for a name


@dataclass(frozen=True, eq=False, kw_only=True)
class Vocabulary:
    """Names v, their sentence embeddings, and their linear scores."""

    names: tuple[str, ...]
    vectors: Array = shaped("v", "a")  # of "a photo of a NAME", unit length
    rows: Array = shaped("v", "d+1")  # weights, then bias; their mean over the names is 0
    scale: Literal["plain", "unit", "root"]  # the map applied to features first
    sentences: str = "minilm"  # what encodes a sentence
    network: TextNetwork | None = None  # of an image-text encoder, which encodes sentences in the space of images
    gain: float = 1.0  # the score of a sentence is gain x cosine + bias
    bias: float = 0.0

    def embed(self, features: Array) -> Array:
        """Return embeddings ``[n, d]`` of features."""
        if self.scale == "plain":
            return features
        return root_features(features) if self.scale == "root" else unit_rows(features)

    def read(self, texts: Sequence[Sequence[str]]) -> tuple[Array, Array]:
        """Return the linear scores ``[k, d + 1]`` of labels from the sentences of each, and their mean similarity ``[k]`` to the nearest names."""
        places = {text: place for place, text in enumerate(dict.fromkeys(chain.from_iterable(texts)))}
        own = [[places[text] for text in label_texts] for label_texts in texts]
        vectors = self._vectors(list(places))
        if self.network is not None:
            return self.score(unit_rows(np.stack([vectors[label_texts].mean(0) for label_texts in own]))), np.ones(
                len(texts)
            )
        rows, nearest = np.empty((len(vectors), self.rows.shape[1]), np.float32), np.empty(len(vectors), np.float32)
        for start in range(0, len(vectors), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            similarity = vectors[some] @ self.vectors.T
            nearest[some] = similarity.max(1)
            weights = np.exp(SHARPNESS * (similarity - nearest[some, None]))
            rows[some] = (weights / weights.sum(1, keepdims=True)) @ self.rows
        return np.stack([rows[label_texts].mean(0) for label_texts in own]), np.array(
            [nearest[label_texts].mean() for label_texts in own]
        )

    def score(self, embeddings: Array) -> Array:
        """Return the linear scores ``[n, d + 1]`` of sentences in the space of images ``[n, d]``."""
        bias = np.full((len(embeddings), 1), self.bias)
        return np.concatenate([self.gain * embeddings, bias], 1).astype(np.float32)

    def background(self, embeddings: Array) -> Array | float:
        """Return the log-sum-exp over all names ``[n, 1]``; 0 without names."""
        if not len(self.rows):
            return 0.0
        words = linear_scores(embeddings, self.rows)
        most = words.max(1, keepdims=True)
        return np.asarray(most + np.log(np.exp(words - most).sum(1, keepdims=True)))

    def nearest(self, sentence: str) -> str:
        """Return the name that a sentence is nearest to."""
        return self.names[int((self._vectors([sentence]) @ self.vectors.T).argmax())]

    def _vectors(self, sentences: Sequence[str]) -> Array:
        if self.network is not None:
            return self.network.encode(sentences)
        return np.asarray(encode_sentences(sentences, self.sentences), np.float32)


def general_words() -> tuple[str, ...]:
    """Return the thousand words of the default encoder."""
    return tuple(map(str, read_npz(PACKED, "names")["names"].tolist()))


def default_vocabulary() -> Vocabulary:
    """Return the thousand words of the default encoder: its last layer."""
    archive, weights = read_npz(PACKED, "names", "vectors"), LITE0.weights()
    rows = np.concatenate([weights["_fc.weight"], weights["_fc.bias"][:, None]], 1).astype(np.float32)
    names = tuple(map(str, archive["names"].tolist()))
    return _centre(Vocabulary(names=names, vectors=archive["vectors"].astype(np.float32), rows=rows, scale="plain"))


def hub_vocabulary(hub: Hub, template: str = TEMPLATE) -> Vocabulary:
    """Return the vocabulary of an image-text encoder.

    Where its labels compete (softmax), general words are the background that gives a single word a probability; one that answers each
    label on its own (sigmoid) needs none.
    """
    names = () if hub.logits.sigmoid else general_words()[::EVERY]
    vectors = hub.texts.encode([sentence(name, template) for name in names]) if names else np.zeros((0, 1), np.float32)
    empty = Vocabulary(
        names=names, vectors=vectors, rows=np.zeros((0, hub.images.width + 1), np.float32), scale="unit", network=hub.texts,
        gain=hub.logits.scale, bias=hub.logits.bias,
    )  # fmt: skip
    return replace(empty, rows=empty.score(vectors)) if names else empty


def vocabulary_of(classifier: Classifier, sentences: str = "minilm") -> Vocabulary:
    """Return the names of a classifier of the closed form as a vocabulary of its encoder."""
    head = classifier.head
    if not isinstance(head, DiscriminantHead):
        raise UsageError(f"A vocabulary is a classifier of method discriminant; given one of {classifier.kind}.")
    vectors = encode_sentences([sentence(name) for name in head.labels.names], sentences)
    rows = np.array(head.rows, np.float32) * np.float32(classifier.calibration.scale.mean())
    scale: Literal["root", "unit"] = "root" if head.rooted else "unit"
    return _centre(
        Vocabulary(
            names=head.labels.names,
            vectors=np.asarray(vectors, np.float32),
            rows=rows,
            scale=scale,
            sentences=sentences,
        )
    )


def sentence(name: str, template: str = TEMPLATE) -> str:
    """Return the score of a label that has only a name.

    >>> sentence("004.Barn_Owl")
    'a photo of a Barn Owl'
    """
    return template.format(" ".join(split_text(name)[1]) or name)


def _centre(vocabulary: Vocabulary) -> Vocabulary:
    return replace(vocabulary, rows=vocabulary.rows - vocabulary.rows.mean(0))
