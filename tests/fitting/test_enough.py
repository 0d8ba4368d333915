"""How few pictures are too few."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from labelwise.fitting.enough import check_enough
from labelwise.methods import Eszsl, Softmax, ZeroLabel
from labelwise.support.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Closed(Softmax):
    leaves_out: ClassVar[bool] = True


def test_too_few_pictures_are_told_with_what_would_be_enough() -> None:
    for counts in ({"a": 1, "b": 1}, {"a": 3, "b": 2}):
        with pytest.raises(DataError, match=r'"x" has too few pictures: .* needs 3 pictures of at least two labels'):
            check_enough(counts, Softmax(), "x")
        for other in (Closed(), Eszsl(), ZeroLabel()):
            check_enough(counts, other, "x")
    check_enough({"a": 3, "b": 3, "c": 1}, Softmax(), "x")
    check_enough({}, Softmax(), "x")
