"""Labels described by the sentences of their training images."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.knowledge import MOST_IMAGES, describe_labels
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import DataError

NAMES = ("owl", "okapi", "ox")
Rows = list[tuple[int, list[str]]]


class Poison(tuple[tuple[str, ...], ...]):
    """Texts that must not be looked at."""

    __slots__ = ()

    def __iter__(self) -> "Poison":  # type: ignore[override]
        raise AssertionError("the sentences of the test split were read")

    def __getitem__(self, _: object) -> "Poison":  # type: ignore[override]
        raise AssertionError("the sentences of the test split were read")


def split(rows: Rows) -> Split:
    targets = torch.tensor([target for target, _ in rows], dtype=torch.int64)
    texts = tuple(tuple(said) for _, said in rows)
    return Split(images=torch.zeros(len(rows), 2), targets=targets, texts=texts if any(texts) else ())


def dataset(train: Rows, val: Rows | None = None, *, vectors: bool = False) -> Dataset:
    test = Split(images=torch.zeros(2, 2), targets=torch.tensor([0, 1]), texts=Poison((("poison",), ("poison",))))
    splits = {"train": split(train), "test": test} | ({} if val is None else {"val": split(val)})
    return Dataset(name="zoo", labels=Labels(names=NAMES, vectors=torch.eye(3) if vectors else None), splits=splits)


def test_the_poison_works() -> None:
    with pytest.raises(AssertionError, match="were read"):
        list(dataset([]).split("test").texts)


def test_each_label_gets_the_sentences_of_its_images_in_order() -> None:
    data = dataset([(1, ["b1", "b2"]), (0, ["a1"]), (-1, ["none"]), (1, []), (1, ["b1"])], [(2, ["c1"]), (0, ["a2"])])
    found = describe_labels(data)
    assert found.labels.texts == (("a1",), ("b1", "b2", "b1"), ("c1",))  # val speaks only where train is silent
    assert found.splits == data.splits
    assert data.labels.texts is None


ROWS = st.lists(st.tuples(st.integers(-1, 2), st.lists(st.text("xyz", min_size=1), max_size=3)), min_size=1)


@given(ROWS, ROWS)
def test_as_a_slow_reference(train: Rows, val: Rows) -> None:
    expected = []
    for target in range(3):
        own = [text for label, said in train if label == target for text in said]
        held = [text for label, said in val if label == target for text in said]
        expected.append(tuple(own if own else held))
    data = dataset(train, val)
    if not any(said for _, said in train + val):
        assert describe_labels(data) is data
    elif all(expected):
        assert describe_labels(data).labels.texts == tuple(expected)
    elif any(target >= 0 and said for target, said in train + val):
        with pytest.raises(DataError, match="Nothing describes") as caught:
            describe_labels(data)
        assert all(
            (name in str(caught.value).split("sentence")[0]) != bool(found)
            for name, found in zip(NAMES, expected, strict=True)
        )


def test_at_most_a_hundred_images_speak_for_a_label() -> None:
    silent: Rows = [(0, [])] * 5
    many: Rows = [(0, [f"{i}", "again"]) for i in range(MOST_IMAGES + 20)]
    texts = describe_labels(dataset(silent + many + [(1, ["b"]), (2, ["c"])])).labels.texts
    assert texts is not None
    assert texts[0] == tuple(text for _, said in many[:100] for text in said)


def test_a_label_without_a_sentence_is_an_error_that_says_what_to_add() -> None:
    with pytest.raises(DataError, match=r'labels of "zoo": okapi, ox\..*labels\.csv.*"text"'):
        describe_labels(dataset([(0, ["a"]), (1, [])]))


def test_data_that_need_no_sentences_or_have_none_come_back_as_they_are() -> None:
    for data in (dataset([(0, ["a"])], vectors=True), dataset([(0, []), (1, [])]), dataset([(0, [])], [(1, [])])):
        assert describe_labels(data) is data
    told = dataset([(0, ["a"])])
    told = replace(told, labels=Labels(names=NAMES, texts=(("x",), ("y",), ())))
    assert describe_labels(told) is told


def test_labels_with_vectors_get_sentences_where_all_can() -> None:
    found = describe_labels(dataset([(0, ["a"]), (1, ["b"]), (2, ["c"])], vectors=True)).labels
    assert found.texts == (("a",), ("b",), ("c",))
    assert found.vectors is not None
