"""The drawn birds: determinism, splits, attributes, and sentences that tell the truth."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from torch import Tensor

from labelwise.images.dataset import Dataset
from labelwise.images.sets.finch_drawing import BACKDROPS, COLOURS, SIDE, Bird, draw
from labelwise.images.sets.finches import ATTRIBUTES, COLOUR_WORDS, SPECIES, finch_labels, finches
from labelwise.support.errors import UsageError
from tests.pixels_of import px


@cache
def _data(per_species: int = 24, seed: int = 0) -> Dataset:
    return finches(seed=seed, per_species=per_species)


def _by_file(data: Dataset) -> dict[str, tuple[str, bytes, tuple[str, ...]]]:
    """Return split, image bytes and sentences of every image by its name."""
    return {
        file: (name, image.numpy().tobytes(), texts)
        for name, split in data.splits.items()
        for file, image, texts in zip(split.files, px(split), split.texts, strict=True)
    }


def test_shapes_types_and_shares_of_the_splits() -> None:
    data = _data(20)
    k = len(data.labels)
    assert k >= 24
    assert data.shape == (3, SIDE, SIDE)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 12 * k, "val": 3 * k, "test": 5 * k}
    for split in data.splits.values():
        assert px(split).dtype == torch.uint8
        assert split.targets.dtype == np.int64
        assert [file.split("/")[0] for file in split.files] == [data.labels.names[i] for i in split.targets.tolist()]


def test_same_seed_same_data_and_another_seed_other_images() -> None:
    first, again, other = _by_file(_data(4)), _by_file(finches(per_species=4)), _by_file(_data(4, seed=1))
    assert first == again
    assert first.keys() == other.keys()
    assert all(first[file][1] != other[file][1] for file in first)
    assert any(first[file][2] != other[file][2] for file in first)


def test_an_image_its_sentences_and_its_split_do_not_depend_on_how_many_there_are() -> None:
    few, many = _by_file(_data(4)), _by_file(_data(24))
    assert {file: many[file] for file in few} == few


def test_every_species_is_in_every_split_even_with_the_fewest_images() -> None:
    for split in _data(4).splits.values():
        assert set(split.targets.tolist()) == set(range(len(SPECIES)))


def test_no_image_occurs_twice() -> None:
    images = [image for _, image, _ in _by_file(_data()).values()]
    assert len(set(images)) == len(images)


def test_vectors_are_distinct_and_every_attribute_is_shared_but_not_by_all() -> None:
    vectors = finch_labels().vectors
    assert vectors is not None
    assert vectors.shape == (len(SPECIES), len(ATTRIBUTES))
    assert len({tuple(row) for row in vectors.tolist()}) == len(SPECIES)
    assert 0 <= float(vectors.min()) <= float(vectors.max()) <= 1
    for name, column in zip(ATTRIBUTES, vectors.T, strict=True):
        assert int((column > 0).sum()) >= 2, name
        assert len(set(column.tolist())) > 1, name


def test_vectors_say_what_the_species_looks_like() -> None:
    vectors = finch_labels().vectors
    assert vectors is not None
    known = dict(zip(ATTRIBUTES, vectors[list(SPECIES).index("bandit cardinal")].tolist(), strict=True))
    present = {name: value for name, value in known.items() if value}
    assert present == {
        **dict.fromkeys(["body red", "wing red", "breast red", "pattern plain", "beak conical"], 1.0),
        **dict.fromkeys(["mask", "crest", "orange beak", "tail length", "size"], 1.0),
        "beak length": 0.5,
    }


def test_families_hold_close_relatives() -> None:
    vectors = finch_labels().vectors
    assert vectors is not None
    apart = (vectors[:, None] != vectors[None]).sum(-1) + 99 * np.eye(len(vectors))
    assert int((apart.min(1) == 1).sum()) >= 12  # a single attribute tells them from another species
    assert int(apart.min(1).max()) <= 4


# A word, and what must be true of a bird of which a sentence says it.
_CLAIMS: dict[str, Callable[[Bird], bool]] = {
    "crest": lambda bird: bird.crest,
    "tuft": lambda bird: bird.crest,
    "mask": lambda bird: bird.mask,
    "band": lambda bird: bird.mask,
    "ring": lambda bird: bird.eye_ring,
    "circle": lambda bird: bird.eye_ring,
    "one": lambda bird: bird.wing_bars == 1,
    "single": lambda bird: bird.wing_bars == 1,
    "two": lambda bird: bird.wing_bars == 2,
    "pair": lambda bird: bird.wing_bars == 2,
    "streaked": lambda bird: bird.pattern == "streaked",
    "streaks": lambda bird: bird.pattern == "streaked",
    "spotted": lambda bird: bird.pattern == "spotted",
    "spots": lambda bird: bird.pattern == "spotted",
    "plain": lambda bird: bird.pattern == "plain",
    "marks": lambda bird: bird.pattern == "plain",
    "cap": lambda bird: bird.cap is not None,
    "crown": lambda bird: bird.cap is not None,
    "conical": lambda bird: bird.beak == "conical",
    "slender": lambda bird: bird.beak == "slender",
    "curved": lambda bird: bird.beak == "curved",
    "forked": lambda bird: bird.forked_tail,
    "notched": lambda bird: bird.forked_tail,
    "rounded": lambda bird: not bird.forked_tail,
    "long": lambda bird: 2 in (bird.tail_length, bird.beak_length),
    "stubby": lambda bird: 0 in (bird.tail_length, bird.beak_length),
    "tiny": lambda bird: bird.size == 0,
    "middling": lambda bird: bird.size == 1,
    "large": lambda bird: bird.size == 2,
}


def _words(sentence: str) -> set[str]:
    return set(sentence.lower().replace(",", " ").replace(".", " ").split())


def _colours_of(bird: Bird) -> set[str]:
    return {bird.body, bird.wing, bird.breast, bird.cap or bird.body} | ({"orange"} if bird.orange_beak else set())


def _false_words(sentence: str, bird: Bird) -> set[str]:
    """Return the words of a sentence that are wrong for a bird."""
    words = _words(sentence)
    wrong = {word for word, holds in _CLAIMS.items() if word in words and not holds(bird)}
    others = {word for colour, ways in COLOUR_WORDS.items() if colour not in _colours_of(bird) for word in ways}
    return wrong | (words & others)


def test_sentences_are_ten_per_image_and_true() -> None:
    data = _data()
    birds = list(SPECIES.values())
    said: set[str] = set()
    for split in data.splits.values():
        for target, texts in zip(split.targets.tolist(), split.texts, strict=True):
            assert len(texts) == 10
            for text in texts:
                assert _false_words(text, birds[target]) == set(), text
                assert text[0].isupper(), text
                assert text.endswith("."), text
                said |= _words(text)
    assert set(_CLAIMS) <= said  # otherwise a claim above is checked against nothing
    assert {word for ways in COLOUR_WORDS.values() for word in ways} <= said


def test_species_sentences_are_true_and_mention_all_that_sets_a_species_apart() -> None:
    texts = finch_labels().texts
    assert texts is not None
    for sentences, bird in zip(texts, SPECIES.values(), strict=True):
        assert len(sentences) == 6
        assert all(_false_words(sentence, bird) == set() for sentence in sentences)
        words = set().union(*map(_words, sentences))
        assert all(words & set(COLOUR_WORDS[colour]) for colour in (bird.body, bird.wing, bird.breast))
        assert bool(words & {"crest", "tuft"}) == bird.crest
        assert bool(words & {"ring", "circle"}) == bird.eye_ring


def test_sentences_tell_where_the_bird_is_and_which_way_it_looks() -> None:
    name, hints = "coal starling", {"grass": "grass", "snow": "snow", "dusk": "dusk", "branches": "branches"}
    streams = [np.random.default_rng((0, crc32(name.encode()), i)) for i in range(60)]
    images, backdrops, left = draw(SPECIES[name], streams)
    assert set(backdrops) == set(BACKDROPS)
    known = _by_file(_data(60))
    said: set[str] = set()
    for i, (image, backdrop, faces_left) in enumerate(zip(images, backdrops, left, strict=True)):
        _, pixels, texts = known[f"{name}/{i:03d}"]
        assert image.tobytes() == pixels
        words = set().union(*map(_words, texts))
        assert ("right" if faces_left else "left") not in words
        assert all(word not in words for other, word in hints.items() if other != backdrop)
        said |= words
    assert {"left", "right", *hints.values()} <= said


def test_a_bird_that_faces_left_has_its_beak_on_the_left() -> None:
    streams = [np.random.default_rng((1, i)) for i in range(40)]
    again = [np.random.default_rng((1, i)) for i in range(40)]
    plain, _, left = draw(SPECIES["ember cardinal"], streams)
    masked, _, _ = draw(SPECIES["bandit cardinal"], again)
    change = np.abs(plain.astype(int) - masked.astype(int)).sum((1, 2))  # by column: only the mask differs
    bird_columns = (change * np.arange(SIDE)).sum(1) / change.sum(1)
    assert [column < SIDE / 2 for column in bird_columns] == left


def _pixels_changed(bird: Bird, other: Bird) -> list[float]:
    pair = [draw(look, [np.random.default_rng((2, i)) for i in range(20)])[0].astype(int) for look in (bird, other)]
    return [float(share) for share in (np.abs(pair[0] - pair[1]).max(1) > 16).mean((1, 2))]


@pytest.mark.parametrize("field", [field.name for field in fields(Bird)])
def test_every_attribute_can_be_seen_and_changes_the_bird_alone(field: str) -> None:
    bird = Bird(body="brown", wing="brown", breast="cream")
    values: dict[str, Any] = {
        "body": "blue",
        "wing": "red",
        "breast": "pink",
        "cap": "black",
        "pattern": "spotted",
        "beak": "curved",
    }
    now = getattr(bird, field)
    change: dict[str, Any] = {field: values[field] if field in values else not now if now is False else (now + 2) % 3}
    shares = _pixels_changed(bird, replace(bird, **change))
    assert sum(share > 0.001 for share in shares) >= 16  # not all: a leaf may hide it
    assert max(shares) < 0.5


def _centred(images: Tensor) -> Tensor:
    flat = images.flatten(1).double() / 255
    return torch.cat([flat - flat.mean(1, keepdim=True), torch.ones(len(flat), 1, dtype=torch.float64)], 1)


def test_a_linear_model_on_pixels_learns_something_but_stays_below_80_percent() -> None:
    data = _data(60)
    train, test = data.split("train"), data.split("test")
    x, goal = _centred(px(train)), torch.nn.functional.one_hot(torch.from_numpy(train.targets)).double()
    best = 0.0
    for ridge in (1.0, 10.0, 100.0):
        weights = x.T @ torch.linalg.solve(x @ x.T + ridge * torch.eye(len(x), dtype=torch.float64), goal)
        best = max(
            best, float(((_centred(px(test)) @ weights).argmax(1) == torch.from_numpy(test.targets)).double().mean())
        )
    assert 3 / len(SPECIES) < best < 0.8


def test_colour_words_cover_the_palette_and_do_not_overlap() -> None:
    assert COLOUR_WORDS.keys() == COLOURS.keys()
    words = [word for ways in COLOUR_WORDS.values() for word in ways]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize(("seed", "per_species", "said"), [(-1, 10, "given -1"), (0, 3, "per_species=3")])
def test_impossible_requests_are_explained(seed: int, per_species: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        finches(seed=seed, per_species=per_species)
