import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelwise.core.head import LearnsFromExamples
from labelwise.evaluation import episodes as module
from labelwise.evaluation.episodes import EpisodeSettings, episode_accuracies, episodes, estimate, evaluate_episodes
from labelwise.evaluation.evaluation import Evaluation
from labelwise.methods import METHODS
from labelwise.support.errors import DataError, UsageError
from tests.conftest import blobs, squares
from tests.contract.subjects import trained
from tests.evaluation.test_verification import noisy

FEW = EpisodeSettings(ways=3, shots=2, queries=4, count=6, seed=5)
TEST = noisy(blobs().split("test"))


@pytest.mark.parametrize(
    ("method", "chunk"), [*((name, 2**22) for name in METHODS), ("discriminant", 1), ("prototype", 1)]
)
def test_accuracies_are_those_of_episodes_taught_one_by_one(
    method: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    model = trained(method).head
    assert isinstance(model, LearnsFromExamples)
    embeddings = torch.from_numpy(trained(method).encode(TEST.images))
    found = episode_accuracies(model, embeddings, torch.as_tensor(TEST.targets), FEW)
    for place, episode in enumerate(episodes(torch.as_tensor(TEST.targets), 3, 2, 4, 6, 5)):
        examples, asked = (embeddings[rows.flatten()].numpy() for rows in (episode.support, episode.query))
        label_embeddings = model.labels_from_examples(examples, np.array([0, 0, 1, 1, 2, 2]))
        taught = trained(method).head.score(asked, label_embeddings).argmax(1)
        right = {"taught": 0, "nearest mean": 0, "cosine": 0}
        for i, row in enumerate(episode.query.flatten().tolist()):
            means = [embeddings[rows].mean(0) for rows in episode.support]
            near = min(range(3), key=lambda c: float((embeddings[row] - means[c]).norm()))
            like = max(range(3), key=lambda c: float(torch.cosine_similarity(embeddings[row], means[c], dim=0)))
            for name, answer in (("taught", int(taught[i])), ("nearest mean", near), ("cosine", like)):
                right[name] += answer == i // 4
        assert {name: round(float(hits[place]) * 12) for name, hits in found.items()} == right


def test_the_estimate_is_a_mean_and_a_normal_interval() -> None:
    found = estimate([0.2, 0.4, 0.6, 0.8])
    spread = math.sqrt(sum((x - 0.5) ** 2 for x in (0.2, 0.4, 0.6, 0.8)) / 3)
    assert found.mean == pytest.approx(0.5)
    assert found.error == pytest.approx(1.96 * spread / 2)
    assert str(found) == "50.00 +- 25.30 %"


def test_result_of_a_split() -> None:
    classifier = trained("prototype")
    split = replace(TEST, targets=torch.where(torch.arange(len(TEST)) < 5, -1, torch.as_tensor(TEST.targets)))
    one, five = (replace(FEW, shots=shots, count=50) for shots in (1, 5))
    found = [evaluate_episodes(Evaluation.of(classifier, split), each) for each in (one, five)]
    assert (found[0].labels, found[0].images, found[0].leaked) == (4, len(TEST) - 5, 0)
    assert found[0].settings == one
    assert set(found[0].accuracy) == {"taught", "nearest mean", "cosine"}
    assert 1 / 3 < found[0].accuracy["taught"].mean < found[1].accuracy["taught"].mean <= 1, "more shots help"
    assert evaluate_episodes(Evaluation.of(classifier, blobs().split("train")), one).leaked == 1


def test_errors() -> None:
    classifier = trained("softmax")
    with pytest.raises(DataError, match="4 labels have 6 images"):
        evaluate_episodes(Evaluation.of(classifier, TEST), replace(FEW, ways=5))
    with pytest.raises(UsageError, match="at least two episodes; given 1"):
        evaluate_episodes(Evaluation.of(classifier, TEST), replace(FEW, count=1))
    with pytest.raises(DataError, match="Several labels may be true"):
        evaluate_episodes(Evaluation.of(classifier, squares(30).split("test")))


TARGETS = st.lists(st.integers(-1, 6), min_size=30, max_size=120).map(np.array)


@given(TARGETS, st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**31))
def test_episodes_hold_distinct_images_of_their_labels(
    targets: NDArray[np.int64], ways: int, shots: int, queries: int, seed: int
) -> None:
    enough = [c for c in range(7) if targets.tolist().count(c) >= shots + queries]
    if len(enough) < ways:
        with pytest.raises(DataError, match=f"^Only {len(enough)} labels have {shots + queries} images"):
            episodes(targets, ways, shots, queries, 3, seed)
        return
    made = list(episodes(targets, ways, shots, queries, 3, seed))
    assert len(made) == 3
    for episode in made:
        assert len(set(episode.labels)) == ways
        assert set(episode.labels) <= set(enough)
        assert episode.support.shape == (ways, shots)
        assert episode.query.shape == (ways, queries)
        rows = np.concatenate([episode.support, episode.query], 1)
        assert len(set(rows.flatten().tolist())) == rows.size
        assert targets[rows].tolist() == [[c] * (shots + queries) for c in episode.labels]


def test_the_same_seed_gives_the_same_episodes_and_fewer_are_the_first_of_more() -> None:
    targets = np.arange(100) % 8
    few = list(episodes(targets, 5, 2, 3, 4, 7))
    more = list(episodes(targets, 5, 2, 3, 9, 7))
    for one, other in zip(few, more, strict=False):
        assert one.labels == other.labels
        assert np.array_equal(one.support, other.support)
        assert np.array_equal(one.query, other.query)
    other_seed = list(episodes(targets, 5, 2, 3, 4, 8))
    assert [e.support.tolist() for e in few] != [e.support.tolist() for e in other_seed]
    assert len({e.labels for e in more}) > 1


def test_every_label_and_image_is_drawn_about_equally_often() -> None:
    targets = np.arange(60) % 6
    drawn = np.zeros(60)
    for episode in episodes(targets, 3, 1, 4, 1000, 0):
        drawn[np.concatenate([episode.support, episode.query], 1)] += 1
    expected = 1000 * 3 * 5 / 60
    assert bool((abs(drawn - expected) < 0.3 * expected).all())


@pytest.mark.parametrize(
    ("ways", "shots", "queries", "count", "message"),
    [
        (1, 1, 1, 1, '"ways" of episodes must be at least 2; given 1'),
        (2, 0, 1, 1, '"shots" of episodes must be at least 1; given 0'),
        (2, 1, 0, 1, '"queries" of episodes must be at least 1; given 0'),
        (2, 1, 1, -1, '"count" of episodes must be at least 0; given -1'),
    ],
)
def test_numbers_out_of_range_are_refused_at_once(
    ways: int, shots: int, queries: int, count: int, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        episodes(np.arange(20) % 4, ways, shots, queries, count, 0)
