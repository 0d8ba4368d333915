"""One pass over pictures of shards before they are used: those that cannot be read are left out and named."""

from collections.abc import Sequence
from dataclasses import replace

from labelwise.data.dataset import Dataset, Skipped
from labelwise.data.read.readable import check_read
from labelwise.model import LabelModel
from labelwise.nn.encoder import ImageEncoder
from labelwise.streams import stream_of


def readable_for(model: LabelModel, data: Dataset) -> Dataset:
    """Return what ``readable`` does, with the features of a model's encoder where that is not trained."""
    encoders = [each for each in model.modules() if isinstance(each, ImageEncoder)]
    return readable(data, encoder=encoders[0] if len(encoders) == 1 and data.shape == model.spec.shape else None)


def readable(
    data: Dataset, splits: Sequence[str] = (), encoder: ImageEncoder | None = None, *, strict: bool = False
) -> Dataset:
    """Return the data without pictures of shards that cannot be read; other data as they are.

    Args:
        data: all splits.
        splits: those to go through; all where none is named.
        encoder: one that is not trained, whose features are wanted, too: they are made in the same pass.
        strict: make a picture that cannot be read an error.
    """
    parts = dict(data.splits)
    skipped: list[Skipped] = []
    for name in splits or parts:
        split = parts.get(name)
        stream = None if split is None else stream_of(split.images)
        if split is None or stream is None:
            continue
        rows = split.images.rows  # type: ignore[attr-defined]
        if encoder is not None and encoder.frozen:
            encoder.survey(split.images)
        else:
            stream.survey(rows)
        bad = [i for i, row in enumerate(rows.tolist()) if row in stream.faults]
        skipped += [Skipped(file=split.files[i], reason=stream.faults[int(rows[i])]) for i in bad]
        if bad:
            left = set(range(len(split))) - set(bad)
            parts[name] = split.select(sorted(left))
    if skipped:
        check_read(skipped, sum(map(len, data.splits.values())), strict=strict)
    return replace(data, splits=parts, skipped=(*data.skipped, *skipped)) if skipped else data
