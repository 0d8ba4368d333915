"""Text sides: map sentences, or vectors of labels, into the space of image embeddings."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from labelwise.core.arrays import LENGTH
from labelwise.images.describe.labels import Labels
from labelwise.images.describe.sentences import encode_sentences, word_vectors
from labelwise.methods.clarel import head
from labelwise.methods.clarel.text import SentenceEncoder
from labelwise.methods.clarel.tokens import Instance, Tokens, draw, tokenise, word_table
from labelwise.methods.shared.centring import Centring
from labelwise.methods.shared.label_source import LabelSource, flatten
from labelwise.methods.shared.linear import array
from labelwise.support.errors import DataError, UsageError
from labelwise.train.batches import Batch
from labelwise.train.tensors import segment_mean
from labelwise.train.train_data import TrainData


class ImageTexts(ABC):
    """The texts of training images, ready to be encoded; ``shared`` says that images of a label have the same."""

    shared: bool

    @abstractmethod
    def encode(self, batch: Batch, count: int | None, label_share: float) -> Tensor:
        """Return the text embeddings ``[n, e]`` of a batch's images.

        Of each image ``count`` sentences are drawn (None: all); a share of images is described by its label's instead.
        """

    def by_label(self, batch: Batch, label_share: float) -> Tensor:
        """Return which images are described by their label ``[n]``."""
        if self.shared or not label_share:
            return torch.full_like(batch.targets, self.shared, dtype=torch.bool)
        return (batch.rng.uniform(1)[:, 0] < label_share) & (batch.targets >= 0)


class TextReader(nn.Module, ABC):
    """Turns the sentences of images and of labels into embeddings."""

    @abstractmethod
    def read(self, data: TrainData) -> ImageTexts:
        """Return the texts of the training images: their own, or else those of their labels."""

    @abstractmethod
    def without_torch(self) -> dict[str, Any]:
        """Return what the head needs to read labels."""


class TrainableVectorReader(TextReader):
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
        return self.project(self.dropout(self.centre(vectors.to(self.project.weight.dtype)) * LENGTH))  # type: ignore[no-any-return]

    def read(self, data: TrainData) -> "VectorTexts":
        """Return the vectors of the training images' sentences, and of their labels."""
        device = data.train.targets.device
        labels = torch.from_numpy(self.source.of(data.labels)).to(device)
        if not data.train.texts or data.labels.texts is None:  # vectors of labels are no vectors of sentences
            self.centre.fit(labels[data.train.targets])
            return VectorTexts(self, labels, labels[:0], torch.zeros_like(data.train.targets))
        flat, groups = flatten(data.train.texts)
        vectors = torch.as_tensor(encode_sentences(flat, self.source.sentences)).to(device)
        self.centre.fit(vectors)
        counts = torch.bincount(torch.from_numpy(groups), minlength=len(data.train))
        return VectorTexts(self, labels, vectors, counts.to(device))

    def without_torch(self) -> dict[str, Any]:
        """Return what the head needs to read labels."""
        layer = {"weight": array(self.project.weight), "bias": array(self.project.bias)}
        return {"vectors": head.VectorReader(source=self.source, centre=self.centre.centre(), **layer)}


class VectorTexts(ImageTexts):
    """Vectors of labels ``[k, a]``; of sentences, one image after another ``[m, a]``, and how many each has ``[n]``."""

    def __init__(self, reader: TrainableVectorReader, labels: Tensor, table: Tensor, counts: Tensor) -> None:
        self.reader, self.labels, self.table, self.counts = reader, labels, table, counts
        self.starts, self.most = counts.cumsum(0) - counts, int(counts.max())
        self.shared = not len(table)

    def encode(self, batch: Batch, count: int | None, label_share: float) -> Tensor:
        """Return the text embeddings ``[n, e]`` of a batch's images."""
        vectors = self.labels[batch.targets]
        if not self.shared:
            own = self._means(batch, count)
            vectors = torch.where(self.by_label(batch, label_share)[:, None], vectors, own)
        return self.reader.encode_vectors(vectors)

    def _means(self, batch: Batch, count: int | None) -> Tensor:
        """Return the mean vector ``[n, a]`` of at most ``count`` sentences of each image."""
        places = torch.arange(self.most, device=self.table.device).expand(len(batch.rows), -1)
        real = places < self.counts[batch.rows, None]
        if count is not None and count < self.most:
            places = batch.rng.uniform(self.most).masked_fill(~real, 2.0).argsort(1)[:, :count]
            real = real.gather(1, places)
        rows = (self.starts[batch.rows, None] + places).clamp_max(len(self.table) - 1)
        return (self.table[rows] * real[..., None]).sum(1) / real.sum(1, keepdim=True)


class TrainableSentenceReader(TextReader):
    """Convolutions and an LSTM over word vectors, see ``SentenceEncoder``.

    The table of word vectors is not included in the state: it is found by its name.
    """

    table: Tensor

    def __init__(
        self, words: str, longest: int, code_size: int, *, filters: tuple[int, ...], hidden: int, dropout: float
    ) -> None:
        super().__init__()
        self.words, self.vectors, self.longest = words, word_vectors(words), longest
        self.register_buffer("table", torch.from_numpy(word_table(self.vectors)).float(), persistent=False)
        self.encoder = SentenceEncoder(self.vectors.size, code_size, filters=filters, hidden=hidden, dropout=dropout)

    def encode_tokens(self, instances: Sequence[Instance]) -> Tensor:
        """Return the mean sentence embedding of each instance ``[n, e]``."""
        flat, lengths, groups = map(torch.from_numpy, Tokens.of(instances))
        embeddings = self.encoder(self.table[flat.to(self.table.device)], lengths)
        return segment_mean(embeddings, groups.to(embeddings.device), len(instances))

    def read(self, data: TrainData) -> "SentenceTexts":
        """Return the words of the training images' sentences, and of their labels'."""
        labels = _texts_of(data.labels)
        tokens = tokenise([*labels, *data.train.texts], self.vectors, self.longest)
        return SentenceTexts(self, tokens, labels=len(labels), shared=not data.train.texts)

    def without_torch(self) -> dict[str, Any]:
        """Return what the head needs to read labels."""
        state = {name: array(tensor) for name, tensor in self.encoder.state_dict().items()}
        return {"sentences": head.SentenceReader(words=self.words, longest=self.longest, state=state)}


@dataclass(frozen=True, eq=False)
class SentenceTexts(ImageTexts):
    """The words of the sentences of ``labels`` labels, and then of images."""

    reader: TrainableSentenceReader
    tokens: Sequence[Instance]
    labels: int
    shared: bool

    def encode(self, batch: Batch, count: int | None, label_share: float) -> Tensor:
        """Return the text embeddings ``[n, e]`` of a batch's images."""
        by_label = self.by_label(batch, label_share)
        rows = torch.where(by_label, batch.targets, batch.rows + self.labels).tolist()
        texts = [self.tokens[row] for row in rows]
        if count is not None:
            uniforms = batch.rng.uniform(max(map(len, self.tokens))).cpu().numpy()
            texts = [draw(own, count, numbers) for own, numbers in zip(texts, uniforms, strict=True)]
        return self.reader.encode_tokens(texts)


def _texts_of(labels: Labels) -> tuple[tuple[str, ...], ...]:
    """Return the sentences of labels, which must have some."""
    if labels.texts is None:
        raise DataError(
            'This model reads sentences, but these labels have none. Put a file labels.csv with a column "text" next to '
            "the data."
        )
    return labels.texts
