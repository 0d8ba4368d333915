"""The table of protocols: when each applies, its function and its title.

Images are encoded once (``Evaluation``). A protocol is one function of their scores and the truth, and returns a record of figures.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelwise.core.calibration import Sign
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.episodes import EpisodeResult, EpisodeSettings, evaluate_episodes
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.multilabel import evaluate_multilabel
from labelwise.evaluation.ordinal import evaluate_ordinal, find_order
from labelwise.evaluation.outliers import OutlierResult, evaluate_outliers
from labelwise.evaluation.promises import measure_promises
from labelwise.evaluation.retrieval import KS, RetrievalResult, evaluate_retrieval
from labelwise.evaluation.verification import PAIRS, VerificationResult, evaluate_verification
from labelwise.evaluation.zero_shot import evaluate_zero_shot
from labelwise.support.errors import DataError, UnsupportedError, UsageError, listing, suggest
from labelwise.support.rows import draw_rows
from labelwise.support.text import FIGURES
from labelwise.tasks.similarity import By, known_scores
from labelwise.tasks.verify import can_verify

COMPARED = 2_000  # images whose pairs are compared, at most
QUERIES, MOST_WAYS = 15, 5  # of an episode


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """One way to measure a classifier."""

    name: str  # the key of its record
    title: str  # for people
    reason: Callable[[Evaluation], str]  # why it does not apply, in words; empty where it does
    run: Callable[..., Any]  # takes an evaluation and options, returns the record
    usual: bool = True  # whether it runs without being asked for
    prefix: str = ""  # of its figures in ``words.FIGURES``

    def word(self, figure: str) -> str:
        """Return how a figure of the record is called for people."""
        return FIGURES[self.prefix + figure]


def run_protocols(
    evaluation: Evaluation,
    names: Iterable[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the records of the protocols that apply, and why others do not.

    The usual protocols run, and those named. Of labels that the classifier does not know, only comparing and learning them can
    be measured, so these protocols run then. ``options`` are options of protocols, by name.
    """
    requested = set(names)
    for name in requested - set(PROTOCOLS):
        raise UsageError(f'No protocol "{name}".{suggest(name, PROTOCOLS)} Protocols: {listing(PROTOCOLS)}.')
    new = all_new(evaluation)
    records: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for protocol in PROTOCOLS.values():
        if protocol.name not in requested and protocol.usual == new:
            continue
        reason = protocol.reason(evaluation)
        if not reason:
            try:
                records[protocol.name] = protocol.run(evaluation, **(options or {}).get(protocol.name, {}))
            except (DataError, UnsupportedError, UsageError) as error:
                reason = str(error)
        if reason:
            reasons[protocol.name] = reason
    return records, reasons


def all_new(evaluation: Evaluation) -> bool:
    """Return whether the classifier knows not one label of these images, each of which has one."""
    used_names = [] if evaluation.multilabel else [evaluation.labels.names[i] for i in evaluation.split.present]
    classifier = evaluation.classifier
    return bool(used_names) and not set(used_names) & {*classifier.labels.names, *classifier.head.labels.names}


def measure_verification(
    evaluation: Evaluation, *, scores: Sequence[By] = (), most: int = COMPARED, pairs: int = PAIRS, seed: int = 0
) -> dict[By, VerificationResult]:
    """Return how well same-label pairs are separated from others, by each score of the model or by some."""
    some, scores = _some(evaluation, most, seed), scores or known_scores(evaluation.classifier.head)
    return {by: evaluate_verification(some, by=by, most=pairs, seed=seed) for by in scores}


def measure_retrieval(
    evaluation: Evaluation,
    *,
    scores: Sequence[By] = (),
    most: int = COMPARED,
    ks: Sequence[int] = KS,
    seed: int = 0,
) -> dict[By, RetrievalResult]:
    """Return how well images find others of their label, by each score that the model knows, or by some."""
    some, scores = _some(evaluation, most, seed), scores or known_scores(evaluation.classifier.head)
    return {by: evaluate_retrieval(some, by=by, ks=ks) for by in scores}


def measure_episodes(
    evaluation: Evaluation, *, settings: Sequence[EpisodeSettings] = (), seed: int = 0
) -> list[EpisodeResult]:
    """Return how well new labels are learnt in episodes; without settings from one image and from five, as far as there are enough."""
    if settings:
        return [evaluate_episodes(evaluation, setting) for setting in settings]
    targets = np.asarray(evaluation.split.targets)
    sizes = np.bincount(targets[targets >= 0])
    results = []
    for shots in (1, 5):
        ways = min(MOST_WAYS, int((sizes >= shots + QUERIES).sum()))
        if ways >= 2:
            usual = EpisodeSettings(ways=ways, shots=shots, queries=QUERIES, seed=seed)
            results.append(evaluate_episodes(evaluation, usual))
    return results


def _some(evaluation: Evaluation, most: int, seed: int) -> Evaluation:
    """Return the labelled images, or ``most`` of them drawn at random."""
    evaluation = evaluation.own_labelled()
    if len(evaluation) <= most:
        return evaluation
    return evaluation[draw_rows(len(evaluation), most, seed)]


def _measure_outliers(evaluation: Evaluation, *, sign: Sign = "both") -> OutlierResult:
    assert evaluation.outliers is not None
    return evaluate_outliers(evaluation.scores, evaluation.outliers, sign=sign)


SEVERAL = "Several labels may be true of one image"


def _one_label(evaluation: Evaluation) -> str:
    return f"{SEVERAL}." if evaluation.multilabel else ""


def _several_labels(evaluation: Evaluation) -> str:
    return "" if evaluation.multilabel else "Each image has one label."


def _has_outliers(evaluation: Evaluation) -> str:
    return "" if evaluation.outliers is not None else "Needs out-of-distribution images (--unknown)."


def _has_unseen(evaluation: Evaluation) -> str:
    if evaluation.multilabel:
        return f"{SEVERAL}, so seen and unseen labels do not compete."
    if not evaluation.classifier.unseen:
        return "Every label of this classifier has training images."
    return ""


def _has_order(evaluation: Evaluation) -> str:
    if evaluation.multilabel or evaluation.classifier.calibration.multilabel:
        return f"{SEVERAL}, so they have no level."
    return "" if find_order(evaluation.classifier, evaluation.labels) else "The labels have no order."


def _has_pairs(evaluation: Evaluation) -> str:
    if evaluation.multilabel:
        return f"{SEVERAL}, so pairs are neither same nor different."
    return "" if can_verify(evaluation.split.targets) else "Pairs need two images of one label and one of another."


PROTOCOLS: Mapping[str, Protocol] = {
    one.name: one
    for one in (
        Protocol(name="closed", title="One label per image", reason=_one_label, run=evaluate_closed),
        Protocol(name="multilabel", title="Yes or no for each label", reason=_several_labels, run=evaluate_multilabel),
        Protocol(
            name="unknown",
            title="Out-of-distribution images",
            reason=_has_outliers,
            run=_measure_outliers,
            prefix="unknown_",
        ),
        Protocol(name="promises", title="Promised and measured", reason=_one_label, run=measure_promises),
        Protocol(name="zero_shot", title="Seen and unseen labels", reason=_has_unseen, run=evaluate_zero_shot),
        Protocol(name="ordinal", title="Ordered labels", reason=_has_order, run=evaluate_ordinal),
        Protocol(
            name="verification",
            title="Same or different",
            reason=_has_pairs,
            run=measure_verification,
            usual=False,
            prefix="pair_",
        ),
        Protocol(name="retrieval", title="Retrieval", reason=_has_pairs, run=measure_retrieval, usual=False),
        Protocol(
            name="episodes", title="New labels from a few images", reason=_one_label, run=measure_episodes, usual=False
        ),
    )
}
