"""Fit to names alone: no image has a label, and a label is a sentence that the encoder has words for."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.core.arrays import Array
from labelwise.core.calibration import MEMORY
from labelwise.core.classifier import Classifier, Origin, bind
from labelwise.core.load import load
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Encoder
from labelwise.encoders.registry import DEFAULT, is_installed, open_encoder
from labelwise.images.dataset import Dataset
from labelwise.images.describe.labels import Labels
from labelwise.images.describe.minilm import INSTALL_MINILM, MINILM
from labelwise.methods.discriminant.fit import DiscriminantFit
from labelwise.methods.words.head import WordsHead
from labelwise.methods.words.joined import WordsAndImagesFit
from labelwise.methods.words.vocabulary import (
    TEMPLATE,
    UNKNOWN_BELOW,
    Vocabulary,
    default_vocabulary,
    sentence,
    vocabulary_of,
)
from labelwise.support.errors import UsageError, listing
from labelwise.support.files import read_text
from labelwise.support.rows import draw_rows
from labelwise.train.method import Run

SETTINGS = ("vocabulary", "templates")
KNOWN_RATE = 0.95  # of the images pass as known
# The softmax temperature of words by how near names are to words of the vocabulary, and the yes of a single word: fitted on three sets
# of labelled photos (TinyImageNet, Pets, CUB) and tested on others, see docs/words.md.
NEAR, COLD, STEEP = 0.96, -0.29, 4.8
ODDS, RARE = 6.6, -2.05


@dataclass(frozen=True, kw_only=True)
class WordsOptions:
    """What a user may say of a fit by words."""

    vocabulary: str | None = (
        None  # a saved classifier of the closed form whose labels are the words; None: the default encoder's
    )
    templates: tuple[str, ...] = (TEMPLATE,)  # sentences with {} for the name

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "WordsOptions":
        """Return the options of settings as the shell gives them; ``templates`` is a sentence with {}, or a .txt file of some."""
        if wrong := set(settings) - set(SETTINGS):
            raise UsageError(f"Words have the settings vocabulary and templates; given {listing(sorted(wrong))}.")
        told = settings.get("templates", TEMPLATE)
        lines = read_text(told).splitlines() if told.endswith(".txt") else [told]
        templates = tuple(line.strip() for line in lines if line.strip())
        if not templates or any(each.count("{}") != 1 for each in templates):
            raise UsageError(f"A template is a sentence with one {{}} where the name goes; given {listing(templates)}.")
        return cls(vocabulary=settings.get("vocabulary"), templates=templates)


def words_are_at_hand() -> bool:
    """Return whether the default encoder has words here: its weights, and what reads sentences."""
    return is_installed() and all(map(find_spec, MINILM))


def fit_words(data: Dataset, options: WordsOptions | None = None, run: Run | None = None) -> Classifier:
    """Return the classifier of labels that are names, or sentences where labels have texts; images only say what is familiar.

    Args:
        data: its labels, and images whose labels are not read.
        options: which words there are, and how names become sentences.
        run: takes the lines that say what each name was read as.
    """
    began, options, run = time.monotonic(), options or WordsOptions(), run or Run()
    encoder, vocabulary = _words_of(options)
    labels = _described(data.labels, options.templates)
    head, near = _head_of(labels, vocabulary)
    if run.tell is not None:
        for line in told(labels, near, vocabulary):
            run.tell(line)
    bound = calibrated(bind(head, encoder, labels), float(near.mean()))
    features = encode(encoder, data.split("train").images)
    about = {
        "data": data.name,
        "images": len(features),
        "skipped": len(features.skipped),
        "device": "cpu",
        "processes": 1,
    }
    about |= {"seconds": round(time.monotonic() - began, 1), "seed": run.seed}
    summary = {"training": about, "words": dict(zip(labels.names, near.round(3).tolist(), strict=True))}
    bound = replace(bound, origin=Origin(summary={**summary, "encoder_runtime": encoder.runtime}))
    return _familiar(bound, head.embed(features.values))


def with_words(
    fitted: DiscriminantFit, features: Array, targets: Array, encoder: str, templates: Sequence[str] = (TEMPLATE,)
) -> WordsAndImagesFit:
    """Return the closed form of training images, and what the names of its labels say, joined."""
    if encoder not in ("auto", DEFAULT):
        raise UsageError(
            f"Names are words of {DEFAULT} alone, and the encoder is {encoder}. Give --encoder {DEFAULT}, or leave words=true out."
        )
    _, vocabulary = _words_of(WordsOptions())
    labels = _described(fitted.head.labels, templates)
    head, near = _head_of(labels, vocabulary)
    return WordsAndImagesFit.of(fitted, head, features, targets, 1 / _temperature(float(near.mean())))


def _head_of(labels: Labels, vocabulary: Vocabulary) -> tuple[WordsHead, Array]:
    """Return the head of labels with sentences, and how near each is to a word ``[k]``."""
    read = [vocabulary.read(list(texts)) for texts in labels.texts or ()]
    rows = np.stack([each.mean(0) for each, _ in read]).astype(np.float32)
    return WordsHead(labels=labels, rows=rows, vocabulary=vocabulary), np.array([alike.mean() for _, alike in read])


def _temperature(near: float) -> float:
    return float(np.exp(COLD + STEEP * (NEAR - near)))


def calibrated(classifier: Classifier, near: float) -> Classifier:
    """Return the classifier with the calibration of words that are this near to those of the vocabulary on average."""
    temperature = _temperature(near)
    k, calibration = len(classifier.labels), classifier.calibration
    scale, offset = np.full(k, 1 / temperature, np.float32), np.full(k, ODDS / temperature + RARE, np.float32)
    return replace(classifier, calibration=replace(calibration, scale=scale, offset=offset, unseen=np.ones(k, bool)))


def told(labels: Labels, near: Array, vocabulary: Vocabulary) -> list[str]:
    """Return lines that say which labels the encoder has no word for, and what a few others were read as."""
    far = [name for name, alike in zip(labels.names, near, strict=True) if alike < UNKNOWN_BELOW]
    some = list(zip(labels.names, labels.texts or (), near, strict=True))[:3]
    lines = [
        f"Words: {listing(f'{name} (nearest: {vocabulary.nearest(texts[0])}, {alike:.2f})' for name, texts, alike in some)}."
    ]
    if far:
        lines.append(
            f"The encoder has no word near {len(far)} of {len(labels)} labels, and will hardly know them: {listing(far)}. Give images of these."
        )
    return lines


def _words_of(options: WordsOptions) -> tuple[Encoder, Vocabulary]:
    if not all(map(find_spec, MINILM)):
        raise UsageError(
            f"Labels that are words are read by a sentence encoder, which is not installed: {INSTALL_MINILM}."
        )
    if options.vocabulary is None:
        return open_encoder(DEFAULT), default_vocabulary()
    known = load(Path(options.vocabulary))
    return known.encoder, vocabulary_of(known)


def _described(labels: Labels, templates: Sequence[str]) -> Labels:
    """Return labels with sentences: their own, or a name in each template."""
    own = labels.texts or tuple(() for _ in labels.names)
    texts = (
        known or tuple(sentence(name, each) for each in templates)
        for name, known in zip(labels.names, own, strict=True)
    )
    return replace(labels, texts=tuple(texts))


def _familiar(classifier: Classifier, embeddings: Array) -> Classifier:
    """Return the classifier with a rule for what is unknown: so that nearly all of these images ``[n, d]`` are known."""
    memory = classifier.familiarity.remember(embeddings[draw_rows(len(embeddings), MEMORY)])
    classifier = replace(classifier, familiarity=memory)
    scores: Any = classifier.scores_of(embeddings)
    return replace(classifier, familiarity=memory.fit(scores, KNOWN_RATE)) if len(embeddings) > 1 else classifier
