"""Measures on labels that training never saw: verification, retrieval, and new labels from a few images."""

from dataclasses import dataclass

from labelwise.evaluate.episodes import EpisodeSettings, evaluate_many_episodes
from labelwise.evaluate.retrieval import KS, evaluate_retrieval
from labelwise.evaluate.verification import PAIRS, evaluate_verification
from labelwise.tasks.similarity import By
from labelwise_papers.reproduce.label_measures import Figures
from labelwise_papers.reproduce.subject import Subject


@dataclass(frozen=True, kw_only=True)
class RetrievalOptions:
    """How many first answers to look at."""

    ks: tuple[int, ...] = KS


@dataclass(frozen=True, kw_only=True)
class VerificationOptions:
    """By which scores pairs are told apart, and how many pairs of each kind at most."""

    by: tuple[By, ...] = ("cosine", "similarity", "sum")
    pairs: int = PAIRS


@dataclass(frozen=True, kw_only=True)
class EpisodesOptions:
    """Which few-shot episodes; one figure for each number of shots."""

    ways: int = 5
    shots: tuple[int, ...] = (1, 5)
    queries: int = 15
    count: int = 600


def retrieval(subject: Subject, options: RetrievalOptions) -> Figures:
    """Return recall at each k as ``R@k``, and the mean average precision at R."""
    found = evaluate_retrieval(subject.tested, ks=options.ks)
    return {f"R@{k}": 100 * share for k, share in found.recall.items()} | {"MAP@R": 100 * found.precision_at_r}


def verification(subject: Subject, options: VerificationOptions) -> Figures:
    """Return the equal error rate of pairs of test images by each score, as ``EER score``."""
    figures: Figures = {}
    for by in options.by:
        found = evaluate_verification(subject.tested, by=by, most=options.pairs)
        figures |= {f"EER {by}": 100 * found.eer, f"AUROC {by}": 100 * found.auroc}
    return figures


def episodes(subject: Subject, options: EpisodesOptions) -> Figures:
    """Return the accuracy of few-shot episodes as ``n-shot``, by nearest means and by cosine, with 95 % intervals."""
    settings = [
        EpisodeSettings(
            ways=options.ways, shots=shots, queries=options.queries, count=options.count, seed=subject.run.seed
        )
        for shots in options.shots
    ]
    figures: Figures = {}
    for found in evaluate_many_episodes(subject.tested, settings):
        name = f"{found.settings.shots}-shot"
        for way, estimate in found.accuracy.items():
            words = name if way == "taught" else f"{name}, {way}"
            figures |= {words: 100 * estimate.mean, f"{words} (interval)": 100 * estimate.error}
    return figures
