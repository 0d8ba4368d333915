"""The measures that recipes name, and their options.

A measure is a function of a subject that returns figures by name: numbers (rates in per cent), words, or lists for plots. Its other
parameters are options. It uses the subject's classifier, which is fitted once, or makes fits of its own.
"""

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, make_dataclass
from functools import cache
from inspect import signature
from typing import Any

from labelwise.support.errors import LabelwiseError, UsageError, listing, suggest
from labelwise.support.settings import from_plain
from labelwise_papers.reproduce import new_labels, seen_labels
from labelwise_papers.reproduce.subject import Figures, Subject

MEASURES: Mapping[str, Callable[..., Figures]] = {
    run.__name__: run
    for run in (
        seen_labels.closed, seen_labels.best_epoch, seen_labels.calibration, seen_labels.outliers, seen_labels.saliency,
        seen_labels.probe, seen_labels.neighbours, seen_labels.answers, seen_labels.joint, new_labels.retrieval,
        new_labels.verification, new_labels.episodes, seen_labels.domains, seen_labels.robustness, new_labels.zero_shot,
        new_labels.named, new_labels.named_with_labels, new_labels.objective, new_labels.asked, new_labels.ordinal,
        new_labels.toy,
    )
}  # fmt: skip

QUICK: Mapping[str, Mapping[str, Any]] = {  # options that make a measure quick
    "outliers": {"made": True},
    "saliency": {"images": 16},
    "joint": {"projection": "pca"},
    "verification": {"pairs": 500},
    "episodes": {"ways": 2, "queries": 2, "count": 3},
    "domains": {"every": 1},
    "robustness": {"images": 4, "adaptive_steps": 2, "queries": 2},
    "objective": {"searches": 2},
    "toy": {"steps": 2},
}


@cache
def _options_of(name: str) -> type[Any]:
    """Return the options of a measure as a class, whose values ``from_plain`` checks."""
    _, *options = signature(MEASURES[name], eval_str=True).parameters.values()
    return make_dataclass(name, [(one.name, one.annotation, field(default=one.default)) for one in options])


def check_measures(names: Iterable[str], options: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Raise an error for measures or options that there are not."""
    for name in [*names, *options]:
        if name not in MEASURES:
            raise UsageError(
                f'Row "{where}": no measure "{name}".{suggest(name, MEASURES)} Measures: {listing(MEASURES, 40)}.'
            )
    for name, values in options.items():
        from_plain(_options_of(name), values, f"options.{name}.")


def measure(
    subject: Subject, names: Iterable[str], options: Mapping[str, Mapping[str, Any]]
) -> tuple[Figures, dict[str, str]]:
    """Return all figures of a subject, and why measures failed by name: what is trained is not lost by one of them."""
    figures: Figures = {}
    failed: dict[str, str] = {}
    for name in names:
        values = from_plain(_options_of(name), options.get(name, {}), f"options.{name}.")
        try:
            figures |= MEASURES[name](subject, **vars(values))
        except Exception as error:
            if "classifier" not in vars(subject):
                raise
            failed[name] = str(error) if isinstance(error, LabelwiseError) else traceback.format_exc()
    return figures, failed
