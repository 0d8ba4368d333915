import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from labelwise.support.errors import DataError
from labelwise_papers.benchmarks.binary_layouts import read_arrays
from tests.papers.benchmarks.made import python2


class Harm:
    """Makes a folder when it is unpickled in the ordinary way."""

    def __init__(self, where: Path) -> None:
        self.where = str(where)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.where,)


def test_arrays_come_back_as_python_2_and_3_wrote_them(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    (tmp_path / "two").write_bytes(python2({b"data": array, b"labels": [1, 2]}))
    (tmp_path / "three").write_bytes(pickle.dumps({"data": array, "labels": [1, 2]}, protocol=4))
    for name in ("two", "three"):
        held = read_arrays(tmp_path / name)
        assert held["labels"] == [1, 2]
        assert np.array_equal(np.asarray(held["data"]), array)


def test_nothing_in_a_pickle_is_run(tmp_path: Path) -> None:
    for protocol in (0, 2, 4):
        raw = pickle.dumps({"data": Harm(tmp_path / "harm")}, protocol=protocol)
        (tmp_path / "bad").write_bytes(raw)
        with pytest.raises(DataError, match=r"more than plain arrays.*mkdir"):
            read_arrays(tmp_path / "bad")
        assert not (tmp_path / "harm").exists()
    pickle.loads(raw)  # it would have been
    assert (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", ["builtins eval", "numpy load", "numpy.core.multiarray fromfile", "_codecs encode"])
def test_every_other_name_is_refused(name: str, tmp_path: Path) -> None:
    module, word = name.split()
    (tmp_path / "bad").write_bytes(f"c{module}\n{word}\n.".encode())
    with pytest.raises(DataError, match=f"{module}.{word}"):
        read_arrays(tmp_path / "bad")


def test_the_array_type_cannot_be_called(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"cnumpy\nndarray\n(I99\ntR.")
    with pytest.raises(DataError, match="not callable"):
        read_arrays(tmp_path / "bad")


def test_what_is_no_dict_or_no_pickle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(pickle.dumps([1]))
    (tmp_path / "text").write_bytes(b"hello")
    for name, word in (("list", "holds a list"), ("text", "damaged"), ("none", "Cannot read")):
        with pytest.raises(DataError, match=word):
            read_arrays(tmp_path / name)
