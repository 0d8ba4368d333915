"""The head of words: a label is a sentence, scored against a background of all words that the encoder has."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import linear_scores
from labelwise.core.head import HeadDefaults
from labelwise.core.saved_parts import shaped
from labelwise.images.describe.labels import Labels
from labelwise.methods.words.vocabulary import Vocabulary, sentence

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class WordsHead(HeadDefaults):
    """The score of a label is its linear score minus the log-sum-exp over the vocabulary.

    So it is the log-odds of one word against a background, which mean something for a single word, too. Without a background (an
    image-text encoder with a sigmoid) the linear score is the log-odds.
    """

    kind: ClassVar[str] = "words"

    labels: Labels  # with the sentences of each
    rows: Array = shaped("k", "d+1")  # their linear scores
    vocabulary: Vocabulary

    @property
    def width(self) -> int:
        """The size d of the features it takes."""
        return int(self.vocabulary.rows.shape[1] - 1)

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, d]``."""
        return self.vocabulary.embed(features)

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with the sentences that describe them."""
        texts = labels.texts or tuple(() for _ in labels.names)
        label_texts = (own or (sentence(name),) for name, own in zip(labels.names, texts, strict=True))
        return replace(labels, texts=tuple(label_texts))

    def embed_labels(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, d + 1]``: the mean over a label's sentences. Sentences of known labels are not encoded again."""
        texts_by_name = dict(zip(self.labels.names, self.labels.texts or (), strict=True))
        places = {name: row for row, name in enumerate(self.labels.names)}
        label_texts = self.describe(labels)
        texts = label_texts.texts or ()
        new = [place for place, name in enumerate(label_texts.names) if texts_by_name.get(name) != texts[place]]
        read = dict(zip(new, self.vocabulary.read([texts[place] for place in new])[0], strict=True)) if new else {}
        rows = [read[i] if i in read else self.rows[places[name]] for i, name in enumerate(label_texts.names)]
        return np.stack(rows).astype(np.float32)

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the score of every pair ``[n, k]``: the log-odds of a word against all words."""
        return np.asarray(linear_scores(embeddings, label_embeddings) - self.vocabulary.background(embeddings))
