"""The folder that a person's pictures lie in, and their names without it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.images import Skipped


def named(*files: str, own: bool = True) -> Dataset:
    split = Split(images=torch.rand(len(files), 3), targets=torch.zeros(len(files), dtype=torch.long), files=files)
    return Dataset(name="a", labels=Labels(names=("owl", "tit")), splits={"train": split}, own_images=own)


@pytest.mark.parametrize(
    ("files", "home", "below"),
    [
        (("my photos/owl/1.jpg", "my photos/tit/1.jpg"), "my photos", ("owl/1.jpg", "tit/1.jpg")),
        (("/home/anna/owl/1.jpg", "/home/anna/tit/1.jpg"), "/home/anna", ("owl/1.jpg", "tit/1.jpg")),
        (("../a/1.jpg", "../b/2.jpg"), "..", ("a/1.jpg", "b/2.jpg")),
        (("1.jpg", "tit/2.jpg"), ".", ("1.jpg", "tit/2.jpg")),
        (("a/1.jpg",), "a", ("1.jpg",)),
    ],
)
def test_files_are_named_from_their_common_folder_on(files: tuple[str, ...], home: str, below: tuple[str, ...]) -> None:
    data = replace(named(*files), skipped=(Skipped(file=f"{home}/x y/broken.jpg", reason="damaged"),))
    assert data.home == home
    assert data.below_home().split("train").files == below
    assert data.below_home().skipped[0].file == "x y/broken.jpg"


def test_a_table_may_name_some_from_the_root_and_some_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = named(str(tmp_path / "far" / "1.jpg"), "near/2.jpg")
    assert data.home == str(tmp_path)
    assert data.below_home().split("train").files == ("far/1.jpg", "near/2.jpg")


def test_names_that_are_no_files_of_a_person_stay() -> None:
    data = named("/somebody/else/1.jpg", "3", own=False)
    assert data.home == ""
    assert data.below_home() is data
