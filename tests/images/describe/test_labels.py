from typing import Any

import numpy as np
import pytest
import torch

from labelwise.images.describe.labels import Labels, label_name, unfit_name
from labelwise.support.errors import UsageError
from tests.plain import ABC


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"names": ()}, "No label was given"),
        ({"names": ("a", " ")}, "Label 1 has no name"),
        ({"names": ("a", "b", "a")}, "unique; given more than once: a"),
        ({"names": ("a", "b"), "vectors": torch.eye(3)}, "2 labels but 3 vectors"),
        ({"names": ("a", "b"), "vectors": torch.tensor([[1.0], [float("nan")]])}, "finite numbers"),
        ({"names": ("a", "b"), "texts": (("x",),)}, "2 labels but 1 texts"),
        ({"names": ("a", "b"), "order": (1, 1)}, "different rank"),
        ({"names": ("a", "b"), "shares": torch.tensor([0.5, 0.6])}, "sum to 1; they sum to 1.1"),
        ({"names": ("a", "b"), "similarity": torch.ones(2, 3)}, r"similarity must be finite numbers \[2, 2\]"),
    ],
)
def test_wrong_labels_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Labels(**wrong)


def test_select_keeps_what_is_known() -> None:
    some = ABC.select(["c", "a"])
    assert some.names == ("c", "a")
    assert some.texts == (("third",), ("first",))
    assert some.order == (1, 2)
    assert some.vectors is not None
    assert np.array_equal(some.vectors, torch.eye(3)[[2, 0]])
    assert some.shares is not None
    np.testing.assert_allclose(some.shares, torch.tensor([2 / 7, 5 / 7]))


def test_select_keeps_the_likeness_of_the_labels_that_stay() -> None:
    alike = torch.arange(9.0).view(3, 3)
    some = Labels(names=("a", "b", "c"), similarity=alike).select(["c", "a"])
    assert some.similarity is not None
    assert some.similarity.tolist() == [[8, 6], [2, 0]]


def test_unknown_label_error_suggests() -> None:
    labels = Labels(names=("barn owl", "robin"))
    with pytest.raises(
        UsageError, match=r'No label "barnowl"\. Did you mean "barn owl"\? Known labels: barn owl, robin'
    ):
        labels.index("barnowl")


def test_added_label_keeps_only_what_all_have() -> None:
    plain = ABC.add("d")
    assert plain.names == ("a", "b", "c", "d")
    assert plain.vectors is None
    assert plain.texts is None
    known = ABC.add("d", vector=torch.ones(3), texts=["fourth"])
    assert known.texts == (("first",), ("second", "2nd"), ("third",), ("fourth",))
    assert known.vectors is not None
    assert known.vectors.shape == (4, 3)
    with pytest.raises(UsageError, match='already a label "a"'):
        ABC.add("a")


def test_joined_labels_keep_only_what_both_have() -> None:
    other = Labels(names=("d",), vectors=torch.ones(1, 3))
    both = ABC.join(other)
    assert both.names == ("a", "b", "c", "d")
    assert both.vectors is not None
    assert np.array_equal(both.vectors, torch.cat([torch.eye(3), torch.ones(1, 3)]))
    assert (both.texts, both.order, both.shares) == (None, None, None)
    with pytest.raises(UsageError, match="given more than once: a"):
        ABC.join(ABC.select(["a"]))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is empty"),
        (" \t", "is empty"),
        ("\u3164", "is empty"),
        ("\u200b\u2800", "is empty"),
        ("a\nb", "line break"),
        ("a\x00b", "control character"),
        ("a\x1b[31m", "control character"),
        ("a\udcff", "not valid UTF-8"),
        ("None", "is reserved for answers"),
        (" unsure ", "is reserved for answers"),
        ("a" * 201, "longer than 200"),
    ],
)
def test_what_cannot_be_a_label(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        label_name(name)
    assert why in (unfit_name(name) or "")


@pytest.mark.parametrize("name", ["barn owl", "Ünïcode", "鳥", "a" * 200, "unknown bird", "<b>", "50 %", "=1+1"])
def test_what_can_be_a_label(name: str) -> None:
    assert label_name(f" {name} ") == name
    assert unfit_name(name) is None


def test_a_label_has_composed_characters() -> None:
    assert label_name("Cafe\u0301") == "Caf\u00e9"
