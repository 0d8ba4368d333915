"""Words: curves from 0 to 16 examples, the yes of single words, and which of a thousand words occur in a folder.

    python benchmarks/words.py FEATURES {curves,yes,occur} [--keep docs/results/measured/words_curves.jsonl]

FEATURES holds ``SET-dinov2-small.npz`` and ``SET-efficientnet_lite0.npz`` with features, labels and names (``encoders.py`` writes such files) of the sets named
below. Words are read in two ways: by the thousand labels of the default encoder, and by the map of ``image_text.py`` from MiniLM to DINOv2-small, trained without the labels that
are measured. Needs tokenizers and the weights of MiniLM.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from image_text import Map, Photos, error_of_yes, read

from labelwise.core.calibration import usual_odds
from labelwise.core.classifier import bind
from labelwise.core.head import Head
from labelwise.encoders.encoder import Precomputed
from labelwise.fitting.by_words import calibrated
from labelwise.images.describe.labels import Labels
from labelwise.images.describe.minilm import minilm
from labelwise.methods.discriminant.fit import fit_discriminant, with_second_opinion
from labelwise.methods.words.head import WordsHead
from labelwise.methods.words.sharpening import sharpen
from labelwise.methods.words.vocabulary import Vocabulary, default_vocabulary, sentence
from labelwise.methods.words.words_and_images import WordsAndImagesFit

Array = np.ndarray[Any, Any]
TRAIN = ("tin", "cub", "flowers", "cifar100")  # of the map; a fifth of the labels of each is left out in turn
CURVES, YES = (
    ("cub", "flowers", "pets", "tin", "cifar100", "pacs", "bmw"),
    ("tin", "pets", "cub", "flowers", "pacs", "bmw"),
)
LITE0, DINO = "efficientnet_lite0", "dinov2-small"
BY_NAMES = (
    "cub",
    "flowers",
    "pets",
    "tin",
    "cifar100",
    "pacs",
    "bmw",
    "monkeys",
    "trash",
    "grocery",
    "tomato",
)  # curves of the default encoder
SPLITS, EXAMPLES, LEFT_OUT, TESTED, LABELS = 5, (1, 2, 4, 8, 16), 0.2, 8, 20
SAME = 0.93  # similarity from which a label is one of the words
SCALE, BIAS = 15.2, -3.3  # of the cosines of the map, as image_text.py finds them


@dataclass(frozen=True, eq=False)
class Reading:
    """Photos of some labels, the head that reads these labels, and its log-odds."""

    features: Array
    targets: Array
    head: WordsHead
    log_odds: Array  # [n, k]
    usual: float  # the weight of words before any image is known


def by_default_encoder(photos: Photos) -> Reading:
    """Return what the thousand words of the default encoder say."""
    vocabulary, labels = default_vocabulary(), labels_of(photos)
    rows, near = vocabulary.read(labels.texts or ())
    head = WordsHead(labels=labels, rows=rows.astype(np.float32), vocabulary=vocabulary)
    bound = calibrated(bind(head, Precomputed(head.width), labels), float(near.mean()))
    log_odds = bound.scores_of(photos.features).log_odds
    return Reading(photos.features, photos.labels, head, log_odds, float(bound.calibration.scale[0]))


def by_map(photos: Photos, map_: Map) -> Reading:
    """Return what the map says."""
    features, width = map_.images(photos.features).astype(np.float32), map_.white.shape[1]
    empty = Vocabulary(
        names=(), vectors=np.zeros((0, 1)), rows=np.zeros((0, width + 1)), scale="unit", gain=SCALE, bias=BIAS
    )
    rows = empty.score(map_.texts(photos.names))
    head = WordsHead(labels=labels_of(photos), rows=rows, vocabulary=empty)
    return Reading(features, photos.labels, head, head.score(features, rows), 1.0)


def labels_of(photos: Photos) -> Labels:
    names = tuple(f"{i} {texts[0]}" for i, texts in enumerate(photos.names))
    return Labels(names=names, texts=tuple((texts[0],) for texts in photos.names))


def splits(folder: Path) -> Iterator[tuple[int, dict[str, Photos], Map]]:
    """Yield the number of a split, photos of labels left out (and sets left out whole), and the map of the other labels."""
    data = {name: read(folder / f"{name}-{DINO}.npz") for name in CURVES}
    for split in range(SPLITS):
        rng = np.random.default_rng(split)
        orders = {name: rng.permutation(len(data[name].names)) for name in TRAIN}
        cut = {name: int(LEFT_OUT * len(order)) for name, order in orders.items()}
        map_ = Map.of([data[name].select(np.sort(order[cut[name] :])) for name, order in orders.items()])
        left = {name: data[name].select(np.sort(order[: cut[name]])) for name, order in orders.items()}
        yield split, {**data, **left}, map_


def curves(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield accuracies of words, images and both."""
    for split, left, map_ in splits(folder):
        for name in CURVES:
            photos = left[name]
            yield from curve(name, "map", by_map(photos, map_), split)
            plain = Reading(photos.features, photos.labels, by_map(photos, map_).head, np.zeros((0, 0)), 0)
            yield from curve(name, DINO, plain, split)
    for name in BY_NAMES:
        photos = read(folder / f"{name}-{LITE0}.npz")
        for split in range(SPLITS):
            labels = np.sort(np.random.default_rng(split).permutation(len(photos.names))[:LABELS])
            yield from curve(name, LITE0, by_default_encoder(photos.select(labels)), split)


def curve(name: str, reader: str, photos: Reading, split: int) -> Iterator[dict[str, Any]]:
    rng, labels = np.random.default_rng(split), photos.head.labels
    orders = [rng.permutation(np.flatnonzero(photos.targets == label)) for label in range(len(labels))]
    tested = [min(TESTED, len(order) // 3) for order in orders]
    test = np.concatenate([order[:count] for order, count in zip(orders, tested, strict=True)])
    most, truth = min(len(order) - count for order, count in zip(orders, tested, strict=True)), photos.targets[test]
    about = {"set": name, "reader": reader, "split": split, "labels": len(labels), "test": len(test)}
    if photos.usual:
        right = (photos.log_odds[test].argmax(1) == truth).mean()
        yield {**about, "examples": 0, "words": round(100 * float(right), 1)}
    for examples in (each for each in EXAMPLES if each <= most):
        rows = np.concatenate([order[count:][:examples] for order, count in zip(orders, tested, strict=True)])
        fitted = with_second_opinion(fit_discriminant(photos.features[rows], photos.targets[rows], labels))
        heads: dict[str, Head] = {"images": fitted.head}
        if photos.usual:
            both = WordsAndImagesFit.of(fitted, photos.head, photos.features[rows], photos.usual)
            heads["both"] = both.head
        right = {
            key: round(100 * float((head.score(head.embed(photos.features[test]), head.embed_labels(labels)).argmax(1) == truth).mean()), 1)
            for key, head in heads.items()
        }  # fmt: skip
        yield {**about, "examples": examples, **right}


def yes(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield how far off a yes of the default encoder is, right and wrong labels asked equally often, before and after it is compared with other images."""
    for name in YES:
        photos = read(folder / f"{name}-{LITE0}.npz")
        for draw in range(SPLITS):
            labels = np.sort(np.random.default_rng(draw).permutation(len(photos.names))[:LABELS])
            reading = by_default_encoder(photos.select(labels))
            odds = {"plain": reading.log_odds, "compared": reading.log_odds - usual_odds(reading.log_odds)}
            off = {key: round(100 * error_of_yes(each, reading.targets), 1) for key, each in odds.items()}
            yield {"set": name, "draw": draw, "labels": len(labels), **off}


def occur(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield how many of the words with the most images are those of labels, among the thousand words of the default encoder."""
    vocabulary = default_vocabulary()
    names = [[sentence(name)] for name in vocabulary.names]
    for name in ("pets", "tin"):
        photos = read(folder / f"{name}-{LITE0}.npz")
        alike = minilm().encode([texts[0] for texts in photos.names]) @ vocabulary.vectors.T
        words, known = alike.argmax(1), np.flatnonzero(alike.max(1) > SAME)  # labels that are one of the words
        for draw in range(SPLITS):
            labels = np.sort(np.random.default_rng(draw).permutation(known)[:LABELS])
            features = photos.select(labels).features
            reading = by_default_encoder(Photos(features, np.zeros(len(features), int), names))
            ranked = np.argsort(-sharpen(features, reading.log_odds).counts)
            right = np.isin(ranked, words[labels])
            precision = {f"precision at {k}": round(100 * float(right[:k].mean())) for k in (5, 10, len(labels))}
            yield {"set": name, "draw": draw, "images": len(features), "labels": len(labels), **precision}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path)
    parser.add_argument("part", choices=("curves", "yes", "occur"))
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    lines = []
    for line in {"curves": curves, "yes": yes, "occur": occur}[options.part](options.features):
        lines.append(line)
        print(json.dumps(line), flush=True)
    if options.keep:
        options.keep.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
