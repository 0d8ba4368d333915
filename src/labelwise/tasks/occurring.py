"""Which labels may occur, and how often: a list by place, season or taxon. It changes answers, and no score."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from labelwise.core.classifier import Classifier
from labelwise.images.sources.delimited import read_fields
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise.support.files import read_text


@dataclass(frozen=True, kw_only=True)
class Occurring:
    """The labels that may occur."""

    shares: Mapping[str, float]  # how frequent each is, of labels of the classifier alone
    stated: bool  # whether shares were given: they take the place of those of training
    others: tuple[str, ...]  # names that are no label of the classifier


def read_occurring(file: str | Path, classifier: Classifier) -> Occurring:
    """Return the labels that a list allows: a ``.txt`` file with one name a line, or a table with the columns label and share.

    Names are matched without regard to case. A label that is not in the list, or has the share 0, does not occur.
    """
    path = Path(file)
    stated = path.suffix.lower() != ".txt"
    if stated:
        rows = [
            (row["label"].strip(), row["share"])
            for _, row in read_fields(path, "label", "share", what="table of shares")
        ]
    else:
        try:
            rows = [(line.strip(), "1") for line in read_text(path).splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f'Cannot read the names in "{path}" ({error}). Write one name per line.') from None
    shares: dict[str, float] = {}
    for name, text in rows:
        try:
            share = float(text)
        except ValueError:
            share = np.nan
        if not (np.isfinite(share) and share >= 0):
            raise DataError(f'A share is a number of at least 0; given "{text}" for "{name}" in "{path}".')
        shares[name] = share
    known = {classifier.labels.find(name) or "": share for name, share in shares.items() if share > 0}
    known.pop("", None)
    others = tuple(name for name in shares if classifier.labels.find(name) is None)
    if not known:
        names = classifier.labels.names
        hint = suggest(others[0], names) if others else ""
        raise DataError(f'"{path}" allows no label of this classifier.{hint} Labels: {listing(names)}.')
    return Occurring(shares=known, stated=stated, others=others)


def restrict(classifier: Classifier, occurring: Occurring) -> Classifier:
    """Return the classifier that answers with these labels only, weighed by their shares where these are stated.

    Raw scores, and the probability of a yes to a label that is asked about on its own, do not change where no share is stated.
    """
    if not occurring.shares:
        raise UsageError("At least one label must be able to occur.")
    smaller = classifier.select([name for name in classifier.labels.names if name in occurring.shares])
    if not occurring.stated:
        return smaller
    calibration = smaller.calibration
    if calibration.multilabel:
        raise UsageError(
            "Several labels may be true of an image here, so shares do not compete: give a list of names (.txt)."
        )
    logs = np.log([occurring.shares[name] for name in smaller.labels.names])
    scale = calibration.scale / calibration.penalties()[0]
    return replace(smaller, calibration=calibration.with_prior(calibration.temperature * (logs - logs.mean()) / scale))
