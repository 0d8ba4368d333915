"""Files of word and label vectors: text, word2vec binary, and arrays of NumPy."""

import gzip
import io
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from labelwise.images.describe.knowledge_files import read_labels
from labelwise.images.describe.labels import normal_name
from labelwise.images.sources.delimited import records
from labelwise.images.sources.npz_files import read_npz
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise.support.files import check_size, max_bytes, open_regular, read_text, regular_path

Array = npt.NDArray[Any]
_LONGEST_LINE = 1 << 20
_PER_WORD = 150  # bytes of a table entry besides letters and vector
_Entry = tuple[str, bytes, Sequence[bytes] | Array]
_HEADER = re.compile(rb"(\d+)[ \t]+([1-9]\d*)\s*")


def stream_vectors(file: Path, binary: bool) -> tuple[dict[str, int], Array]:
    """Read the row of each word and the vectors ``[w, a]`` from a text or binary file."""
    words, values = dict[str, int](), array("f")
    with open_regular(file, None) as raw, gzip.open(raw) if file.suffix.lower() == ".gz" else raw as content:
        stream = io.BufferedReader(content)
        first = stream.readline(_LONGEST_LINE)
        header = _HEADER.fullmatch(first)
        size = int(header[2]) if header else len(first.split()) - 1
        if size < 1 or (binary and not header):
            raise _damage_error(
                file, "Line 1", f"not a {'header' if binary else 'word and its numbers'}: {first[:40]!r}"
            )
        check_size(file, 4 * size)
        entries = _binary_entries(stream, size) if binary else _text_entries(stream, size, b"" if header else first)
        read, letters, most = 0, 0, max_bytes()
        for place, spelling, numbers in entries:
            read += 1
            if len(numbers) != size:
                raise _damage_error(file, place, f"a word and {size} numbers expected, found {len(numbers)} numbers")
            word = spelling.decode("utf-8", "replace")
            if word in words:
                continue
            try:
                values.extend(map(float, numbers))
            except ValueError as error:
                raise _damage_error(file, place, str(error)) from None
            if not np.isfinite(values[-size:]).all():
                raise _damage_error(file, place, f'the vector of "{word}" holds a value that is not a finite number')
            words[word] = len(words)
            letters += len(spelling)
            if (total := 4 * len(values) + _PER_WORD * len(words) + letters) > most:
                check_size(file, total)
    if header and read != int(header[1]):
        raise _damage_error(file, "The header", f"it promises {int(header[1])} words, and {read} follow")
    return words, np.frombuffer(values, np.float32).reshape(len(words), size)


def _text_entries(stream: BinaryIO, size: int, first: bytes) -> Iterator[_Entry]:
    """Yield place, word and numbers from a text file; a word may contain spaces."""
    lines = chain([first], iter(lambda: stream.readline(_LONGEST_LINE), b""))
    for number, line in enumerate(lines, 1):
        if line.strip():
            word, *numbers = line.strip().rsplit(None, size)
            yield f"Line {number}", word, numbers


def _binary_entries(stream: BinaryIO, size: int) -> Iterator[_Entry]:
    """Yield place, word and numbers from a word2vec binary file."""
    for number in count(1):
        spelling = bytearray()
        while (byte := stream.read(1)) not in (b" ", b"") and len(spelling) < _LONGEST_LINE:
            spelling += byte
        word = bytes(spelling).lstrip(b"\r\n")
        if byte == b"" and not word:
            return
        numbers = stream.read(4 * size)
        yield f"Word {number}", word, np.frombuffer(numbers[: len(numbers) // 4 * 4], "<f4")


def _damage_error(file: Path, place: str, wrong: str) -> DataError:
    return DataError(f'{place} of "{file}": {wrong}. The file is damaged or of another kind; get it again.')


def read_word_arrays(file: Path) -> tuple[list[str], Array]:
    """Read words and vectors from an ``.npz`` file, or from a ``.npy`` file and the text file with the same name."""
    if file.suffix.lower() == ".npz":
        arrays = read_npz(file, "words", "vectors")
        kind = arrays["words"].dtype
        if kind.kind not in "US":
            raise DataError(f'The "words" of "{file}" must be text; given {kind}.')
        words = [str(word, "utf-8", "replace") if kind.kind == "S" else word for word in arrays["words"].tolist()]
        return words, arrays["vectors"]
    text_file = file.with_suffix(".txt")
    if not text_file.exists():
        raise DataError(f'"{file}" needs its words in "{text_file}", one per line. Write that file next to it.')
    vectors: Array = np.load(regular_path(file), mmap_mode="r", allow_pickle=False)
    check_size(text_file, text_file.stat().st_size)
    return read_text(text_file, encoding="utf-8-sig").splitlines(), vectors


def check_vectors(words: list[str], matrix: Array, source: str) -> tuple[dict[str, int], Array]:
    """Return the row of each word and the vectors ``[w, a]``; the first entry of a repeated word counts."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or len(words) != len(matrix):
        raise DataError(
            f'"{source}" must hold one vector for each word; it has {len(words)} words and vectors '
            f"{matrix.dtype} {list(matrix.shape)}."
        )
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        rows.setdefault(word, row)
    check_size(source, 4 * len(rows) * matrix.shape[1])
    vectors = np.asarray(matrix[list(rows.values())], np.float32)
    if not np.isfinite(vectors).all():
        bad = list(rows)[int(np.flatnonzero(~np.isfinite(vectors).all(1))[0])]
        raise DataError(f'"{source}": the vector of "{bad}" holds a value that is not a finite number. Get it again.')
    return {word: i for i, word in enumerate(rows)}, vectors


def read_vector(word: str, name: str) -> list[float]:
    """Parse the numbers of a command-line vector: ``0,1,0.5``, or a .csv or .txt file.

    The file has one row or one column of numbers, or, as labels.csv, a row for each label under a header that begins with
    "label"; the row is that of ``name``.
    """
    if Path(word).suffix.lower() not in (".csv", ".txt") and not Path(word).is_file():
        return [_number(field.strip(), f'"{word}"') for field in word.split(",")]
    rows = [(number, [field.strip() for field in row]) for number, row in records(Path(word), noun="file")]
    if not rows:
        raise DataError(f'"{word}" is empty. Write the numbers of the vector into it, in one row or one column.')
    if rows[0][1][0].casefold() in ("label", "name"):
        return _row_of_label(word, name)
    if len(rows) > 1 and any(len(row) > 1 for _, row in rows):
        raise DataError(
            f'"{word}" has {len(rows)} rows of up to {max(len(row) for _, row in rows)} fields. A vector is one row or '
            'one column of numbers; a table of many labels has a header that begins with "label".'
        )
    return [_number(field, f'Row {number} of "{word}"') for number, row in rows for field in row]


def _row_of_label(file: str, name: str) -> list[float]:
    labels, _ = read_labels(Path(file))
    if normal_name(name) not in labels.names:
        raise DataError(
            f'"{file}" has no row for "{name}".{suggest(name, labels.names)} Rows: {listing(labels.names)}.'
        )
    if labels.vectors is None:
        raise DataError(f'"{file}" has no attribute columns, so it gives no vector of "{name}".')
    return [float(x) for x in labels.vectors[labels.index(normal_name(name))]]


def _number(field: str, place: str) -> float:
    try:
        return float(field)
    except ValueError:
        raise UsageError(
            f'{place}: "{field}" is not a number. Give a vector as numbers separated by commas, or as a .csv or .txt file.'
        ) from None
