"""Pictures as files, as a user has them."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from labelwise.data import load
from labelwise.images.dataset import Dataset
from tests.conftest import blobs
from tests.pixels_of import px


def write_folders(root: Path, data: Dataset) -> Path:
    """Write the pictures of a data set into folders of splits and labels, and return where."""
    for name, split in data.splits.items():
        for i, (image, target) in enumerate(zip(px(split), split.targets.tolist(), strict=True)):
            place = root / name / data.labels.names[target]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{i}.png")
    return root


def write_tall(path: Path) -> Dataset:
    """Write a pack of pictures that are 12 high and 8 wide, and return it as it is read."""
    data = blobs(per_label=20, side=12)
    images = torch.cat([px(part) for part in data.splits.values()])[:, :, :, :8].movedim(1, 3).numpy()
    targets = torch.cat([torch.as_tensor(part.targets) for part in data.splits.values()]).numpy()
    np.savez(path, images=images, labels=targets, classes=np.array(data.labels.names))
    return load(path)
