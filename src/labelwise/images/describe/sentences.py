"""Sentence vectors: the mean of word vectors, or a small transformer that reads the whole sentence."""

from collections.abc import Sequence

from labelwise.images.describe.minilm import minilm
from labelwise.images.describe.words import (
    Array,
    WordVectors,
    find_words,
    installed_vectors,
    mean_vectors,
    packaged_vectors,
)
from labelwise.support.errors import DataError, UsageError, listing, suggest

ENCODERS = ("words", "glove", "minilm")


def encode_sentences(texts: Sequence[str], encoder: str | WordVectors = "words") -> Array:
    """Return the vectors of n sentences ``[n, a]``.

    The encoder is "words", the mean of the packaged word vectors (50 numbers); "glove", the same with the 400,000
    words of the extra "words"; "minilm", the transformer of the extra "text" (384 numbers, of unit length); or word
    vectors of your own.
    """
    if isinstance(texts, str):
        raise UsageError("Give a list of sentences, not a single text.")
    blank = next((i for i, text in enumerate(texts) if not text.strip()), None)
    if blank is not None:
        raise UsageError(f"Sentence {blank} is empty. Write one, or leave it out.")
    if isinstance(encoder, str) and encoder not in ENCODERS:
        raise UsageError(
            f'No sentence encoder "{encoder}".{suggest(encoder, ENCODERS)} There are: {listing(ENCODERS)}.'
        )
    if encoder == "minilm":
        return minilm().encode(texts)
    vectors = word_vectors(encoder) if isinstance(encoder, str) else encoder
    known = [find_words(text, vectors.__contains__, phrase=False)[0] for text in texts]
    unknown = [f'"{text}"' for text, words in zip(texts, known, strict=True) if not words]
    if unknown:
        raise DataError(
            f"No word vector for any word of: {listing(unknown, 3)}. The {len(vectors)} known words do not cover them; "
            'the encoders "glove" and "minilm" know more.'
        )
    return mean_vectors(known, vectors)


def word_vectors(name: str) -> WordVectors:
    """Return the word vectors of this name: "words" are included, "glove" needs the extra "words"."""
    readers = {"words": packaged_vectors, "glove": installed_vectors}
    if name not in readers:
        raise UsageError(f'No word vectors "{name}".{suggest(name, readers)} There are: {listing(readers)}.')
    return readers[name]()
