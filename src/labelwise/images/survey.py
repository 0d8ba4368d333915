"""One pass over pictures of shards before they are used: those that cannot be read are left out and named."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from labelwise.core.model import LabelModel
from labelwise.images.dataset import Dataset, Skipped
from labelwise.images.decode.readable import check_read
from labelwise.images.streams import stream_of
from labelwise.train.networks.image_encoder import ImageEncoder


def readable_for(
    model: LabelModel, data: Dataset, splits: Sequence[str] = (), embed: Callable[[Tensor], object] | None = None
) -> Dataset:
    """Return what ``readable`` does, in a pass that makes the features of a model's encoder, too, where that is not trained.

    Of one that is, the pass is ``embed``, if that is given.
    """
    encoders = [each for each in model.modules() if isinstance(each, ImageEncoder)]
    if len(encoders) != 1 or data.shape != model.spec.shape:
        return readable(data, splits)
    return readable(data, splits, encoders[0].survey if encoders[0].frozen else embed)


def readable(
    data: Dataset,
    splits: Sequence[str] = (),
    go_through: Callable[[Tensor], object] | None = None,
    *,
    strict: bool = False,
) -> Dataset:
    """Return the data without pictures of shards that cannot be read; other data as they are.

    Args:
        data: all splits.
        splits: those to go through; all where none is named.
        go_through: the pass over images, which notes what there is to know, and more; None notes that alone.
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
        if go_through is None:
            stream.survey(rows)
        else:
            go_through(split.images)
        bad = [i for i, row in enumerate(rows.tolist()) if row in stream.faults]
        skipped += [Skipped(file=split.files[i], reason=stream.faults[int(rows[i])]) for i in bad]
        if bad:
            left = set(range(len(split))) - set(bad)
            parts[name] = split.select(sorted(left))
    if skipped:
        check_read(skipped, sum(map(len, data.splits.values())), strict=strict)
    return replace(data, splits=parts, skipped=(*data.skipped, *skipped)) if skipped else data
