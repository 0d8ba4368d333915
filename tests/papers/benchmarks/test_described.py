"""Sentences in place of label vectors: whose captions describe a label, and which images are tested then."""

import gzip
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from labelwise.data import load
from labelwise.images.dataset import Dataset
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import DataError, UsageError
from labelwise_papers.benchmarks import ENTRIES, load_benchmark
from labelwise_papers.benchmarks.described import CAPTIONS, CAPTIONS_FILE, CONCEPT_FILES, Captions, captioned
from labelwise_papers.benchmarks.mat_files import cells
from labelwise_papers.benchmarks.xlsa17 import ZeroShotData
from tests.pixels_of import px

ROOT = Path(os.environ.get("LABELWISE_DATA", "none"))
SEEN, UNSEEN, EACH = 8, 3, 9  # six images of a seen class are for training, three are tested
FOLDERS = tuple(f"{i:03d}.Bird_number_{chr(65 + i)}" for i in range(1, SEEN + UNSEEN + 1))
FILES = tuple(f"{folder}/b_{(5 * i) % EACH}.jpg" for folder in FOLDERS for i in range(EACH))
TEXTS = {file: [f"a bird like {file}", f"number {i}"] for i, file in enumerate(FILES)}  # no two images share a sentence


def write_json(file: Path, held: object) -> None:
    file.write_bytes(gzip.compress(json.dumps(held).encode()))


def make(root: Path, captions: Mapping[str, object]) -> Path:
    """Packed features (feature 0 is the row) of eleven classes, their splits, the list of files, and captions."""
    k, n = len(FOLDERS), len(FILES)
    rows = np.arange(n)
    held = {
        "allclasses_names": cells(FOLDERS),
        "att": np.eye(k),
        "trainval_loc": 1 + rows[(rows < SEEN * EACH) & (rows % EACH < 6)][:, None],
        "test_seen_loc": 1 + rows[(rows < SEEN * EACH) & (rows % EACH >= 6)][:, None],
        "test_unseen_loc": 1 + rows[rows >= SEEN * EACH][:, None],
    }
    (root / "gzsl_splits/CUB").mkdir(parents=True)
    savemat(root / "gzsl_splits/CUB/att_splits.mat", held)
    q = np.stack([rows, rows], 1).astype(np.uint8)
    np.savez(root / "cub_res50.npz", q=q, scale=np.ones(2, np.float32), labels=rows // EACH, att_col=np.arange(k))
    np.savez(root / "cub200_64.npz", files=np.array(FILES))
    write_json(root / CAPTIONS_FILE, captions)
    return root


def read(root: Path, protocol: str, seed: int = 0) -> Dataset:
    return load_benchmark("cub", root=root, protocol=protocol, seed=seed)


def texts_of(data: Dataset) -> tuple[tuple[str, ...], ...]:
    assert data.labels.texts is not None
    return data.labels.texts


def said_of(file: str, data: Dataset) -> bool:
    """Return whether any sentence of an image is in the texts of any label."""
    return any(not set(TEXTS[file]).isdisjoint(texts) for texts in texts_of(data))


def test_strict_labels_are_described_by_images_that_are_not_tested(tmp_path: Path) -> None:
    data = read(make(tmp_path, TEXTS), "captions")
    train, val, test = (data.split(name) for name in ("train", "val", "test"))
    assert not any(said_of(file, data) for file in test.files)
    assert all(said_of(file, data) for file in (*train.files, *val.files))
    for target, texts in enumerate(texts_of(data)):  # a slow obvious reference
        own = [file for file in FILES if file.startswith(FOLDERS[target]) and file not in test.files]
        assert texts == tuple(text for file in own for text in TEXTS[file])
    counts = np.bincount(test.targets).tolist()
    assert counts == [3] * SEEN + [EACH // 2] * UNSEEN  # of nine, five describe and four are tested
    assert (len(train), len(val)) == (6 * (SEEN - 2), 6 * 2)


@pytest.mark.parametrize("protocol", sorted(CAPTIONS))
def test_train_and_val_keep_their_captions_and_test_has_none(protocol: str, tmp_path: Path) -> None:
    data = read(make(tmp_path, TEXTS), protocol)
    assert data.labels.vectors is None
    assert data.split("test").texts == ()
    for name in ("train", "val"):
        split = data.split(name)
        own = tuple(tuple(TEXTS[file]) for file in split.files)
        assert split.texts == (own if CAPTIONS[protocol].of_images else ())
        assert int(split.targets.max()) < SEEN
    for split in data.splits.values():  # features, files and labels stay together
        assert [FILES[int(row)] for row in px(split)[:, 0]] == list(split.files)
        assert [data.labels.names[i] for i in split.targets.tolist()] == [
            file.split("/")[0][4:].replace("_", " ") for file in split.files
        ]


def test_captions_of_labels_differ_in_what_training_images_have_alone(tmp_path: Path) -> None:
    strict, bare = read(make(tmp_path, TEXTS), "captions"), read(tmp_path, "captions_of_labels")
    assert texts_of(bare) == texts_of(strict)
    for name in ("train", "val", "test"):
        assert bare.split(name).files == strict.split(name).files
    assert strict.split("train").texts
    assert not bare.split("train").texts


def test_the_paper_describes_with_test_images_and_the_control_differs_in_texts_alone(tmp_path: Path) -> None:
    strict, paper, control = (read(make(tmp_path, TEXTS) if i == 0 else tmp_path, f"captions{word}")
                              for i, word in enumerate(("", "_paper", "_control")))  # fmt: skip
    assert texts_of(paper) == texts_of(control)
    assert texts_of(paper) == tuple(
        tuple(text for file in FILES if file.startswith(folder) for text in TEXTS[file]) for folder in FOLDERS
    )
    assert len(paper.split("test")) == 3 * SEEN + EACH * UNSEEN
    for name in ("train", "val", "test"):
        assert control.split(name).files == strict.split(name).files
    assert all(said_of(file, control) for file in control.split("test").files)


def test_the_seed_draws_val_but_not_the_images_set_aside(tmp_path: Path) -> None:
    make(tmp_path, TEXTS)
    several = [read(tmp_path, "captions", seed) for seed in range(4)]
    assert len({data.split("val").files for data in several}) > 1
    assert len({data.split("test").files for data in several}) == 1
    assert len({texts_of(data) for data in several}) == 1


def test_images_without_captions_and_their_classes_are_left_out(tmp_path: Path) -> None:
    some = {file: texts for file, texts in TEXTS.items() if not file.startswith(FOLDERS[1])} | {FILES[0]: [" "]}
    data = read(make(tmp_path, some), "captions")
    assert data.labels.names == tuple(folder[4:].replace("_", " ") for i, folder in enumerate(FOLDERS) if i != 1)
    assert FILES[0] not in data.split("train").files + data.split("val").files
    assert sum(len(data.split(name)) for name in ("train", "val")) == 6 * (SEEN - 1) - 1


def test_the_official_list_serves_where_the_pack_of_pictures_is_missing(tmp_path: Path) -> None:
    make(tmp_path, TEXTS)
    packed = read(tmp_path, "captions")
    (tmp_path / "cub200_64.npz").unlink()
    with pytest.raises(DataError, match=r'Put "images.txt" of CUB-200-2011 into'):
        read(tmp_path, "captions")
    lines = [f"{i} {file}\n" for i, file in enumerate(FILES, 1)]
    (tmp_path / "cub200/CUB_200_2011").mkdir(parents=True)
    (tmp_path / "cub200/CUB_200_2011/images.txt").write_text("".join(lines))
    assert read(tmp_path, "captions").split("test").files == packed.split("test").files


def test_official_features_bring_their_own_file_names(tmp_path: Path) -> None:
    make(tmp_path, TEXTS)
    packed, home = read(tmp_path, "captions"), tmp_path / "xlsa17/data/CUB"
    home.mkdir(parents=True)
    (tmp_path / "gzsl_splits/CUB/att_splits.mat").rename(home / "att_splits.mat")
    rows = np.arange(len(FILES))
    images = {"features": rows[None].repeat(2, 0).astype(float), "labels": 1 + (rows // EACH)[:, None]}
    savemat(home / "res101.mat", {**images, "image_files": cells([f"/data/CUB/images/{file}" for file in FILES])})
    (tmp_path / "cub200_64.npz").unlink()
    assert read(tmp_path, "captions").split("test").files == packed.split("test").files


@pytest.mark.parametrize("files", [FILES[::-1], FILES[:-1]], ids=["order", "count"])
def test_file_names_of_other_images_are_refused(files: tuple[str, ...], tmp_path: Path) -> None:
    np.savez(make(tmp_path, TEXTS) / "cub200_64.npz", files=np.array(files))
    with pytest.raises(DataError, match=f"The {len(files)} file names of .* do not belong"):
        read(tmp_path, "captions")


def test_missing_and_damaged_sentences_are_told(tmp_path: Path) -> None:
    file = make(tmp_path, {"other.jpg": ["a bird"]}) / CAPTIONS_FILE
    with pytest.raises(DataError, match='No image of "cub" has a caption'):
        read(tmp_path, "captions")
    write_json(file, {"a.jpg": "a bird"})
    with pytest.raises(DataError, match="a list of sentences"):
        read(tmp_path, "captions")
    for junk in (b"junk", gzip.compress(b"{"), file.read_bytes()[:-9]):
        file.write_bytes(junk)
        with pytest.raises(DataError, match="is not gzipped JSON, or it is damaged"):
            read(tmp_path, "captions")
    file.unlink()
    with pytest.raises(DataError, match=f"{CAPTIONS_FILE}.* is missing"):
        read(tmp_path, "captions")


def test_at_most_a_hundred_images_describe_a_label() -> None:
    n = 120
    targets = torch.tensor([0] * n + [1] * 4 + [2] * 4)
    rows = {
        "trainval": torch.arange(n + 2),
        "test_seen": torch.tensor([n + 2, n + 3]),
        "test_unseen": n + 4 + torch.arange(4),
    }
    files = tuple(f"{i}.jpg" for i in range(len(targets)))
    labels = Labels(names=("a", "b", "c"), vectors=torch.eye(3))
    held = ZeroShotData(
        name="cub", features=torch.zeros(len(targets), 1), targets=targets, labels=labels, rows=rows, files=files
    )
    data = captioned(held, {file: (file,) for file in files}, CAPTIONS["captions"], 0)
    assert texts_of(data)[0] == files[:100]
    assert texts_of(data)[1] == files[n : n + 2]


def test_an_image_that_describes_cannot_be_tested_under_a_strict_name() -> None:
    with pytest.raises(UsageError, match="of_tested=True"):
        Captions(of_tested=False, test_set_aside=True)


def test_sentences_about_classes_replace_vectors_and_keep_the_splits(tmp_path: Path) -> None:
    make(tmp_path, TEXTS)
    about = {f"bird-number {chr(65 + i).lower()}": [f"bird {i}", "", "has wings"] for i in range(1, 12)}
    write_json(tmp_path / CONCEPT_FILES["cub"], dict(sorted(about.items(), reverse=True)))
    data, plain = load("cub/labo", root=tmp_path, seed=3), load("cub", root=tmp_path, seed=3)
    assert data.labels.vectors is None
    assert texts_of(data) == tuple((f"bird {i}", "has wings") for i in range(1, 12))
    for name, split in plain.splits.items():
        assert np.array_equal(px(data.split(name)), px(split))
        assert data.split(name).texts == ()
    write_json(tmp_path / CONCEPT_FILES["cub"], {**about, "bird-number d": [" "]})
    with pytest.raises(DataError, match=r"about these labels of .*: Bird number D"):
        load("cub/labo", root=tmp_path)


@cache
def _real(word: str) -> Dataset:
    name, _, protocol = word.partition("/")
    sentences = CONCEPT_FILES[name] if protocol == "labo" else CAPTIONS_FILE
    missing = [file for file in (*ENTRIES[name].packs, sentences, "cub200_64.npz") if not (ROOT / file).is_file()]
    if missing:
        pytest.skip(f"LABELWISE_DATA does not hold {missing[0]}")
    return load(word, root=ROOT)


@pytest.mark.parametrize(
    ("word", "labels", "images", "sentences"),
    [
        ("cub/captions", 55, (1_151, 538, 982), 22_260),
        ("cub/captions_paper", 55, (1_151, 538, 1_519), 32_080),
        ("flo/labo", 102, (3_928, 1_703, 2_558), 46_132),
    ],
)
def test_real_sentences(word: str, labels: int, images: tuple[int, ...], sentences: int) -> None:
    data = _real(word)
    assert len(data.labels) == labels
    assert tuple(len(data.split(name)) for name in ("train", "val", "test")) == images
    assert sum(map(len, texts_of(data))) == sentences
    assert min(map(len, texts_of(data))) > 200


def test_real_strict_captions_never_come_from_a_tested_image() -> None:
    data = _real("cub/captions")
    captions = json.loads(gzip.decompress((ROOT / CAPTIONS_FILE).read_bytes()))
    tested = set(data.split("test").files)
    assert len(tested) == len(data.split("test"))
    trained = {*data.split("train").files, *data.split("val").files}
    aside = [file for file in captions if file not in tested | trained]
    for name, texts in zip(data.labels.names, texts_of(data), strict=True):
        own = [file for file in captions if file.split("/")[0][4:].replace("_", " ") == name]
        untested = [file for file in own if file in trained] or [file for file in own if file in aside]
        assert sorted(texts) == sorted(text for file in untested for text in captions[file])
    seen = set(data.split("train").targets.tolist()) | set(data.split("val").targets.tolist())
    assert (len(seen), len(set(data.split("test").targets.tolist()) - seen)) == (37, 18)
