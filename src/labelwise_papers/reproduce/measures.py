"""What can be measured of a cell: every measure by name, with its options and those of a quick run.

A measure takes a subject and its options and returns figures by name: numbers (rates in per cent), words, or lists for pictures.
It fits the subject's classifier by asking for it, or makes fits of its own with ``Subject.fit``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from labelwise.errors import UsageError, listing, suggest
from labelwise.settings import from_plain
from labelwise_papers.reproduce import described_measures as described
from labelwise_papers.reproduce import label_measures as labels
from labelwise_papers.reproduce import pair_measures as pairs
from labelwise_papers.reproduce import robust_measures as robust
from labelwise_papers.reproduce.label_measures import Figures, NoOptions
from labelwise_papers.reproduce.subject import Subject


@dataclass(frozen=True)
class Measure:
    """A function of a subject and options, the class of its options, and options that make it quick."""

    run: Callable[[Subject, Any], Figures]
    options: type[Any] = NoOptions
    quick: Mapping[str, Any] = field(default_factory=dict)


MEASURES: dict[str, Measure] = {
    "closed": Measure(labels.closed),
    "calibration": Measure(labels.calibration),
    "outliers": Measure(labels.outliers, labels.OutlierOptions, {"made": True}),
    "saliency": Measure(labels.saliency, labels.SaliencyOptions, {"images": 16}),
    "probe": Measure(labels.probe),
    "neighbours": Measure(labels.neighbours),
    "answers": Measure(labels.answers),
    "joint": Measure(labels.joint, labels.JointOptions, {"projection": "pca"}),
    "retrieval": Measure(pairs.retrieval, pairs.RetrievalOptions),
    "verification": Measure(pairs.verification, pairs.VerificationOptions, {"pairs": 500}),
    "episodes": Measure(pairs.episodes, pairs.EpisodesOptions, {"ways": 2, "queries": 2, "count": 3}),
    "domains": Measure(robust.domains, robust.DomainsOptions, {"every": 1}),
    "robustness": Measure(
        robust.robustness, robust.RobustnessOptions, {"images": 4, "adaptive_steps": 2, "queries": 2}
    ),
    "zero_shot": Measure(described.zero_shot),
    "named": Measure(described.named),
    "asked": Measure(described.asked, described.AskedOptions),
    "ordinal": Measure(described.ordinal),
    "toy": Measure(described.toy, described.ToyOptions, {"steps": 2}),
}


def check_measures(names: Iterable[str], options: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Raise an error for measures or options that there are not."""
    for name in [*names, *options]:
        if name not in MEASURES:
            raise UsageError(
                f'Row "{where}": no measure "{name}".{suggest(name, MEASURES)} Measures: {listing(MEASURES, 40)}.'
            )
    for name, values in options.items():
        from_plain(MEASURES[name].options, values, f"options.{name}.")


def measure(subject: Subject, names: Iterable[str], options: Mapping[str, Mapping[str, Any]]) -> Figures:
    """Return all figures of a subject."""
    found: Figures = {}
    for name in names:
        chosen = MEASURES[name]
        found |= chosen.run(subject, from_plain(chosen.options, options.get(name, {}), f"options.{name}."))
    return found
