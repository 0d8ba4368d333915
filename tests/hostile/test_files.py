"""Files that never end: a pipe, a link to a device, a sparse file of a terabyte, in place of each file that a user can name."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.cli.inputs import read_names
from labelwise.cli.name import _rows
from labelwise.core.load import load
from labelwise.encoders.efficientnet import read_weights as read_published
from labelwise.encoders.onnx import open_onnx
from labelwise.images.corrections import read_corrections
from labelwise.images.describe.knowledge_files import read_labels
from labelwise.images.describe.words import read_vectors
from labelwise.images.split.divide import moments
from labelwise.support.errors import LabelwiseError
from labelwise.support.files import open_regular, read_regular, read_text, regular_path
from labelwise.tasks.gallery import load_gallery
from labelwise.train.networks.weights import read_weights
from labelwise.train.pretraining import read_encoder
from labelwise_papers.benchmarks.mat_files import read_mat
from labelwise_papers.recipe import read_recipe
from tests.conftest import blobs
from tests.hostile.parsers import model_folder

TERABYTE = 2**40
SECONDS = 20  # far more than any refusal takes, far less than reading a terabyte does


def load_beside(file: Path) -> object:
    """Features in a ``.npy`` file whose labels lie beside it."""
    np.save(file.with_suffix(".npy"), np.ones((4, 2), np.float32))
    return lw.data.load(file.with_suffix(".npy"))


def load_model(file: Path) -> object:
    """A saved classifier of which one file is this one."""
    for piece in Path(model_folder()).iterdir():
        if not os.path.lexists(file.parent / piece.name):
            (file.parent / piece.name).write_bytes(piece.read_bytes())
    return load(file.parent)


READERS: dict[str, Callable[[Path], Any]] = {
    "t.csv": lw.data.load,
    "t.parquet": lw.data.load,
    "t.npz": lw.data.load,
    "t.npy": lw.data.features,
    "t.tar": lw.data.load,
    "beside.csv": load_beside,
    "labels.json": read_labels,
    "labels.toml": read_labels,
    "labels.txt": read_labels,
    "labels.csv": read_labels,
    "words.txt": read_vectors,
    "words.txt.gz": read_vectors,
    "words.bin": read_vectors,
    "words.npz": read_vectors,
    "words.npy": lambda file: (file.with_suffix(".txt").write_text("a\n"), read_vectors(file)),
    "classifier.json": load_model,
    "weights.safetensors": load_model,
    "encoder.onnx": load_model,
    "encoder.json": lambda file: open_onnx(file.with_suffix(".onnx")),
    "w.safetensors": read_weights,
    "e.safetensors": read_encoder,
    "w.pth": read_published,
    "g.gallery": load_gallery,
    "names.txt": lambda file: read_names(str(file)),
    "answers.csv": _rows,
    "split.csv": lambda file: lw.data.apply_split(blobs(), file),
    "m.mat": read_mat,
    "r.toml": read_recipe,
}


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    """What waits or reads without end is stopped."""

    def stop(*_: object) -> None:
        raise AssertionError("it was still being read")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(file: Path) -> None:
    os.mkfifo(file)


def device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def sparse(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(TERABYTE)


@pytest.mark.parametrize("make", [pipe, device, sparse])
@pytest.mark.parametrize("name", READERS)
def test_what_never_ends_is_refused(name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / name)
    with pytest.raises(LabelwiseError):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("make", [pipe, device, sparse])
def test_a_photo_that_never_ends_is_left_out(make: Callable[[Path], None], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(8):
        file = tmp_path / "photos" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(file)
    make(tmp_path / "photos" / "a" / "endless.png")
    data = lw.data.load(tmp_path / "photos", size=8)
    assert [Path(each.file).name for each in data.skipped] == ["endless.png"]
    assert moments([str(tmp_path / "photos" / "a" / "endless.png")]) == ("",)


def test_the_opener_reads_no_more_than_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"\xef\xbb\xbfab")
    assert read_regular(file) == file.read_bytes()
    assert read_text(file, encoding="utf-8-sig") == "ab"
    assert regular_path(file) == str(file)
    for read in (read_regular, read_text, regular_path, open_regular):
        with pytest.raises(OSError, match="the limit is 4"):
            read(file, 4)
        for make in (pipe, device):
            (tmp_path / "y").unlink(missing_ok=True)
            make(tmp_path / "y")
            with pytest.raises(OSError, match="not a file"):
                read(tmp_path / "y")
        with pytest.raises(OSError, match="a folder, not a file"):
            read(tmp_path)


LONG = "x" * 300  # more than a file system takes


@pytest.mark.parametrize("word", [LONG, f"{LONG}.csv", f"{LONG}.tar", f"{LONG}/a.png", f"{LONG}.onnx", "a/" * 2500])
def test_a_name_that_no_file_can_have_is_refused_in_words(word: str, tmp_path: Path) -> None:
    classifier = lw.load(model_folder())
    tries: tuple[Callable[[], Any], ...] = (
        lambda: lw.load(word),
        lambda: lw.fit(word),
        lambda: lw.fit(blobs(), encoder=word),
        lambda: lw.classify(classifier, [word]),
        lambda: lw.save(classifier, tmp_path / word),
    )
    for attempt in tries:
        with pytest.raises(LabelwiseError):
            attempt()


def test_corrections_and_names_that_no_file_can_have(tmp_path: Path) -> None:
    table = tmp_path / "corrections.csv"
    table.write_text(f"image,label\n{LONG},a\n")
    with pytest.raises(LabelwiseError, match="there is no image"):
        read_corrections(table)
    for words in ("cat\rdog", "cat\ndog"):
        with pytest.raises(LabelwiseError, match="no names"):
            read_names(words)
