"""docs/python.md runs as it stands."""

import doctest
from pathlib import Path

import pytest
from PIL import Image

from labelwise.data import finches

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
SPECIES, PHOTOS = 6, 12  # of the finches that come along


def write_birds(root: Path) -> None:
    """Write the photos that the page speaks of."""
    data = finches(per_species=20)
    names, train = data.labels.names, data.split("train")
    for place, label in enumerate([*sorted(names[::5]), names[-1]]):
        folder = root / "birds" / label if place < SPECIES else root / "new"
        folder.mkdir(parents=True)
        for i, image in enumerate(train.images.values[train.targets == names.index(label)][:PHOTOS]):
            Image.fromarray(image.transpose(1, 2, 0)).resize((240, 240)).save(folder / f"{i:02}.jpg", quality=95)


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_birds(tmp_path)
    monkeypatch.chdir(tmp_path)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, attempted = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags)
    assert attempted > 30
    assert not failed
