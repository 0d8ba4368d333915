"""The text sides of clarel: what a step reads of an image, the embedding of a label, and what cannot be read."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import Tensor

from labelwise.fitting.zero_shot import fit_zero_shot, plan_runs
from labelwise.images.describe.labels import Labels
from labelwise.methods.clarel.method import ClarelModel
from labelwise.support.errors import DataError, UsageError
from labelwise.train.batches import Batch
from labelwise.train.tensors import BatchRng
from tests.changed import model_of
from tests.described import PAIRS, by_text, by_vector, sentences
from tests.methods.test_clarel import READERS, RUN, SMALL, WORDS, batch_of, built, every_reader, fitted


@every_reader
def test_the_share_described_by_labels(reader: str) -> None:
    method = replace(READERS[reader], drawn=None)
    model, data, _ = built(method, by_text(own=True))
    texts, batch = model.reader.read(data), batch_of(data, 40)
    with torch.no_grad():
        own, labels = (texts.encode(batch, None, share) for share in (0.0, 1.0))
        torch.testing.assert_close(labels, model.encode_labels(data.labels)[batch.targets], rtol=1e-4, atol=1e-5)
        told = method.describe(Labels(names=tuple(map(str, range(40))), texts=data.train.select(batch.rows).texts))
        torch.testing.assert_close(own, model.encode_labels(told), rtol=1e-4, atol=1e-5)
        mixed = texts.encode(batch, None, 0.5)
        hidden = replace(batch, targets=torch.full_like(batch.targets, -1))
        torch.testing.assert_close(texts.encode(hidden, None, 1.0), own, rtol=1e-4, atol=1e-5)
    by_own, by_label = (torch.isclose(mixed, side, rtol=1e-3, atol=1e-4).all(1) for side in (own, labels))
    assert bool((by_own | by_label).all())
    assert 8 < int(by_label.sum()) < 40
    assert not bool(by_own.all())


@every_reader
def test_a_step_reads_some_sentences_of_each_image(reader: str) -> None:
    """Images have one to three sentences; two are drawn, all of them in turn, and every pair comes up."""
    model, data, _ = built(READERS[reader], by_text(own=True))
    texts, rows = model.reader.read(data), torch.tensor([0, 1, 2])  # with one, two and three sentences
    drawn = set()
    for seed in range(25):
        rng = BatchRng.from_seed(seed, 3)
        batch = Batch(images=data.train.images[rows], targets=data.train.targets[rows], rows=rows, rng=rng)
        with torch.no_grad():
            found = texts.encode(batch, 2, 0.0)
        for row, embedding in zip(rows.tolist(), found, strict=True):
            told = data.train.texts[row]
            choices = list(combinations(told, min(2, len(told))))
            near = [torch.allclose(embedding, embedding_of(model, one), rtol=1e-3, atol=1e-4) for one in choices]
            assert near.count(True) == 1
            drawn.add((row, choices[near.index(True)]))
    assert len(drawn) == 1 + 1 + 3


def embedding_of(model: ClarelModel, texts: tuple[str, ...]) -> Tensor:
    with torch.no_grad():
        return model.encode_labels(Labels(names=("one",), texts=(texts,)))[0]


def test_reading_words_a_label_is_the_mean_of_its_sentences() -> None:
    model = model_of(fitted("words"))
    assert isinstance(model, ClarelModel)
    alone = torch.stack([embedding_of(model, (text,)) for text in sentences("red star")])
    torch.testing.assert_close(embedding_of(model, sentences("red star")), alone.mean(0), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(alone[0], alone[1])
    labels = Labels(names=PAIRS, texts=tuple(sentences(name)[: 1 + i % 3] for i, name in enumerate(PAIRS)))
    assert labels.texts is not None
    with torch.no_grad():
        embeddings = model.encode_labels(labels)
    torch.testing.assert_close(
        embeddings, torch.stack([embedding_of(model, one) for one in labels.texts]), rtol=1e-4, atol=1e-5
    )


def test_vectors_of_another_size_are_refused() -> None:
    model, _, _ = built(SMALL, by_vector())
    with pytest.raises(UsageError, match=r"reads vectors of 6 numbers; given 5\. Describe a label as those it was"):
        model.encode_labels(Labels(names=("new",), vectors=torch.ones(1, 5)))


def test_words_need_sentences() -> None:
    model, _, _ = built(WORDS, by_text())
    with pytest.raises(DataError, match=r"reads sentences, but these labels have none.*labels\.csv.*text"):
        model.encode_labels(Labels(names=("new",), vectors=torch.ones(1, 5)))
    with pytest.raises(DataError, match=r"reads sentences, but these labels have none"):
        fit_zero_shot(by_vector(), WORDS, RUN)
    with pytest.raises(DataError, match="Nothing describes these labels"):
        fit_zero_shot(replace(by_vector(), labels=Labels(names=by_vector().labels.names)), SMALL, RUN)
    with pytest.raises(UsageError, match='No word vectors "minilm"'):
        replace(WORDS, sentences="minilm").build(plan_runs(by_text(), WORDS, 0).final.spec)
