"""How good an encoder trained without labels is: a vote of the nearest training images, where labels exist to check it."""

from typing import Any

import numpy as np

from labelwise.core.arrays import unit_rows
from labelwise.images.dataset import Split
from labelwise.support.errors import DataError, UnsupportedError
from labelwise.train.networks.image_encoder import ImageEncoder

TEMPERATURE = 0.1


def probe_neighbours(encoder: ImageEncoder, train: Split, test: Split, *, k: int = 200) -> dict[str, Any]:
    """Return how well the nearest images of ``train`` name those of ``test``, by the encoder's features (Wu et al., 2018).

    Each of the ``k`` of the largest cosine, or of all where there are fewer, votes for its own label with the weight
    ``exp(cosine / TEMPERATURE)``. Images without a label are left out. Returned are how many images may vote and were asked about,
    how many voted on each (``k``), and the share whose label got the most votes (``accuracy``).
    """
    if train.multilabel or test.multilabel:
        raise UnsupportedError("Neighbours vote for one label of each image; of these, several may be true.")
    known, asked = (split.select(np.flatnonzero(np.asarray(split.targets) >= 0)) for split in (train, test))
    if not len(known) or not len(asked):
        raise DataError(
            f"The vote needs labelled images on both sides; {len(known)} of train and {len(asked)} of test have a label."
        )
    k = min(k, len(known))
    gallery, queries = (unit_rows(np.asarray(encoder.features(split.images))) for split in (known, asked))
    targets, rows = np.asarray(known.targets), np.arange(len(asked))
    cosines = queries @ gallery.T
    nearest = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
    votes = np.zeros((len(asked), int(targets.max()) + 1))
    weights = np.exp(np.take_along_axis(cosines, nearest, 1) / TEMPERATURE)
    np.add.at(votes, (rows[:, None], targets[nearest]), weights)
    right = (votes.argmax(1) == np.asarray(asked.targets)).mean()
    return {"train_images": len(known), "test_images": len(asked), "k": k, "accuracy": float(right)}
