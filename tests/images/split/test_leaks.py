from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.split.leaks import ImagePlace, check_leaks, near_duplicates, refuse_leaks
from labelwise.support.errors import DataError, UsageError


def pictures(n: int, side: int = 24, seed: int = 0) -> Tensor:
    """Smooth random pictures, none like another."""
    coarse = torch.rand(n, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(coarse, size=(side, side), mode="bilinear").mul(255).to(torch.uint8)


def divided(images: Tensor, targets: list[int], files: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> Dataset:
    """The first half is train, then a quarter val, the rest test."""
    n = len(images)
    parts = {"train": slice(0, n // 2), "val": slice(n // 2, 3 * n // 4), "test": slice(3 * n // 4, n)}
    splits = {
        name: Split(images=images[at], targets=torch.tensor(targets)[at], files=files[at], groups=groups[at])
        for name, at in parts.items()
    }
    return Dataset(name="toys", labels=Labels(names=("owl", "okapi")), splits=splits)


def rows(places: tuple[ImagePlace, ...]) -> list[tuple[str, int]]:
    return [(place.split, place.row) for place in places]


def test_clean_data_have_no_leaks() -> None:
    names = tuple(f"{i}.png" for i in range(8))
    report = check_leaks(divided(pictures(8), [0, 1] * 4, files=names, groups=("a", "b", "a", "b", "", "", "", "c")))
    assert (report.count, report.duplicates, report.conflicts, report.offenders()) == (0, 0, (), [])
    refuse_leaks(divided(pictures(8), [0, 1] * 4))


def test_equal_bytes_in_two_splits_are_found_under_any_name() -> None:
    images = pictures(8)
    images[7] = images[1]
    images[4] = images[1]
    images[3] = images[2]
    for names in ((), tuple(f"{i}.png" for i in range(8))):
        report = check_leaks(divided(images, [0, 1, 0, 0, 1, 0, 0, 1], files=names))
        assert [rows(found) for found in report.images] == [[("train", 1), ("val", 0), ("test", 1)]]
        assert (report.files, report.groups, report.conflicts) == ((), (), ())
        assert report.duplicates == 1
        first, second, third = [names[i] if names else f"image {i}" for i in (1, 4, 7)]
        assert report.offenders() == [f"equal images {first} (train) = {second} (val) = {third} (test)"]


def test_a_file_in_two_splits_is_named_once() -> None:
    images = pictures(8)
    images[6] = images[0]
    names = ("a.png", "b.png", "c.png", "d.png", "e.png", "f.png", "a.png", "b.png")
    report = check_leaks(divided(images, [0, 1] * 4, files=names))
    assert [rows(found) for found in report.files] == [[("train", 0), ("test", 0)], [("train", 1), ("test", 1)]]
    assert report.images == ()
    assert report.offenders() == ["file a.png (train, test)", "file b.png (train, test)"]


def test_a_group_in_two_splits_is_found_and_a_blank_one_is_none() -> None:
    report = check_leaks(divided(pictures(8), [0, 1] * 4, groups=("x", "", "y", "y", "y", "", "z", "y")))
    assert [(name, rows(found)) for name, found in report.groups] == [("y", [("train", 2), ("val", 0), ("test", 1)])]
    assert report.offenders() == ['group "y" (train, val, test)']


def test_equal_images_with_different_labels_are_conflicts() -> None:
    images = pictures(8)
    images[1] = images[0]
    images[3] = images[2]
    images[6] = images[5]
    images[7] = images[4]
    report = check_leaks(divided(images, [0, 1, 0, 0, 0, 0, 1, -1]))
    assert [rows(found) for found in report.conflicts] == [[("train", 0), ("train", 1)], [("val", 1), ("test", 0)]]
    assert [[place.label for place in found] for found in report.conflicts] == [["owl", "okapi"], ["owl", "okapi"]]
    assert report.duplicates == 2


def test_features_are_compared_too() -> None:
    features = torch.rand(8, 5, generator=torch.Generator().manual_seed(0))
    features[7] = features[0]
    data = divided(features, [0, 1] * 4)
    assert [rows(found) for found in check_leaks(data).images] == [[("train", 0), ("test", 1)]]
    (twin,) = near_duplicates(data)
    assert (twin.image.row, twin.twin.row, round(twin.likeness, 5)) == (1, 0, 1.0)


def test_leaks_are_refused_with_the_first_ten_and_their_number() -> None:
    images = pictures(12).repeat(2, 1, 1, 1)
    with pytest.raises(DataError) as caught:
        refuse_leaks(divided(images, [0, 1] * 12))
    text = str(caught.value)
    assert text.startswith('"toys" has 12 files, images or groups in more than one split')
    assert "equal images image 0 (train) = image 12 (val)" in text
    assert text.count("equal images") == 10
    assert "; and 2 more. Keep each in one split" in text


# Look-alikes


def test_changed_copies_are_found_and_others_are_not() -> None:
    images = pictures(40, side=72)
    brighter = (images[3].float() * 0.8 + 30).to(torch.uint8)
    noisy = (images[5].int() + torch.randint(-6, 7, images[5].shape)).clamp(0, 255).to(torch.uint8)
    images[35], images[21], images[38] = brighter, noisy, images[35]
    found = near_duplicates(divided(images, [0, 1] * 20))
    pairs = {(each.image.split, each.image.row, each.twin.split, each.twin.row) for each in found}
    assert pairs == {("val", 1, "train", 5), ("test", 5, "train", 3), ("test", 8, "train", 3)}
    assert [each.likeness for each in found] == sorted((each.likeness for each in found), reverse=True)


def test_each_image_gets_the_twin_most_like_it() -> None:
    images = pictures(8)
    images[7] = images[4]
    images[2] = (images[4].int() + torch.randint(-4, 5, images[4].shape)).clamp(0, 255).to(torch.uint8)
    found = {each.image.file: each.twin.file for each in near_duplicates(divided(images, [0, 1] * 4))}
    assert found == {"image 4": "image 2", "image 7": "image 4"}


def test_bounds_decide_what_looks_alike() -> None:
    images = pictures(8)
    images[7] = images[0]
    data = divided(images, [0, 1] * 4)
    assert [each.likeness for each in near_duplicates(data, likeness=1.0)] == [1.0]
    assert len(near_duplicates(data, likeness=0.001)) > 1
    for likeness in (0.0, 1.1):
        with pytest.raises(UsageError, match=f"given {likeness}"):
            near_duplicates(data, likeness=likeness)


def test_flat_images_and_empty_splits_have_no_twins() -> None:
    images = torch.arange(8, dtype=torch.uint8).view(8, 1, 1, 1).expand(8, 1, 5, 5)
    data = divided(images, [0, 1] * 4)
    assert near_duplicates(data) == ()
    assert (
        near_duplicates(replace(data, splits={"train": data.splits["train"].select([]), "test": data.splits["test"]}))
        == ()
    )
    assert near_duplicates(replace(data, splits={"train": data.splits["train"]})) == ()
