"""A data set divided anew in one of the known ways."""

from torch import Tensor

from labelwise.data.dataset import Dataset
from labelwise.data.split.leaks import refuse_leaks
from labelwise.data.split.split_files import pool, resplit
from labelwise.data.split.splits import Shares, grouped, leave_one_domain_out, split_off, stratified, zero_shot
from labelwise.errors import DataError, UsageError, listing, suggest

KINDS = ("stratified", "grouped", "domain", "zero-shot")


def divide(dataset: Dataset, kind: str = "stratified", held: str | None = None, seed: int = 0) -> Dataset:
    """Return the data set divided anew; one that leaks is refused.

    Args:
        dataset: all its images are pooled first.
        kind: ``stratified`` (each label divided), ``grouped`` (no group on two sides), ``domain`` (one domain is the
            test split), or ``zero-shot`` (a fifth of the labels is unseen in training).
        held: the domain to hold out, where the kind is ``domain``.
        seed: of the draw.
    """
    whole = pool(dataset)
    if kind == "stratified":
        rows = stratified(whole.strata, Shares(), seed)
    elif kind == "grouped":
        if not whole.groups:
            raise DataError(f'"{dataset.name}" has no groups. Add a column "group" to its table.')
        rows = grouped(whole.groups, whole.strata, Shares(), seed)
    elif kind == "domain":
        rows = _domain(whole.domains, held, dataset.name)
        kept, val = split_off(whole.strata[rows["train"]], 0.1, seed)
        rows = {"train": rows["train"][kept], "val": rows["train"][val], "test": rows["test"]}
    elif kind == "zero-shot" and dataset.multilabel:
        raise UsageError(
            f'Several labels may be true of one image of "{dataset.name}", so none can be unseen as a whole.'
        )
    elif kind == "zero-shot":
        rows = dict(zero_shot(whole.targets, dataset.labels.names, seed=seed).splits)
    else:
        raise UsageError(f'No kind of split "{kind}".{suggest(kind, KINDS)} Kinds: {listing(KINDS)}.')
    done = resplit(dataset, rows)
    refuse_leaks(done)
    return done


def _domain(domains: tuple[str, ...], held: str | None, name: str) -> dict[str, Tensor]:
    known = sorted(set(domains))
    if not known:
        raise DataError(f'"{name}" has no domains. Add a column "domain" to its table.')
    if held is None:
        raise UsageError(f"Say which domain to hold out with --held. Domains: {listing(known)}.")
    return dict(leave_one_domain_out(domains, held))
