"""Names for clusters: which are uncertain, images of each to show to a person, and the answers taken in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from labelwise.core.classifier import Classifier, bind
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.head import NamedHead
from labelwise.methods.zero_label.naming import EVIDENCE, choose_names, evidence_of, name_each, naming_figures, vote
from labelwise.support.errors import UnsupportedError, UsageError


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A cluster, what it is called, how probable that is, and the other labels it may be, the most probable first."""

    cluster: int
    label: str
    probability: float
    others: tuple[tuple[str, float], ...]


def uncertain_clusters(classifier: Classifier) -> list[Doubt]:
    """Return the clusters of a ``zero_label`` classifier, the one whose name is least certain first.

    Show a person some images of it (``evaluate.naming.cluster_images``), and hand the answers to ``name_clusters``.
    """
    head = named_head(classifier)
    names = head.labels.names
    doubts = []
    for cluster, (label, votes) in enumerate(zip(head.names.tolist(), head.votes.tolist(), strict=True)):
        others = sorted(((names[i], vote) for i, vote in enumerate(votes) if i != label), key=lambda pair: -pair[1])
        kept = tuple((name, round(vote, 4)) for name, vote in others[:3] if vote > 0)
        doubts.append(Doubt(cluster=cluster, label=names[label], probability=votes[label], others=kept))
    return sorted(doubts, key=lambda doubt: doubt.probability)


def name_clusters(classifier: Classifier, answers: Mapping[int, str]) -> Classifier:
    """Return the classifier with clusters named as a person says, and the others named again in the light of it.

    ``answers`` are by the number that ``uncertain_clusters`` gives. What ``teach`` added to the classifier is lost.
    """
    head = named_head(classifier)
    labels = head.labels
    wrong = [cluster for cluster in answers if not 0 <= cluster < len(labels)]
    if wrong:
        raise UsageError(f"Clusters are numbered 0 to {len(labels) - 1}; given {wrong[0]}.")
    known = {cluster: labels.index(name) for cluster, name in answers.items()}
    for label in known.values():
        same = [cluster for cluster in known if known[cluster] == label]
        if len(same) > 1:
            raise UsageError(
                f"Two clusters cannot have one label: each label is the name of one cluster. Given "
                f'"{labels.names[label]}" for clusters {same[0]} and {same[1]}.'
            )
    evidence = evidence_of(labels, {name: getattr(head, name) for name in EVIDENCE})
    tables = name_each(evidence, head.search, known)
    votes = vote(evidence, tables, known)
    renamed = head.renamed(votes, choose_names(votes, known))
    bound = bind(renamed, classifier.encoder, labels)
    summary = {**classifier.origin.summary, "answers": {str(cluster): name for cluster, name in answers.items()}}
    if "naming" in summary:
        names = np.stack([renamed.names, *(best_matching(table) for table in tables[1:])])
        summary["naming"] = {**summary["naming"], **naming_figures(renamed, names)}
    return replace(
        classifier,
        head=renamed,
        labels=labels,
        label_embeddings=bound.label_embeddings,
        calibration=replace(bound.calibration, temperature=classifier.calibration.temperature),
        origin=replace(classifier.origin, summary=summary),
    )


def named_head(classifier: Classifier) -> NamedHead:
    """Return the head of a classifier that ``zero_label`` made, or raise an error for any other."""
    if not isinstance(classifier.head, NamedHead):
        raise UnsupportedError(
            f"{classifier.kind} names no clusters; only method zero_label does. Fit with that method."
        )
    return classifier.head
