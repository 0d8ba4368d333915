"""Prototypes compared by a learned similarity, in NumPy; ``similarity`` is the torch counterpart."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import linear_scores
from labelwise.core.saved_parts import shaped
from labelwise.images.describe.labels import Labels
from labelwise.methods.shared.head import Map, TrainedHead, even, leaky, linear
from labelwise.methods.shared.statistics import solve_label_embeddings
from labelwise.support.rows import segment_mean, unit_rows

Array = npt.NDArray[Any]
Score = Callable[[Array, Array], Array]  # the outputs of ``first`` and ``second`` to a part of S
SLOPE = 0.1
TILE = 2**19  # hidden values of pairs in memory at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class PairScore:
    """S(a, b) of every pair of two lists of embeddings, larger is more similar; a prototype is a, an example b.

    S is a network on both embeddings, their scaled and shifted cosine, or the sum of both.
    """

    scale: Array | None = shaped(optional=True)  # of the cosine; None: not used
    offset: Array | None = shaped(optional=True)
    first_weight: Array | None = shaped("h", "d", optional=True)  # of the network; None: no network
    second_weight: Array | None = shaped("h", "d", optional=True)
    bias: Array | None = shaped("h", optional=True)
    middle_weight: Array | None = shaped("h", "h", optional=True)  # of the optional second hidden layer
    middle_bias: Array | None = shaped("h", optional=True)
    output_weight: Array | None = shaped("h", optional=True)
    output_bias: Array | None = shaped(optional=True)
    symmetric: Literal["none", "max", "mean"] = "none"  # how S(a, b) and S(b, a) are combined

    @property
    def hidden(self) -> int:
        """The number of columns of ``first`` that feed the network."""
        return 0 if self.bias is None else len(self.bias) * (1 if self.symmetric == "none" else 2)

    def size(self, d: int) -> int:
        """Return the output size of ``first`` for embeddings of size d."""
        return self.hidden + (0 if self.scale is None else d)

    def first(self, embeddings: Array) -> Array:
        """Precompute the part ``[n, e]`` of S that depends on the first embeddings ``[n, d]``."""
        return self._needed(embeddings, first=True)

    def second(self, embeddings: Array) -> Array:
        """Precompute the part ``[m, e]`` of S that depends on the second embeddings ``[m, d]``."""
        return self._needed(embeddings, first=False)

    def pairs(self, first: Array, second: Array) -> Array:
        """Return S of every pair ``[n, m]`` from the outputs of ``first`` and ``second``, in bounded extra memory."""
        return self._sum(self._every_pair, lambda a, b: a @ b.T, first, second)

    def matched(self, a: Array, b: Array) -> Array:
        """Return S of each row of embeddings ``[n, d]`` and the same row of others ``[n, d]``: ``[n]``."""
        cosine: Score = lambda x, y: (x * y).sum(1)  # noqa: E731 - one of two short ways to score
        return self._sum(lambda u, v: self._of_sums(u + v), cosine, self.first(a), self.second(b))

    def _needed(self, embeddings: Array, *, first: bool) -> Array:
        parts = []
        if self.bias is not None:
            assert self.first_weight is not None
            assert self.second_weight is not None
            halves = [linear(embeddings, self.first_weight, self.bias), linear(embeddings, self.second_weight)]
            halves = halves if first else halves[::-1]
            parts = halves[:1] if self.symmetric == "none" else halves
        if self.scale is not None:
            parts = [*parts, unit_rows(embeddings)]
        return np.concatenate(parts, 1)

    def _sum(self, learned_score: Score, cosine: Score, first: Array, second: Array) -> Array:
        """Return the sum of the network's and the cosine's scores."""
        e = self.hidden
        if self.scale is None or self.offset is None:
            return self._each_way(learned_score, first, second)
        scaled_cosine: Array = self.scale * cosine(first[:, e:], second[:, e:]) + self.offset
        return scaled_cosine + self._each_way(learned_score, first[:, :e], second[:, :e]) if e else scaled_cosine

    def _each_way(self, score: Score, first: Array, second: Array) -> Array:
        """Return S(a, b), combined with S(b, a) if ``symmetry`` asks for it."""
        if self.symmetric == "none":
            return score(first, second)
        h = self.hidden // 2
        forward, backward = score(first[:, :h], second[:, :h]), score(first[:, h:], second[:, h:])
        return np.maximum(forward, backward) if self.symmetric == "max" else (forward + backward) / 2

    def _every_pair(self, u: Array, v: Array) -> Array:
        """Return S ``[n, m]`` of hidden vectors ``[n, h]`` and ``[m, h]`` whose sums are the first hidden layer."""
        if type(v) is not np.ndarray:  # in an exported graph the number of rows is unknown
            return self._of_sums(u[:, None] + v)
        if self.middle_weight is None:
            return self._of_maxima(u, v)
        scores = np.empty((len(u), len(v)), np.result_type(u, v))
        for rows, columns in tiles(len(u), len(v), u.shape[1]):
            scores[rows, columns] = self._of_sums(u[rows, None] + v[columns])
        return scores

    def _of_maxima(self, u: Array, v: Array) -> Array:
        """Return S with one maximum for each pair; with one hidden layer, the rest is a sum over both embeddings."""
        assert self.output_weight is not None
        assert self.output_bias is not None
        scores: Array = (SLOPE * (u @ self.output_weight) + self.output_bias)[:, None] + v @ self.output_weight
        against, slopes = -v, np.float32(1 - SLOPE) * self.output_weight
        for rows, columns in tiles(len(u), len(v), u.shape[1]):
            scores[rows, columns] += np.maximum(u[rows, None], against[columns]) @ slopes
        return scores

    def _of_sums(self, sums: Array) -> Array:
        """Return S ``[...]`` of the first hidden layer ``[..., h]`` before its activation."""
        activations = leaky(sums, SLOPE)
        if self.middle_weight is not None:
            activations = leaky(linear(activations, self.middle_weight, self.middle_bias), SLOPE)
        score: Array = activations @ self.output_weight + self.output_bias
        return score


@dataclass(frozen=True, eq=False, kw_only=True)
class PrototypeHead(TrainedHead):
    """Prototypes, their learned similarity to images, and a dense output layer.

    A label embedding holds the prototype's part of S and a level, or a row of the dense layer ``[d + 1]``, or both in this
    order. With a closed form, its row ``[d + 1]`` follows.
    """

    kind: ClassVar[str] = "prototype"

    pair_score: PairScore
    scorer: Literal["sim", "dol", "mean"]  # S of the prototype, the dense layer, or the mean of both
    prototypes: Array = shaped("k", "d")
    dense: Array = shaped("k", "d+1")  # the dense layer, weights and then a bias
    cosine: float | None = None  # dense scores are this times the cosine with the row; None: linear
    lifted: bool = True  # whether to match the level of labels learnt from examples to trained ones
    base: Array | None = shaped("k", "d+1", optional=True)  # rows of the closed form, if there is one
    share: float = 1.0  # weight of the learned score; the closed form has the rest
    feature_map: Map = "none"

    @property
    def exclusive(self) -> bool:
        """Scores of one image compete."""
        return True

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, d]``."""
        return even(self.project(features), self.feature_map)

    def embed_labels(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, e]``."""
        rows = self.trained_rows(labels)
        embeddings = self._join(self.prototypes[rows], np.zeros(len(rows), np.float32), self.dense[rows])
        return embeddings if self.base is None else np.concatenate([embeddings, self.base[rows]], 1)

    def labels_from_examples(self, embeddings: Array, groups: Array) -> Array:
        """Return label embeddings ``[g, e]``: the mean embedding of each group's images becomes a prototype.

        The dense row is solved in closed form; with AM-softmax it is the mean direction.
        """
        count = int(groups.max()) + 1
        means = segment_mean(embeddings, groups, count)
        levels = self._levels(means) if self.lifted else np.zeros(count, means.dtype)
        if self.scorer == "sim":
            rows = means
        elif self.cosine is not None:
            directions = unit_rows(segment_mean(unit_rows(embeddings), groups, count))
            rows = np.pad(directions * self.cosine, ((0, 0), (0, 1)))
        else:
            rows = solve_label_embeddings(embeddings, groups, self.statistics, self.dense)
        learned = self._join(means, levels, rows)
        if self.base is None:
            return learned
        return np.concatenate([learned, solve_label_embeddings(embeddings, groups, self.statistics, self.base)], 1)

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the score of every pair ``[n, k]``; labels are independent."""
        d = embeddings.shape[1]
        size = self.learned_size(d)
        learned_scores = self._learned_scores(embeddings, label_embeddings[:, :size])
        if label_embeddings.shape[1] == size:
            return learned_scores
        base = linear_scores(embeddings, label_embeddings[:, size:])
        scores: Array = base + self.share * (learned_scores - base)
        return scores

    def learned_size(self, d: int) -> int:
        """Return the size of a label embedding without its closed-form row, for image embeddings of size d."""
        return (self.scorer != "dol") * (self.pair_score.size(d) + 1) + (self.scorer != "sim") * (d + 1)

    def similarity(self, queries: Array, gallery: Array) -> Array:
        """Return S of every query with every image of the gallery ``[n, m]``, from embeddings ``[n, d]`` and ``[m, d]``."""
        return self.pair_score.pairs(self.pair_score.first(queries), self.pair_score.second(gallery))

    def matched(self, queries: Array, answers: Array) -> Array:
        """Return S of each row of embeddings ``[n, d]`` and the same row of others ``[n, d]``: ``[n]``."""
        return self.pair_score.matched(queries, answers)

    def _levels(self, means: Array) -> Array:
        """Return the offsets ``[g]`` that match S of new labels to trained ones, from mean embeddings ``[g, d]``.

        S is higher for trained prototypes, so a new one would win too seldom. The offset equalises S between a prototype
        and the mean embedding of its label's images.
        """
        present = self.statistics.counts > 0
        mean_match = self.matched(self.prototypes[present], self.statistics.means[present]).mean()
        levels: Array = mean_match - self.matched(means, means)
        return levels

    def _learned_scores(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the learned score of every pair ``[n, k]``."""
        if self.scorer == "dol":
            return self._dense_scores(embeddings, label_embeddings)
        e = self.pair_score.size(embeddings.shape[1])
        pair_scores = self.pair_score.pairs(label_embeddings[:, :e], self.pair_score.second(embeddings)).T
        pair_scores = pair_scores + label_embeddings[:, e]
        if self.scorer == "sim":
            return pair_scores
        scores: Array = (pair_scores + self._dense_scores(embeddings, label_embeddings[:, e + 1 :])) / 2
        return scores

    def _dense_scores(self, embeddings: Array, rows: Array) -> Array:
        return linear_scores(embeddings if self.cosine is None else unit_rows(embeddings), rows)

    def _join(self, prototypes: Array, levels: Array, dense: Array) -> Array:
        """Join the parts of label embeddings ``[g, e]``, without the closed form."""
        if self.scorer == "dol":
            return dense
        dense_rows = np.concatenate([self.pair_score.first(prototypes), levels[:, None]], 1)
        return dense_rows if self.scorer == "sim" else np.concatenate([dense_rows, dense], 1)


def tiles(n: int, m: int, h: int) -> Iterator[tuple[slice, slice]]:
    """Yield tiles, rows and columns, that cover all pairs ``[n, m]`` with h values for each pair."""
    room = max(1, TILE // h)
    columns = max(1, min(m, room))
    rows = max(1, room // columns)
    for column in range(0, m, columns):
        for row in range(0, n, rows):
            yield slice(row, row + rows), slice(column, column + columns)
