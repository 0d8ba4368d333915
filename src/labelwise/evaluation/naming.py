"""Facts and example images of clusters, for a person to check their names."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelwise.core.classifier import Classifier
from labelwise.images.dataset import Split
from labelwise.methods.zero_label.naming import kept_together, plain
from labelwise.methods.zero_label.rename import named_head, uncertain_clusters
from labelwise.support.errors import DataError, UnsupportedError
from labelwise.support.rows import Draws, unit_rows
from labelwise.train.networks.image_encoder import ImageEncoder


@dataclass(frozen=True, kw_only=True)
class NamedCluster:
    """A cluster, and what is known about its name without a label."""

    cluster: int  # its number, which never changes
    label: str  # what it is called
    certainty: float  # how probable that is, by the votes of all clusterings; 1 where a person said so
    answered: bool  # whether a person said so
    size: float  # the share of training images in it
    share: float  # the share that the label should have
    agreement: float  # which part of it the other clusterings call the same
    together: float  # which part of it they keep together, whatever they call it
    # labels that it may be instead, with their probability, the most probable first
    others: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class ClusterImages:
    """Rows of the images to show of a cluster: those nearest to its centre, some drawn at random, and how many it has."""

    nearest: tuple[int, ...]
    drawn: tuple[int, ...]
    count: int


def named_clusters(classifier: Classifier) -> list[NamedCluster]:
    """Return the clusters of a ``zero_label`` classifier, the one whose name is least certain first."""
    head = named_head(classifier)
    labels, report = head.labels, classifier.origin.summary["naming"]
    together = plain(kept_together(head.overlaps))
    answers = classifier.origin.summary.get("answers", {})
    return [
        NamedCluster(
            cluster=doubt.cluster,
            label=answers.get(str(doubt.cluster), doubt.label),
            certainty=round(doubt.probability, 4),
            answered=str(doubt.cluster) in answers,
            together=together[doubt.cluster],
            others=doubt.others,
            **{
                ours: report[theirs][labels.index(doubt.label)]
                for ours, theirs in (("size", "sizes"), ("share", "shares"), ("agreement", "agreement"))
            },
        )
        for doubt in uncertain_clusters(classifier)
    ]


def cluster_images(classifier: Classifier, images: Any, count: int = 8) -> list[ClusterImages]:
    """Return the images to show of each cluster, at most ``count`` of either kind, in the order of the clusters.

    An image belongs to one cluster. Images nearest to a centre show the cluster at its best; those drawn at random show what the
    label is really given to.
    """
    head = named_head(classifier)
    scores = classifier.scores(images)
    embeddings, centres = np.asarray(scores.embeddings), head.centres
    answers = head.cluster_scores(embeddings).argmax(1)
    far = np.linalg.norm(embeddings[:, None] - centres, axis=2)
    draws, clusters = Draws(0), []
    for cluster in range(len(centres)):
        rows = np.flatnonzero(answers == cluster)
        near = rows[np.argsort(far[rows, cluster], kind="stable")]
        rest = near[count:]
        others = rest[draws.permutation(len(rest))[:count]]
        clusters.append(
            ClusterImages(nearest=tuple(near[:count].tolist()), drawn=tuple(others.tolist()), count=len(rows))
        )
    return clusters


TEMPERATURE = 0.1


def probe_neighbours(encoder: ImageEncoder, train: Split, test: Split, *, k: int = 200) -> dict[str, Any]:
    """Return how well the nearest images of ``train`` name those of ``test``, by the encoder's features (Wu et al., 2018).

    Each of the ``k`` of the largest cosine, or of all where there are fewer, votes for its own label with the weight
    ``exp(cosine / TEMPERATURE)``. Images without a label are left out. Returned are how many images may vote and were asked about,
    how many voted on each (``k``), and the share whose label got the most votes (``accuracy``).
    """
    if train.multilabel or test.multilabel:
        raise UnsupportedError("Neighbours vote for one label of each image; of these, several may be true.")
    known, asked = (split.select(np.flatnonzero(np.asarray(split.targets) >= 0)) for split in (train, test))
    if not len(known) or not len(asked):
        raise DataError(
            f"The vote needs labelled images on both sides; {len(known)} of train and {len(asked)} of test have a label."
        )
    k = min(k, len(known))
    gallery, queries = (unit_rows(np.asarray(encoder.features(split.images))) for split in (known, asked))
    targets, rows = np.asarray(known.targets), np.arange(len(asked))
    cosines = queries @ gallery.T
    nearest = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
    votes = np.zeros((len(asked), int(targets.max()) + 1))
    weights = np.exp(np.take_along_axis(cosines, nearest, 1) / TEMPERATURE)
    np.add.at(votes, (rows[:, None], targets[nearest]), weights)
    right = (votes.argmax(1) == np.asarray(asked.targets)).mean()
    return {"train_images": len(known), "test_images": len(asked), "k": k, "accuracy": float(right)}
