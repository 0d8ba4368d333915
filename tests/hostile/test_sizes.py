"""Files that unpack to more than memory holds are refused by what their headers say, before anything is unpacked."""

import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.io import savemat

import labelwise as lw
from labelwise.images.describe.knowledge_files import read_labels
from labelwise.images.describe.words import read_vectors
from labelwise.images.sources.csv_files import read_csv
from labelwise.images.sources.parquet import read_parquet
from labelwise.support import files
from labelwise.support.errors import DataError, LabelwiseError, StoreError, UsageError, suggest
from labelwise.support.files import read_tensors
from labelwise.train.networks.weights import read_weights
from labelwise_papers.benchmarks.mat_files import read_mat
from labelwise_papers.sound.wav_files import read_sounds
from tests.forks import Fork, shell
from tests.hostile import corpus
from tests.hostile.corpus import mat_array, mat_element

SMALL = 0.01  # gigabytes that are allowed here


@pytest.fixture(autouse=True)
def _limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(files.VARIABLE, str(SMALL))


@pytest.mark.parametrize("name", corpus.TOO_LARGE)
def test_data_that_would_take_too_much_memory_are_refused(name: str, tmp_path: Path) -> None:
    file = corpus.TOO_LARGE[name](tmp_path / name)
    with pytest.raises(DataError, match=r"GB of memory, and 0\.01 GB are allowed.*--max-gb"):
        lw.data.load(file)


@pytest.mark.parametrize("name", corpus.DAMAGED)
def test_a_zip_that_lies_about_its_entries_is_damaged(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        lw.data.load(corpus.DAMAGED[name](tmp_path / name))


def peak_of(code: str, *words: str) -> int:
    """The most memory in megabytes that a few lines of Python take beyond what they take without their last one."""
    script = (
        "import resource, sys\n"
        "from labelwise.support.errors import LabelwiseError\n"
        f"{code.rpartition(chr(10))[0]}\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"try:\n    {code.rpartition(chr(10))[2]}\nexcept LabelwiseError as error:\n    pass\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_what_is_refused_takes_no_memory(tmp_path: Path) -> None:
    """In processes of their own, since a peak never falls: a file that understates itself, and a text in many rows."""
    load = "import labelwise as lw, torch\nlw.data.load(sys.argv[1])"
    assert peak_of(load, str(corpus.understated_zip(tmp_path / "a.npz"))) < 150
    assert peak_of(load, str(corpus.long_parquet(tmp_path / "b.parquet"))) < 300


def test_a_text_in_many_rows_is_read_once(tmp_path: Path) -> None:
    cells = read_parquet(corpus.long_parquet(tmp_path / "long.parquet")).cells["text"]
    assert len(cells) == 1000
    assert len({id(cell) for cell in cells}) == 1


@pytest.mark.parametrize("make", [corpus.packed_mat, corpus.understated_mat, corpus.promised_cells])
def test_mat_files(make: Callable[[Path], Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"are allowed|1000000000 cells"):
        read_mat(make(tmp_path / "x.mat"))


def test_elements_of_a_mat_file_that_would_end_the_process_do_not_reach_scipy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="an element of kind 8976"):
        read_mat(corpus.unknown_element(tmp_path / "x.mat"))
    with pytest.raises(DataError, match="does not say what it is, or how large it is"):
        read_mat(corpus.array_without_sides(tmp_path / "y.mat"))
    cut = mat_array(b"", (1, 1), 4, struct.pack("<HH4s", 16, 1, b"a"))
    cut = cut[:4] + struct.pack("<I", len(cut) - 7) + cut[8:]  # what follows is then read from where it does not begin
    with pytest.raises(DataError, match="an element is cut off"):
        read_mat(corpus.mat(tmp_path / "z.mat", mat_array(b"names", (2, 1), 1, cut * 2)))
    half = mat_array(b"x", (1, 1), 0x0800 + 6, mat_element(9, bytes(8)))  # it says that it is complex
    with pytest.raises(DataError, match="class 6 is made of other elements"):
        read_mat(corpus.mat(tmp_path / "c.mat", half))


@pytest.mark.parametrize("version", ["4", "5"])
def test_good_mat_files_of_both_versions_are_read(version: Literal["4", "5"], tmp_path: Path) -> None:
    savemat(tmp_path / "x.mat", {"features": np.arange(6.0).reshape(2, 3), "word": "abc"}, format=version)
    fields = read_mat(tmp_path / "x.mat")
    assert fields["features"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert fields["word"].tolist() == ["abc"]


def test_a_mat_file_whose_inner_cells_lie_takes_no_memory(tmp_path: Path) -> None:
    read = "from pathlib import Path\nfrom scipy.io import loadmat\nfrom labelwise_papers.benchmarks.mat_files import read_mat\nread_mat(Path(sys.argv[1]))"
    assert peak_of(read, str(corpus.promised_inner_cells(tmp_path / "x.mat"))) < 150


def test_a_limit_is_a_setting_of_the_call_of_the_process_or_half_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = corpus.npz(tmp_path / "a.npz", features=corpus.npy((1000, 1000), "<f4", bytes(4 * 10**6)))
    assert len(lw.data.load(file).splits["train"])
    with pytest.raises(DataError, match=r"0\.004 GB of memory, and 0\.001 GB are allowed"):
        lw.data.load(file, max_gb=0.001)
    monkeypatch.setenv(files.VARIABLE, "0.001")
    assert len(lw.data.load(file, max_gb=1).splits["train"])
    monkeypatch.delenv(files.VARIABLE)
    assert files.max_bytes() == files.memory() / 2
    for wrong in ("much", "0", "-1", "nan"):
        monkeypatch.setenv(files.VARIABLE, wrong)
        with pytest.raises(UsageError, match=files.VARIABLE):
            files.max_bytes()
    with pytest.raises(UsageError, match="max_gb"):
        lw.data.load(file, max_gb=0)


def test_word_vectors(tmp_path: Path) -> None:
    for file in (corpus.word_bomb(tmp_path / "words.txt.gz"), corpus.promised_words(tmp_path / "words.bin")):
        with pytest.raises(DataError, match="are allowed"):
            read_vectors(file)


def test_sounds(tmp_path: Path) -> None:
    good, slow = corpus.wav(tmp_path / "good.wav", bytes(range(200))), corpus.slow_sound(tmp_path / "slow.wav")
    huge = corpus.sparse_file(tmp_path / "huge.wav", good.read_bytes())
    liar = corpus.wav(tmp_path / "liar.wav", bytes(range(200)), promised=2**32 - 1)
    sounds, rows, skipped = read_sounds([good, slow, huge, liar], 16_000, 100)
    assert rows == [0, 3]
    assert np.array_equal(sounds[0], sounds[1])
    assert all("are allowed" in one.reason for one in skipped)
    with pytest.raises(DataError, match="are allowed"):
        read_sounds([good] * 1000, 16_000, 10**6)


def test_a_rate_that_has_nothing_in_common_takes_no_memory(tmp_path: Path) -> None:
    """The filter from 999,983 samples per second to 16,000 has twenty million numbers."""
    odd = corpus.wav(tmp_path / "odd.wav", bytes(range(200)), rate=999_983)
    assert "are allowed" in read_sounds([odd], 16_000, 100)[2][0].reason
    usual = corpus.wav(tmp_path / "usual.wav", bytes(range(200)), rate=44_100)
    assert read_sounds([usual], 16_000, 100)[1] == [0]


def test_tensors_and_weights(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save_file({"x": torch.zeros(4)}, file)
    corpus.sparse_file(file, file.read_bytes())
    for read in (read_tensors, read_weights):
        with pytest.raises(StoreError, match="are allowed"):
            read(file)


LIES = {
    "far": {"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 10**15]}},
    "wide": {"x": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 16]}},
    "unknown": {"x": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}},
    "deep": {"__metadata__": {"about": "[" * 100_000}},
    "list": {"__metadata__": {"about": "[1]"}, "x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}},
}


@pytest.mark.parametrize("name", LIES)
def test_headers_of_safetensors_that_lie(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        read_tensors(corpus.safetensors(tmp_path / "a.safetensors", LIES[name]))
    if name not in ("deep", "list"):  # a document beside the weights is not read
        with pytest.raises(StoreError):
            read_weights(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"labels":' * 100_000, '{"labels": {"x": {"vector": ' + "[" * 900 + "]" * 900 + "}}}"],
    ids=["lists", "tables", "vector"],
)
def test_json_that_is_nested_deep(text: str, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text(text)
    with pytest.raises(DataError):
        read_labels(tmp_path / "labels.json")
    (tmp_path / "classifier.json").write_text(text)
    with pytest.raises(StoreError):
        lw.load(tmp_path)


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 100_000, "labels.x.texts" + ".a" * 50_000 + " = 1", "labels" + ".a" * 50_000 + " = 1"]
)
def test_toml_that_is_nested_deep(text: str, tmp_path: Path) -> None:
    (tmp_path / "labels.toml").write_text(text)
    with pytest.raises(DataError):
        read_labels(tmp_path / "labels.toml")


@pytest.mark.parametrize("head", ["f{}", "text_{}", "feature_x{}", "other{}", "f0"])
def test_a_million_columns_take_seconds(head: str, tmp_path: Path) -> None:
    """Quadratic work would take hours: the time is compared with a tenth of the columns."""
    seconds = []
    for n in (10_000, 100_000):
        file = tmp_path / f"{n}.csv"
        heads = ",".join(head.format(i) for i in range(n))
        file.write_text(f"{heads},label\n{'1,' * n}a\n")
        start = time.process_time()
        with suppress(LabelwiseError):
            read_csv(file)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 40 * seconds[0] + 1


def test_a_name_that_is_long_or_one_of_many_is_not_compared_for_hours() -> None:
    start = time.process_time()
    assert suggest("x" * 10**6, ["x" * 10**6 + "y"]) == ""
    assert suggest("label", (f"labels{i}" for i in range(10**6)))
    assert time.process_time() - start < 20


def test_the_shell_takes_the_limit(tmp_path: Path) -> None:
    file = corpus.npz(
        tmp_path / "a.npz", features=corpus.npy((1000, 1000), "<f4", bytes(4 * 10**6)), labels=corpus.names("a", "b")
    )
    done = Fork(shell("--max-gb", "0.002", "data", "check", file), tmp_path)
    assert done.wait(60) == 1
    assert "0.002 GB are allowed" in " ".join(done.said().split())


def test_numbers_of_an_array_are_as_they_were(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.int16).reshape(4, 3)
    np.savez_compressed(tmp_path / "a.npz", features=values, labels=np.array(list("aabb")))
    data = lw.data.load(tmp_path / "a.npz")
    rows = np.concatenate([split.images.values for split in data.splits.values()])
    assert rows.dtype == np.float32
    assert sorted(rows.flatten().tolist()) == values.flatten().tolist()
