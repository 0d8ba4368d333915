"""How much more probable a frequent label is: a prior, as strong as images left out bear it out.

Scores s of a method know nothing of how many images a label has. With n images of a label, N in all, and k labels,

    p(label | image) ~ exp(s / T) ((n + 1) / (N + k))^tau

where tau is 0 (all labels alike) to 1 (as Bayes has it), and T and tau are those under which training images left out are likeliest: a
covariance that all labels share makes scores too sure, and then less than 1 is right. One image more of each label keeps a label of few
images possible. Frequencies that a user states take the place of the data's, and images count as often as they say.

A cost says how many times worse it is to miss a label. To answer with the least expected cost is to answer as if the label were as many
times as frequent: Elkan, "The foundations of cost-sensitive learning", IJCAI 2001.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from labelwise.core.arrays import Array, softmax
from labelwise.core.platt import fit_temperature
from labelwise.images.describe.labels import Labels
from labelwise.images.sources.csv_files import read_fields
from labelwise.support.errors import DataError, listing, suggest

EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class PriorWish:
    """Which prior a user asks for."""

    equal: bool = False  # labels are equally frequent, and cost the same
    shares: Array | None = None  # how frequent labels are where the classifier is used [k]; None: as in training
    costs: Array | None = None  # how many times worse it is to miss each label [k]; None: all alike

    @classmethod
    def of(cls, prior: str, costs: str | None, labels: Labels) -> Self:
        """Return the wish of settings: ``prior`` is data, equal or a table of label and share, ``costs`` a table of label and cost.

        Where labels state their shares (labels.csv), these are the data's.
        """
        of_labels = None if costs is None else read_numbers(costs, labels, "cost")
        if prior == "equal":
            return cls(equal=of_labels is None, shares=np.ones(len(labels)) / len(labels), costs=of_labels)
        shares = labels.shares if prior == "data" else read_numbers(prior, labels, "share")
        return cls(shares=None if shares is None else shares / shares.sum(), costs=of_labels)


DATA = PriorWish()


@dataclass(frozen=True, eq=False, kw_only=True)
class Prior:
    """What is added to the scores of labels."""

    values: Array  # [k], in units of scores
    kind: str  # data or stated
    exponent: float  # tau

    def about(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return what a classifier keeps of it: how many points of score each label is ahead."""
        return {
            "kind": self.kind,
            "exponent": self.exponent,
            "ahead": dict(zip(names, self.values.round(4).tolist(), strict=True)),
        }


def choose_prior(
    scores: Array, targets: Array, counts: Array, wish: PriorWish = DATA, weights: Array | None = None
) -> Prior:
    """Return the prior under which images left out are likeliest.

    Args:
        scores: of images left out ``[n, k]``.
        targets: their labels ``[n]``.
        counts: how many training images each label has ``[k]``.
        wish: what a user states.
        weights: how much each image counts ``[n]``; None: all alike.
    """
    trained = (counts + 1) / (counts.sum() + len(counts))
    # a label of share 0 stays possible
    shares = trained if wish.shares is None else np.maximum(wish.shares, 0.5 * trained.min())
    counted = (shares / trained)[targets] * (1.0 if weights is None else weights)
    shift = np.log(shares) - np.log(shares).mean()
    trials = []
    for exponent in EXPONENTS:
        temperature = fit_temperature(scores, targets, counted, exponent * shift)
        likely = softmax(scores.astype(np.float64) / temperature + exponent * shift)[np.arange(len(targets)), targets]
        loss = float(np.average(-np.log(np.maximum(likely, 1e-12)), weights=counted))
        trials.append((round(loss, 4), exponent, temperature))  # rounding must not choose: of equals the least
    _, exponent, temperature = min(trials)
    values = exponent * shift + (0.0 if wish.costs is None else np.log(np.maximum(wish.costs, 1e-12)))
    return Prior(values=temperature * values, kind="data" if wish.shares is None else "stated", exponent=exponent)


def read_numbers(file: str | Path, labels: Labels, column: str) -> Array:
    """Return the number of each label ``[k]`` from a table with the columns label and ``column``, such as share or cost."""
    numbers: dict[str, float] = {}
    for place, row in read_fields(Path(file), "label", column, what=f"table of {column}s"):
        name, where = row["label"].strip(), f'Row {place} of "{file}"'
        if name not in labels.names:
            raise DataError(
                f'{where}: there is no label "{name}".{suggest(name, labels.names)} Labels: {listing(labels.names)}.'
            )
        try:
            numbers[name] = float(row[column])
        except ValueError:
            numbers[name] = np.nan
        if not (np.isfinite(numbers[name]) and numbers[name] >= 0):
            raise DataError(f'{where}: a {column} is a number of at least 0; given "{row[column]}".')
    if missing := [name for name in labels.names if name not in numbers]:
        raise DataError(f'"{file}" has no row for: {listing(missing)}. Give every label a {column}.')
    values = np.array([numbers[name] for name in labels.names])
    if not values.sum():
        raise DataError(f'Every {column} in "{file}" is 0. At least one must be larger.')
    return values
