"""Finches: an embedded data set of drawn birds with attributes and sentences, drawn from a seed in seconds.

Species come in families of close relatives that differ in one or two attributes, so a method has to look; ``finches.toml``
lists them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from random import Random
from typing import Any
from zlib import crc32

import numpy as np

from labelwise.images.dataset import SPLITS, Array, Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.sets.finch_drawing import BACKDROPS, BIRDS, Bird, draw
from labelwise.images.split.divide import pool, resplit
from labelwise.support.errors import UsageError
from labelwise.support.rows import Draws

SPECIES: dict[str, Bird] = {
    name: Bird(**(family["looks"] | own)) for family in BIRDS["families"] for name, own in family["species"].items()
}
UNSEEN = tuple(BIRDS["unseen"])  # test-only species of finches_unseen
COLOUR_WORDS: dict[str, list[str]] = {name: colour["words"] for name, colour in BIRDS["colours"].items()}
_WORDS: dict[str, Any] = BIRDS["words"]

# Features of a bird that vary independently.
MARKS: dict[str, Callable[[Bird], bool]] = {
    "black cap": lambda bird: bird.cap == "black",
    "chestnut cap": lambda bird: bird.cap == "chestnut",
    "crest": lambda bird: bird.crest,
    "mask": lambda bird: bird.mask,
    "eye ring": lambda bird: bird.eye_ring,
    "wing bars": lambda bird: bird.wing_bars > 0,
    "streaked breast": lambda bird: bird.pattern == "streaked",
    "spotted breast": lambda bird: bird.pattern == "spotted",
    "orange beak": lambda bird: bird.orange_beak,
    "forked tail": lambda bird: bird.forked_tail,
}

# Splits of each twenty images of a species: 60 %, 15 % and 25 %.
_CYCLE = tuple({"t": "train", "v": "val", "e": "test"}[letter] for letter in "tvtettteettvtetttvte")


def _columns() -> Iterator[tuple[str, list[float]]]:
    """Yield the name of each attribute and its value per species."""
    birds = list(SPECIES.values())
    for part in ("body", "wing", "breast", "cap", "pattern", "beak"):
        values = [getattr(bird, part) for bird in birds]
        for value in sorted(set(values) - {None}):
            yield f"{part} {value}", [float(entry == value) for entry in values]
    for field in fields(Bird):
        values = [getattr(bird, field.name) for bird in birds]
        if isinstance(values[0], int):
            yield field.name.replace("_", " "), [value / (1 if isinstance(value, bool) else 2) for value in values]


ATTRIBUTES: tuple[str, ...] = tuple(name for name, _ in _columns())


def finches(*, seed: int = 0, per_species: int = 100) -> Dataset:
    """Return 30 species of drawn birds with attributes and sentences, images ``[n, 3, 48, 48]``.

    Image i of a species, its sentences and its split depend on the seed, the species and i alone; ``per_species`` is over all splits.
    """
    if seed < 0:
        raise UsageError(f"The seed must not be negative; given {seed}.")
    if per_species < 4:
        raise UsageError(f"Each species needs at least 4 images to be in every split; given per_species={per_species}.")
    images: list[Array] = []
    texts: list[tuple[str, ...]] = []
    for name, bird in SPECIES.items():
        key = crc32(name.encode())
        for start in range(0, per_species, len(_CYCLE)):
            rows = range(start, min(start + len(_CYCLE), per_species))
            drawings, backdrops, left = draw(bird, [np.random.default_rng((seed, key, row)) for row in rows])
            images.append(drawings)
            for row, backdrop, faces_left in zip(rows, backdrops, left, strict=True):
                place_words = (*BACKDROPS[backdrop]["places"], *_WORDS["sides"][faces_left])
                texts.append(_image_texts(bird, place_words, Random(f"{seed}/{name}/{row}")))
    whole = Split(
        images=np.concatenate(images),
        targets=np.repeat(np.arange(len(SPECIES)), per_species),
        files=tuple(f"{name}/{row:03d}" for name in SPECIES for row in range(per_species)),
        texts=tuple(texts),
    )
    home = [_CYCLE[row % len(_CYCLE)] for row in range(per_species)] * len(SPECIES)
    splits = {name: whole.select([i for i, split in enumerate(home) if split == name]) for name in SPLITS}
    return Dataset(name="finches", labels=finch_labels(), splits=splits, is_drawing=True)


def finches_unseen(*, seed: int = 0, per_species: int = 100) -> Dataset:
    """Return the finches with the six species ``UNSEEN`` in test only: they have descriptions but no training images.

    Train and val hold the images of seen species that ``finches`` does not test: val those of a third of the species,
    drawn by the seed, train those of the others. Test holds the images of seen species that ``finches`` tests and all
    images of the unseen, and no sentences. Sentences of labels follow from their attributes and names; no image is
    behind them.
    """
    dataset = finches(per_species=per_species)
    targets, untested = pool(dataset).targets, len(dataset.split("train")) + len(dataset.split("val"))
    seen_rows = np.array([i for i, name in enumerate(SPECIES) if name not in UNSEEN])
    third = Draws(seed).permutation(len(seen_rows))[: len(seen_rows) // 3]
    training = (np.arange(len(targets)) < untested) & np.isin(targets, seen_rows)
    val = training & np.isin(targets, seen_rows[third])
    parts = {"train": training & ~val, "val": val, "test": ~training}
    data = resplit(dataset, {name: np.flatnonzero(rows) for name, rows in parts.items()})
    splits = {**data.splits, "test": replace(data.split("test"), texts=())}
    return replace(data, name="finches/unseen", splits=splits)


def finches_marks(*, per_species: int = 100) -> Dataset:
    """Return the finches with ``MARKS`` as labels: any number of them may be true of an image."""
    dataset = finches(per_species=per_species)
    marks = np.array([[has(bird) for has in MARKS.values()] for bird in SPECIES.values()])
    splits = {name: replace(split, targets=marks[split.targets]) for name, split in dataset.splits.items()}
    return Dataset(name="finches/marks", labels=Labels(names=tuple(MARKS)), splits=splits, is_drawing=True)


def finch_labels() -> Labels:
    """Return the species with their attribute vectors ``[k, a]`` (columns: ``ATTRIBUTES``) and six sentences each."""
    return Labels(
        names=tuple(SPECIES),
        vectors=np.array([values for _, values in _columns()], np.float32).T.copy(),
        texts=tuple(_species_texts(bird, Random(name)) for name, bird in SPECIES.items()),
    )


def _image_texts(bird: Bird, place_words: Sequence[str], random: Random) -> tuple[str, ...]:
    """Return ten sentences about one image; some mention where the bird is or which way it looks."""
    sentences = []
    for _ in range(10):
        phrases = random.sample(_phrases(bird, random), random.randint(2, 4))
        place = random.choice(place_words) if random.random() < 0.4 else ""
        sentences.append(_sentence(phrases, random.choice(_WORDS["sizes"][bird.size]), place, random))
    return tuple(sentences)


def _species_texts(bird: Bird, random: Random) -> tuple[str, ...]:
    """Return six sentences about a species; each three in a row mention every attribute."""
    sentences = []
    for _ in range(2):
        phrases = _phrases(bird, random)
        random.shuffle(phrases)
        size = random.choice(_WORDS["sizes"][bird.size])
        sentences += [_sentence(phrases[i::3], size, "", random) for i in range(3)]
    return tuple(sentences)


def _phrases(bird: Bird, random: Random) -> list[str]:
    """Return one randomly worded phrase per visible attribute of a bird."""
    pick, lengths = random.choice, _WORDS["lengths"]
    body, wing, breast = (pick(COLOUR_WORDS[name]) for name in (bird.body, bird.wing, bird.breast))
    beak = [pick(lengths[bird.beak_length]), pick(_WORDS["beaks"][bird.beak])]
    beak += [pick(COLOUR_WORDS["orange"])] if bird.orange_beak else ["dark"]
    tail = f"{pick(lengths[bird.tail_length])} {pick(('forked', 'notched')) if bird.forked_tail else 'rounded'}"
    phrases = [
        pick((f"{_a(body)} back", f"{body} upperparts", f"{_a(body)} body")),
        pick((f"{wing} wings", f"{wing} feathers on its wings")),
        pick((f"{_a(breast)} breast", f"{breast} underparts", f"{_a(breast)} belly")),
        pick(_WORDS["patterns"][bird.pattern]),
        f"{_a(' '.join(beak[-random.randint(1, 3) :]))} {pick(('beak', 'bill'))}",
        f"{_a(tail)} tail",
    ]
    if bird.cap:
        phrases.append(f"{_a(pick(COLOUR_WORDS[bird.cap]))} {pick(('cap', 'crown'))}")
    return phrases + [pick(ways[getattr(bird, mark)]) for mark, ways in _WORDS["marks"].items() if getattr(bird, mark)]


def _sentence(phrases: Sequence[str], size: str, place: str, random: Random) -> str:
    """Return a sentence of the phrases, sometimes with the size, and with the place if given."""
    enumeration = f"{', '.join(phrases[:-1])} and {phrases[-1]}"
    noun = random.choice(("bird", "songbird"))
    if place:
        return random.choice(
            (f"{_a(size).capitalize()} {noun} {place}, with {enumeration}.", f"The {noun} {place} has {enumeration}.")
        )
    return random.choice(
        (
            f"{_a(size).capitalize()} {noun} with {enumeration}.",
            f"This {noun} has {enumeration}.",
            f"This is {_a(size)} {noun} that shows {enumeration}.",
            f"{enumeration[0].upper()}{enumeration[1:]} mark this {size} {noun}.",
        )
    )


def _a(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
