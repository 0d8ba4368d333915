"""Ways to divide or label a benchmark, as functions of its records; each is cheap, since nothing is decoded yet."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from labelwise.images.dataset import Array
from labelwise.images.split.make import Shares, hold_out_domain, leave_one_domain_out, strata, stratify
from labelwise_papers.benchmarks.records import Records

Protocol = Callable[[Records, int], Records]
CIFAR_FS_TEST = """baby bed bicycle chimpanzee fox leopard man pickup_truck plain poppy rocket rose snail sweet_pepper table
    telephone wardrobe whale woman worm"""
CIFAR_FS_VALIDATION = """otter motorcycle television lamp crocodile shark butterfly beaver beetle tractor flatfish maple_tree
    camel crab sea cattle"""


def standard(records: Records, seed: int) -> Records:
    """Return the records with their official split, or divided 70/10/20 within each label and domain."""
    if len(records.splits):
        return records
    return _divided(records, stratify(strata(_targets(records), records.domains), Shares(), seed))


def labelled(records: Records, seed: int) -> Records:
    """Return the images that have a label."""
    return standard(records.select([i for i, target in enumerate(records.targets) if target >= 0]), seed)


def second_labels(records: Records, seed: int) -> Records:
    """Return the records with their second labelling: superclasses, species, years."""
    return standard(replace(records, names=records.other_names, targets=records.other_targets), seed)


def first_labels(count: int) -> Protocol:
    """Return the protocol that keeps the first ``count`` labels."""
    return lambda records, seed: standard(records.keep(range(min(count, len(records.names)))), seed)


def squashed(protocol: Protocol) -> Protocol:
    """Return a protocol with images stretched to squares, nothing cut off."""
    return lambda records, seed: replace(protocol(records, seed), fit="stretch")


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


def few_shot(records: Records, seed: int) -> Records:  # noqa: ARG001
    """Return CIFAR-FS (Bertinetto et al., 2019): all images of 64 labels of CIFAR-100 train, those of 20 others test; 16 are left out."""
    new, unused = CIFAR_FS_TEST.split(), CIFAR_FS_VALIDATION.split()
    used = records.keep([place for place, name in enumerate(records.names) if name.replace(" ", "_") not in unused])
    names = [name.replace(" ", "_") for name in used.names]
    return replace(used, splits=["test" if names[int(target)] in new else "train" for target in used.targets])


def leave_out(domain: str) -> Protocol:
    """Return the protocol that tests on one domain; a tenth of each label of the others is val, the rest train."""
    return lambda records, seed: _divided(records, hold_out_domain(_targets(records), records.domains, domain, seed))


def hold_out_fold(fold: str) -> Protocol:
    """Return the protocol that tests on one official fold and trains on the others; folds are given as domains."""
    return lambda records, _: replace(_divided(records, leave_one_domain_out(records.domains, fold)), domains=())


def _divided(records: Records, parts: dict[str, Array]) -> Records:
    """Return the records with the rows of each split."""
    splits = np.empty(len(records), dtype="U5")
    for name, rows in parts.items():
        splits[rows] = name
    return replace(records, splits=splits.tolist())


def _targets(records: Records) -> Array:
    return np.asarray(records.targets, dtype=np.int64)
