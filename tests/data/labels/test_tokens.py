import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelwise.data.labels.sentences import encode_sentences
from labelwise.data.labels.tokens import Tokens, tokenise, word_table
from labelwise.data.labels.words import WordVectors, packaged_vectors
from labelwise.data.rng import BatchRng
from labelwise.errors import DataError, UsageError
from labelwise.ops.segments import segment_mean

VECTORS = WordVectors({"owl": 0, "white": 1, "black": 2}, np.array([[1, 2], [3, 4], [5, 6]], np.float32))
SENTENCES = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=4)


def stored(instances: list[list[list[int]]]) -> Tokens:
    """Sentences given as rows, for each instance."""
    every = [sentence for instance in instances for sentence in instance]
    return Tokens(
        flat=torch.tensor([row for sentence in every for row in sentence], dtype=torch.int64),
        lengths=torch.tensor([len(sentence) for sentence in every], dtype=torch.int64),
        groups=torch.tensor([i for i, instance in enumerate(instances) for _ in instance], dtype=torch.int64),
        count=len(instances),
    )


def lists(tokens: Tokens) -> list[list[list[int]]]:
    """The inverse of ``stored``."""
    found: list[list[list[int]]] = [[] for _ in range(tokens.count)]
    for group, sentence in zip(tokens.groups.tolist(), tokens.flat.split(tokens.lengths.tolist()), strict=True):  # type: ignore[no-untyped-call]
        found[group].append(sentence.tolist())
    return found


def test_words_in_order_with_unknown_ones_as_zero() -> None:
    tokens = tokenise([["A white, white Owl!", "black-footed owls"], ["owl"]], VECTORS)
    assert lists(tokens) == [[[0, 2, 2, 1], [3, 0, 1]], [[1]]]
    assert tokens.groups.tolist() == [0, 0, 1]
    assert tokens.most == 2
    assert len(tokens) == 2
    assert word_table(VECTORS).tolist() == [[0, 0], [1, 2], [3, 4], [5, 6]]


def test_long_sentences_are_cut() -> None:
    assert lists(tokenise([["white black owl"]], VECTORS, longest=2)) == [[[2, 3]]]
    with pytest.raises(DataError, match="No word vector"):
        tokenise([["a big owl"]], VECTORS, longest=2)
    with pytest.raises(UsageError, match="given 0"):
        tokenise([["owl"]], VECTORS, longest=0)


def test_words_are_found_as_for_sentence_vectors() -> None:
    sentences = [
        "The bird's wings are BROWN.",
        "2.a T-shirt/top",
        "colt\u2019s foot: 3.5 inches",
        "BarnOwl, black-footed",
    ]
    vectors = packaged_vectors()
    tokens = tokenise([[sentence] for sentence in sentences], vectors)
    known = tokens.flat > 0
    rows = word_table(vectors)[tokens.flat[known]]
    means = segment_mean(rows, tokens.groups.repeat_interleave(tokens.lengths)[known], len(sentences))
    torch.testing.assert_close(means, encode_sentences(sentences, vectors))


def test_texts_that_cannot_be_used() -> None:
    with pytest.raises(DataError, match="Instance 1 has no sentence"):
        tokenise([["owl"], []], VECTORS)
    with pytest.raises(DataError, match="Sentence 2 of instance 1 is empty"):
        tokenise([["owl"], ["owl", "white", " \n"]], VECTORS)
    with pytest.raises(DataError, match=r'for any word of: "grey truck"\. The 3 words .* extra "words" for 400,000'):
        tokenise([["owl", "grey truck"]], VECTORS)
    with pytest.raises(DataError, match=r'any word of: "\.\.\."'):
        tokenise([["..."]], VECTORS)
    with pytest.raises(UsageError, match="instance 0 is a single text"):
        tokenise(["owl"], VECTORS)


@given(st.lists(SENTENCES, min_size=1, max_size=6), st.data())
def test_selected_instances(instances: list[list[list[int]]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(instances) - 1), max_size=8))
    found = stored(instances).select(torch.tensor(rows, dtype=torch.int64))
    assert lists(found) == [instances[row] for row in rows]
    if rows:
        again = data.draw(st.permutations(range(len(rows))))
        assert lists(found.select(torch.tensor(again))) == [instances[rows[i]] for i in again]


@given(st.lists(SENTENCES, min_size=1, max_size=6), st.integers(1, 5), st.integers(0, 99), st.data())
def test_drawn_sentences(instances: list[list[list[int]]], most: int, seed: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(instances) - 1), min_size=1, max_size=8))
    tokens = stored(instances)
    uniforms = BatchRng.seeded(seed, len(rows)).uniform(tokens.most)
    expected = []
    for row, numbers in zip(rows, uniforms.tolist(), strict=True):
        own = instances[row]
        kept = sorted(sorted(range(len(own)), key=lambda i: numbers[i])[:most])
        expected.append([own[i] for i in kept])
    assert lists(tokens.draw(torch.tensor(rows), most, uniforms)) == expected


def test_every_sentence_is_drawn_equally_often() -> None:
    tokens = stored([[[1], [2], [3]], [[4]]])
    n = 3000
    drawn = tokens.draw(torch.zeros(n, dtype=torch.int64), 2, BatchRng.seeded(0, n).uniform(3))
    shares = drawn.flat.bincount()[1:] / n
    torch.testing.assert_close(shares, torch.full((3,), 2 / 3), atol=0.04, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    tokens = stored([[[1, 2], [3]], [[4, 5, 6]]])
    rows, uniforms = torch.tensor([1, 0, 1]), torch.rand(3, 2)
    there = tokens.to("cuda")
    assert lists(there.select(rows.cuda()).to("cpu")) == lists(tokens.select(rows))
    assert lists(there.draw(rows.cuda(), 1, uniforms.cuda())) == lists(tokens.draw(rows, 1, uniforms))


def test_real_captions() -> None:
    path = Path(os.environ.get("LABELWISE_DATA", "")) / "cub_captions_reed_55classes.json.gz"
    if "LABELWISE_DATA" not in os.environ or not path.exists():
        pytest.skip("LABELWISE_DATA does not name a folder with cub_captions_reed_55classes.json.gz")
    texts = list(json.loads(gzip.decompress(path.read_bytes())).values())
    tokens = tokenise(texts, packaged_vectors())
    assert (tokens.count, len(tokens.lengths), int(tokens.lengths.max())) == (3208, 32080, 30)
    assert float((tokens.flat == 0).double().mean()) < 0.01
