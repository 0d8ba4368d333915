"""Sentences as rows of word vectors, one after another without padding."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from labelwise.images.describe.words import Array, WordVectors, spell, split_text
from labelwise.support.errors import DataError, UsageError, listing

UNKNOWN = 0  # the row of a word without a vector


Instance = Sequence[
    Array
]  # rows of word vectors of each sentence of an image or a label, ``[words]`` (int64), at least 1


class Tokens(NamedTuple):
    """The words of the sentences of many instances, one after another."""

    flat: Array  # rows of word vectors, one sentence after another ``[t]`` (int64); 0 is a word without a vector
    lengths: Array  # words of each sentence ``[m]`` (int64)
    groups: Array  # the instance of each sentence ``[m]`` (int64)

    @classmethod
    def of(cls, instances: Sequence[Instance]) -> Self:
        """Return the sentences of instances, one instance after another."""
        flat = [sentence for own in instances for sentence in own]
        groups = np.repeat(np.arange(len(instances)), [len(own) for own in instances])
        return cls(np.concatenate(flat), np.array([len(sentence) for sentence in flat]), groups)


def draw(own: Instance, most: int, uniforms: Any) -> Instance:
    """Return at most ``count`` sentences of an instance in their order, drawn by random numbers."""
    return [own[i] for i in sorted(np.argsort(uniforms[: len(own)])[:most].tolist())]


def tokenise(texts: Sequence[Sequence[str]], vectors: WordVectors, longest: int = 30) -> list[Instance]:
    """Return the words of the sentences of each instance as rows of ``word_table(vectors)``, ``longest`` of each at most.

    Words are matched as in ``encode_sentences``: "Owls" is looked up as "owls", too, and as "owl".
    """
    if longest < 1:
        raise UsageError(f"At least 1 word of a sentence must count; given {longest}.")
    instances: list[Instance] = []
    unknown: list[str] = []
    cache: dict[str, list[int]] = {}
    for number, sentences in enumerate(texts):
        _check(number, sentences)
        rows = [_rows(sentence, vectors, cache)[:longest] for sentence in sentences]
        unknown += [f'"{sentence}"' for sentence, own in zip(sentences, rows, strict=True) if not any(own)]
        instances.append([np.array(own, np.int64) for own in rows])
    if unknown:
        raise DataError(
            f"No word vector for any word of: {listing(unknown, 3)}. The {len(vectors)} known words do not cover "
            f'{"it" if len(unknown) == 1 else "them"}. Write it in other words, or install the extra "words" for 400,000 words.'
        )
    return instances


def word_table(vectors: WordVectors) -> Array:
    """Return the vectors that tokens are rows of ``[w + 1, a]``: zeros for a word without one, then the words."""
    return np.concatenate([np.zeros((1, vectors.size), np.float32), vectors.matrix.astype(np.float32, copy=False)])


def _check(instance: int, sentences: Sequence[str]) -> None:
    if isinstance(sentences, str):
        raise UsageError(f"Give a list of sentences for each instance; instance {instance} is a single text.")
    if not sentences:
        raise DataError(f"Instance {instance} has no sentence. Describe it with at least one, or leave it out.")
    blank = next((i for i, sentence in enumerate(sentences) if not sentence.strip()), None)
    if blank is not None:
        raise DataError(f"Sentence {blank} of instance {instance} is empty. Write one, or leave it out.")


def _rows(sentence: str, vectors: WordVectors, cache: dict[str, list[int]]) -> list[int]:
    """Return the row of each word of a sentence; ``cache`` caches lookups."""
    rows: list[int] = []
    for chunk in split_text(sentence)[1]:
        if chunk not in cache:
            spellings = spell(chunk, vectors.__contains__)
            cache[chunk] = [UNKNOWN if word is None else vectors.words[word] + 1 for word, _ in spellings]
        rows += cache[chunk]
    return rows
