"""Restrict answers to labels that may occur, with their shares: a list by place, season or taxon. Scores stay the same."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from labelwise.core.classifier import Classifier
from labelwise.images.sources.delimited import read_fields
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise.support.files import read_text

SEPARATORS = r"[,;\t]"


@dataclass(frozen=True, kw_only=True)
class Occurring:
    """The labels that may occur."""

    shares: Mapping[str, float]  # the share of each label of the classifier
    has_shares: bool  # shares were given; they replace the shares of training
    unknown_names: tuple[str, ...]  # names that are not labels of the classifier


def read_occurring(file: str | Path, classifier: Classifier) -> Occurring:
    """Read the allowed labels: a ``.txt`` file with one name a line, or a table with the columns label and share.

    Names are matched without regard to case. A label that is not in the list, or has the share 0, does not occur.
    """
    path = Path(file)
    if path.suffix.lower() != ".txt":
        table = [(row["label"], row["share"]) for _, row in read_fields(path, "label", "share", noun="table of shares")]
        return _occurring(table, classifier, f'"{path}"', has_shares=True)
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f'Cannot read the names in "{path}" ({error}). Write one name per line.') from None
    return _occurring(_names(text), classifier, f'"{path}"', has_shares=False)


def parse_occurring(text: str, classifier: Classifier) -> Occurring:
    """Parse a list of allowed labels: one name a line, or a table whose first line is label,share."""
    lines = text.strip().splitlines()
    head = [cell.strip().casefold() for cell in re.split(SEPARATORS, lines[0])] if lines else []
    if sorted(head) != ["label", "share"]:
        return _occurring(_names(text), classifier, "This list", has_shares=False)
    separator = re.findall(SEPARATORS, lines[0])[0]
    rows = [row for row in csv.reader(lines[1:], delimiter=separator) if row]
    if wrong := next((row for row in rows if len(row) != len(head)), None):
        raise DataError(f'A line of this list is a label and its share; given "{separator.join(wrong)}".')
    label, share = head.index("label"), head.index("share")
    return _occurring([(row[label], row[share]) for row in rows], classifier, "This list", has_shares=True)


def _names(text: str) -> list[tuple[str, str]]:
    return [(line, "1") for line in text.splitlines() if line.strip()]


def _occurring(rows: Sequence[tuple[str, str]], classifier: Classifier, source: str, *, has_shares: bool) -> Occurring:
    """Return what rows of a name and a share allow; errors call the list ``source``."""
    shares: dict[str, float] = {}
    for name, text in rows:
        try:
            share = float(text)
        except ValueError:
            share = np.nan
        if not (np.isfinite(share) and share >= 0):
            raise DataError(f'A share is a number of at least 0; given "{text}" for "{name}" in {source}.')
        shares[name.strip()] = share
    label_shares = {classifier.labels.find(name) or "": share for name, share in shares.items() if share > 0}
    label_shares.pop("", None)
    unknown_names = tuple(name for name in shares if classifier.labels.find(name) is None)
    if not label_shares:
        names = classifier.labels.names
        hint = suggest(unknown_names[0], names) if unknown_names else ""
        raise DataError(f"{source} allows no label of this classifier.{hint} Labels: {listing(names)}.")
    return Occurring(shares=label_shares, has_shares=has_shares, unknown_names=unknown_names)


def restrict(classifier: Classifier, occurring: Occurring) -> Classifier:
    """Return the classifier with these labels only, weighted by their shares if given.

    Raw scores, and the probability of a yes to a label that is asked about on its own, do not change where no share is stated.
    """
    if not occurring.shares:
        raise UsageError("At least one label must be able to occur.")
    smaller = classifier.select([name for name in classifier.labels.names if name in occurring.shares])
    if not occurring.has_shares:
        return smaller
    calibration = smaller.calibration
    if calibration.multilabel:
        raise UsageError(
            "Several labels may be true of an image here, so shares do not compete: give a list of names (.txt)."
        )
    logs = np.log([occurring.shares[name] for name in smaller.labels.names])
    scale = calibration.scale / calibration.penalties()[0]
    return replace(smaller, calibration=calibration.with_prior(calibration.temperature * (logs - logs.mean()) / scale))
