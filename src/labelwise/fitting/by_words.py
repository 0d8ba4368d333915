"""Fit to label names alone: no image has a label, and the encoder reads each name as a sentence."""

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
from labelwise.encoders.registry import DEFAULT, hub_of, is_installed, open_encoder
from labelwise.images.dataset import Dataset
from labelwise.images.describe.labels import Labels
from labelwise.images.describe.minilm import INSTALL_MINILM, MINILM
from labelwise.methods.discriminant.fit import DiscriminantFit
from labelwise.methods.words.head import WordsHead
from labelwise.methods.words.sharpening import Sharpened, sharpen
from labelwise.methods.words.vocabulary import (
    TEMPLATE,
    UNKNOWN_BELOW,
    Vocabulary,
    default_vocabulary,
    hub_vocabulary,
    sentence,
    vocabulary_of,
)
from labelwise.methods.words.words_and_images import WordsAndImagesFit
from labelwise.support.errors import UsageError, listing
from labelwise.support.files import read_text
from labelwise.support.rows import draw_rows
from labelwise.support.settings import override
from labelwise.train.method import Run

SETTINGS = ("vocabulary", "templates", "encoder", "sharpen")
KNOWN_RATE = 0.95  # share of the images that count as known
MANY = 20  # names, of which those of most images are said
BACKGROUND = 500  # images that a yes compares an image with
PAIRS = 10_000_000  # of an image and a name that are looked at: of more, a sample of the images
# The softmax temperature of words by how near names are to words of the vocabulary, and the odds of a word: fitted on three sets
# of labelled photos (TinyImageNet, Pets, CUB) and tested on others, see docs/words.md. A yes compares these odds with those of other photos.
NEAR, COLD, STEEP = 0.96, -0.29, 4.8
ODDS, RARE = 6.6, -2.05


@dataclass(frozen=True, kw_only=True)
class WordsOptions:
    """Options of a fit by words."""

    vocabulary: str | None = (
        None  # a saved classifier of the closed form whose labels are the words; None: the default encoder's
    )
    templates: tuple[str, ...] = (TEMPLATE,)  # sentences with {} for the name
    encoder: str = "auto"  # the default encoder, or the folder of an image-text encoder
    sharpen: bool = True  # whether the unlabelled images sharpen the names

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "WordsOptions":
        """Return the options from text settings; ``templates`` is a sentence with {}, or a .txt file of such sentences."""
        if wrong := set(settings) - set(SETTINGS):
            raise UsageError(f"Words have the settings {listing(SETTINGS)}; given {listing(sorted(wrong))}.")
        source = settings.get("templates", TEMPLATE)
        lines = read_text(source).splitlines() if source.endswith(".txt") else [source]
        templates = tuple(line.strip() for line in lines if line.strip())
        if not templates or any(each.count("{}") != 1 for each in templates):
            raise UsageError(f"A template is a sentence with one {{}} where the name goes; given {listing(templates)}.")
        return override(cls(templates=templates), {key: value for key, value in settings.items() if key != "templates"})


def occurring_line(labels: Labels, expected: Sharpened, share: float = 1.0) -> str:
    """Return a line that says which names occur, those of most images first; ``share`` is images by those that were looked at."""
    ranked = sorted(zip((expected.counts * share).tolist(), labels.names, strict=True), reverse=True)
    if expected.absent().any():
        count = int((~expected.absent()).sum())
        return f"About {count} of {len(labels)} names occur: {listing(name for _, name in ranked)}."
    first = (f"{name} ({count:.0f} images)" for count, name in ranked[:MANY] if count >= 1)
    return f"Names of most images: {listing(first, MANY)}."


def words_are_at_hand(encoder: str = "auto") -> bool:
    """Return whether an encoder can read names: the default one with the sentence encoder installed, or an image-text encoder."""
    if encoder in ("auto", DEFAULT):
        return is_installed() and all(map(find_spec, MINILM))
    hub = hub_of(encoder)
    return hub is not None and hub.reads_texts


def fit_words(data: Dataset, options: WordsOptions | None = None, run: Run | None = None) -> Classifier:
    """Fit to label names, or to their texts; images only define what is familiar.

    Args:
        data: labels and images; labels of images are not read.
        options: the vocabulary, and how names become sentences.
        run: receives the lines that say how each name was read.
    """
    began, options, run = time.monotonic(), options or WordsOptions(), run or Run()
    encoder, vocabulary = _words_of(options)
    labels = _described(data.labels, options.templates)
    head, near = _head_of(labels, vocabulary)
    if run.tell is not None:
        for line in reading_lines(labels, near, vocabulary):
            run.tell(line)
    features = encode(encoder, data.split("train").images)
    bound, embeddings = calibrated(bind(head, encoder, labels), float(near.mean())), head.embed(features.values)
    summary: dict[str, Any] = {"words": dict(zip(labels.names, near.round(3).tolist(), strict=True))}
    some = embeddings[draw_rows(len(embeddings), max(BACKGROUND, PAIRS // len(labels)))]
    if options.sharpen and len(features):
        bound, expected = _sharpened(bound, some)
        counts = (expected.counts * (len(embeddings) / len(some))).round(1).tolist()
        summary["expected_images"] = dict(zip(labels.names, counts, strict=True))
        if run.tell is not None and (expected.absent().any() or len(labels) > MANY):
            run.tell(occurring_line(labels, expected, len(embeddings) / len(some)))
    about = {
        "data": data.name,
        "images": len(features),
        "skipped": len(features.skipped),
        "device": "cpu",
        "processes": 1,
    }
    about |= {"seconds": round(time.monotonic() - began, 1), "seed": run.seed}
    summary = {"training": about, **summary, "encoder_runtime": encoder.runtime}
    others = embeddings[draw_rows(len(embeddings), BACKGROUND)] if len(embeddings) else None
    bound = replace(bound, calibration=replace(bound.calibration, background=others), origin=Origin(summary=summary))
    return _familiar(bound, some)


def _sharpened(classifier: Classifier, embeddings: Array) -> tuple[Classifier, Sharpened]:
    """Return the classifier sharpened by unlabelled images ``[n, d]``, and how often labels occur among them."""
    assert isinstance(classifier.head, WordsHead)
    more = sharpen(embeddings, classifier.scores_of(embeddings).log_odds)
    rows = classifier.label_embeddings + more.rows / classifier.calibration.scale[:, None]
    rows = rows.astype(np.float32)
    return replace(classifier, head=replace(classifier.head, rows=rows), label_embeddings=rows), more


def with_words(
    fitted: DiscriminantFit, features: Array, encoder: str, templates: Sequence[str] = (TEMPLATE,)
) -> WordsAndImagesFit:
    """Join the closed form of training images with the names of its labels."""
    _, vocabulary = _words_of(WordsOptions(encoder=encoder))
    labels = _described(fitted.head.labels, templates)
    head, near = _head_of(labels, vocabulary)
    usual = 1.0 if vocabulary.network is not None else 1 / _temperature(float(near.mean()))
    return WordsAndImagesFit.of(fitted, head, features, usual)


def _head_of(labels: Labels, vocabulary: Vocabulary) -> tuple[WordsHead, Array]:
    """Return the head of labels with sentences, and the similarity of each to its nearest word ``[k]``."""
    rows, near = vocabulary.read(labels.texts or ())
    return WordsHead(labels=labels, rows=rows.astype(np.float32), vocabulary=vocabulary), near


def _temperature(near: float) -> float:
    return float(np.exp(COLD + STEEP * (NEAR - near)))


def calibrated(classifier: Classifier, near: float) -> Classifier:
    """Return the classifier with the calibration for names of this mean similarity to the vocabulary.

    Scores of an image-text encoder are already log-odds: of its sigmoid, or against the background, which counts as one word.
    """
    k, calibration, head = len(classifier.labels), classifier.calibration, classifier.head
    temperature = _temperature(near)
    shift = ODDS / temperature + RARE
    if isinstance(head, WordsHead) and head.vocabulary.network is not None:
        temperature, shift = 1.0, float(np.log(max(1, len(head.vocabulary.names))))
    scale, offset = np.full(k, 1 / temperature, np.float32), np.full(k, shift, np.float32)
    return replace(classifier, calibration=replace(calibration, scale=scale, offset=offset, unseen=np.ones(k, bool)))


def reading_lines(labels: Labels, near: Array, vocabulary: Vocabulary) -> list[str]:
    """Return lines that say how a few names were read, and which labels the encoder has no word for."""
    if vocabulary.network is not None:
        return ["Words: sentences of an image-text encoder."]
    far = [name for name, alike in zip(labels.names, near, strict=True) if alike < UNKNOWN_BELOW]
    some = list(zip(labels.names, labels.texts or (), near, strict=True))[:3]
    lines = [
        f"Words: {listing(f'{name} (nearest: {vocabulary.nearest(texts[0])}, {alike:.2f})' for name, texts, alike in some)}."
    ]
    if far:
        lines.append(
            f"The encoder has no similar word for {len(far)} of {len(labels)} labels, so answers for them are guesses: {listing(far)}. Give images of these."
        )
    return lines


def _words_of(options: WordsOptions) -> tuple[Encoder, Vocabulary]:
    if options.encoder not in ("auto", DEFAULT):
        hub = hub_of(options.encoder)
        if hub is None or options.vocabulary is not None:
            raise UsageError(
                f"The encoder {options.encoder} has no words of its own. Take {DEFAULT} or the folder of an image-text encoder (CLIP, "
                "SigLIP), or leave names out; --set vocabulary=things.lw brings its own encoder."
            )
        return hub.images, hub_vocabulary(hub, options.templates[0])
    if not all(map(find_spec, MINILM)):
        raise UsageError(f"Names are read by a sentence encoder, which is not installed: {INSTALL_MINILM}.")
    if options.vocabulary is None:
        return open_encoder(DEFAULT), default_vocabulary()
    known = load(Path(options.vocabulary))
    return known.encoder, vocabulary_of(known)


def _described(labels: Labels, templates: Sequence[str]) -> Labels:
    """Return labels with sentences: their own, or the name in each template."""
    own = labels.texts or tuple(() for _ in labels.names)
    texts = (
        known or tuple(sentence(name, each) for each in templates)
        for name, known in zip(labels.names, own, strict=True)
    )
    return replace(labels, texts=tuple(texts))


def _familiar(classifier: Classifier, embeddings: Array) -> Classifier:
    """Return the classifier with an outlier rule under which nearly all of these images ``[n, d]`` are known."""
    memory = classifier.familiarity.remember(embeddings[draw_rows(len(embeddings), MEMORY)])
    classifier = replace(classifier, familiarity=memory)
    scores: Any = classifier.scores_of(embeddings)
    return replace(classifier, familiarity=memory.fit(scores, KNOWN_RATE)) if len(embeddings) > 1 else classifier
