"""Sources of label vectors: attributes, or the mean vectors of sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelwise.images.describe.labels import Labels
from labelwise.images.describe.sentences import encode_sentences
from labelwise.support.errors import DataError
from labelwise.support.rows import segment_mean

Array = npt.NDArray[Any]
Source = Literal["auto", "vectors", "texts"]


@dataclass(frozen=True, kw_only=True)
class LabelSource:
    """The source of label vectors."""

    source: Source = "auto"  # `vectors`, `texts`, or `auto`: vectors where labels have them, else texts
    # the sentence encoder, see `encode_sentences`; the vector of a label is the mean over its sentences
    sentences: str = "words"

    def describes(self, labels: Labels) -> bool:
        """Return whether these labels have descriptions to make vectors from."""
        by_texts = labels.texts is not None and all(labels.texts) and self.source != "vectors"
        return by_texts or (labels.vectors is not None and self.source != "texts")

    def of(self, labels: Labels) -> Array:
        """Return one vector for each label ``[k, a]``."""
        if labels.vectors is not None and self.source != "texts":
            return np.asarray(labels.vectors, np.float32)
        if labels.texts is None or self.source == "vectors":
            add = "" if self.source == "vectors" else ' or a column "text"'
            raise DataError(
                "Nothing describes these labels. Put a file labels.csv next to the data, with a row for each label, and "
                f"attribute columns (numbers){add}."
            )
        return self.sentence_vectors(labels.texts)

    def sentence_vectors(self, texts: Sequence[Sequence[str]]) -> Array:
        """Return the mean vector of the sentences of each of n instances ``[n, a]``."""
        flat, groups = flatten(texts)
        return segment_mean(np.asarray(encode_sentences(flat, self.sentences)), groups, len(texts))


def flatten(texts: Sequence[Sequence[str]]) -> tuple[list[str], Array]:
    """Flatten the sentences of n instances; also return the instance of each sentence ``[m]``."""
    counts = [len(label_texts) for label_texts in texts]
    return [text for label_texts in texts for text in label_texts], np.repeat(np.arange(len(texts)), counts)
