"""Named clusters in NumPy: a linear head, the evidence for its names, and second opinions."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from labelwise.core.arrays import linear_scores
from labelwise.core.saved_parts import shaped
from labelwise.methods.shared.head import Centre, LinearHead

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedHead(LinearHead):
    """A linear head whose labels are named clusters; see ``method.NamedModel``."""

    kind: ClassVar[str] = "named_clusters"

    centre: Centre
    names: Array = shaped("k", dtype="i")  # the label of each cluster
    votes: Array = shaped("k", "k")  # how probable each label is for each cluster
    centres: Array = shaped("k", "d")  # mean embedding of each cluster, in the clusters' own order
    # label embeddings of every restart, the chosen one first, and the label of each cluster before any answer
    opinions: Array = shaped("r", "k", "d+1")
    own_names: Array = shaped("r", "k", dtype="i")
    clusters: Array = shaped("r", "k", "k")  # this and the next two: see `naming.Evidence`
    overlaps: Array = shaped("r", "k", "k")
    sizes: Array = shaped("r", "k")
    alike: Array = shaped("k", "k")  # similarities of labels
    looks: Array | None = shaped("r", "k", "k", optional=True)  # how well the looks of clusters fit what names say
    search: int = 500  # matchings that are tried to name clusters
    parts: int = 1  # most clusters with one name: a label embedding has a row for each, and the best row counts

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the score of every pair ``[n, k]``: that of the best of its label's clusters."""
        width = label_embeddings.shape[1] // self.parts
        first, *restarts = (label_embeddings[:, i * width : (i + 1) * width] for i in range(self.parts))
        scores = super().score(embeddings, first)
        for rows in restarts:
            scores = np.maximum(scores, super().score(embeddings, rows))
        return scores

    def labels_from_examples(self, embeddings: Array, groups: Array) -> Array:
        """Return label embeddings ``[g, e]`` of example images."""
        return np.tile(super().labels_from_examples(embeddings, groups), self.parts)

    def cluster_scores(self, embeddings: Array) -> Array:
        """Return the score of every embedding and cluster ``[n, k]``, clusters in their original order."""
        return super().score(embeddings, self.rows[self.names])

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, d]`` of unit length."""
        return self.centre(self.project(features))

    def second_opinions(self, embeddings: Array) -> Array:
        """Return the label of each embedding by the clusters of every other restart ``[r - 1, n]``; its own if there is none.

        A cluster of another restart counts as the one it overlaps most with, so names play no part in it.
        """
        answers = []
        for opinion, own, overlap in zip(self.opinions, self.own_names, self.overlaps, strict=True):
            label = np.empty_like(own)
            label[own[linear_sum_assignment(overlap, maximize=True)[1]]] = self.names
            answers.append(label[linear_scores(embeddings, opinion).argmax(1)])
        return np.stack(answers[1:] or answers)

    def renamed(self, votes: Array, names: Array) -> "NamedHead":
        """Return the head whose clusters are called by other labels ``[k]``, with all data of a label under its new one."""
        rows, means, counts = (array.copy() for array in (self.rows, self.statistics.means, self.statistics.counts))
        rows[names], means[names] = self.rows[self.names], self.statistics.means[self.names]
        counts[names] = self.statistics.counts[self.names]
        statistics = replace(self.statistics, means=means, counts=counts)
        return replace(self, rows=rows, statistics=statistics, votes=votes, names=names)
