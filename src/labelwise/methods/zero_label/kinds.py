"""Expected looks of a name: kinds of things, words for them, and the typical looks of their images.

The table was written by hand, signs and rough sizes only: a landscape has a light blue sky above level lines, a fruit is colourful in
the middle, what people build has upright and level edges. It was touched up by eye, against mean looks of labelled images of some classes of
CIFAR-100 and TinyImageNet; docs/results/zero_label.md says what it is worth on others.
"""

from collections.abc import Sequence

import numpy as np

from labelwise.core.arrays import Array, softmax
from labelwise.images.describe.sentences import encode_sentences
from labelwise.images.describe.words import name_vectors, packaged_vectors
from labelwise.methods.zero_label.label_prior import photo_vectors
from labelwise.methods.zero_label.looks import LOOKS
from labelwise.support.rows import unit_rows

# Each kind: words for it, and by how many deviations each look of its images is above or below the mean.
KINDS = {
    "landscape, horizon, sea, lake, beach, mountain, cloud": (
        "top light +1, top yellow -1.5, centre yellow -.7, centre colourful -.3, bottom light -.3, coarse +1.5, upright -1, "
        "central -1.5, symmetric +.5, edges -.5, contrast -.5"
    ),
    "tree, forest, oak, pine, maple": (
        "top light +.5, top yellow -.5, centre light -1, centre red -1.5, bottom red -1.5, rim red -1, central -1.3, fine +.5, "
        "sharp -1"
    ),
    "flower, bloom, garden plant, petals": (
        "centre colourful +2.5, centre red +2, centre light +.5, rim red -.5, rim colourful +1.5, contrast +2"
    ),
    "fruit, vegetable, food, dish": (
        "centre yellow +2, centre red +1.3, centre colourful +2, rim red +.7, rim yellow +1, rim colourful +1.2, contrast +.7, "
        "square -.5, central -.5"
    ),
    "fish, whale, swimming sea animal": (
        "top yellow -1, centre yellow -1.2, bottom yellow -1.5, rim yellow -1.5, rim red -.8, centre red -.7, rim uneven -.7"
    ),
    "mammal, fur, wild land animal": (
        "centre light -1, centre yellow +.3, rim light -.5, rim red -.2, rim yellow +.4, top light -.4, square -.6"
    ),
    "insect, spider, bug, leaf": (
        "top red -1, rim red -1.2, rim yellow +.7, rim light +.5, rim uneven -1.2, central +1.3, square -.8"
    ),
    "reptile, snake, lizard, worm, snail, crab": (
        "centre yellow +.2, rim yellow +.3, rim uneven -1, coarse -.8, fine +.7, square -.9, edges -.2"
    ),
    "bird, feathers": "top yellow -.3, rim red -.6, rim uneven -1, central +1, square -.7",
    "person, man, woman, child, face": (
        "top light -.8, centre red +1, bottom red +.7, rim light -.7, rim red +.4, rim uneven +1, upright +1"
    ),
    "clothes, garment, shoe, hat": (
        "top uneven +.6, centre red +.5, bottom uneven +.7, rim red +.5, rim uneven +.7, upright +1, edges +.5"
    ),
    "household object, kitchen tool, cup, bottle": (
        "top red +.4, centre light +.3, rim light +.6, rim red +.6, rim colourful -.5, symmetric +.5, square +.3, fine -.4"
    ),
    "furniture, room, table, chair": (
        "centre colourful -.3, bottom red +.9, rim red +1, rim yellow +.3, rim uneven +.6, central -.6, symmetric +.4, square +1"
    ),
    "electronic device, machine, instrument": (
        "top colourful -.7, centre colourful -.8, bottom colourful -.6, rim light +.6, rim colourful -.8, symmetric +.4, "
        "square +.8, contrast -.3"
    ),
    "vehicle, car, train, truck, road": (
        "top light +.8, top colourful -1, centre uneven +1, bottom light -.5, bottom colourful -.9, rim colourful -.5, "
        "upright -.6, square +.9, edges +.8"
    ),
    "building, tower, bridge, house, church, wall": (
        "top light +.8, top yellow -1.3, centre colourful -.8, bottom light -.6, rim yellow -.5, rim colourful -.4, coarse +.3, "
        "upright +.3, symmetric +.3, square +.8"
    ),
}


def kind_looks() -> Array:
    """Return how images of each kind look, in deviations from the mean ``[kinds, len(LOOKS)]``."""
    table = np.zeros((len(KINDS), len(LOOKS)))
    for row, profile in zip(table, KINDS.values(), strict=True):
        for entry in profile.split(", "):
            look, value = entry.rsplit(" ", 1)
            row[LOOKS.index(look)] = float(value)
    return table


def kind_shares(names: Sequence[str], *, sentences: bool = False) -> Array:
    """Return how much of each kind a name is ``[k, kinds]``, in rows that sum to 1: by word vectors, and by sentences where wanted."""
    words = packaged_vectors()
    centre = words.matrix.astype(np.float64).mean(0)
    own, theirs = (
        unit_rows(name_vectors(words_of_one, words)[0].astype(np.float64) - centre)
        for words_of_one in (names, list(KINDS))
    )
    similarities = [own @ theirs.T]
    if sentences:
        similarities.append(photo_vectors(names) @ encode_sentences(list(KINDS), "minilm").astype(np.float64).T)
    rows = [(table - table.mean(1, keepdims=True)) / table.std(1, keepdims=True, ddof=1) for table in similarities]
    return softmax(np.stack(rows).mean(0))


def looks_fit(clusters: Array, names: Sequence[str], *, sentences: bool = False) -> Array:
    """Return how well the mean looks of clusters ``[..., k, len(LOOKS)]`` fit what each name says ``[..., k, k]``.

    Both sides are compared as they differ from their mean over the clusters, and over the names: 1 is a usual size of a fit.
    """
    residuals = clusters.astype(np.float64) - clusters.astype(np.float64).mean(-2, keepdims=True)
    residuals = residuals / np.maximum(np.sqrt((residuals**2).mean(-2, keepdims=True)), 1e-9)
    expected_looks = kind_shares(names, sentences=sentences) @ kind_looks()
    expected_looks = expected_looks - expected_looks.mean(0)
    fits: Array = residuals @ expected_looks.T / (max(float(np.sqrt((expected_looks**2).mean())), 1e-9) * len(LOOKS))
    return fits
