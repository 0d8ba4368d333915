import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from labelwise.data import load
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.images import Skipped
from labelwise.images.overview import contact_sheet, inspect, lines, missing_pieces
from labelwise.support.errors import DataError, UnsupportedError, UsageError

NEEDS = {"indicator": ["targets"], "izf": ["targets", "vectors"], "clarel": ["texts or image_texts", "pictures"]}


def toys() -> Dataset:
    """Owl: 4 images, okapi 2, yak 1 (none to train on), newt none; one without a label; a leak and a conflict."""
    images = torch.randint(0, 256, (8, 3, 12, 10), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    images[6] = images[1]
    images[2] = images[0]
    targets = torch.tensor([0, 0, 1, 0, -1, 1, 0, 2])
    files = tuple(f"{i}.png" for i in range(8))
    return Dataset(
        name="toys",
        labels=Labels(names=("owl", "okapi", "yak", "newt"), vectors=torch.eye(4), order=(3, 1, 2, 0)),
        splits={
            "train": Split(images=images[:5], targets=targets[:5], files=files[:5], texts=((), ("small",), (), (), ())),
            "test": Split(images=images[5:], targets=targets[5:], files=files[5:]),
        },
        skipped=(
            Skipped(file="a.png", reason="it is empty"),
            Skipped(file="c.png", reason="no picture"),
            Skipped(file="b.png", reason="it is empty"),
        ),
    )


def test_an_inspection_counts_and_finds() -> None:
    found = inspect(toys())
    assert found.counts == {
        "owl": {"train": 3, "test": 1},
        "okapi": {"train": 1, "test": 1},
        "yak": {"train": 0, "test": 1},
        "newt": {"train": 0, "test": 0},
    }
    assert found.images == {"train": 5, "test": 3}
    assert found.unlabelled == {"train": 1, "test": 0}
    assert found.imbalance == 4
    assert found.unreadable == {"it is empty": 2, "no picture": 1}
    assert (found.empty, found.unseen) == (("newt",), ("yak",))
    assert (found.leaks.count, found.leaks.duplicates, len(found.leaks.conflicts)) == (1, 1, 1)
    assert [(each.image.file, each.twin.file) for each in found.lookalikes] == [("6.png", "1.png")]
    assert (found.name, found.shape) == ("toys", (3, 12, 10))
    present = {piece for piece, has in found.pieces.items() if has}
    assert present == {"targets", "pictures", "vectors", "order", "image_texts", "descriptions", "one_label"}
    missing = {"texts", "shares", "similarity", "image_domains", "image_groups", "enough"}
    assert set(found.pieces) - present == missing


def test_an_inspection_is_plain_json() -> None:
    found = json.loads(json.dumps(asdict(inspect(toys()))))
    assert found["counts"]["owl"]["train"] == 3
    assert found["leaks"]["images"][0][1] == {"split": "test", "row": 1, "file": "6.png", "label": "owl"}


def test_an_inspection_in_words() -> None:
    assert lines(inspect(toys()), NEEDS) == [
        "toys: 4 labels, images 5 train, 3 test, shape 3 x 12 x 10",
        "Smallest labels: yak 1, okapi 2, owl 4. Largest: owl 4, okapi 2, yak 1.",
        "Imbalance: the largest label has 4.0 times the images of the smallest.",
        "Found: labels of images (targets), images, attributes of labels (vectors), an order of labels, sentences about images (texts).",
        "Optional, missing: sentences about labels (texts), how frequent labels are (shares), how alike labels are (similarity), "
        "where images come from (domains), which images belong together (groups).",
        "Left out: a.png, b.png: it is empty",
        "Left out: c.png: no picture",
        "Without a label: 1 train, 0 test.",
        "Labels without images: newt.",
        "Labels without training images: yak.",
        "Leaks: 1 in more than one split: equal images 1.png (train) = 6.png (test).",
        "Duplicates: 1 images equal an earlier one of their split.",
        "Equal images with different labels: 1: 0.png (train) owl = 2.png (train) okapi.",
        "Look alike across splits: 1: 6.png (test) like 1.png (train).",
        "1 of 3 test images have a lookalike in train, so a test is too optimistic: split the data again (labelwise data split), "
        "which keeps lookalikes together.",
        "Methods that can train on this, without the 2 labels that have no training images: indicator.",
        "Methods that can train on this: izf, clarel.",
    ]


def test_what_methods_lack_is_named() -> None:
    data = toys()
    bare = replace(data, labels=Labels(names=data.labels.names), splits={"test": data.splits["test"]})
    found = inspect(bare)
    assert missing_pieces(found, NEEDS) == {
        "indicator": ("targets",),
        "izf": ("targets", "vectors"),
        "clarel": ("texts or image_texts",),
    }
    assert (
        lines(found, NEEDS)[-1]
        == "Methods that would need sentences about labels (texts) or sentences about images (texts): clarel."
    )
    with pytest.raises(UsageError, match=r'Method izf needs the unknown piece "vector". Did you mean "vectors"'):
        missing_pieces(found, {"izf": ["vector"]})


@pytest.mark.parametrize(
    ("known", "sentences", "described"),
    [
        ({"vectors": torch.eye(2)}, (), True),
        ({"texts": (("x",), ("y",))}, (), True),
        ({}, (("x",), ("y",)), True),
        ({}, (("x",), ()), False),
        ({}, (), False),
    ],
    ids=["vectors", "texts", "image texts", "image texts of one label", "nothing"],
)
def test_labels_are_described_by_themselves_or_by_their_images(
    known: dict[str, Any], sentences: tuple[tuple[str, ...], ...], described: bool
) -> None:
    images = torch.randint(0, 256, (2, 3, 9, 9), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    part = Split(images=images, targets=torch.tensor([0, 1]), texts=sentences)
    found = inspect(Dataset(name="two", labels=Labels(names=("a", "b"), **known), splits={"train": part}))
    needs = {"eszsl": ("targets", "descriptions")}
    assert missing_pieces(found, needs) == {"eszsl": () if described else ("descriptions",)}
    which = "can train on this" if described else "would need descriptions (vectors or texts of every label)"
    assert lines(found, needs)[-1] == f"Methods that {which}: eszsl."
    assert not any("descriptions" in line for line in lines(found))


def test_features_and_unlabelled_data_can_be_inspected() -> None:
    part = Split(images=torch.rand(3, 4), targets=torch.full((3,), -1))
    found = inspect(Dataset(name="bare", labels=Labels(names=("a", "b")), splits={"train": part}))
    assert (found.shape, found.imbalance, found.empty) == ((4,), None, ("a", "b"))
    assert [piece for piece, has in found.pieces.items() if has] == ["one_label"]
    assert lines(found)[0] == "bare: 2 labels, images 3 train, shape 4"


def test_clean_data_are_said_to_be_clean() -> None:
    images = torch.randint(0, 256, (8, 1, 9, 9), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    part = Split(images=images, targets=torch.arange(8) % 2)
    said = lines(inspect(Dataset(name="clean", labels=Labels(names=("a", "b")), splits={"train": part})))
    assert said[1] == "Every label has 4 images."
    assert said[-1] == "Nothing wrong was found."


# The sheet


def flat(labels: int, per_label: int, shape: tuple[int, int, int] = (3, 40, 40)) -> Dataset:
    """Every image of label i is of one grey, 5 * (i + 1)."""
    targets = torch.arange(labels).repeat(per_label)
    images = ((targets + 1) * 5).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, *shape)
    half = len(targets) // 2
    splits = {
        "train": Split(images=images[:half], targets=targets[:half]),
        "test": Split(images=images[half:], targets=targets[half:]),
    }
    return Dataset(name="flat", labels=Labels(names=tuple(f"label\n{i} " * 30 for i in range(labels))), splits=splits)


def greys(path: Path, side: int = 80) -> dict[int, int]:
    """How many squares of each grey below 255 the sheet has, by area."""
    with Image.open(path) as sheet:
        values, counts = np.unique(np.array(sheet.convert("L")), return_counts=True)
    return {int(v): round(int(c) / side**2) for v, c in zip(values, counts, strict=True) if v < 255 and c > side**2 / 2}


@pytest.mark.parametrize("shape", [(3, 40, 40), (1, 8, 8), (3, 100, 100)])
def test_a_sheet_shows_every_label(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    contact_sheet(flat(9, 4, shape), tmp_path / "sheet.png", images=3)
    assert greys(tmp_path / "sheet.png") == {5 * (i + 1): 3 for i in range(9)}
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.png"]


def test_a_sheet_of_many_labels_shows_some_of_them_evenly(tmp_path: Path) -> None:
    contact_sheet(flat(40, 2), tmp_path / "sheet.png", labels=10)
    assert greys(tmp_path / "sheet.png") == {5 * (4 * i + 1): 2 for i in range(10)}


def test_pictures_keep_their_form(tmp_path: Path) -> None:
    contact_sheet(flat(1, 2, (3, 20, 40)), tmp_path / "sheet.png", images=1)
    with Image.open(tmp_path / "sheet.png") as sheet:
        tall, wide = np.nonzero(np.array(sheet)[50:, :, 0] == 5)
    assert (int(np.ptp(tall)) + 1, int(np.ptp(wide)) + 1) == (40, 80)


def test_what_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    features = Split(images=torch.rand(3, 4), targets=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(UnsupportedError, match='"bare" holds features, not images'):
        contact_sheet(Dataset(name="bare", labels=Labels(names=("a",)), splits={"train": features}), tmp_path / "a.png")
    with pytest.raises(UsageError, match="given 0 images of 30 labels"):
        contact_sheet(toys(), tmp_path / "a.png", images=0)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r'Cannot write ".*a.png": ".*/file" is a file'):
        contact_sheet(toys(), tmp_path / "file" / "a.png")
    strange = replace(toys().splits["test"], targets=torch.full((3,), -1))
    with pytest.raises(DataError, match="has no labelled images to show"):
        contact_sheet(replace(toys(), splits={"train": strange}), tmp_path / "a.png")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


BMW = Path(os.environ.get("LABELWISE_DATA", "")) / "bmw_from_cars_128.npz"


@pytest.mark.skipif("LABELWISE_DATA" not in os.environ or not BMW.exists(), reason="needs the pack of BMW cars")
def test_real_pictures_are_inspected() -> None:
    found = inspect(load(BMW, size=32))
    assert sum(found.images.values()) == 1051
    assert len(found.counts) == 13
    (conflict,) = found.leaks.conflicts  # one photograph under two labels
    assert {place.label for place in conflict} == {"BMW 6 Series Convertible 2007", "BMW M6 Convertible 2010"}
