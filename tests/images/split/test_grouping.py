"""What stays together: bursts, folders, lookalikes and columns, in folders, tables, packs, and in what fit sets aside."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import ExifTags, Image

import labelwise as lw
from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset
from labelwise.images.split.divide import bursts, group_words, moments
from labelwise.images.split.make import Shares, divide_groups, split_off, stratify
from labelwise.support.errors import DataError, UsageError
from tests.images.decodes import count_decodes
from tests.pixels_of import px


def photo(seed: int, shift: int = 0) -> Image.Image:
    """A picture of its own; shifted, a little brighter."""
    small = np.random.default_rng(seed).integers(0, 230, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(small + np.uint8(shift)).resize((40, 40), Image.Resampling.BICUBIC)


def burst_folder(root: Path, alike: int = 4) -> Path:
    """Two labels with 8 scenes each, every scene photographed several times."""
    for i, label in enumerate(("my owl", "hawk")):
        (root / label).mkdir(parents=True)
        for scene in range(8):
            for shot in range(alike):
                photo(100 * i + scene, 5 * shot).save(root / label / f"{scene}-{shot}.png")
    return root


def scenes(data: Dataset) -> dict[str, set[str]]:
    """The scenes of each split, of which no two may share any."""
    return {
        name: {str(Path(file).parent.name) + Path(file).name.split("-")[0] for file in part.files}
        for name, part in data.splits.items()
    }


def disjoint(data: Dataset) -> bool:
    sets = list(scenes(data).values())
    return len(set().union(*sets)) == sum(map(len, sets))


def test_own_photos_that_look_alike_stay_together(tmp_path: Path) -> None:
    root = burst_folder(tmp_path / "my photos")
    data = lw.data.load(root, size=32)
    assert data.grouping == "lookalike"
    assert disjoint(data)
    assert set(data.splits) == {"train", "val", "test"}
    assert not disjoint(lw.data.load(root, size=32, group="none"))
    assert lw.data.inspect(data).groups == "64 images look alike in 16 groups; each group stays together."
    assert disjoint(lw.data.divide(lw.data.load(root, size=32, group="none"), group="lookalike"))
    assert disjoint(lw.data.divide(data, seed=5))


def test_photos_too_many_for_memory_are_divided_as_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = burst_folder(tmp_path / "photos")
    (root / "hawk" / "0-0.png").write_bytes(b"no picture")
    memory = lw.data.load(root, size=32)
    monkeypatch.setenv("LABELWISE_MEMORY_MB", "0.01")
    decoded = count_decodes(monkeypatch)
    data = lw.data.load(root, size=32)
    assert len(decoded) == len(set(decoded)) == 63
    assert disjoint(data)
    assert [Path(one.file).name for one in data.skipped] == ["0-0.png"]
    assert sum(len(part) for part in data.splits.values()) == 63
    for name, part in data.splits.items():
        assert part.files == memory.splits[name].files
        assert torch.equal(px(part), px(memory.splits[name]))


def test_a_train_folder_gives_whole_groups_to_val_and_its_test_stays(tmp_path: Path) -> None:
    burst_folder(tmp_path / "data" / "train")
    (tmp_path / "data" / "test" / "my owl").mkdir(parents=True)
    photo(3).save(tmp_path / "data" / "test" / "my owl" / "3-9.png")
    data = lw.data.load(tmp_path / "data", size=32)
    learnt = {name: part for name, part in data.splits.items() if name != "test"}
    assert disjoint(replace(data, splits=learnt))
    (twin,) = lw.data.near_duplicates(replace(data, splits={k: v for k, v in data.splits.items() if k != "val"}))
    assert Path(twin.twin.file).name.startswith("3-")
    assert not lw.data.check_leaks(data).groups  # what looks alike is a hint, no proof
    test = lw.data.load(tmp_path / "data" / "test" / "..", size=32).splits["test"]
    assert len(test) == 1


def test_pictures_of_one_camera_within_seconds_are_a_burst(tmp_path: Path) -> None:
    times = ["10:00:00", "10:00:02", "10:00:05", "10:00:09", "10:00:01", "", "nonsense"]
    for i, time in enumerate(times):
        exif = Image.Exif()
        exif[ExifTags.Base.Make], exif[ExifTags.Base.Model] = "Ear", "Two" if i == 4 else "One"
        if time:
            exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = f"2026:05:01 {time}"
        photo(i).save(tmp_path / f"{i}.jpg", exif=exif)
    taken = moments([str(tmp_path / f"{i}.jpg") for i in range(7)])
    assert taken[:2] == ("2026-05-01T10:00:00.0 Ear One", "2026-05-01T10:00:02.0 Ear One")
    assert taken[5:] == ("", "")
    assert bursts(taken) == ("burst 1", "burst 1", "burst 1", "", "", "", "")
    assert bursts(("2026-05-01T10:00:00.75 a", "2026-05-01T10:00:03.7 a")) == ("burst 1", "burst 1")
    with pytest.raises(DataError, match="None of these images says when it was taken"):
        bursts(["", ""])


def test_exif_groups_and_their_column(tmp_path: Path) -> None:
    root = burst_folder(tmp_path / "photos", alike=1)
    for i, file in enumerate(sorted(root.rglob("*.png"))):
        exif = Image.Exif()
        exif[ExifTags.Base.Model] = "One"
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = f"2026:05:01 10:{i // 2:02d}:0{i % 2}"
        photo(i).save(file, exif=exif)
    data = lw.data.load(root, size=32, group="exif")
    assert data.grouping == "exif"
    whole = lw.data.pool(data)
    assert len(set(whole.groups)) == 8
    assert all(part.moments for part in data.splits.values())
    for part in data.splits.values():
        assert all(part.groups.count(name) == 2 for name in part.groups)
    lw.data.write_split(data, tmp_path / "split.csv")
    assert (tmp_path / "split.csv").read_text().splitlines()[0] == "file,label,split,group,moment"
    assert set(lw.data.apply_split(data, tmp_path / "split.csv").splits) == set(data.splits)


def test_folders_below_that_of_the_label_are_groups(tmp_path: Path) -> None:
    root = burst_folder(tmp_path / "photos", alike=2)
    with pytest.raises(DataError, match="no groups by folder"):
        lw.data.load(root, size=32, group="folder")
    for file in sorted(root.rglob("*.png")):
        home = file.parent / f"day {file.name[0]}"
        home.mkdir(exist_ok=True)
        file.rename(home / file.name)
    data = lw.data.load(root, size=32, group="folder")
    assert len(set(lw.data.pool(data).groups)) == 16
    for name, part in data.splits.items():
        assert all(not set(part.groups) & set(o.groups) for other, o in data.splits.items() if other != name)


def test_a_column_comes_first_and_is_asked_for(tmp_path: Path) -> None:
    root = burst_folder(tmp_path, alike=2)
    files = sorted(root.rglob("*.png"))
    lines = [f"{file.relative_to(root)},{file.parent.name},{i % 5}" for i, file in enumerate(files)]
    (root / "t.csv").write_text("path,label,group\n" + "\n".join(lines))
    for group in (None, "column", "none"):
        data = lw.data.load(root / "t.csv", size=32, group=group)
        assert set(lw.data.pool(data).groups) == set("01234")
    assert set(lw.data.pool(lw.data.divide(data, group="none")).groups) == set("01234")
    alike = lw.data.load(root / "t.csv", size=32, group="lookalike")
    assert alike.grouping == "lookalike"
    assert not lw.data.pool(lw.data.divide(alike, group="none")).groups
    with pytest.raises(DataError, match="have no groups"):
        lw.data.load(root, size=32, group="column")
    with pytest.raises(UsageError, match='Did you mean "lookalike"'):
        lw.data.load(root, size=32, group="lookalikes")  # type: ignore[arg-type]


def test_packs_and_features_are_grouped_where_asked(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(30, 50, generator=generator).repeat_interleave(2, 0)
    rows = rows + 0.01 * torch.randn(60, 50, generator=generator)
    np.savez(tmp_path / "f.npz", features=rows.numpy(), labels=np.arange(60) // 30)
    plain = lw.data.load(tmp_path / "f.npz")
    assert not lw.data.pool(plain).groups
    data = lw.data.load(tmp_path / "f.npz", group="lookalike")
    assert group_words(lw.data.pool(data).groups) == "60 images look alike in 30 groups; each group stays together."
    assert not lw.data.near_duplicates(data)
    assert lw.data.near_duplicates(plain)
    with pytest.raises(DataError, match="Grouping by exif needs image files"):
        lw.data.load(tmp_path / "f.npz", group="exif")
    birds = lw.data.finches(per_species=20)
    own = lw.data.group_by(birds, "lookalike")
    assert {name: len(part) for name, part in own.splits.items()} == {
        name: len(part) for name, part in birds.splits.items()
    }


def test_fit_sets_whole_groups_aside(tmp_path: Path) -> None:
    whole = lw.data.pool(lw.data.load(burst_folder(tmp_path / "p"), size=32))
    data = Dataset(name="p", labels=lw.Labels(names=("hawk", "my owl")), splits={"train": whole})
    part = training_data(data)
    assert not set(part.train.groups) & set(part.val.groups)
    assert len(part.val) >= 4


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "", "", "a", "b", "c"])), min_size=6, max_size=60),
    st.integers(0, 5),
)
def test_groups_stay_whole_and_every_class_is_in_train(rows: list[tuple[int, str]], seed: int) -> None:
    targets, groups = np.array([target for target, _ in rows]), [group for _, group in rows]
    if len(set(groups) - {""}) + groups.count("") < 3:
        return
    parts = divide_groups(groups, targets, Shares(), seed)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(len(rows)))
    homes = [{groups[i] for i in part.tolist()} - {""} for part in parts.values()]
    assert len(set().union(*homes)) == sum(map(len, homes))
    assert all(len(part) for part in parts.values())


def test_without_groups_the_division_is_the_plain_one() -> None:
    targets = np.random.default_rng(1).integers(0, 5, 203)
    for seed in range(3):
        plain, by_groups = stratify(targets, Shares(), seed), divide_groups([""] * 203, targets, Shares(), seed)
        assert all(np.array_equal(plain[name], by_groups[name]) for name in plain)
        kept, out = split_off(targets, 0.1, seed, [""] * 202 + ["a"])
        assert np.array_equal(split_off(targets, 0.1, seed)[1], out)
        assert len(kept) + len(out) == 203


def test_a_class_of_one_group_stays_in_train() -> None:
    targets = np.array([0] * 20 + [1] * 5)
    for seed in range(10):
        parts = divide_groups([""] * 20 + ["g"] * 5, targets, Shares(), seed)
        assert set(range(20, 25)) <= set(parts["train"].tolist())
