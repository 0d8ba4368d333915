"""Files that were changed at random are read, or refused in words: the quick form of ``tools/fuzz.py``."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labelwise.support import files
from tests.hostile import corpus
from tests.hostile.parsers import PARSERS


@pytest.mark.parametrize("name", PARSERS)
def test_the_seeds_are_read(name: str, tmp_path: Path) -> None:
    parser = PARSERS[name]
    for seed in parser.seeds():
        assert parser.accepts(seed, tmp_path)


@pytest.mark.parametrize("name", PARSERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_changed_files_are_read_or_refused(
    name: str, data: st.DataObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(files.VARIABLE, "0.05")
    parser = PARSERS[name]
    content = bytearray(data.draw(st.sampled_from(parser.seeds())))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        piece = data.draw(st.binary(max_size=8) | st.sampled_from([b"\xff" * 8, b"\0" * 8, b"9" * 40, b"[" * 2000]))
        content[at : at + data.draw(st.integers(0, 9))] = piece
    parser.accepts(bytes(content), tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'shape': (3L,",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2)}",
        b"{'descr': '(,)f4', 'fortran_order': False, 'shape': (1, 2)}",
    ],
)
def test_headers_of_arrays_that_are_no_python(header: bytes, tmp_path: Path) -> None:
    """The first was an error of Python's own tokeniser, the last one of its parser."""
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
    assert not PARSERS["npy"].accepts(content, tmp_path)
    assert not PARSERS["npz"].accepts(corpus.npz(tmp_path / "x.npz", features=content).read_bytes(), tmp_path)
