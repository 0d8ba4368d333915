"""Facts and example images of clusters, to check their names."""

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
    """A cluster, and label-free figures of its name."""

    cluster: int  # its fixed number
    label: str  # its name
    certainty: float  # probability of the name by the votes of all clusterings; 1 if a person confirmed it
    answered: bool  # whether a person confirmed it
    size: float  # the share of training images in it
    share: float  # expected share of the label
    agreement: float  # share of its images with the same name in other clusterings
    together: float  # share of its images that other clusterings keep together
    # alternative labels and their probabilities, most probable first
    others: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class ClusterImages:
    """Rows of images to show of a cluster: nearest to its centre, and a random sample; and its size."""

    nearest: tuple[int, ...]
    sample: tuple[int, ...]
    count: int


def named_clusters(classifier: Classifier) -> list[NamedCluster]:
    """Return the clusters of a ``zero_label`` classifier, least certain name first."""
    head = named_head(classifier)
    labels, report = head.labels, classifier.origin.summary["naming"]
    cohesion = plain(kept_together(head.overlaps))
    answers = classifier.origin.summary.get("answers", {})
    return [
        NamedCluster(
            cluster=doubt.cluster,
            label=answers.get(str(doubt.cluster), doubt.label),
            certainty=round(doubt.probability, 4),
            answered=str(doubt.cluster) in answers,
            together=cohesion[doubt.cluster],
            others=doubt.others,
            **{
                ours: report[theirs][labels.index(doubt.label)]
                for ours, theirs in (("size", "sizes"), ("share", "shares"), ("agreement", "agreement"))
            },
        )
        for doubt in uncertain_clusters(classifier)
    ]


def cluster_images(classifier: Classifier, images: Any, count: int = 8) -> list[ClusterImages]:
    """Return the images to show of each cluster, at most ``count`` of either kind.

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
        farther = near[count:]
        sample = farther[draws.permutation(len(farther))[:count]]
        clusters.append(
            ClusterImages(nearest=tuple(near[:count].tolist()), sample=tuple(sample.tolist()), count=len(rows))
        )
    return clusters


TEMPERATURE = 0.1


def probe_neighbours(encoder: ImageEncoder, train: Split, test: Split, *, k: int = 200) -> dict[str, Any]:
    """Return the k-nearest-neighbour accuracy of the encoder's features from ``train`` to ``test`` (Wu et al., 2018).

    Each of the ``k`` of the largest cosine, or of all where there are fewer, votes for its own label with the weight
    ``exp(cosine / TEMPERATURE)``. Images without a label are left out. Returned are how many images may vote and were asked about,
    how many voted on each (``k``), and the share whose label got the most votes (``accuracy``).
    """
    if train.multilabel or test.multilabel:
        raise UnsupportedError("Neighbours vote for one label of each image; of these, several may be true.")
    train_part, test_part = (split.select(np.flatnonzero(np.asarray(split.targets) >= 0)) for split in (train, test))
    if not len(train_part) or not len(test_part):
        raise DataError(
            f"The vote needs labelled images on both sides; {len(train_part)} of train and {len(test_part)} of test have a label."
        )
    k = min(k, len(train_part))
    gallery, queries = (unit_rows(np.asarray(encoder.features(split.images))) for split in (train_part, test_part))
    targets, rows = np.asarray(train_part.targets), np.arange(len(test_part))
    cosines = queries @ gallery.T
    nearest = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
    votes = np.zeros((len(test_part), int(targets.max()) + 1))
    weights = np.exp(np.take_along_axis(cosines, nearest, 1) / TEMPERATURE)
    np.add.at(votes, (rows[:, None], targets[nearest]), weights)
    right = (votes.argmax(1) == np.asarray(test_part.targets)).mean()
    return {"train_images": len(train_part), "test_images": len(test_part), "k": k, "accuracy": float(right)}
