"""Features of a few round groups, one label each."""

import numpy as np

from labelwise.label.space import Floats


def blobs(
    sizes: tuple[int, ...] = (60, 40, 30, 20), width: int = 24, noise: float = 0.35, seed: int = 0
) -> tuple[Floats, list[str]]:
    """Return features ``[n, d]`` in random order, and the label of each image."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(len(sizes), width))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    rows = centres[labels] + noise * generator.normal(size=(len(labels), width)) * np.linspace(0.2, 3, width)
    order = generator.permutation(len(rows))
    return rows[order].astype(np.float32), [f"label {place}" for place in labels[order]]
