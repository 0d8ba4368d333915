"""What label names say about each other: similarity of labels, and the prior over scores that it makes.

The prior of zero_label: an image of label i scores 1 at i, 0.5 at the most similar label, less the less similar a label is,
and -0.5 at the most dissimilar one. Only the order of similarities counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.images.describe import sentence_transformer
from labelwise.images.describe.knowledge import require
from labelwise.images.describe.labels import Labels
from labelwise.images.describe.sentences import encode_sentences
from labelwise.images.describe.words import WordVectors, name_vectors, packaged_vectors, split_text
from labelwise.methods.zero_label.assignment import standardised
from labelwise.support.errors import UsageError, listing, suggest

Source = Literal["auto", "words", "sentences", "vectors", "similarity", "order", "paper"]
SOURCES = get_args(Source)
NEAREST, FARTHEST, LEAST_WEIGHT, SHUFFLED = 0.5, -0.5, 0.01, 3

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


def label_similarity(labels: Labels, source: Source = "auto", *, neighbours: int = 0) -> Tensor:
    """Return how alike labels are ``[k, k]`` (float64), larger is more alike.

    Args:
        labels: their names and what else is known.
        source: ``words`` is the cosine of the names' word vectors, ``sentences`` that and the cosine of sentences on the
            names in equal parts (needs the extra "text"), ``vectors`` that of the labels' own, ``similarity`` the one given,
            ``order`` minus the distance of ranks, ``paper`` the published ranks of CIFAR-10; ``auto`` takes the first that
            is known of similarity, vectors, order; else sentences where the extra is installed, else words.
        neighbours: with words and sentences: a name is the mean of itself and this many words nearest to it, which says more about the
            kind of thing it is; names are then centred. 0 is the plain word vector.
    """
    source = chosen_source(labels, source)
    if source == "paper":
        return _paper_similarity(labels.names)
    if source in ("words", "sentences"):
        words = word_similarity(labels.names, neighbours=neighbours)
        return words if source == "words" else standardised(words) + standardised(sentence_similarity(labels.names))
    require(labels, source, "A label prior")
    if source == "order":
        ranks = torch.tensor(labels.order, dtype=torch.float64)
        return -(ranks[:, None] - ranks).abs()
    given = torch.as_tensor(getattr(labels, source)).double()
    return centred_cosines(given) if source == "vectors" else given


def chosen_source(labels: Labels, source: Source) -> Source:
    """Return where the similarity of labels comes from, ``auto`` resolved."""
    if source not in SOURCES:
        raise UsageError(f'No label prior "{source}".{suggest(source, SOURCES)} Priors: {listing(SOURCES)}.')
    if source != "auto":
        return source
    known: tuple[Source, ...] = ("similarity", "vectors", "order")
    texts: Source = "sentences" if sentence_transformer.is_installed() else "words"
    return next((piece for piece in known if getattr(labels, piece) is not None), texts)


def word_similarity(names: Sequence[str], *, neighbours: int = 0, words: WordVectors | None = None) -> Tensor:
    """Return how alike names are ``[k, k]`` by their word vectors, those that come along or others; see ``label_similarity``."""
    known = words or packaged_vectors()
    vectors = torch.from_numpy(name_vectors(names, known)[0])
    if neighbours < 1:
        return _cosine(vectors.double())
    every = torch.from_numpy(known.matrix).double()
    centre = every.mean(0)
    every = normalize(every - centre, dim=1)
    own = normalize(vectors.double() - centre, dim=1)
    near = (own @ every.T).topk(min(neighbours + 1, len(every))).indices
    wide = every[near].mean(1)
    return centred_cosines(wide)


def sentence_similarity(names: Sequence[str]) -> Tensor:
    """Return how alike names are ``[k, k]``: the cosine of the vectors of "a photo of a NAME", around their mean."""
    return centred_cosines(photo_vectors(names))


def photo_vectors(names: Sequence[str]) -> Tensor:
    """Return the vector of "a photo of a NAME", of unit length, for each name ``[k, a]`` (float64)."""
    texts = [f"a photo of a {' '.join(split_text(name)[1])}" for name in names]
    return torch.from_numpy(encode_sentences(texts, "minilm")).double()


def rank_labels(similarity: Tensor) -> Tensor:
    """Return for each label all labels, itself first, then from the most to the least similar ``[k, k]`` (positions)."""
    own = similarity.clone()
    own.fill_diagonal_(torch.inf)
    return own.argsort(dim=1, descending=True, stable=True)


def prior_vectors(similarity: Tensor, *, second: float = 0.2) -> Tensor:
    """Return the prior vector of each label ``[k, k]``, of unit length, from the similarity of labels ``[k, k]``.

    From ``second`` at the second most similar label an arithmetic series goes down to -0.5 at the most dissimilar one.
    """
    k = len(similarity)
    order = rank_labels(similarity)
    series = torch.linspace(second, FARTHEST, max(0, k - 2), dtype=torch.float64)
    ladder = torch.cat([torch.tensor([1.0, NEAREST], dtype=torch.float64)[:k], series])[:k]
    ladder[-1] = FARTHEST if k > 1 else 1.0
    vectors = torch.zeros(k, k, dtype=torch.float64).scatter_(1, order, ladder.expand(k, k))
    return normalize(vectors, dim=1)


def cost_weights(similarity: Tensor) -> Tensor:
    """Return the weight of each label in the cost of a prior vector ``[k, k]`` (eq. 2).

    1 for the label itself, e^-1, e^-2 ... from the nearest outwards, e^-1, e^-2 ... from the farthest inwards, at least 0.01.
    """
    k = len(similarity)
    rank = torch.arange(k, dtype=torch.float64)
    ladder = torch.where(rank < k // 2, -rank, rank - k).exp().clamp_min(LEAST_WEIGHT)
    return torch.zeros(k, k, dtype=torch.float64).scatter_(1, rank_labels(similarity), ladder.expand(k, k))


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelPrior:
    """The prior over scores. A sample is the vector of a label with its three most dissimilar entries shuffled.

    So there are at most 6 k different samples, and a batch of them is how often each was drawn: transport to repeated samples
    is the same as transport to each once with its count as its mass.
    """

    atoms: Tensor  # the different samples [a, k]
    weights: Tensor  # the cost weights of each [a, k]
    chances: Tensor  # how probable each is [a]

    @classmethod
    def of(cls, similarity: Tensor, shares: Tensor | None = None, *, second: float = 0.2) -> "LabelPrior":
        """Return the prior of labels with this similarity ``[k, k]`` and these shares ``[k]``, or equal ones."""
        k, similarity = len(similarity), similarity.cpu()
        if k < 2:
            raise UsageError(f"A label prior needs at least two labels; given {k}.")
        far = rank_labels(similarity)[:, max(1, k - SHUFFLED) :]
        vectors, weights = prior_vectors(similarity, second=second), cost_weights(similarity)
        orders = torch.tensor(list(permutations(range(far.shape[1]))))
        atoms = vectors[:, None].repeat(1, len(orders), 1)
        atoms.scatter_(2, far[:, None].expand(-1, len(orders), -1), vectors.gather(1, far)[:, orders])
        alpha = torch.full((k,), 1 / k, dtype=torch.float64) if shares is None else shares.double()
        return cls(
            atoms=atoms.flatten(0, 1),
            weights=weights.repeat_interleave(len(orders), 0),
            chances=(alpha / len(orders)).repeat_interleave(len(orders)),
        )

    def draw(self, count: int, batches: int, generator: torch.Generator) -> Tensor:
        """Return what share of a batch of samples is each atom ``[batches, a]``, for batches of ``count`` samples."""
        chances = self.chances.to(generator.device)
        drawn = torch.multinomial(chances.expand(batches, -1), count, replacement=True, generator=generator)
        ones = torch.full_like(drawn, 1, dtype=torch.float64) / count
        return torch.zeros(batches, len(chances), dtype=torch.float64, device=drawn.device).scatter_add_(1, drawn, ones)

    def costs(self, scores: Tensor) -> Tensor:
        """Return the cost of sending each score vector to each atom ``[..., n, a]``, from scores ``[..., n, k]`` (eq. 3)."""
        weights, atoms = self.weights.to(scores), self.atoms.to(scores)
        cross = (weights * atoms).T
        return (scores.square() @ weights.T - 2 * (scores @ cross) + (weights * atoms.square()).sum(1)).clamp_min(0)


def centred_cosines(vectors: Tensor) -> Tensor:
    """Return the cosine of every two vectors ``[k, k]`` around their mean."""
    return _cosine(vectors - vectors.mean(0))


def _cosine(vectors: Tensor) -> Tensor:
    unit = normalize(vectors, dim=1)
    return unit @ unit.T


def _paper_similarity(names: Sequence[str]) -> Tensor:
    """Return minus the published rank of each label from each other ``[k, k]``."""
    unknown = [name for name in names if name not in PAPER_RANKS]
    if unknown:
        raise UsageError(
            f'The prior "paper" knows the labels of CIFAR-10 alone: {listing(PAPER_RANKS)}; given {listing(unknown)}. '
            'Use the prior "words".'
        )
    ranks = [[[name, *PAPER_RANKS[name].split()].index(other) - 1.0 for other in names] for name in names]
    return -torch.tensor(ranks, dtype=torch.float64)
