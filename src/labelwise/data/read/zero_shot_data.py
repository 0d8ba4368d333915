"""From features of pictures and one table about their labels to a complete zero-shot data set."""

from collections.abc import Sequence

import torch

from labelwise.data.dataset import Dataset
from labelwise.data.labels.knowledge import Knowledge, with_knowledge
from labelwise.data.read.xlsa17 import ZeroShotData
from labelwise.data.split.split_files import pool
from labelwise.data.split.splits import zero_shot
from labelwise.errors import DataError


def build_zero_shot(
    features: Dataset, knowledge: Knowledge, *, unseen: float | Sequence[str] = 0.25, seed: int = 0
) -> ZeroShotData:
    """Return zero-shot data: some labels have images in the test only, and every label has a vector.

    Args:
        features: encoded pictures, see ``encoding.encode_dataset``; their splits are made anew.
        knowledge: an attribute vector for every label.
        unseen: the labels to keep out of training, by name or as a share of all.
        seed: of the draw.
    """
    if len(features.shape) != 1:
        raise DataError(f'"{features.name}" holds pictures. Encode them first.')
    if features.multilabel:
        raise DataError(
            f'Several labels may be true of one image of "{features.name}"; zero-shot data have one for each.'
        )
    known = with_knowledge(features, knowledge)
    if known.labels.vectors is None:
        raise DataError(
            "Zero-shot data need an attribute vector for each label: columns of numbers, one row per label."
        )
    whole = pool(known)
    rows = zero_shot(whole.targets, known.labels.names, unseen=unseen, seed=seed)
    trainval = torch.cat([rows.train, rows.val_seen, rows.val_unseen]).sort().values
    return ZeroShotData(
        name=features.name,
        features=whole.images,
        targets=whole.targets,
        labels=known.labels,
        rows={"trainval": trainval, "test_seen": rows.test_seen, "test_unseen": rows.test_unseen},
        attribute_names=knowledge.attributes,
        files=whole.files,
    )
