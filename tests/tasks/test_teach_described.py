"""A label taught by a description: the same as if it had been described from the start."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Clarel, Eszsl, ImageMethod, Indicator
from labelwise.support.errors import DataError, LabelwiseError, UnsupportedError, UsageError
from labelwise.train.optimizers import Optimizer
from tests.close import assert_close
from tests.once import once
from tests.pixels_of import px

COLOURS = ("red", "green", "blue", "yellow", "white")
SHAPES = ("square", "circle", "star", "cross", "spiral")
PAIRS = [(i, j) for i in range(5) for j in range(5)]
NAMES = tuple(f"{COLOURS[i]} {SHAPES[j]}" for i, j in PAIRS)
UNSEEN = tuple(f"{COLOURS[i]} {SHAPES[i]}" for i in range(5))
ATTRIBUTES = torch.tensor([[float(i == c) for c in range(5)] + [float(j == s) for s in range(5)] for i, j in PAIRS])
TEXTS = tuple((f"a {name}", f"this {SHAPES[j]} is {COLOURS[i]}") for name, (i, j) in zip(NAMES, PAIRS, strict=True))
KINDS = ("eszsl texts", "eszsl vectors", "clarel texts", "clarel words", "clarel vectors")


def shapes(labels: Labels, per_label: int = 8) -> Dataset:
    """Features that are a colour and a shape, with noise; five pairs have no image in train."""
    made = torch.Generator().manual_seed(0)
    targets = torch.arange(len(NAMES)).repeat(per_label)
    images = ATTRIBUTES[targets] + 0.15 * torch.randn(len(targets), 10, generator=made)
    seen = torch.tensor([name not in UNSEEN for name in NAMES])[targets]
    half = torch.arange(len(targets)) < len(targets) // 2
    rows = {"train": seen & half, "test": ~half}
    splits = {name: Split(images=images[which], targets=targets[which]) for name, which in rows.items()}
    return Dataset(name="shapes", labels=labels, splits=splits)


def data_for(kind: str) -> Dataset:
    form = "vectors" if kind.endswith("vectors") else "texts"
    known = {"vectors": ATTRIBUTES} if form == "vectors" else {"texts": TEXTS}
    return shapes(Labels(names=NAMES, **known))


@once
def fitted(kind: str) -> Classifier:
    methods: dict[str, ImageMethod] = {"eszsl": Eszsl(), "clarel": clarel(), "indicator": Indicator(epochs=2, batch=32)}
    method = clarel(words=True) if kind == "clarel words" else methods[kind.split()[0]]
    return lw.fit(data_for(kind), method, lw.Run(device="cpu"))


def clarel(words: bool = False) -> Clarel:
    small = Clarel(epochs=30, batch=40, code_size=32, optimizer=Optimizer(lr=0.03))
    return replace(small, epochs=2, reader="words", filters=(8,), hidden=8) if words else small


def described(kind: str, name: str) -> dict[str, object]:
    place = NAMES.index(name)
    return {"vector": ATTRIBUTES[place]} if kind.endswith("vectors") else {"texts": TEXTS[place]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_taught_is_as_one_described_from_the_start(kind: str) -> None:
    classifier, name, test = fitted(kind), UNSEEN[2], data_for(kind).split("test")
    assert classifier.unseen == set(UNSEEN)
    assert classifier.calibration.seen_penalty != 0
    without = lw.forget(classifier, name)
    again = lw.teach(without, name, **described(kind, name))  # type: ignore[arg-type]
    assert again.unseen == classifier.unseen
    assert again.labels.names == (*without.labels.names, name)
    assert_close(again.scores(px(test)).log_odds, classifier.select(again.labels.names).scores(px(test)).log_odds)
    assert np.array_equal(again.label_embeddings[:-1], without.label_embeddings)
    for piece in ("scale", "offset"):
        assert np.array_equal(getattr(again.calibration, piece)[:-1], getattr(without.calibration, piece))
    assert len(without.labels) == len(NAMES) - 1, "the classifier given must not change"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "clarel words"])
def test_a_taught_label_is_recognised(kind: str) -> None:
    """The unseen pairs are forgotten and taught again; most of their images are then named right."""
    classifier, test = fitted(kind), data_for(kind).split("test")
    for name in UNSEEN:
        classifier = lw.forget(classifier, name)
    for name in UNSEEN:
        classifier = lw.teach(classifier, name, **described(kind, name))  # type: ignore[arg-type]
    best = classifier.scores(px(test)).best.tolist()
    pairs = list(zip([classifier.labels.names[i] for i in best], [NAMES[t] for t in test.targets], strict=True))
    assert np.mean([found == name for found, name in pairs if name in UNSEEN]) > 0.5
    assert np.mean([found == name for found, name in pairs if name not in UNSEEN]) > 0.5


def test_a_vector_may_be_a_list_an_array_or_a_tensor() -> None:
    classifier, numbers = fitted("eszsl vectors"), [1, 0.5, *[0.0] * 8]
    (wanted,) = classifier.head.embed_labels(Labels(names=("new",), vectors=torch.tensor([numbers])))
    for given in (numbers, np.array(numbers), torch.tensor(numbers, dtype=torch.float64)):
        assert_close(lw.teach(classifier, "new", vector=given).label_embeddings[-1], wanted)


def test_one_sentence_is_the_same_as_a_list_of_one() -> None:
    classifier = fitted("clarel texts")
    pair = [lw.teach(classifier, "new", texts=given) for given in ("a red house", ["a red house"])]
    assert np.array_equal(pair[0].label_embeddings, pair[1].label_embeddings)
    assert not np.array_equal(
        pair[0].label_embeddings[-1], lw.teach(classifier, "new", texts="a green house").label_embeddings[-1]
    )


@pytest.mark.parametrize("kind", ["clarel texts", "eszsl texts", "clarel words"])
def test_taught_saved_loaded_and_taught_again(kind: str, tmp_path: Path) -> None:
    test = data_for(kind).split("test")
    first = lw.teach(fitted(kind), "black house", texts="a black house")
    lw.save(first, tmp_path / "first.lw")
    second = lw.teach(lw.load(tmp_path / "first.lw"), "black star", texts=["a black star"])
    direct = lw.teach(first, "black star", texts=["a black star"])
    assert_close(second.scores(px(test)).log_odds, direct.scores(px(test)).log_odds)
    assert second.labels.texts is not None
    assert second.labels.texts[-2:] == (("a black house",), ("a black star",))
    assert (second.labels.vectors is not None) == (kind != "clarel words"), (
        "sentence vectors are kept where they are read"
    )
    pictured = lw.teach(second, "by pictures", examples=px(test)[:3])  # drops what it lacks: texts, vectors
    lw.save(pictured, tmp_path / "third.lw")
    third = lw.teach(lw.load(tmp_path / "third.lw"), "black cross", texts="a black cross")
    assert third.unseen == {*UNSEEN, "black house", "black star", "black cross"}
    assert {p.top[0][0] for p in lw.classify(third, px(test))} <= set(third.labels.names)
    assert_close(third.scores(px(test)).log_odds[:, : len(second.labels)], second.scores(px(test)).log_odds)


@pytest.mark.parametrize(
    ("kind", "given", "error", "words"),
    [
        ("clarel texts", {}, UsageError, "one of examples, texts and vector for \"new\"; given: none of them"),
        ("clarel texts", {"texts": "a", "vector": [1.0]}, UsageError, "for \"new\"; given: texts and vector"),
        ("clarel texts", {"texts": ""}, UsageError, "by one or more sentences; given ''"),
        ("clarel texts", {"texts": []}, UsageError, "given an empty list"),
        ("clarel texts", {"texts": ["a red house", "  "]}, UsageError, "given '  '"),
        ("clarel texts", {"texts": ["a red house", 3]}, UsageError, "given 3"),
        ("clarel texts", {"texts": "qqzzx xxqqz"}, DataError, 'No word vector for any word of: "qqzzx xxqqz"'),
        ("clarel words", {"texts": "qqzzx xxqqz"}, DataError, 'No word vector for any word of: "qqzzx xxqqz"'),
        ("clarel texts", {"vector": [1.0] * 50}, UsageError, "trained with texts of labels; given a vector"),
        ("clarel words", {"vector": [1.0] * 10}, UsageError, "trained with texts of labels; given a vector"),
        ("clarel vectors", {"texts": "a red star"}, UsageError, "given texts. Describe .* by a vector of 10 numbers"),
        ("eszsl vectors", {"texts": "a red star"}, UsageError, "given texts. Describe .* by a vector of 10 numbers"),
        ("eszsl vectors", {"vector": [1.0] * 9}, UsageError, "vectors of 10 numbers; given 9"),
        ("eszsl vectors", {"vector": torch.ones(1, 10)}, UsageError, r"given an array of shape \[1, 10\]"),
        ("eszsl vectors", {"vector": [0.0, float("nan"), *[0.0] * 8]}, UsageError, "Number 2 of the vector is nan"),
        ("eszsl vectors", {"vector": ["red"]}, UsageError, "A vector must be a list of numbers; given list"),
        ("indicator", {"texts": "a red star"}, UnsupportedError, "indicator learns labels from images: give examples"),
        ("indicator", {"vector": [1.0]}, UnsupportedError, "such as clarel and eszsl"),
    ],
)  # fmt: skip
def test_what_cannot_be_taught(kind: str, given: dict[str, object], error: type[LabelwiseError], words: str) -> None:
    with pytest.raises(error, match=words):
        lw.teach(fitted(kind), "new", **given)  # type: ignore[arg-type]


def test_a_name_that_is_taken_or_reserved_is_refused() -> None:
    with pytest.raises(UsageError, match='label "red star" already exists'):
        lw.teach(fitted("clarel texts"), "red star", texts="a red star")
    with pytest.raises(UsageError, match='"unknown" is reserved for answers'):
        lw.teach(fitted("clarel texts"), "unknown", texts="a red star")


def test_vectors_of_the_size_of_sentence_vectors_are_not_taken_for_them() -> None:
    """Labels have both, and vectors were read: their size alone would let a sentence pass."""
    mixed = torch.randn(10, 50, generator=torch.Generator().manual_seed(1))
    data = shapes(Labels(names=NAMES, vectors=ATTRIBUTES @ mixed, texts=TEXTS))
    classifier = lw.fit(data, Eszsl(), lw.Run(device="cpu"))
    with pytest.raises(UsageError, match=r"trained with vectors of labels; given texts.*vector of 50 numbers"):
        lw.teach(classifier, "new", texts="a red house")
    assert "new" in lw.teach(classifier, "new", vector=ATTRIBUTES[0] @ mixed).unseen
    read = lw.fit(data, Eszsl(source="texts"), lw.Run(device="cpu"))
    (wanted,) = read.head.embed_labels(Labels(names=("new",), texts=(("a red house",),)))
    assert_close(lw.teach(read, "new", texts="a red house").label_embeddings[-1], wanted)
    with pytest.raises(UsageError, match="trained with texts of labels; given a vector"):
        lw.teach(read, "new", vector=torch.ones(50))
