import shutil
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from labelwise.support.errors import DataError
from labelwise_papers.benchmarks import ENTRIES, load_benchmark
from tests.papers.benchmarks import made
from tests.papers.benchmarks.made import pairs, put, text, values
from tests.pixels_of import px


def test_pets_by_breed_and_by_species(tmp_path: Path) -> None:
    made.pets(tmp_path / "pets")
    data = load_benchmark("pets", root=tmp_path)
    assert data.labels.names == ("Bengal cat", "pug")
    assert (pairs(data.split("train")), pairs(data.split("test"))) == ([(0, 0), (1, 1)], [(2, 1), (3, 0)])
    assert data.split("test").files == ("pug_11.jpg", "Bengal_cat_2.jpg")
    species = load_benchmark("pets", root=tmp_path, protocol="species", size=8)
    assert species.labels.names == ("cat", "dog")
    assert species.split("test").targets.tolist() == [1, 0]
    assert species.shape == (3, 8, 8)


def test_cub_whole_its_first_classes_and_retrieval(tmp_path: Path) -> None:
    made.cub(tmp_path / "cub200/CUB_200_2011", classes=22)
    data = load_benchmark("cub200", root=tmp_path)
    assert data.labels.names[:2] == ("Bird 0", "Bird 1")
    assert pairs(data.split("train")) == [(2 * c, c) for c in range(22)]
    assert pairs(data.split("test")) == [(2 * c + 1, c) for c in range(22)]
    some = load_benchmark("cub20", root=tmp_path)
    assert len(some.labels) == 20
    assert pairs(some.split("test")) == [(2 * c + 1, c) for c in range(20)]
    apart = load_benchmark("cub200", root=tmp_path, protocol="retrieval")
    assert pairs(apart.split("train")) == [(i, i // 2) for i in range(22)]
    assert pairs(apart.split("test")) == [(i, i // 2) for i in range(22, 44)]
    trials = [load_benchmark("cub200", root=tmp_path, protocol="retrieval_trial", seed=seed) for seed in range(5)]
    assert [label for trial in trials for _, label in pairs(trial.split("test"))[::2]] == [
        0,
        5,
        10,
        4,
        9,
        3,
        8,
        2,
        7,
        1,
        6,
    ]
    assert sorted(pairs(trials[1].split("train")) + pairs(trials[1].split("test"))) == pairs(apart.split("train"))


def test_cub_pictures_are_cut_or_squashed(tmp_path: Path) -> None:
    made.cub(tmp_path / "cub200")
    for file in (tmp_path / "cub200/images").rglob("*.jpg"):
        picture = Image.new("RGB", (64, 16), (255, 255, 255))
        picture.paste((0, 0, 0), (24, 0, 40, 16))
        picture.save(file, quality=95)
    cut, squashed = (
        load_benchmark("cub20", root=tmp_path, protocol=name, size=16) for name in ("standard", "squashed")
    )
    assert int(px(cut.split("test")).max()) < 16
    across = px(squashed.split("test"))[0, 0, 8] < 128
    assert across.tolist() == [6 <= column < 10 for column in range(16)]
    assert cut.split("test").targets.tolist() == squashed.split("test").targets.tolist() == [0, 1, 2, 3]


def test_wide_cub_pictures_are_three_windows_that_stay_together(tmp_path: Path) -> None:
    made.cub(tmp_path / "cub200")
    for file in (tmp_path / "cub200/images").rglob("*.jpg"):
        picture = Image.new("RGB", (48, 16))
        for place, colour in enumerate([(250, 0, 0), (0, 250, 0), (0, 0, 250)]):
            picture.paste(colour, (16 * place, 0, 16 * place + 16, 16))
        (picture if "1" in file.name else picture.transpose(Image.Transpose.ROTATE_270)).save(file, "PNG")
    cut, data = (load_benchmark("cub20", root=tmp_path, protocol=name, size=16) for name in ("standard", "wide"))
    train = data.split("train")
    assert train.targets.tolist() == np.repeat(cut.split("train").targets, 3).tolist()
    assert train.groups == train.files == tuple(name for name in cut.split("train").files for _ in range(3))
    assert px(train).amax(dim=(2, 3)).argmax(1).tolist() == [0, 1, 2] * len(cut.split("train"))
    assert torch.equal(px(data.split("test")), px(cut.split("test")))


def test_a_training_picture_that_cannot_be_cut_is_told(tmp_path: Path) -> None:
    made.cub(tmp_path / "cub200")
    whole = load_benchmark("cub20", root=tmp_path, protocol="wide")
    broken = tmp_path / "cub200/images" / whole.split("train").files[0]
    broken.write_bytes(b"no picture")
    data = load_benchmark("cub20", root=tmp_path, protocol="wide")
    assert len(data.split("train")) == len(whole.split("train")) - 3
    assert len(data.skipped) == 3


def test_a_cub_picture_without_a_label_is_an_error(tmp_path: Path) -> None:
    made.cub(tmp_path / "cub200")
    text(tmp_path / "cub200/image_class_labels.txt", "1 1")
    with pytest.raises(DataError, match=r"Image 2 .* has no label"):
        load_benchmark("cub200", root=tmp_path)


@pytest.mark.parametrize("write", [made.cars, made.cars_devkit], ids=["whole", "devkit"])
def test_cars_and_the_bmw_among_them(write: object, tmp_path: Path) -> None:
    assert callable(write)
    write(tmp_path / "cars196")
    data = load_benchmark("cars196", root=tmp_path)
    assert data.labels.names == tuple(made.CARS)
    assert pairs(data.split("train")) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert pairs(data.split("test")) == [(4, 0), (5, 1), (6, 2), (7, 3)]
    some = load_benchmark("cars-bmw", root=tmp_path)
    assert some.labels.names == ("BMW X 2012", "BMW Y 2012")
    assert pairs(some.split("test")) == [(5, 0), (6, 1)]


def test_bmw10_leaves_out_what_no_split_lists(tmp_path: Path) -> None:
    made.bmw10(tmp_path / "bmw10/bmw10_release")
    data = load_benchmark("bmw10", root=tmp_path)
    assert data.labels.names == ("BMW 1", "BMW 2", "BMW 10")
    assert (pairs(data.split("train")), pairs(data.split("test"))) == ([(0, 0), (1, 1), (2, 2)], [(4, 1), (5, 2)])


def test_flowers_have_their_three_splits(tmp_path: Path) -> None:
    made.flowers(tmp_path / "flowers102")
    data = load_benchmark("flowers102", root=tmp_path)
    assert {name: pairs(split) for name, split in data.splits.items()} == {
        "train": [(2, 1), (5, 0)],
        "val": [(1, 76)],
        "test": [(3, 76), (4, 101)],
    }
    assert len(set(ENTRIES["flowers102"].labels)) == 102
    assert (ENTRIES["flowers102"].labels[53], ENTRIES["flowers102"].labels[76]) == ("sunflower", "passion flower")


def test_pacs_divided_and_with_a_domain_left_out(tmp_path: Path) -> None:
    made.pacs(tmp_path / "pacs/PACS")
    data = load_benchmark("pacs", root=tmp_path)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 56, "val": 8, "test": 16}
    for split in data.splits.values():  # each label of each domain gets its share
        parts = Counter(zip(split.domains, split.targets.tolist(), strict=True))
        assert (len(parts), set(parts.values())) == (8, {len(split) // 8})
        for value, target, domain in zip(values(split), split.targets.tolist(), split.domains, strict=True):
            assert (("art_painting", "cartoon", "photo", "sketch")[value // 10], value % 10) == (domain, target)
    left = load_benchmark("pacs", root=tmp_path, protocol="sketch")
    assert set(left.split("test").domains) == {"sketch"}
    assert {len(left.split(name)) for name in ("train", "val", "test")} == {54, 6, 20}
    assert set(left.split("val").domains) == set(left.split("train").domains) == {"art_painting", "cartoon", "photo"}
    again = load_benchmark("pacs", root=tmp_path, protocol="sketch")
    assert again.split("val").files == left.split("val").files
    other = load_benchmark("pacs", root=tmp_path, protocol="sketch", seed=1)
    assert other.split("val").files != left.split("val").files


def test_tinyimagenet_tests_on_its_val(tmp_path: Path) -> None:
    made.tinyimagenet(tmp_path / "tinyimagenet/tiny-imagenet-200")
    data = load_benchmark("tinyimagenet", root=tmp_path)
    assert data.labels.names == ("goldfish", "bullfrog")
    assert pairs(data.split("train")) == [(1, 0), (1, 0), (2, 1), (2, 1)]
    assert pairs(data.split("test")) == [(12, 1), (11, 0)]


def test_lsun_is_all_test_without_labels(tmp_path: Path) -> None:
    made.lsun(tmp_path / "lsun")
    data = load_benchmark("lsun", root=tmp_path)
    assert list(data.splits) == ["test"]
    assert pairs(data.split("test")) == [(1, -1), (2, -1)]


def test_omniglot_from_folders_and_from_zips(tmp_path: Path) -> None:
    made.omniglot(tmp_path / "a/omniglot")
    (tmp_path / "b/omniglot").mkdir(parents=True)
    for name in ("images_background", "images_evaluation"):
        with zipfile.ZipFile(tmp_path / f"b/omniglot/{name}.zip", "w") as packed:
            for path in sorted((tmp_path / "a/omniglot" / name).rglob("*.png")):
                packed.write(path, path.relative_to(tmp_path / "a/omniglot").as_posix())
            packed.writestr("__MACOSX/Greek/character01/._a.png", b"junk")
    for root in ("a", "b"):
        data = load_benchmark("omniglot", root=tmp_path / root)
        assert data.labels.names == ("Greek/character01", "Greek/character02", "Tifinagh/character01")
        assert data.shape == (1, 28, 28)
        assert (pairs(data.split("train")), pairs(data.split("test"))) == ([(0, 0), (1, 1)], [(2, 2)])
        assert data.split("train").groups == ("Greek", "Greek")


def test_an_alphabet_of_both_small_sets_of_omniglot_stays_in_train(tmp_path: Path) -> None:
    for i, alphabets in ((1, ("Greek", "Latin")), (2, ("Latin", "Tagalog"))):
        (tmp_path / "omniglot").mkdir(exist_ok=True)
        with zipfile.ZipFile(tmp_path / f"omniglot/images_background_small{i}.zip", "w") as packed:
            for alphabet in alphabets:
                packed.writestr(f"images_background_small{i}/{alphabet}/character01/1_01.png", made.png(i))
    data = load_benchmark("omniglot", root=tmp_path)
    assert data.split("train").groups == ("Greek", "Latin")
    assert data.split("test").groups == ("Tagalog",)


@pytest.mark.parametrize("flat", [True, False], ids=["flat", "by class"])
def test_miniimagenet_has_other_classes_in_each_split(flat: bool, tmp_path: Path) -> None:
    home = tmp_path / "miniimagenet"
    made.miniimagenet(home)
    if not flat:
        for path in sorted((home / "images").iterdir()):
            (home / "images" / path.name[:2]).mkdir(exist_ok=True)
            shutil.move(path, home / "images" / path.name[:2] / path.name)
    data = load_benchmark("miniimagenet", root=tmp_path)
    assert data.labels.names == ("n0", "n1", "n2")
    for i, split in enumerate(("train", "val", "test")):
        assert pairs(data.split(split)) == [(10 * i, i), (10 * i + 1, i)]


def test_utkface_is_ordered_by_decade_and_by_year(tmp_path: Path) -> None:
    made.utkface(tmp_path / "utkface/UTKFace")
    data = load_benchmark("utkface", root=tmp_path)
    assert data.labels.order == tuple(range(10))
    assert (data.labels.names[2], data.labels.names[9]) == ("20-29", "90+")
    every = [pair for split in data.splits.values() for pair in pairs(split)]
    assert {target: {v for v, t in every if t == target} for _, target in every} == {0: {3}, 2: {25, 29}, 9: {90, 101}}
    assert [each.file.rsplit("/", 1)[1] for each in data.skipped] == ["no_age.jpg"]
    years = load_benchmark("utkface", root=tmp_path, protocol="years")
    assert years.labels.names == ("3", "25", "29", "90", "101")
    assert years.labels.order == (0, 1, 2, 3, 4)
    for value, target in pairs(years.split("test")):
        assert years.labels.names[target] == str(value)


@pytest.mark.parametrize("fold", range(5))
def test_adience_tests_on_a_fold(fold: int, tmp_path: Path) -> None:
    made.adience(tmp_path / "adience")
    data = load_benchmark("adience", root=tmp_path, protocol=f"fold{fold}")
    assert data.labels.names[2] == "8-13"
    assert data.labels.order == tuple(range(8))
    assert pairs(data.split("test")) == [(10 * fold, 2), (10 * fold + 1, 7)]
    assert set(data.split("train").groups) == {f"u{i}" for i in range(5) if i != fold}
    assert [each.reason for each in data.skipped] == ["its age, 35, is none of the 8 groups"]


def test_adience_without_aligned_faces_reads_the_others(tmp_path: Path) -> None:
    made.adience(tmp_path / "adience")
    shutil.rmtree(tmp_path / "adience/aligned")
    put(tmp_path / "adience/faces/u0/coarse_tilt_aligned_face.0.p0.jpg", 77)
    data = load_benchmark("adience", root=tmp_path)
    assert list(data.splits) == ["test"]  # the only one that is there
    assert pairs(data.split("test")) == [(77, 2)]
    assert len(data.skipped) == 1 + 9


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("pets", "annotations/test.txt"),
        ("cub200", "classes.txt"),
        ("cars196", "cars_annos.mat"),
        ("flowers102", "imagelabels.mat"),
        ("tinyimagenet", "val/val_annotations.txt"),
        ("miniimagenet", "val.csv"),
        ("adience", "fold_3_data.txt"),
    ],
)
def test_a_damaged_list_is_named(name: str, file: str, tmp_path: Path) -> None:
    made.MADE[name](tmp_path / name)
    (tmp_path / name / file).write_text("junk\nand junk\n")
    with pytest.raises(DataError, match="Download it again") as caught:
        load_benchmark(name, root=tmp_path)
    assert Path(file).name in str(caught.value) or "classes" in str(caught.value)
