import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labelwise.evaluation.episode import episodes
from labelwise.support.errors import DataError, UsageError

TARGETS = st.lists(st.integers(-1, 6), min_size=30, max_size=120).map(torch.tensor)


@given(TARGETS, st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**31))
@settings(max_examples=100, deadline=None)
def test_episodes_hold_distinct_images_of_their_classes(
    targets: Tensor, ways: int, shots: int, queries: int, seed: int
) -> None:
    enough = [c for c in range(7) if targets.tolist().count(c) >= shots + queries]
    if len(enough) < ways:
        with pytest.raises(DataError, match=f"^{len(enough)} classes have the {shots + queries} images"):
            episodes(targets, ways, shots, queries, 3, seed)
        return
    made = list(episodes(targets, ways, shots, queries, 3, seed))
    assert len(made) == 3
    for episode in made:
        assert len(set(episode.classes)) == ways
        assert set(episode.classes) <= set(enough)
        assert episode.support.shape == (ways, shots)
        assert episode.query.shape == (ways, queries)
        rows = torch.cat([episode.support, episode.query], 1)
        assert len(set(rows.flatten().tolist())) == rows.numel()
        assert targets[rows].tolist() == [[c] * (shots + queries) for c in episode.classes]


def test_the_same_seed_gives_the_same_episodes_and_fewer_are_the_first_of_more() -> None:
    targets = torch.arange(100) % 8
    few = list(episodes(targets, 5, 2, 3, 4, 7))
    more = list(episodes(targets, 5, 2, 3, 9, 7))
    for one, other in zip(few, more, strict=False):
        assert one.classes == other.classes
        assert torch.equal(one.support, other.support)
        assert torch.equal(one.query, other.query)
    other_seed = list(episodes(targets, 5, 2, 3, 4, 8))
    assert [e.support.tolist() for e in few] != [e.support.tolist() for e in other_seed]
    assert len({e.classes for e in more}) > 1


def test_every_class_and_image_is_drawn_about_equally_often() -> None:
    targets = torch.arange(60) % 6
    drawn = torch.zeros(60)
    for episode in episodes(targets, 3, 1, 4, 1000, 0):
        drawn[torch.cat([episode.support, episode.query], 1)] += 1
    expected = 1000 * 3 * 5 / 60
    assert bool(((drawn - expected).abs() < 0.3 * expected).all())


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
        episodes(torch.arange(20) % 4, ways, shots, queries, count, 0)
