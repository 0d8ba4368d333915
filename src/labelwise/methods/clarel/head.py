"""Images and sentences in one space, in NumPy: a label is the mean embedding of its sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import LENGTH, distances
from labelwise.core.calibration import Penalty
from labelwise.core.head import HeadDefaults
from labelwise.core.saved_parts import shaped
from labelwise.images.describe.labels import Labels
from labelwise.images.describe.sentences import word_vectors
from labelwise.methods.clarel.tokens import tokenise
from labelwise.methods.shared.head import Centre, Projection, linear
from labelwise.methods.shared.label_source import LabelSource, flatten
from labelwise.support.errors import DataError, UsageError
from labelwise.support.rows import segment_mean, unit_rows

Array = npt.NDArray[Any]
CHUNK = 512  # sentences read at a time
NORM = 1e-5  # added to variances by batch norm


@dataclass(frozen=True, eq=False, kw_only=True)
class VectorReader:
    """One linear layer over frozen vectors of sentences; those of a label are averaged first."""

    source: LabelSource
    centre: Centre
    weight: Array = shaped("e", "a")
    bias: Array = shaped("e")

    def __post_init__(self) -> None:
        if len(self.centre.mean) != self.weight.shape[1]:
            raise UsageError(
                f"a centre of {len(self.centre.mean)} numbers does not fit a layer for {self.weight.shape[1]}"
            )

    def __call__(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, e]``."""
        vectors, size = self.source.of(labels), self.weight.shape[1]
        if vectors.shape[1] != size:
            raise UsageError(
                f"This model reads vectors of {size} numbers; given {vectors.shape[1]}. Describe a label as those "
                "it was trained on were described."
            )
        return linear(self.centre(vectors) * LENGTH, self.weight, self.bias)


@dataclass(frozen=True, eq=False, kw_only=True)
class SentenceReader:
    """Convolutions and an LSTM over word vectors, see ``text.SentenceEncoder``, whose state the arrays are.

    The table of word vectors is not included: it is found by its name.
    """

    words: str  # where word vectors come from
    longest: int  # how many words of a sentence are read
    state: Mapping[str, Array]

    def __call__(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, e]``, some sentences at a time."""
        if labels.texts is None:
            raise DataError(
                'This model reads sentences, but these labels have none. Put a file labels.csv with a column "text" '
                "next to the data."
            )
        flat, groups = flatten(labels.texts)
        parts = [self.read(flat[start : start + CHUNK]) for start in range(0, len(flat), CHUNK)]
        return segment_mean(np.concatenate(parts), groups, len(labels))

    def read(self, sentences: Sequence[str]) -> Array:
        """Return the embedding of each sentence ``[m, e]``."""
        vectors = word_vectors(self.words)
        tokens = [np.asarray(own[0]) for own in tokenise([[text] for text in sentences], vectors, self.longest)]
        table = np.concatenate([np.zeros((1, vectors.size), np.float32), vectors.matrix.astype(np.float32)])
        rows = [table[own] for own in tokens]
        for block in range(sum(name.endswith("shortcut.weight") for name in self.state)):
            rows = self._block(f"blocks.{block}", rows)
        sums = self._lstm("", rows), self._lstm("_reverse", [own[::-1] for own in rows])
        lengths = np.array([len(own) for own in rows], np.float32)
        return self._linear("project", np.concatenate(sums, 1) / lengths[:, None])

    def _linear(self, name: str, x: Array) -> Array:
        return linear(x, self.state[f"{name}.weight"], self.state.get(f"{name}.bias"))

    def _block(self, name: str, sentences: Sequence[Array]) -> list[Array]:
        """Halve the rows of each sentence, rounded up: three convolutions, a shortcut, the maximum of every two words."""
        x, lengths = np.concatenate(sentences), np.array([len(own) for own in sentences])
        ends = lengths.cumsum() - 1
        begins, inner = ends - lengths + 1, x
        for number in range(3):
            inner = inner if number == 0 else np.maximum(inner, 0)
            inner = self._norm(
                f"{name}.norms.{number}", self._linear(f"{name}.convs.{number}", _next_to(inner, begins, ends))
            )
        x = np.maximum(inner + self._linear(f"{name}.shortcut", x), 0)
        parts = np.split(x, ends[:-1] + 1)
        return [np.maximum(own[::2], np.concatenate([own[1::2], own[-1:]])[: len(own[::2])]) for own in parts]

    def _norm(self, name: str, x: Array) -> Array:
        weight, bias, mean, variance = (
            self.state[f"{name}.{part}"] for part in ("weight", "bias", "running_mean", "running_var")
        )
        normed: Array = (x - mean) / np.sqrt(variance + np.float32(NORM)) * weight + bias
        return normed

    def _lstm(self, way: str, sentences: Sequence[Array]) -> Array:
        """Return the sum over a sentence's words of the LSTM's states ``[m, h]``, in one direction."""
        lengths = np.array([len(own) for own in sentences])
        order = np.argsort(-lengths, kind="stable")
        inputs = np.zeros((lengths.max(), len(sentences), sentences[0].shape[1]), np.float32)
        for place, sentence in enumerate(order):
            inputs[: lengths[sentence], place] = sentences[sentence]
        input_weights, own = (self.state[f"lstm.weight_{part}_l0{way}"] for part in ("ih", "hh"))
        bias = self.state[f"lstm.bias_ih_l0{way}"] + self.state[f"lstm.bias_hh_l0{way}"]
        state, cell, total = (np.zeros((len(sentences), own.shape[1]), np.float32) for _ in range(3))
        for step, x in enumerate(inputs):
            m = int((lengths > step).sum())  # the longest sentences come first
            gates = linear(x[:m], input_weights, bias) + state[:m] @ own.T
            enter, forget, new, leave = np.split(gates, 4, 1)
            cell[:m] = _sigmoid(forget) * cell[:m] + _sigmoid(enter) * np.tanh(new)
            state[:m] = _sigmoid(leave) * np.tanh(cell[:m])
            total[:m] += state[:m]
        reverse = np.empty_like(order)
        reverse[order] = np.arange(len(order))
        return total[reverse]


@dataclass(frozen=True, eq=False, kw_only=True)
class ClarelHead(HeadDefaults):
    """An image side and a text side that end in one space; the score is minus the Euclidean distance."""

    kind: ClassVar[str] = "clarel"
    penalty: ClassVar[Penalty] = "scale"

    labels: Labels
    width: int
    source: LabelSource  # how labels are described to it
    projection: Projection | None = None
    centre: Centre | None = None  # None: the image encoder was trained with the retrieval loss
    weight: Array = shaped("e", "d")  # of the image side
    bias: Array = shaped("e")
    vectors: VectorReader | None = None  # the text side, one of the two
    sentences: SentenceReader | None = None
    image_mean: Array = shaped("e")  # the mean over trained labels of their images' mean embeddings
    text_mean: Array = shaped("e")  # the mean of their label embeddings
    reach: float = 1.0  # how much label embeddings spread for a spread of one of the mean image embeddings
    apart: float = 1.0  # the mean squared distance of a trained label's embedding from the mean embedding of its images
    within: float = 1.0  # the mean squared distance of an image embedding from the mean of its label

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with their sentence vectors, where the reader takes vectors."""
        if self.vectors is None:
            return labels
        source = replace(self.source, source="vectors" if labels.texts is None else "texts")
        vectors: Any = source.of(labels)
        return replace(labels, vectors=vectors)

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, e]``."""
        rows = features if self.projection is None else self.projection(features)
        return linear(rows if self.centre is None else self.centre(rows) * LENGTH, self.weight, self.bias)

    def embed_labels(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, e]``: the mean embedding of each label's sentences."""
        reader = self.vectors or self.sentences
        assert reader is not None
        return reader(labels)

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return minus the distance of every pair ``[n, k]``; sums are in double precision, so that small distances lose little."""
        return -distances(embeddings, label_embeddings)

    def labels_from_examples(self, embeddings: Array, groups: Array) -> Array:
        """Return label embeddings ``[g, e]``: the place of a text about the examples.

        Texts lie apart from images as a whole. The mean embedding of the examples is moved there, and on in the same direction
        until new images of the label are as far from its embedding as images of trained labels are from theirs; without this
        a label taught from images would be nearer than labels known from texts.
        """
        size = np.bincount(groups)
        means = segment_mean(embeddings, groups, len(size))
        texts = self.text_mean + self.reach * (means - self.image_mean)
        way = unit_rows((self.text_mean - self.image_mean)[None])[0]
        past = (means - texts) @ way
        target = self.apart - self.within * (2 * self.reach - 1) / size
        further = past + np.sqrt(np.maximum(past**2 - ((means - texts) ** 2).sum(1) + target, 0))
        shifted: Array = (texts + further[:, None] * way).astype(embeddings.dtype)
        return shifted


def _next_to(x: Array, begins: Array, ends: Array) -> Array:
    """Return rows ``[t, c]`` between the one before and the one after of their sentence, or zeros ``[t, 3 c]``."""
    before, after = np.roll(x, 1, 0), np.roll(x, -1, 0)
    before[begins], after[ends] = 0, 0
    return np.concatenate([before, x, after], 1)


def _sigmoid(x: Array) -> Array:
    smooth: Array = 0.5 * (1 + np.tanh(0.5 * x))
    return smooth
