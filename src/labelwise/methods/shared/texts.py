"""Text sides: sentences, or vectors that stand for them, become embeddings in the space of image embeddings."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from labelwise.data.batches import Batch
from labelwise.data.dataset import TrainData
from labelwise.data.labels.sentences import encode_sentences, word_vectors
from labelwise.data.labels.tokens import Tokens, tokenise, word_table
from labelwise.errors import DataError, UsageError
from labelwise.labels import Labels
from labelwise.methods.shared.described import Centring, LabelSource
from labelwise.nn.encoder import LENGTH
from labelwise.nn.text import SentenceEncoder
from labelwise.ops.segments import segment_mean

CHUNK = 512  # sentences read at a time outside training


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What a step reads of each image: how many sentences (None: all), and the share described by their label's."""

    sentences: int | None
    labels: float


class ImageTexts(ABC):
    """The texts of training images, ready to be encoded; ``shared`` says that images of a label have the same."""

    shared: bool

    @abstractmethod
    def encode(self, batch: Batch, draw: Draw) -> Tensor:
        """Return the text embeddings ``[n, e]`` of a batch's images."""


class TextReader(nn.Module, ABC):
    """Turns the sentences of images and of labels into embeddings."""

    @abstractmethod
    def read(self, data: TrainData) -> ImageTexts:
        """Return the texts of the training images: their own, or where they have none those of their labels."""

    @abstractmethod
    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label embeddings ``[k, e]``."""


class VectorReader(TextReader):
    """One linear layer over frozen vectors of sentences; those of an image or label are averaged first."""

    def __init__(self, labels: Labels, source: LabelSource, code_size: int, drop: float) -> None:
        super().__init__()
        self.source, self.dropout = source, nn.Dropout(drop)
        size = source.of(labels).shape[1]
        self.centre = Centring(size)
        self.project = nn.Linear(size, code_size)

    def encode_vectors(self, vectors: Tensor) -> Tensor:
        """Return the embeddings ``[n, e]`` of vectors ``[n, a]``."""
        size = self.project.in_features
        if vectors.shape[1] != size:
            raise UsageError(
                f"This model reads vectors of {size} numbers; given {vectors.shape[1]}. Describe a label as those "
                "it was trained on were described."
            )
        rows = self.centre(vectors) * LENGTH
        return self.project(self.dropout(rows))  # type: ignore[no-any-return]

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label embeddings ``[k, e]``."""
        return self.encode_vectors(self.source.of(labels).to(self.project.weight.device))

    def read(self, data: TrainData) -> "VectorTexts":
        """Return the vectors of the training images' sentences, and of their labels."""
        device = data.train.targets.device
        labels = self.source.of(data.labels).to(device)
        if not data.train.texts or data.labels.texts is None:  # vectors of labels are no vectors of sentences
            self.centre.fit(labels[data.train.targets])
            return VectorTexts(self, labels, None)
        flat, groups = _flat(data.train.texts)
        vectors = encode_sentences(flat, self.source.sentences).to(device)
        self.centre.fit(vectors)
        counts = torch.bincount(groups, minlength=len(data.train)).to(device)
        return VectorTexts(self, labels, SentenceVectors(vectors, counts, int(counts.max())))


@dataclass(frozen=True, eq=False)
class SentenceVectors:
    """Vectors of the sentences of images, one image after another ``[m, a]``, and how many each has ``[n]``."""

    table: Tensor
    counts: Tensor
    most: int

    @cached_property
    def starts(self) -> Tensor:
        """Where the sentences of each image begin ``[n]``."""
        return self.counts.cumsum(0) - self.counts

    def mean(self, batch: Batch, drawn: int | None) -> Tensor:
        """Return the mean vector ``[n, a]`` of at most ``drawn`` sentences of each image."""
        places = torch.arange(self.most, device=self.table.device).expand(len(batch.rows), -1)
        real = places < self.counts[batch.rows, None]
        if drawn is not None and drawn < self.most:
            places = batch.rng.uniform(self.most).masked_fill(~real, 2.0).argsort(1)[:, :drawn]
            real = real.gather(1, places)
        rows = (self.starts[batch.rows, None] + places).clamp_max(len(self.table) - 1)
        return (self.table[rows] * real[..., None]).sum(1) / real.sum(1, keepdim=True)


class VectorTexts(ImageTexts):
    """Sentence vectors of images, of labels ``[k, a]``, or both."""

    def __init__(self, reader: VectorReader, labels: Tensor, images: SentenceVectors | None) -> None:
        self.reader, self.labels, self.images = reader, labels, images
        self.shared = images is None

    def encode(self, batch: Batch, draw: Draw) -> Tensor:
        """Return the text embeddings ``[n, e]`` of a batch's images."""
        if self.images is None:
            return self.reader.encode_vectors(self.labels[batch.targets])
        vectors = self.images.mean(batch, draw.sentences)
        if draw.labels:
            by_label = batch.rng.uniform(1) < draw.labels
            vectors = torch.where(by_label & (batch.targets >= 0)[:, None], self.labels[batch.targets], vectors)
        return self.reader.encode_vectors(vectors)


class SentenceReader(TextReader):
    """Convolutions and an LSTM over word vectors, see ``nn.text``.

    The table of word vectors is no part of the state: it is found again under its name.
    """

    def __init__(
        self, words: str, longest: int, code_size: int, *, filters: tuple[int, ...], hidden: int, dropout: float
    ) -> None:
        super().__init__()
        self.vectors, self.longest = word_vectors(words), longest
        self.register_buffer("table", word_table(self.vectors), persistent=False)
        self.encoder = SentenceEncoder(self.vectors.size, code_size, filters=filters, hidden=hidden, dropout=dropout)

    def encode_tokens(self, tokens: Tokens) -> Tensor:
        """Return the mean sentence embedding of each instance ``[count, e]``."""
        table: Tensor = self.table  # type: ignore[assignment]
        embeddings = self.encoder(table[tokens.flat.to(table.device)], tokens.lengths)
        return segment_mean(embeddings, tokens.groups.to(table.device), tokens.count)

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label embeddings ``[k, e]``, some sentences at a time."""
        flat, groups = _flat(_texts_of(labels))
        parts = [
            self.encode_tokens(tokenise([[text] for text in flat[start : start + CHUNK]], self.vectors, self.longest))
            for start in range(0, len(flat), CHUNK)
        ]
        embeddings = torch.cat(parts)
        return segment_mean(embeddings, groups.to(embeddings.device), len(labels))

    def read(self, data: TrainData) -> "SentenceTexts":
        """Return the words of the training images' sentences, and of their labels'."""
        parts = [_texts_of(data.labels), data.train.texts]
        tokens = tokenise([texts for part in parts for texts in part], self.vectors, self.longest)
        return SentenceTexts(self, tokens, labels=len(parts[0]), shared=not data.train.texts)


class SentenceTexts(ImageTexts):
    """The words of the sentences of ``labels`` labels, and then of images."""

    def __init__(self, reader: SentenceReader, tokens: Tokens, *, labels: int, shared: bool) -> None:
        self.reader, self.tokens, self.labels, self.shared = reader, tokens, labels, shared

    def encode(self, batch: Batch, draw: Draw) -> Tensor:
        """Return the text embeddings ``[n, e]`` of a batch's images."""
        rows = batch.targets if self.shared else batch.rows + self.labels
        if not self.shared and draw.labels:
            by_label = (batch.rng.uniform(1)[:, 0] < draw.labels) & (batch.targets >= 0)
            rows = torch.where(by_label, batch.targets, rows)
        rows = rows.cpu()
        if draw.sentences is None:
            return self.reader.encode_tokens(self.tokens.select(rows))
        chosen = self.tokens.draw(rows, draw.sentences, batch.rng.uniform(self.tokens.most).cpu())
        return self.reader.encode_tokens(chosen)


def _texts_of(labels: Labels) -> tuple[tuple[str, ...], ...]:
    """Return the sentences of labels, which must have some."""
    if labels.texts is None:
        raise DataError(
            'This model reads sentences, and these labels have none. Put a file labels.csv with a column "text" beside '
            "the data."
        )
    return labels.texts


def _flat(texts: Sequence[Sequence[str]]) -> tuple[list[str], Tensor]:
    """Return all sentences in one list, and the instance of each ``[m]``."""
    counts = torch.tensor([len(each) for each in texts])
    return [text for each in texts for text in each], torch.arange(len(texts)).repeat_interleave(counts)
