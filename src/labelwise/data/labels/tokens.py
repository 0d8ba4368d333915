"""Sentences as rows of word vectors, one after another without padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from labelwise.data.labels.words import WordVectors, spell, split_text
from labelwise.errors import DataError, UsageError, listing
from labelwise.ops.segments import spans

UNKNOWN = 0  # the row of a word without a vector


@dataclass(frozen=True, eq=False, kw_only=True)
class Tokens:
    """The words of the sentences of many instances (images or labels), all of them on one device.

    Sentences of an instance stand together, and instances stand in order: ``groups`` never falls. Kept on the CPU,
    ``select`` never waits for a GPU, and the encoder finds ``lengths`` where it needs them.
    """

    flat: Tensor  # rows of word vectors, one sentence after another ``[t]`` (int64); 0 is a word without a vector
    lengths: Tensor  # words of each sentence, at least 1 ``[m]`` (int64)
    groups: Tensor  # the instance of each sentence ``[m]`` (int64), in 0..count-1
    count: int  # how many instances

    def __len__(self) -> int:
        return self.count

    @cached_property
    def sentences(self) -> Tensor:
        """How many sentences each instance has ``[count]``."""
        return torch.zeros_like(self.groups[:1]).expand(self.count).index_add(0, self.groups, self.lengths.sign())

    @cached_property
    def most(self) -> int:
        """The largest number of sentences of one instance."""
        return int(self.sentences.max()) if self.count else 0

    @cached_property
    def _sentence_starts(self) -> Tensor:
        return self.sentences.cumsum(0) - self.sentences

    def select(self, instances: Tensor) -> "Tokens":
        """Return the sentences of these instances ``[n]``, renumbered in this order; an instance may come twice."""
        counts = self.sentences[instances]
        groups = torch.arange(len(instances), device=counts.device).repeat_interleave(counts)
        return self._take(spans(self._sentence_starts[instances], counts), groups, len(instances))

    def draw(self, instances: Tensor, sentences: int, uniforms: Tensor) -> "Tokens":
        """Return the same with at most so many sentences of each instance, drawn without replacement.

        ``uniforms [n, most]`` are random numbers in [0, 1), as ``BatchRng.uniform(tokens.most)`` gives them.
        """
        counts = self.sentences[instances]
        positions = torch.arange(self.most, device=counts.device)
        real = positions < counts[:, None]
        order = uniforms.to(counts.device).masked_fill(~real, 2.0).argsort(1)
        ranks = torch.empty_like(order).scatter_(1, order, positions.expand_as(order))
        groups, at = (real & (ranks < sentences)).nonzero(as_tuple=True)
        return self._take(self._sentence_starts[instances][groups] + at, groups, len(instances))

    def _take(self, rows: Tensor, groups: Tensor, count: int) -> "Tokens":
        """Return these sentences ``[m]`` as those of the instances ``groups [m]``."""
        lengths = self.lengths[rows]
        return Tokens(
            flat=self.flat[spans((self.lengths.cumsum(0) - self.lengths)[rows], lengths)],
            lengths=lengths,
            groups=groups,
            count=count,
        )

    def to(self, device: str | torch.device) -> "Tokens":
        """Return the same on a device."""
        moved = (piece.to(device, non_blocking=True) for piece in (self.flat, self.lengths, self.groups))
        return Tokens(**dict(zip(("flat", "lengths", "groups"), moved, strict=True)), count=self.count)


def tokenise(texts: Sequence[Sequence[str]], vectors: WordVectors, longest: int = 30) -> Tokens:
    """Return the words of the sentences of each instance as rows of ``word_table(vectors)``, ``longest`` of each at most.

    Words are found as ``encode_sentences`` finds them: "Owls" is looked up as "owls", too, and as "owl".
    """
    if longest < 1:
        raise UsageError(f"At least 1 word of a sentence must count; given {longest}.")
    flat: list[int] = []
    lengths: list[int] = []
    groups: list[int] = []
    unknown: list[str] = []
    known: dict[str, list[int]] = {}
    for instance, sentences in enumerate(texts):
        _check(instance, sentences)
        for sentence in sentences:
            rows = _rows(sentence, vectors, known)[:longest]
            if not any(rows):
                unknown.append(f'"{sentence}"')
            flat += rows
            lengths.append(len(rows))
            groups.append(instance)
    if unknown:
        raise DataError(
            f"No word vector for any word of: {listing(unknown, 3)}. The {len(vectors)} words at hand do not cover "
            f'{"it" if len(unknown) == 1 else "them"}. Write it in other words, or install the extra "words" for 400,000 words.'
        )
    pieces = {"flat": flat, "lengths": lengths, "groups": groups}
    return Tokens(**{name: torch.tensor(piece, dtype=torch.int64) for name, piece in pieces.items()}, count=len(texts))


def word_table(vectors: WordVectors) -> Tensor:
    """Return the vectors that tokens are rows of ``[w + 1, a]``: zeros for a word without one, then the words."""
    matrix = torch.from_numpy(vectors.matrix).float()
    return torch.cat([matrix.new_zeros(1, vectors.size), matrix])


def _check(instance: int, sentences: Sequence[str]) -> None:
    if isinstance(sentences, str):
        raise UsageError(f"Give a list of sentences for each instance; instance {instance} is a single text.")
    if not sentences:
        raise DataError(f"Instance {instance} has no sentence. Describe it with at least one, or leave it out.")
    blank = next((i for i, sentence in enumerate(sentences) if not sentence.strip()), None)
    if blank is not None:
        raise DataError(f"Sentence {blank} of instance {instance} is empty. Write one, or leave it out.")


def _rows(sentence: str, vectors: WordVectors, known: dict[str, list[int]]) -> list[int]:
    """Return the row of each word of a sentence; ``known`` keeps what was looked up."""
    rows: list[int] = []
    for chunk in split_text(sentence)[1]:
        if chunk not in known:
            spelled = spell(chunk, vectors.__contains__)
            known[chunk] = [UNKNOWN if word is None else vectors.words[word] + 1 for word, _ in spelled]
        rows += known[chunk]
    return rows
