"""The sentence encoder: word vectors through convolutions and an LSTM, computed on words alone, never on padding.

The words of all sentences stand one after another, ``[t, a]``. Convolution, batch norm and pooling work on these rows;
where a sentence begins and ends comes from the lengths alone and is worked out once for all channels, on the CPU.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from labelwise.support.errors import UsageError
from labelwise.train.tensors import spans

MOST_BLOCKS = 100


class SentenceEncoder(nn.Module):
    """Turns the word vectors of sentences ``[t, a]`` into embeddings ``[m, e]``.

    Residual convolution blocks that halve a sentence each, an LSTM in both directions, the mean over the rest of the
    sentence, dropout, and a linear layer. What a sentence gets does not depend on the others in eval mode; in training
    they share the statistics of batch norm, in which every word counts the same. ``filters`` are the widths of the blocks, ``hidden``
    that of the LSTM in each direction.
    """

    def __init__(
        self,
        vector_size: int,
        code_size: int = 1024,
        *,
        filters: Sequence[int] = (128, 256),
        hidden: int = 512,
        dropout: float = 0.25,
    ) -> None:
        super().__init__()
        sizes = (vector_size, *filters)
        if len(filters) > MOST_BLOCKS:
            raise UsageError(f"A sentence encoder has at most {MOST_BLOCKS} blocks; given {len(filters)} filters.")
        if min(*sizes, hidden, code_size) < 1:
            raise UsageError(f"Sizes must be at least 1; given {vector_size}, {list(filters)}, {hidden}, {code_size}.")
        self.code_size = code_size
        self.blocks = nn.ModuleList(ConvolutionBlock(*pair) for pair in zip(sizes, filters, strict=False))
        self.lstm = nn.LSTM(sizes[-1], hidden, bidirectional=True)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(2 * hidden, code_size)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return sentence embeddings ``[m, e]`` of word vectors, one sentence after another ``[t, a]``.

        Give ``lengths [m]``, words of each sentence, on the CPU: a GPU would have to be waited for.
        """
        sizes = lengths.cpu()
        if int(sizes.sum()) != len(words) or not len(sizes) or int(sizes.min()) < 1:
            raise UsageError(
                f"Each sentence needs at least one word, {len(words)} in all; given {len(sizes)} lengths that sum to "
                f"{int(sizes.sum())}."
            )
        x = words
        for block in self.blocks:
            x = block(x, Borders.of(sizes, x.device))
            sizes = (sizes + 1) // 2
        states, _ = pad_packed_sequence(self.lstm(_pack(x, sizes))[0])  # zeros behind the end of a sentence
        sums = states.sum(0, dtype=torch.promote_types(states.dtype, torch.float32))
        means = sums / sizes[:, None].to(x.device, non_blocking=True)
        return self.project(self.dropout(means))  # type: ignore[no-any-return]


class ConvolutionBlock(nn.Module):
    """Three convolutions over a word and its two neighbours, next to a shortcut; then the larger of every two words."""

    def __init__(self, size_in: int, size_out: int) -> None:
        super().__init__()
        sizes = (size_in, size_out, size_out)
        self.convs = nn.ModuleList(nn.Linear(3 * size, size_out, bias=False) for size in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm1d(size_out) for _ in sizes)
        self.shortcut = nn.Linear(size_in, size_out)

    def forward(self, x: Tensor, borders: "Borders") -> Tensor:
        """Return half as many rows of each sentence, rounded up ``[t', size_out]``."""
        inner = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            inner = inner if number == 0 else inner.relu()
            inner = norm(conv(borders.join(inner)))
        x = (inner + self.shortcut(x)).relu()
        return _scatter(x, borders.places, 2 * borders.pairs).view(borders.pairs, 2, -1).amax(1)


class Borders(NamedTuple):
    """Where sentences begin and end among t rows."""

    begins: Tensor  # whether a sentence begins at a row [t, 1] (bool)
    ends: Tensor  # whether one ends there [t, 1] (bool)
    places: Tensor  # the new position of each row [t], so that every sentence begins at an even one
    pairs: int  # how many pairs of places there are then

    @classmethod
    def of(cls, lengths: Tensor, device: torch.device) -> "Borders":
        """Return the borders of sentences of these lengths ``[m]``, on a device."""
        behind = lengths.cumsum(0)
        begins, ends = torch.zeros(2, int(behind[-1]), 1, dtype=torch.bool)
        begins[behind - lengths], ends[behind - 1] = True, True
        pairs = (lengths + 1) // 2
        pairs_behind = pairs.cumsum(0)
        places = spans(2 * (pairs_behind - pairs), lengths)
        begins, ends, places = (x.to(device, non_blocking=True) for x in (begins, ends, places))
        return cls(begins, ends, places, int(pairs_behind[-1]))

    def join(self, x: Tensor) -> Tensor:
        """Return rows ``[t, c]`` between the one before and the one after of their sentence, or zeros ``[t, 3 c]``."""
        before, after = pad(x[:-1], (0, 0, 1, 0)), pad(x[1:], (0, 0, 0, 1))
        return torch.cat([before.masked_fill(self.begins, 0), x, after.masked_fill(self.ends, 0)], 1)


def _pack(x: Tensor, lengths: Tensor) -> PackedSequence:
    """Return rows of sentences ``[t, c]`` as an LSTM takes them: the first row of each, the longest sentence first, then the second rows.

    What torch's ``pack_sequence`` gives, which copies each sentence by itself: with it a step of `benchmarks/sentences.py` takes 4 % longer on one core,
    and 1,300 kernels more on a GPU.
    """
    order = lengths.argsort(descending=True)
    rank = order.argsort()
    sizes = (lengths > torch.arange(int(lengths.max()))[:, None]).sum(1)  # how many sentences have a row at each step
    steps = spans(torch.zeros_like(lengths), lengths)
    places = (sizes.cumsum(0) - sizes)[steps] + rank.repeat_interleave(lengths)
    order, rank, places = (index.to(x.device, non_blocking=True) for index in (order, rank, places))
    return PackedSequence(_scatter(x, places, len(x)), sizes, order, rank)


def _scatter(x: Tensor, places: Tensor, rows: int) -> Tensor:
    """Return ``[rows, c]`` with row i of x at ``places[i]`` and minus infinity elsewhere.

    The gradient is a plain lookup, which is much faster than that of indexing.
    """
    return x.new_full((rows, x.shape[1]), -torch.inf).index_copy(0, places, x)
