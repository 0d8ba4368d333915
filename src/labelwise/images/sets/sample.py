"""The folders of drawn birds that the tutorials use."""

import csv
from collections.abc import Mapping
from pathlib import Path

from PIL import Image

from labelwise.images.sets.finches import finches
from labelwise.support.errors import UsageError

FOLDERS = {
    "birds": "photos of six species, a subfolder for each",
    "new": "photos of a seventh species",
    "new-labels": "photos of two more species, a subfolder for each",
    "described": "the photos of birds, and labels.csv with sentences on seven species",
}
PHOTOS, SIDE = 12, 240  # per species; pixels


def _places() -> tuple[dict[str, str], list[str]]:
    """Return the species of each folder of photos, and the described species."""
    names = finches().labels.names
    names_known, new = sorted(names[::5]), names[-1]
    further = [name for name in names if name not in names[::5]][:2]
    places = {f"{folder}/{name}": name for folder in ("birds", "described") for name in names_known}
    return places | {"new": new} | {f"new-labels/{name}": name for name in further}, [*names_known, new]


def write_sample(root: Path) -> Mapping[str, int]:
    """Write new folders below ``root`` and return the number of photos in each."""
    for folder in FOLDERS:
        if (root / folder).exists():
            raise UsageError(f'"{root / folder}" exists already. Choose another folder: labelwise data sample FOLDER')
    data = finches()
    train, labels = data.split("train"), data.labels
    places, names_described = _places()
    for place, name in places.items():
        (root / place).mkdir(parents=True)
        rows = (train.targets == labels.names.index(name)).nonzero()[0][:PHOTOS]
        for i, image in enumerate(train.images.select(rows).values):
            photo = Image.fromarray(image.transpose(1, 2, 0)).resize((SIDE, SIDE))
            photo.save(root / place / f"{i:02}.jpg", quality=95)
    assert labels.texts is not None
    with (root / "described" / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["label", "text", "text_1"])
        table.writerows([name, *labels.texts[labels.names.index(name)][:2]] for name in names_described)
    return {folder: len(list((root / folder).rglob("*.jpg"))) for folder in FOLDERS}
