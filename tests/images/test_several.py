"""Several true labels per image: in splits, from every source, and through everything that divides and reports data."""

import csv
import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from labelwise.data import apply_split, arrays, contact_sheet, divide, inspect, load, pack, pool, table, write_split
from labelwise.fitting.encoding import write_features
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.knowledge import Knowledge, with_knowledge
from labelwise.images.describe.labels import Labels
from labelwise.images.overview import ONE_LABEL, lines, missing_pieces
from labelwise.images.sets.finches import MARKS, SPECIES, finches_marks
from labelwise.images.split.leaks import check_leaks
from labelwise.support.errors import DataError, LabelwiseError, UsageError
from tests.conftest import blobs, squares
from tests.pixels_of import px

TRUTHS = torch.tensor([[0, 1, 1], [0, 0, 0], [1, 0, 1], [0, 0, 1]]).bool()


def split(truths: Tensor = TRUTHS) -> Split:
    images = torch.arange(len(truths) * 2).float().view(-1, 2)
    return Split(images=images, targets=truths, files=tuple("abcdefgh"[: len(truths)]))


def truths_of(part: Split) -> Tensor:
    assert part.multilabel
    return torch.as_tensor(part.targets)


def test_targets_follow_their_images() -> None:
    whole = split()
    assert np.array_equal(truths_of(whole.select([2, 0])), TRUTHS[[2, 0]])
    assert np.array_equal(truths_of(whole.join(whole.select([1]))), TRUTHS[[0, 1, 2, 3, 1]])
    assert truths_of(whole.select([])).shape == (0, 3)
    assert truths_of(whole).dtype == torch.bool
    assert whole.words(("x", "y", "z")) == ["y;z", "", "x;z", "z"]
    assert whole.table(3) is whole.targets
    plain = Split(images=px(whole), targets=torch.tensor([1, -1, 0, 2]))
    assert plain.words(("x", "y", "z")) == ["y", "", "x", "z"]
    assert plain.table(3).astype(int).tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1]]
    with pytest.raises(DataError, match="cannot be joined"):
        whole.join(plain)


@pytest.mark.parametrize(
    "targets", [TRUTHS.int(), TRUTHS[:, :0], TRUTHS[:, 0], TRUTHS[:, 0].float(), TRUTHS[..., None]]
)
def test_targets_that_are_neither_positions_nor_yes_and_no_are_refused(targets: Tensor) -> None:
    with pytest.raises(DataError, match=r"Targets must be positions .* given .*" + re.escape(str([*targets.shape]))):
        Split(images=torch.zeros(4, 2), targets=targets)
    with pytest.raises(DataError, match="There are 4 images but 3 targets"):
        Split(images=torch.zeros(4, 2), targets=TRUTHS[:3])


def test_a_data_set_says_yes_or_no_to_its_labels_in_all_splits_or_none() -> None:
    names = Labels(names=("x", "y", "z"))
    assert Dataset(name="d", labels=names, splits={"train": split()}).multilabel
    assert not blobs().multilabel
    with pytest.raises(DataError, match="There are 2 labels, but targets of split train say yes or no to 3"):
        Dataset(name="d", labels=Labels(names=("x", "y")), splits={"train": split(TRUTHS[1:2])})
    plain = Split(images=torch.zeros(1, 2), targets=torch.tensor([0]))
    with pytest.raises(DataError, match="in all or none"):
        Dataset(name="d", labels=names, splits={"train": split(), "test": plain})


def test_labels_known_from_a_description_are_true_of_no_image() -> None:
    names = ("red", "green", "blue", "violet")
    more = with_knowledge(squares(), Knowledge(labels=Labels(names=names, vectors=torch.eye(4))))
    assert more.labels.names == names
    assert np.array_equal(truths_of(more.split("test"))[:, :3], truths_of(squares().split("test")))
    assert not truths_of(more.split("test"))[:, 3].any()


# Sources


def written(root: Path, separator: str = ",", rows: int = 30) -> tuple[Path, dict[str, set[str]]]:
    """A table of pictures with a red, a green, a blue channel switched on, and the labels by file."""
    lines, wanted = [separator.join(("path", "labels", "note"))], {}
    for i in range(rows):
        named = [name for bit, name in enumerate(("rouge é", "green", "blue; "[:4])) if (i % 8) >> bit & 1]
        Image.new("RGB", (4, 4), (i, 5 * (i % 8), 9)).save(root / f"{i}.png")
        lines.append(separator.join((f"{i}.png", f'"{" ; ".join(reversed(named))}"', "x")))
        wanted[f"{i}.png"] = set(named)
    (root / "birds.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root / "birds.csv", wanted


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_names_several_labels(tmp_path: Path, separator: str) -> None:
    file, wanted = written(tmp_path, separator)
    data = load(file, size=4)
    assert data.multilabel
    assert data.labels.names == ("blue", "green", "rouge é")
    found = {
        Path(f).name: set(w.split(";")) - {""}
        for p in data.splits.values()
        for f, w in zip(p.files, p.words(data.labels.names), strict=True)
    }
    assert found == wanted
    for part in data.splits.values():
        assert bool(truths_of(part).any(0).all()), "every split has every label"


def test_features_in_a_table_have_several_labels(tmp_path: Path) -> None:
    rows = [f"{i},{'a;b' if i % 3 == 0 else 'b' if i % 3 == 1 else ''},{i % 7}" for i in range(20)]
    (tmp_path / "x.csv").write_text("\n".join(["f0,labels,f1", *rows]) + "\n")
    data = table(tmp_path / "x.csv")
    whole = pool(data)
    wanted = {float(i): ["a;b", "b", ""][i % 3] for i in range(20)}
    assert dict(zip(px(whole)[:, 0].tolist(), whole.words(data.labels.names), strict=True)) == wanted


def test_a_parquet_table_names_several_labels(tmp_path: Path) -> None:
    pyarrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    columns = {"f0": list(range(8)), "labels": ["a;b", None, "b", "", "a", "a; b", "b", None]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    data = table(tmp_path / "x.parquet")
    whole = pool(data)
    named = dict(zip(px(whole)[:, 0].tolist(), whole.words(data.labels.names), strict=True))
    assert [named[i] for i in range(8)] == ["a;b", "", "b", "", "a", "a;b", "b", ""]


def test_arrays_of_yes_and_no() -> None:
    made = np.random.default_rng(0)
    truths = made.random((60, 3)) < 0.5
    x = made.random((60, 2))
    data = arrays(x, truths, names=["a", "b", "c"])
    whole = pool(data)
    rows = {tuple(row): yes.tolist() for row, yes in zip(x.astype(np.float32).tolist(), truths, strict=True)}
    assert [rows[tuple(row)] for row in px(whole).tolist()] == truths_of(whole).tolist()
    ready = arrays(
        {"train": x[:40], "test": x[40:]}, {"train": truths[:40], "test": truths[40:]}, names=["a", "b", "c"]
    )
    assert truths_of(ready.split("test")).tolist() == truths[40:].tolist()
    assert len(ready.split("val")) > 0


@pytest.mark.parametrize(
    ("truths", "names", "message"),
    [
        (np.ones((4, 2), bool), None, "for 2 labels of each image; name each of them. Names given: 0"),
        (np.ones((4, 2), bool), ["a"], "Names given: 1"),
        (np.ones((3, 2), bool), ["a", "b"], "There are 4 images but 3 targets"),
        (np.array([[1, 0]] * 4, bool), ["a", "b"], r"images of one label only \(a\)"),
        (np.zeros((4, 2), bool), ["a", "b"], r"images of one label only \(none\)"),
        ({"train": np.ones((2, 2), bool), "test": np.ones((2, 3), bool)}, ["a", "b"], "yes or no to the same labels"),
    ],
)  # fmt: skip
def test_yes_and_no_that_do_not_fit_are_refused(truths: object, names: list[str] | None, message: str) -> None:
    x = np.zeros((4, 2), np.float32)
    with pytest.raises(LabelwiseError, match=message):
        arrays({"train": x[:2], "test": x[2:]} if isinstance(truths, dict) else x, truths, names=names)


def test_features_are_written_and_read_with_all_labels(tmp_path: Path) -> None:
    data = squares(60)
    splits = {name: replace(part, images=px(part).flatten(1).float()) for name, part in data.splits.items()}
    write_features(replace(data, splits=splits), tmp_path / "x.npz")
    back = pack(tmp_path / "x.npz")
    assert back.labels.names == data.labels.names
    for name, part in data.splits.items():
        assert np.array_equal(truths_of(back.split(name)), truths_of(part))


# What divides and reports data


def test_a_split_is_saved_with_all_labels_and_read_back(tmp_path: Path) -> None:
    data = squares(30)
    write_split(data, tmp_path / "s.csv")
    with (tmp_path / "s.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["labels"] for row in rows] == pool(data).words(data.labels.names)
    again = apply_split(data, tmp_path / "s.csv")
    for name, part in data.splits.items():
        assert np.array_equal(truths_of(again.split(name)), truths_of(part))
    text = (tmp_path / "s.csv").read_text().replace(rows[0]["labels"], "violet", 1)
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(DataError, match='is labelled "violet" but in "squares" it is'):
        apply_split(data, tmp_path / "s.csv")


def test_data_are_divided_anew_with_every_label_in_every_split() -> None:
    data = squares(120)
    done = divide(data, "stratified", seed=3)
    for part in done.splits.values():
        share = truths_of(part).double().mean(0)
        assert float((share - truths_of(pool(data)).double().mean(0)).abs().max()) < 0.2
    with pytest.raises(UsageError, match="none can be unseen as a whole"):
        divide(data, "zero-shot")


def test_equal_images_with_different_labels_are_found() -> None:
    images = torch.zeros(3, 2)
    truths = torch.tensor([[True, True], [True, False], [True, False]])
    part = Split(images=images, targets=truths)
    report = check_leaks(Dataset(name="d", labels=Labels(names=("x", "y")), splits={"train": part}))
    assert [place.label for place in report.conflicts[0]] == ["x;y", "x", "x"]


def test_an_inspection_counts_each_label_of_an_image() -> None:
    data = squares(60)
    found = inspect(data)
    for i, name in enumerate(data.labels.names):
        assert found.counts[name] == {s: int(truths_of(p)[:, i].sum()) for s, p in data.splits.items()}
    assert found.images == {"train": 20, "val": 20, "test": 20}
    assert found.unlabelled == {s: int((~truths_of(p)).all(1).sum()) for s, p in data.splits.items()}
    assert json.loads(json.dumps(asdict(found)))["multilabel"] is True
    needs = {"indicator": ("targets",), "softmax": ("targets", ONE_LABEL)}
    assert missing_pieces(found, needs) == {"indicator": (), "softmax": ("one_label",)}
    said = lines(found, needs)
    mean = float(truths_of(pool(data)).sum() / 60)
    assert f"Several labels may be true of one image: {mean:.1f} on average." in said
    assert any(line.startswith("None of the labels is true: ") for line in said)
    assert said[-2:] == [
        "Methods that can train on this: indicator.",
        "Methods that would need images of one label each (here several may be true): softmax.",
    ]


def test_a_sheet_shows_an_image_under_each_of_its_labels(tmp_path: Path) -> None:
    images = torch.full((1, 3, 8, 8), 200, dtype=torch.uint8)
    both = Split(images=images, targets=torch.tensor([[True, True]]))
    one = Split(images=images, targets=torch.tensor([[True, False]]))
    widths = []
    for name, part in (("both", both), ("one", one)):
        data = Dataset(name=name, labels=Labels(names=("x", "y")), splits={"train": part})
        contact_sheet(data, tmp_path / f"{name}.png", images=1)
        with Image.open(tmp_path / f"{name}.png") as sheet:
            widths.append(sheet.size[0] * sheet.size[1])
    assert widths[0] > widths[1]


# The embedded birds


def test_marks_of_the_birds_are_those_of_their_species() -> None:
    data = finches_marks(per_species=4)
    whole = pool(data)
    assert data.labels.names == tuple(MARKS)
    for file, row in zip(whole.files, truths_of(whole).tolist(), strict=True):
        bird = SPECIES[file.split("/")[0]]
        assert row == [has(bird) for has in MARKS.values()]
    number = truths_of(whole).sum(1)
    assert int(number.min()) == 0
    assert int(number.max()) > 2
    assert bool(truths_of(data.split("train")).any(0).all())
