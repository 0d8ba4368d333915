"""The label prior: how much more probable a frequent label is, with its strength chosen by leave-one-out.

Scores s of a method ignore label frequencies. With n images of a label, N in all, and k labels,

    p(label | image) ~ exp(s / T) ((n + 1) / (N + k))^tau

where tau ranges from 0 (a uniform prior) to 1 (Bayes' rule). T and tau maximise the leave-one-out likelihood. A shared
covariance makes scores overconfident, and then tau below 1 is best. One extra image of each label keeps rare labels
possible. Frequencies stated by the user replace those of the data, and reweight the images.

A cost says how many times worse it is to miss a label. The least expected cost is reached by scaling the label's
frequency by its cost: Elkan, "The foundations of cost-sensitive learning", IJCAI 2001.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from labelwise.core.arrays import Array, softmax
from labelwise.core.platt import fit_temperature
from labelwise.images.describe.labels import Labels
from labelwise.images.sources.delimited import read_fields
from labelwise.support.errors import DataError, listing, suggest

EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class PriorWish:
    """The prior that a user requests."""

    equal: bool = False  # a uniform prior, with equal costs
    shares: Array | None = None  # label frequencies in use [k]; None: as in training
    costs: Array | None = None  # cost of missing each label [k]; None: equal

    @classmethod
    def of(cls, prior: str, costs: str | None, labels: Labels) -> Self:
        """Read settings: ``prior`` is data, equal or a table of label and share; ``costs`` is a table of label and cost.

        Shares in labels.csv replace the frequencies of the data.
        """
        of_labels = None if costs is None else read_numbers(costs, labels, "cost")
        if prior == "equal":
            return cls(equal=of_labels is None, shares=np.ones(len(labels)) / len(labels), costs=of_labels)
        shares = labels.shares if prior == "data" else read_numbers(prior, labels, "share")
        return cls(shares=None if shares is None else shares / shares.sum(), costs=of_labels)


DATA = PriorWish()


@dataclass(frozen=True, eq=False, kw_only=True)
class Prior:
    """The offsets added to label scores."""

    values: Array  # [k], in units of scores
    kind: str  # data or stated
    exponent: float  # tau

    def summary(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the record that a classifier keeps: the offset of each label."""
        return {
            "kind": self.kind,
            "exponent": self.exponent,
            "ahead": dict(zip(names, self.values.round(4).tolist(), strict=True)),
        }


def choose_prior(
    scores: Array, targets: Array, counts: Array, request: PriorWish = DATA, weights: Array | None = None
) -> Prior:
    """Choose the prior that maximises the leave-one-out likelihood.

    Args:
        scores: leave-one-out scores ``[n, k]``.
        targets: their labels ``[n]``.
        counts: training images of each label ``[k]``.
        request: the prior requested by the user.
        weights: of images ``[n]``; None: equal.
    """
    train_shares = (counts + 1) / (counts.sum() + len(counts))
    # a label of share 0 stays possible
    shares = train_shares if request.shares is None else np.maximum(request.shares, 0.5 * train_shares.min())
    weights_by_share = (shares / train_shares)[targets] * (1.0 if weights is None else weights)
    shift = np.log(shares) - np.log(shares).mean()
    trials = []
    for exponent in EXPONENTS:
        temperature = fit_temperature(scores, targets, weights_by_share, exponent * shift)
        likely = softmax(scores.astype(np.float64) / temperature + exponent * shift)[np.arange(len(targets)), targets]
        loss = float(np.average(-np.log(np.maximum(likely, 1e-12)), weights=weights_by_share))
        trials.append((round(loss, 4), exponent, temperature))  # among ties, the smallest, whatever the rounding
    _, exponent, temperature = min(trials)
    values = exponent * shift + (0.0 if request.costs is None else np.log(np.maximum(request.costs, 1e-12)))
    return Prior(values=temperature * values, kind="data" if request.shares is None else "stated", exponent=exponent)


def read_numbers(file: str | Path, labels: Labels, column: str) -> Array:
    """Read a number for each label ``[k]`` from a table with the columns label and ``column``, such as share or cost."""
    numbers: dict[str, float] = {}
    for place, row in read_fields(Path(file), "label", column, noun=f"table of {column}s"):
        name, place_in_file = row["label"].strip(), f'Row {place} of "{file}"'
        if name not in labels.names:
            raise DataError(
                f'{place_in_file}: there is no label "{name}".{suggest(name, labels.names)} Labels: {listing(labels.names)}.'
            )
        try:
            numbers[name] = float(row[column])
        except ValueError:
            numbers[name] = np.nan
        if not (np.isfinite(numbers[name]) and numbers[name] >= 0):
            raise DataError(f'{place_in_file}: a {column} is a number of at least 0; given "{row[column]}".')
    if missing := [name for name in labels.names if name not in numbers]:
        raise DataError(f'"{file}" has no row for: {listing(missing)}. Give every label a {column}.')
    values = np.array([numbers[name] for name in labels.names])
    if not values.sum():
        raise DataError(f'Every {column} in "{file}" is 0. At least one must be larger.')
    return values
