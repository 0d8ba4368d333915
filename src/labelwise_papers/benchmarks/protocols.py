"""Ways to divide or label a benchmark, as functions of its records; each is cheap, since nothing is decoded yet."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from labelwise.data.split.make import Shares, split_off, stratified
from labelwise.errors import DataError, listing
from labelwise_papers.benchmarks.records import Records

Protocol = Callable[[Records, int], Records]
VALIDATION_SHARE = 0.1


def standard(records: Records, seed: int) -> Records:
    """Return the records with their official split, or divided 70/10/20 within each label and domain."""
    if len(records.splits):
        return records
    parts = stratified(_strata(records), Shares(), seed)
    splits = np.empty(len(records), dtype="U5")
    for name, rows in parts.items():
        splits[rows.numpy()] = name
    return replace(records, splits=splits.tolist())


def labelled(records: Records, seed: int) -> Records:
    """Return the pictures that have a label."""
    return standard(records.select([i for i, target in enumerate(records.targets) if target >= 0]), seed)


def second_labels(records: Records, seed: int) -> Records:
    """Return the records with their second labelling: superclasses, species, years."""
    return standard(replace(records, names=records.other_names, targets=records.other_targets), seed)


def first_labels(count: int) -> Protocol:
    """Return the protocol that keeps the first ``count`` labels."""
    return lambda records, seed: standard(records.keep(range(min(count, len(records.names)))), seed)


def squashed(protocol: Protocol) -> Protocol:
    """Return a protocol with pictures stretched to squares, nothing cut off."""
    return lambda records, seed: replace(protocol(records, seed), fit="squash")


def labels_starting_with(word: str) -> Protocol:
    """Return the protocol that keeps the labels whose name begins with a word."""
    return lambda records, seed: standard(
        records.keep([i for i, name in enumerate(records.names) if name.startswith(word)]), seed
    )


def retrieval(records: Records, seed: int) -> Records:  # noqa: ARG001
    """Return the records with the first half of the labels as train and the other half as test."""
    half = len(records.names) // 2
    return replace(records, splits=["train" if target < half else "test" for target in records.targets])


def retrieval_trial(records: Records, seed: int) -> Records:
    """Return the labels that retrieval trains on, every fifth as test: where settings are compared, nothing of its test labels is there."""
    known = records.keep(range(len(records.names) // 2))
    return replace(known, splits=["test" if (target + seed) % 5 == 0 else "train" for target in known.targets])


def leave_out(domain: str) -> Protocol:
    """Return the protocol that tests on one domain; a tenth of each label of the others is val, the rest train."""

    def protocol(records: Records, seed: int) -> Records:
        splits = np.array(_tested(records, domain), dtype="U5")
        others = np.flatnonzero(splits == "train")
        _, val = split_off(_strata(records.select(others.tolist())), VALIDATION_SHARE, seed)
        splits[others[val.numpy()]] = "val"
        return replace(records, splits=splits.tolist())

    return protocol


def hold_out_fold(fold: str) -> Protocol:
    """Return the protocol that tests on one official fold and trains on the others; folds are given as domains."""
    return lambda records, _: replace(records, splits=_tested(records, fold), domains=())


def _tested(records: Records, domain: str) -> list[str]:
    """Return "test" for the pictures of a domain, which must be there, and "train" for others."""
    if domain not in records.domains:
        raise DataError(f'There is no picture of "{domain}". There are: {listing(sorted(set(records.domains)))}.')
    return ["test" if own == domain else "train" for own in records.domains]


def _strata(records: Records) -> torch.Tensor:
    """Return one number for each label, or each pair of label and domain ``[n]``."""
    targets = torch.as_tensor(np.asarray(records.targets, dtype=np.int64))
    if not len(records.domains):
        return targets
    known = {name: i for i, name in enumerate(sorted(set(records.domains)))}
    return targets * len(known) + torch.tensor([known[name] for name in records.domains])
