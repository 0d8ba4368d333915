"""The one way from any source to a data set: what is known about labels is read once, and counts for each of them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from labelwise.data import find_knowledge, load
from labelwise.images.describe import knowledge_files
from labelwise.images.describe.labels import Labels
from labelwise.images.images import FeatureRows
from labelwise.images.sources.build import build
from labelwise.images.sources.rows import Rows
from labelwise.support.errors import DataError
from labelwise_papers.benchmarks.xlsa17 import ZeroShotData, write_xlsa17
from tests.images.samples import write
from tests.papers.sound.test_wav_files import riff
from tests.pixels_of import px

LABELS = ["owl", "kiwi"] * 6 + ["okapi"] * 2
SPLITS = ["train"] * 12 + ["test"] * 2
X = np.arange(28, dtype=np.float32).reshape(14, 2)


def in_folders(root: Path) -> Path:
    write(root / "train", {"owl": 6, "kiwi": 6})
    write(root / "test", {"okapi": 2})
    return root


def in_table(root: Path) -> Path:
    write(root, {"owl": 6, "kiwi": 6, "okapi": 2})
    lines = [f"{file.relative_to(root)},{file.parent.name}" for file in sorted(root.rglob("*.png"))]
    lines = [f"{line},{'test' if 'okapi' in line else 'train'}" for line in lines]
    (root / "birds.csv").write_text("\n".join(["path,label,split", *lines]))
    return root / "birds.csv"


def in_feature_table(root: Path) -> Path:
    rows = [f"{x[0]},{x[1]},{label},{split}" for x, label, split in zip(X, LABELS, SPLITS, strict=True)]
    (root / "birds.csv").write_text("\n".join(["f0,f1,label,split", *rows]))
    return root / "birds.csv"


def in_parquet(root: Path) -> Path:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"f0": X[:, 0], "f1": X[:, 1], "label": LABELS, "split": SPLITS}
    parquet.write_table(pyarrow.table(columns), root / "birds.parquet")
    return root / "birds.parquet"


def in_pack(root: Path) -> Path:
    np.savez(root / "birds.npz", features=X, labels=LABELS, split=SPLITS)
    return root / "birds.npz"


def in_npy(root: Path) -> Path:
    np.save(root / "birds.npy", X)
    rows = [f"{label},{split}" for label, split in zip(LABELS, SPLITS, strict=True)]
    (root / "birds.csv").write_text("\n".join(["label,split", *rows]))
    return root / "birds.npy"


def in_sounds(root: Path) -> Path:
    for i, (label, split) in enumerate(zip(LABELS, SPLITS, strict=True)):
        (root / split / label).mkdir(parents=True, exist_ok=True)
        (root / split / label / f"{i}.wav").write_bytes(riff(1, 16, bytes([i, 0] * 9)))
    return root


def in_xlsa17(root: Path) -> Path:
    labels = Labels(names=("kiwi", "okapi", "owl"), vectors=torch.eye(3))
    rows = {"trainval": torch.arange(10), "test_seen": torch.tensor([10, 11]), "test_unseen": torch.tensor([12, 13])}
    targets = torch.tensor([labels.index(label) for label in LABELS])
    data = ZeroShotData(name="birds", features=torch.from_numpy(X), targets=targets, labels=labels, rows=rows)
    write_xlsa17(root, data)
    return root


def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The tables about labels that are read from now on."""
    times: list[Path] = []
    read = knowledge_files.read_table

    def counted(file: Path) -> tuple[list[str], knowledge_files.Fields]:
        times.append(file)
        return read(file)

    monkeypatch.setattr(knowledge_files, "read_table", counted)
    return times


SOURCES = [in_folders, in_table, in_feature_table, in_parquet, in_pack, in_npy, in_sounds, in_xlsa17]


@pytest.mark.parametrize("source", SOURCES)
def test_labels_are_read_once_and_describe_what_train_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Callable[[Path], Path]
) -> None:
    path = source(tmp_path)
    (tmp_path / "labels.csv").write_text("label,text\nowl,a night bird\nkiwi,a small bird\nokapi,striped legs\n")
    times = reads(monkeypatch)
    data = load(path)
    assert times == [tmp_path / "labels.csv"]
    assert data.labels.names == ("kiwi", "okapi", "owl")
    assert data.labels.texts == (("a small bird",), ("striped legs",), ("a night bird",))
    okapi = data.labels.index("okapi")
    assert okapi not in data.split("train").targets.tolist()
    assert data.split("test").targets.tolist().count(okapi) == 2


def test_each_file_beside_the_data_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "labels.csv").write_text("label,text\nowl,a night bird\nkiwi,a small bird\n")
    (tmp_path / "similarity.csv").write_text(",kiwi,owl\nkiwi,1,0\nowl,0,1\n")
    times = reads(monkeypatch)
    found = find_knowledge(tmp_path)
    assert found is not None
    assert found.labels.names == ("owl", "kiwi")
    assert [file.name for file in times] == ["labels.csv", "similarity.csv"]


def test_columns_of_other_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="There are 3 images but 2 targets"):
        Rows(names=("a",), targets=torch.zeros(2, dtype=torch.int64), images=FeatureRows(np.zeros((3, 1), np.float32)))
    with pytest.raises(DataError, match="There are 2 images but 1 groups"):
        Rows(names=("a",), targets=torch.zeros(2, dtype=torch.int64), groups=("x",))


def test_labels_without_a_row_are_dropped() -> None:
    rows = Rows(names=("a", "b", "c"), targets=torch.tensor([2, -1, 0])).without_absent()
    assert (rows.names, rows.targets.tolist()) == (("a", "c"), [1, -1, 0])
    truths = torch.tensor([[True, False, True], [False, False, True]])
    rows = Rows(names=("a", "b", "c"), targets=truths).without_absent()
    assert rows.names == ("a", "c")
    assert rows.targets.tolist() == [[True, True], [False, True]]


def test_a_source_may_divide_in_its_own_way() -> None:
    rows = Rows(
        names=("a", "b"), targets=torch.arange(6) % 2, images=FeatureRows(np.arange(6, dtype=np.float32)[:, None])
    )
    data = build("six", rows, parts={"train": np.arange(4), "test": np.array([4, 5])})
    assert {name: px(split)[:, 0].tolist() for name, split in data.splits.items()} == {
        "train": [0, 1, 2, 3],
        "test": [4, 5],
    }
    assert data.own_splits
