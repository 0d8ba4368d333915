"""Rename clusters: find uncertain names, and apply the answers of a person."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from labelwise.core.calibration import Calibration
from labelwise.core.classifier import Classifier, bind
from labelwise.images.describe.labels import Labels, find_name, normal_name
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.head import NamedHead
from labelwise.methods.zero_label.meter import Settled, settle
from labelwise.methods.zero_label.naming import EVIDENCE, choose_names, evidence_of, name_each, naming_figures, vote
from labelwise.support.errors import UnsupportedError, UsageError


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A cluster with its name, the probability of the name, and the alternatives, most probable first."""

    cluster: int
    label: str
    probability: float
    others: tuple[tuple[str, float], ...]


def uncertain_clusters(classifier: Classifier) -> list[Doubt]:
    """Return the clusters of a ``zero_label`` classifier, least certain name first.

    Show a person some images of it (``evaluate.naming.cluster_images``), and hand the answers to ``name_clusters``.
    """
    head = named_head(classifier)
    names = head.labels.names
    doubts = []
    for cluster, (label, votes) in enumerate(zip(head.names.tolist(), head.votes.tolist(), strict=True)):
        alternatives = sorted(
            ((names[i], vote) for i, vote in enumerate(votes) if i != label), key=lambda pair: -pair[1]
        )
        best_alternatives = tuple((name, round(vote, 4)) for name, vote in alternatives[:3] if vote > 0)
        doubts.append(Doubt(cluster=cluster, label=names[label], probability=votes[label], others=best_alternatives))
    return sorted(doubts, key=lambda doubt: doubt.probability)


def name_clusters(classifier: Classifier, answers: Mapping[int, str]) -> Classifier:
    """Rename clusters by the answers of a person, and name the other clusters again.

    ``answers`` are by the number that ``uncertain_clusters`` gives. A name need not be one that the fit was given, and several clusters
    may have the same: they are then one label. What ``teach`` added to the classifier is lost.
    """
    head = named_head(classifier)
    labels = head.labels
    wrong = [cluster for cluster in answers if not 0 <= cluster < len(labels)]
    if wrong:
        raise UsageError(f"Clusters are numbered 0 to {len(labels) - 1}; given {wrong[0]}.")
    answers = _one_spelling(answers, labels)
    answered = _answered_labels(answers, labels)
    evidence = evidence_of(labels, {name: getattr(head, name) for name in EVIDENCE})
    tables = name_each(evidence, head.search, answered)
    votes = vote(evidence, tables, answered)
    votes[[cluster for cluster in answers if cluster not in answered]] = 0  # these take whichever label is left
    renamed = head.renamed(votes, choose_names(votes, answered))
    summary = {**classifier.origin.summary, "answers": {str(cluster): name for cluster, name in answers.items()}}
    if "naming" in summary:
        names = np.stack([renamed.names, *(best_matching(table) for table in tables[1:])])
        summary["naming"] = {**summary["naming"], **naming_figures(renamed, names)}
    new_names = [answers.get(cluster, labels.names[label]) for cluster, label in enumerate(renamed.names.tolist())]
    renamed_classifier = _bind(renamed, new_names, classifier)
    calibration = replace(renamed_classifier.calibration, temperature=classifier.calibration.temperature)
    return replace(
        classifier,
        head=renamed_classifier.head,
        labels=renamed_classifier.labels,
        label_embeddings=renamed_classifier.label_embeddings,
        calibration=calibration,
        origin=replace(classifier.origin, summary=summary),
    )


def _answered_labels(answers: Mapping[int, str], labels: Labels) -> dict[int, int]:
    """Return the labels that answers name, each label of the fit once: what matching can use."""
    labels_by_cluster: dict[int, int] = {}
    for cluster, name in answers.items():
        if name in labels.names and labels.index(name) not in labels_by_cluster.values():
            labels_by_cluster[cluster] = labels.index(name)
    return labels_by_cluster


def _one_spelling(answers: Mapping[int, str], labels: Labels) -> dict[int, str]:
    """Return names in the spelling of labels or earlier answers, if they differ in case alone."""
    same: dict[int, str] = {}
    for cluster, name in answers.items():
        same[cluster] = labels.find(name) or find_name(name, sorted(set(same.values()))) or normal_name(name)
    return same


def _bind(head: NamedHead, new_names: list[str], classifier: Classifier) -> Classifier:
    """Return a classifier, not yet calibrated, whose labels are the names of clusters; equal names are one label."""
    head = replace(head, parts=max(Counter(new_names).values()))
    rebound = bind(replace(head, parts=1), classifier.encoder, head.labels)
    if set(new_names) == set(head.labels.names):
        return rebound
    names = tuple(dict.fromkeys(sorted(new_names, key=(*head.labels.names, *new_names).index)))
    rows = [
        head.rows[head.names[[i for i, name_of_cluster in enumerate(new_names) if name_of_cluster == name]]]
        for name in names
    ]
    embeddings = np.stack([np.resize(own, (head.parts, own.shape[1])).ravel() for own in rows])
    calibration = Calibration.none(len(names), exclusive=head.exclusive, penalty=head.penalty)
    return replace(rebound, head=head, labels=Labels(names=names), label_embeddings=embeddings, calibration=calibration)


def settled_names(classifier: Classifier) -> Settled:
    """Return the certainty of the names of a ``zero_label`` classifier, including the answers of a person."""
    head = named_head(classifier)
    answers = {int(cluster): name for cluster, name in classifier.origin.summary.get("answers", {}).items()}
    settled_clusters = settle(head, _answered_labels(answers, head.labels))
    return replace(
        settled_clusters,
        worth=tuple(0.0 if row in answers else gain for row, gain in enumerate(settled_clusters.worth)),
    )


def named_head(classifier: Classifier) -> NamedHead:
    """Return the head of a classifier of ``zero_label``, or raise an error for any other."""
    if not isinstance(classifier.head, NamedHead):
        raise UnsupportedError(
            f"{classifier.kind} names no clusters; only method zero_label does. Fit with that method."
        )
    return classifier.head
