"""Files that bite, made in code: each is small, and says that it holds much more, or is not what it says."""

import gzip
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np

MB = 10**6


def npy(shape: tuple[int, ...], kind: str, content: bytes = b"") -> bytes:
    """The file of an array, whose header may promise more than follows."""
    stream = BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    return stream.getvalue() + content


def npz(file: Path, packed: int = zipfile.ZIP_DEFLATED, **arrays: bytes) -> Path:
    with zipfile.ZipFile(file, "w", packed) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return file


def names(*labels: str) -> bytes:
    stream = BytesIO()
    np.lib.format.write_array(stream, np.array(labels))
    return stream.getvalue()


def packed_features(file: Path) -> Path:
    """40 MB of zeros as float32, in 40 kB."""
    return npz(file, features=npy((10_000, 1000), "<f4", bytes(40 * MB)))


def packed_bytes(file: Path) -> Path:
    """Bytes that become four times as large as numbers."""
    return npz(file, features=npy((10_000, 600), "|i1", bytes(6 * MB)))


def promised_features(file: Path) -> Path:
    """A header that promises 4 TB."""
    return npz(file, features=npy((10**6, 10**6), "<f4", bytes(64)))


def many_arrays(file: Path) -> Path:
    """Each array is allowed, all of them are not."""
    small = npy((3000, 250), "<f8", bytes(6 * MB))
    return npz(file, features=npy((2, 2), "<f4", bytes(16)), labels=names("a", "b"), classes=small, files=small)


def understated_zip(file: Path) -> Path:
    """A zip whose directory says 200 bytes of an entry that unpacks to 40 MB."""
    packed_features(file)
    content = file.read_bytes()
    true = len(npy((10_000, 1000), "<f4")) + 40 * MB
    file.write_bytes(content.replace(struct.pack("<I", true), struct.pack("<I", 200)))
    return file


def bzipped(file: Path) -> Path:
    """A zip that is packed in a way that unpacks whole or not at all."""
    return npz(file, zipfile.ZIP_BZIP2, features=npy((10_000, 1000), "<f4", bytes(40 * MB)))


def large_pictures(file: Path) -> Path:
    """Encoded pictures of which the first is large, so that all become large."""
    from PIL import Image

    stream = BytesIO()
    Image.new("1", (4000, 4000)).save(stream, "PNG")
    first = stream.getvalue()
    ends = np.array([0, *[len(first)] * 20])
    np.savez(file, data=np.frombuffer(first, np.uint8), offsets=ends, labels=np.array(["a", "b"] * 10))
    return file


def wide_parquet(file: Path) -> Path:
    """10 million numbers, all the same, in a few kilobytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = pa.array(np.zeros(100_000))
    pq.write_table(pa.table({f"f{i}": column for i in range(100)} | {"label": pa.array(["a"] * 100_000)}), file)
    return file


def long_parquet(file: Path) -> Path:
    """A text of 2 MB that stands in 1,000 rows and lies in the file once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 1000), pa.array(["x" * 2 * MB]))
    pq.write_table(pa.table({"f0": np.zeros(1000), "label": ["a", "b"] * 500, "text": texts}), file)
    return file


def empty_cells(file: Path) -> Path:
    """Columns and rows that multiply to nine million empty cells."""
    heads = ",".join(f"text_{i}" for i in range(1, 3000))
    file.write_text(f"label,f0,{heads}\n" + "a,1\n" * 3000)
    return file


def sparse_file(file: Path, head: bytes = b"") -> Path:
    """A file of 8 GB that takes no room on the disk."""
    file.write_bytes(head)
    with file.open("r+b") as stream:
        stream.truncate(8 * 10**9)
    return file


def many_labels(file: Path) -> Path:
    """Rows with a label of their own each: yes and no for all of them is rows times rows."""
    file.write_text("f0,labels\n" + "".join(f"1,label {i}\n" for i in range(5000)))
    return file


def word_bomb(file: Path) -> Path:
    """Word vectors that never end, packed a thousand to one."""
    with gzip.open(file, "wb", 1) as stream:
        for i in range(4):
            stream.write(b"".join(b"w%d.%d %s\n" % (i, j, b"0 " * 1000) for j in range(1000)))
    return file


def promised_words(file: Path) -> Path:
    """A header that promises vectors of 400 GB."""
    file.write_bytes(b"1 100000000000\nword \0\0")
    return file


def mat_element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def mat_array(name: bytes, shape: tuple[int, ...], kind: int, content: bytes) -> bytes:
    """A field of a .mat file of class ``kind``: 1 is a cell, 6 a matrix of doubles."""
    flags = mat_element(6, struct.pack("<II", kind, 0))
    dims = mat_element(5, struct.pack(f"<{len(shape)}i", *shape))
    return mat_element(14, flags + dims + mat_element(1, name) + content)


def mat(file: Path, *fields: bytes) -> Path:
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    packed = [zlib.compress(field) for field in fields]
    file.write_bytes(head + b"".join(struct.pack("<II", 15, len(each)) + each for each in packed))
    return file


def packed_mat(file: Path) -> Path:
    """40 MB of zeros in a field."""
    return mat(file, mat_array(b"features", (5000, 1000), 6, mat_element(9, bytes(40 * MB))))


def understated_mat(file: Path) -> Path:
    """A field that says it takes 100 bytes, and 40 MB follow."""
    field = mat_array(b"features", (5000, 1000), 6, mat_element(9, bytes(40 * MB)))
    return mat(file, field[:4] + struct.pack("<I", 100) + field[8:])


def promised_cells(file: Path) -> Path:
    """A cell array that says it has a billion cells."""
    return mat(file, mat_array(b"names", (1_000_000_000, 1), 1, b""))


def promised_inner_cells(file: Path) -> Path:
    """A cell array whose only cell says it has a billion cells."""
    return mat(file, mat_array(b"names", (1, 1), 1, mat_array(b"", (1_000_000_000, 1), 1, b"")))


def encrypted(file: Path) -> Path:
    """An archive that says one needs a password for its array."""
    npz(file, images=npy((1, 4, 4, 3), "|u1", bytes(48)), labels=npy((1,), "<U1", b"a\0\0\0"))
    content = bytearray(file.read_bytes())
    for head, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(head) + flags] |= 1
    file.write_bytes(content)
    return file


def no_letters(file: Path) -> Path:
    """Names of letters beyond the last that there is."""
    return npz(file, images=npy((1, 4, 4, 3), "|u1", bytes(48)), labels=npy((1,), "<U1", b"\xff" * 4))


def array_without_sides(file: Path) -> Path:
    """A cell with characters that do not say how many they are."""
    flags, sides = mat_element(6, struct.pack("<II", 4, 0)), struct.pack("<HHI", 5, 1, 8)
    rest = struct.pack("<II", 1, 1) + mat_element(1, b"") + struct.pack("<HH4s", 16, 1, b"b")
    return mat(file, mat_array(b"names", (1, 1), 1, mat_element(14, flags + sides + rest)))


def unknown_element(file: Path) -> Path:
    """A cell with characters of a kind that scipy looks up far behind the kinds that there are."""
    return mat(file, mat_array(b"names", (1, 1), 1, mat_array(b"", (1, 1), 4, struct.pack("<HH4s", 8976, 1, b"a"))))


def safetensors(file: Path, header: object, body: bytes = b"") -> Path:
    head = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(head)) + head + body)
    return file


def wav(file: Path, samples: bytes, rate: int = 16_000, channels: int = 1, promised: int | None = None) -> Path:
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, rate * channels, channels, 8)
    data = struct.pack("<4sI", b"data", len(samples) if promised is None else promised) + samples
    file.write_bytes(struct.pack("<4sI4s", b"RIFF", 4 + len(form) + len(data), b"WAVE") + form + data)
    return file


def slow_sound(file: Path) -> Path:
    """A sound of 100 samples per second: 160 times as long at 16,000."""
    return wav(file, bytes(MB // 2), rate=100)


TOO_LARGE: dict[str, Callable[[Path], Path]] = {
    "zeros.npz": packed_features,
    "bytes.npz": packed_bytes,
    "promised.npz": promised_features,
    "many.npz": many_arrays,
    "pictures.npz": large_pictures,
    "wide.parquet": wide_parquet,
    "empty.csv": empty_cells,
    "sparse.csv": lambda file: sparse_file(file, b"path,label\n"),
    "labels.csv": many_labels,
}
DAMAGED: dict[str, Callable[[Path], Path]] = {
    "understated.npz": understated_zip,
    "bzipped.npz": bzipped,
    "encrypted.npz": encrypted,
    "letters.npz": no_letters,
}
