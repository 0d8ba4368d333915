import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelwise.images.describe.sentences import encode_sentences
from labelwise.images.describe.words import WordVectors, packaged_vectors
from labelwise.methods.clarel.tokens import Instance, Tokens, draw, tokenise, word_table
from labelwise.support.errors import DataError, UsageError
from labelwise.train.tensors import BatchRng, segment_mean

VECTORS = WordVectors({"owl": 0, "white": 1, "black": 2}, np.array([[1, 2], [3, 4], [5, 6]], np.float32))
SENTENCES = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=4)


def stored(instances: list[list[list[int]]]) -> list[Instance]:
    """Sentences given as rows, for each instance."""
    return [[np.array(sentence) for sentence in own] for own in instances]


def lists(instances: Sequence[Instance]) -> list[list[list[int]]]:
    """The inverse of ``stored``."""
    return [[sentence.tolist() for sentence in own] for own in instances]


def test_words_in_order_with_unknown_ones_as_zero() -> None:
    tokens = tokenise([["A white, white Owl!", "black-footed owls"], ["owl"]], VECTORS)
    assert lists(tokens) == [[[0, 2, 2, 1], [3, 0, 1]], [[1]]]
    joined = Tokens.of(tokens)
    assert joined.flat.tolist() == [0, 2, 2, 1, 3, 0, 1, 1]
    assert (joined.lengths.tolist(), joined.groups.tolist()) == ([4, 3, 1], [0, 0, 1])
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
    tokens = Tokens.of(tokenise([[sentence] for sentence in sentences], vectors))
    known = tokens.flat > 0
    rows = word_table(vectors)[tokens.flat[known]]
    means = segment_mean(
        torch.from_numpy(rows), torch.from_numpy(np.repeat(tokens.groups, tokens.lengths)[known]), len(sentences)
    )
    np.testing.assert_allclose(means.numpy(), encode_sentences(sentences, vectors), rtol=1e-5, atol=1e-6)


def test_texts_that_cannot_be_used() -> None:
    with pytest.raises(DataError, match="Instance 1 has no sentence"):
        tokenise([["owl"], []], VECTORS)
    with pytest.raises(DataError, match="Sentence 2 of instance 1 is empty"):
        tokenise([["owl"], ["owl", "white", " \n"]], VECTORS)
    with pytest.raises(
        DataError, match=r'for any word of: "grey truck"\. The 3 known words .* extra "words" for 400,000'
    ):
        tokenise([["owl", "grey truck"]], VECTORS)
    with pytest.raises(DataError, match=r'any word of: "\.\.\."'):
        tokenise([["..."]], VECTORS)
    with pytest.raises(UsageError, match="instance 0 is a single text"):
        tokenise(["owl"], VECTORS)


@given(SENTENCES, st.integers(1, 5), st.integers(0, 99))
def test_drawn_sentences(own: list[list[int]], most: int, seed: int) -> None:
    numbers = BatchRng.from_seed(seed, 1).uniform(5)[0]
    kept = sorted(sorted(range(len(own)), key=lambda i: float(numbers[i]))[:most])
    assert lists([draw(stored([own])[0], most, numbers)]) == [[own[i] for i in kept]]


def test_every_sentence_is_drawn_equally_often() -> None:
    n, (own,) = 3000, stored([[[1], [2], [3]]])
    drawn = Tokens.of([draw(own, 2, numbers) for numbers in BatchRng.from_seed(0, n).uniform(3)])
    shares = np.bincount(drawn.flat)[1:] / n
    np.testing.assert_allclose(shares, [2 / 3] * 3, atol=0.04)


def test_real_captions() -> None:
    path = Path(os.environ.get("LABELWISE_DATA", "")) / "cub_captions_reed_55classes.json.gz"
    if "LABELWISE_DATA" not in os.environ or not path.exists():
        pytest.skip("LABELWISE_DATA does not name a folder with cub_captions_reed_55classes.json.gz")
    texts = list(json.loads(gzip.decompress(path.read_bytes())).values())
    instances = tokenise(texts, packaged_vectors())
    tokens = Tokens.of(instances)
    assert (len(instances), len(tokens.lengths), int(tokens.lengths.max())) == (3208, 32080, 30)
    assert float((tokens.flat == 0).mean()) < 0.01
