"""Similarity of labels, and the prior over scores derived from it.

The prior of zero_label: an image of label i scores 1 at i, 0.5 at the most similar label, less the less similar a label is,
and -0.5 at the most dissimilar one. Only the order of similarities counts.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from labelwise.core.arrays import Array
from labelwise.images.describe import minilm
from labelwise.images.describe.knowledge import require
from labelwise.images.describe.labels import Labels
from labelwise.images.describe.sentences import encode_sentences
from labelwise.images.describe.words import name_vectors, packaged_vectors, split_text
from labelwise.methods.zero_label.assignment import standardise
from labelwise.support.errors import UsageError, listing, suggest
from labelwise.support.rows import unit_rows

Source = Literal["auto", "words", "sentences", "vectors", "similarity", "order", "paper"]
SOURCES = get_args(Source)
NEAREST, FARTHEST, LEAST_WEIGHT = 0.5, -0.5, 0.01

# The labels of CIFAR-10, each with the others from the most to the least similar, as published with the method.
PAPER_RANKS = {
    "airplane": "truck ship automobile bird dog cat horse deer frog",
    "automobile": "truck airplane ship horse dog cat deer bird frog",
    "bird": "deer frog cat dog airplane horse ship truck automobile",
    "cat": "dog bird horse frog deer truck airplane automobile ship",
    "deer": "bird horse dog frog cat truck airplane automobile ship",
    "dog": "cat horse bird deer frog truck airplane automobile ship",
    "frog": "bird deer cat dog horse airplane truck ship automobile",
    "horse": "dog deer cat bird frog truck airplane ship automobile",
    "ship": "airplane truck horse bird automobile dog cat frog deer",
    "truck": "automobile airplane horse dog ship deer cat bird frog",
}


def label_similarity(labels: Labels, source: Source = "auto", *, neighbours: int = 0) -> Array:
    """Return the similarity of labels ``[k, k]`` (float64), larger is more alike.

    Args:
        labels: their names and what else is known.
        source: ``words`` is the cosine of the names' word vectors, ``sentences`` that and the cosine of sentences on the
            names in equal parts (needs the extra "text"), ``vectors`` that of the labels' own, ``similarity`` the one given,
            ``order`` minus the distance of ranks, ``paper`` the published ranks of CIFAR-10; ``auto`` takes the first that
            is known of similarity, vectors, order; else sentences where the extra is installed, else words.
        neighbours: with words and sentences: a name is the mean of itself and this many words nearest to it, which says more about the
            kind of thing it is; names are then centred. 0 is the plain word vector.
    """
    source = choose_source(labels, source)
    if source == "paper":
        return _paper_similarity(labels.names)
    if source in ("words", "sentences"):
        words = word_similarity(labels.names, neighbours=neighbours)
        return words if source == "words" else standardise(words) + standardise(sentence_similarity(labels.names))
    require(labels, source, "A label prior")
    if source == "order":
        ranks = np.array(labels.order, np.float64)
        return -np.abs(ranks[:, None] - ranks)
    values = np.asarray(getattr(labels, source), np.float64)
    return centred_cosines(values) if source == "vectors" else values


def choose_source(labels: Labels, source: Source) -> Source:
    """Return where the similarity of labels comes from, ``auto`` resolved."""
    if source not in SOURCES:
        raise UsageError(f'No label prior "{source}".{suggest(source, SOURCES)} Priors: {listing(SOURCES)}.')
    if source != "auto":
        return source
    available: tuple[Source, ...] = ("similarity", "vectors", "order")
    texts: Source = "sentences" if minilm.is_installed() else "words"
    return next((piece for piece in available if getattr(labels, piece) is not None), texts)


def word_similarity(names: Sequence[str], *, neighbours: int = 0) -> Array:
    """Return the similarities of names ``[k, k]`` by the included word vectors; see ``label_similarity``."""
    known = packaged_vectors()
    vectors = name_vectors(names, known)[0].astype(np.float64)
    if neighbours < 1:
        return _cosine(vectors)
    every = known.matrix.astype(np.float64)
    centre = every.mean(0)
    every, own = unit_rows(every - centre), unit_rows(vectors - centre)
    near = np.argsort(-(own @ every.T), axis=1, kind="stable")[:, : neighbours + 1]
    return centred_cosines(every[near].mean(1))


def sentence_similarity(names: Sequence[str]) -> Array:
    """Return the similarities of names ``[k, k]``: the cosine of the vectors of "a photo of a NAME", around their mean."""
    return centred_cosines(photo_vectors(names))


def photo_vectors(names: Sequence[str]) -> Array:
    """Return the vector of "a photo of a NAME", of unit length, for each name ``[k, a]`` (float64)."""
    texts = [f"a photo of a {' '.join(split_text(name)[1])}" for name in names]
    return encode_sentences(texts, "minilm").astype(np.float64)


def rank_labels(similarity: Array) -> Array:
    """Return for each label all labels, itself first, then from the most to the least similar ``[k, k]`` (positions)."""
    own = similarity.copy()
    np.fill_diagonal(own, np.inf)
    return np.argsort(-own, axis=1, kind="stable")


def prior_vectors(similarity: Array, *, second: float = 0.2) -> Array:
    """Return the prior vector of each label ``[k, k]``, of unit length, from the similarity of labels ``[k, k]``.

    From ``second`` at the second most similar label an arithmetic series goes down to -0.5 at the most dissimilar one.
    """
    k = len(similarity)
    order = rank_labels(similarity)
    series = np.linspace(second, FARTHEST, max(0, k - 2))
    ladder = np.concatenate([np.array([1.0, NEAREST])[:k], series])[:k]
    ladder[-1] = FARTHEST if k > 1 else 1.0
    return unit_rows(_rank(order, ladder))


def cost_weights(similarity: Array) -> Array:
    """Return the weight of each label in the cost of a prior vector ``[k, k]`` (eq. 2).

    1 for the label itself, e^-1, e^-2 ... from the nearest outwards, e^-1, e^-2 ... from the farthest inwards, at least 0.01.
    """
    k = len(similarity)
    rank = np.arange(k, dtype=np.float64)
    ladder = np.maximum(np.exp(np.where(rank < k // 2, -rank, rank - k)), LEAST_WEIGHT)
    return _rank(rank_labels(similarity), ladder)


def _rank(order: Array, ladder: Array) -> Array:
    """Return each row's numbers ``[k]`` of a ladder at the labels that its order ``[k, k]`` names."""
    values = np.zeros(order.shape)
    np.put_along_axis(values, order, np.broadcast_to(ladder, order.shape), 1)
    return values


def centred_cosines(vectors: Array) -> Array:
    """Return the cosine of every two vectors ``[k, k]`` around their mean."""
    return _cosine(vectors - vectors.mean(0))


def _cosine(vectors: Array) -> Array:
    unit = unit_rows(vectors)
    cosines: Array = unit @ unit.T
    return cosines


def _paper_similarity(names: Sequence[str]) -> Array:
    """Return minus the published rank of each label from each other ``[k, k]``."""
    unknown = [name for name in names if name not in PAPER_RANKS]
    if unknown:
        raise UsageError(
            f'The prior "paper" only knows the labels of CIFAR-10: {listing(PAPER_RANKS)}; given {listing(unknown)}. '
            'Use the prior "words".'
        )
    ranks = [[[name, *PAPER_RANKS[name].split()].index(other) - 1.0 for other in names] for name in names]
    return -np.array(ranks)
