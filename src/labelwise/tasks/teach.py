"""Teach: add a label from example images or a description, without training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from labelwise.core.arrays import Array
from labelwise.core.calibration import MEMORY
from labelwise.core.classifier import Classifier
from labelwise.core.head import (
    Head,
    JoinsKnowledge,
    LearnsFromExamples,
    LearnsMore,
    MeasuresExamples,
    ReadsDescriptions,
    cannot,
)
from labelwise.core.known_examples import KnownExamples
from labelwise.core.scores import Scores
from labelwise.images.describe.labels import Labels, label_name
from labelwise.support.errors import LabelwiseError, UnsupportedError, UsageError, listing
from labelwise.support.rows import draw_rows, unit_rows
from labelwise.support.text import LEARN
from labelwise.tasks.similarity import all_alike, known_scores

MOST_LEFT_OUT = 40  # most folds of leave-one-out; with more examples, a fold has several
FEWEST_TO_DISAGREE = 3
# An example is odd if its similarity to the others is at most this share of the usual one. Among 3, 5 and 10 examples an intruder
# was found in 75 to 92 of 100 trials (flowers) and 66 to 83 (birds); without one, there were 3 to 5 and 11 to 19 false alarms.
# Chosen on these same trials.
FAR = 0.3
DRAFT = "\u0000 asked"  # the name of a temporary label for one question; no other label can have it
Texts = str | Sequence[str]
Vector = ArrayLike


def teach(
    classifier: Classifier,
    name: str,
    *,
    examples: Scores | None = None,
    texts: Texts | None = None,
    vector: Vector | None = None,
    parent: str | None = None,
) -> Classifier:
    """Return the classifier with one more label, or with more examples of one; the scores of other labels do not change.

    Names are matched regardless of case. Images work with any classifier. Descriptions need a method that reads them, and the form of the training descriptions:
    sentences, or attributes ``[a]``. Five examples are useful, more are better. Some methods learn from examples and a description
    together. ``parent`` is the group that holds the label, for coarser answers.
    """
    if parent is not None:
        taught = teach(classifier, name, examples=examples, texts=texts, vector=vector)
        return replace(taught, labels=taught.labels.with_parent(taught.labels.meant(name), parent))
    name = name if name == DRAFT else label_name(name)
    if known := classifier.labels.find(name):
        return _with_more_examples(classifier, known, examples, described=texts is not None or vector is not None)
    ways: dict[str, object] = {"examples": examples, "texts": texts, "vector": vector}
    words = " and ".join(way for way, what in ways.items() if what is not None)
    both = examples is not None and (texts is None) != (vector is None)
    if words not in ways and not both:
        raise UsageError(f'Give one of examples, texts and vector for "{name}"; given: {words or "none of them"}.')
    if examples is None:
        new = _description(classifier, name, texts, vector)
        embedding = classifier.head.embed_labels(new)[0]
        return classifier.add(_with_description(classifier, new), embedding, unseen=True)
    width = _width(classifier, examples.embeddings)
    taught = _from_examples(classifier, name, examples.embeddings, texts, vector, width)
    return _remember(taught, name, examples)


def _remember(taught: Classifier, name: str, examples: Scores) -> Classifier:
    """Return the classifier with these examples among what it knows of a label, and among familiar images."""
    embeddings = examples.embeddings
    known = KnownExamples((), np.zeros(0, np.float32), embeddings[:0]) if taught.examples is None else taught.examples
    return replace(
        taught,
        examples=known.add(name, embeddings),
        familiarity=taught.familiarity.remember(
            embeddings[draw_rows(len(embeddings), MEMORY)], taught.labels.index(name)
        ),
        origin=taught.origin_with(examples.images),
    )


def _with_more_examples(classifier: Classifier, name: str, examples: Scores | None, *, described: bool) -> Classifier:
    """Return the classifier with a label learnt again from the examples it knows and these."""
    if examples is None or described:
        raise UsageError(
            f'The label "{name}" already exists. Give examples only, or forget it first to describe it again.'
        )
    place = classifier.labels.index(name)
    relearnt = _relearn(classifier, name, examples.embeddings)
    calibration = classifier.calibration
    unseen = calibration.unseen & (np.arange(len(classifier.labels)) != place)
    return _remember(replace(relearnt, calibration=replace(calibration, unseen=unseen)), name, examples)


def _relearn(classifier: Classifier, name: str, embeddings: Array) -> Classifier:
    """Return the classifier with the embedding of one label learnt again from the examples it knows and these ``[n, d]``."""
    head, place = classifier.head, classifier.labels.index(name)
    seen = not classifier.calibration.unseen[place]
    known = embeddings[:0] if classifier.examples is None else classifier.examples.rows(name)
    if seen and not len(known):
        raise UnsupportedError(
            f'This classifier did not store the examples of "{name}" and cannot add to them. Put the images into the folder of '
            "that label and fit again, or forget the label and teach it with all its examples."
        )
    if not isinstance(head, LearnsFromExamples):
        raise cannot(head, LEARN)
    rows = np.concatenate([known, embeddings])
    described = classifier.labels.vectors is not None and isinstance(head, JoinsKnowledge) and head.reads_descriptions
    if described and isinstance(head, JoinsKnowledge):
        row = head.label_from_both(rows, classifier.labels.select([name]))
    else:
        (row,) = head.labels_from_examples(rows, np.zeros(len(rows), np.int64))
    label_embeddings = classifier.label_embeddings.copy()
    if isinstance(head, LearnsMore) and len(known) and name in head.labels.names:
        row = head.learn_more(label_embeddings[place], row, embeddings)
    label_embeddings[place] = row
    return replace(classifier, label_embeddings=label_embeddings)


def _from_examples(
    classifier: Classifier, name: str, embeddings: Array, texts: Texts | None, vector: Vector | None, width: float = 1.0
) -> Classifier:
    """Return the classifier with one more label, known from examples ``[n, d]`` and, where given, its texts or its vector."""
    head, labels = classifier.head, classifier.labels.add(name)
    if not isinstance(head, LearnsFromExamples):
        raise cannot(head, LEARN)
    if texts is None and vector is None:
        (label,) = head.labels_from_examples(embeddings, np.zeros(len(embeddings), np.int64))
        return classifier.add(labels, label, width=width)
    if not (isinstance(head, JoinsKnowledge) and head.reads_descriptions):
        raise UnsupportedError(
            f"This classifier learns a label from either examples or {'texts' if vector is None else 'vector'}. "
            "Method discriminant, fitted to labels with descriptions (labels.csv), can use both."
        )
    new = _description(classifier, name, texts, vector)
    label, labels = head.label_from_both(embeddings, new), _with_description(classifier, new)
    return classifier.add(labels, label, width=width)


def _width(classifier: Classifier, embeddings: Array) -> float:
    """Return how many times the usual distance images of a new label have: that of examples ``[n, d]`` to each other.

    A new label may vary in ways in which no trained one does, and its few examples lie farther apart. A standard error is subtracted, and no
    label is narrower than usual.
    """
    head, rule, some = classifier.head, classifier.familiarity.rule, embeddings[:MOST_LEFT_OUT]
    if not isinstance(head, MeasuresExamples) or rule is None or len(some) < 2 or rule.centre[1] <= 0:
        return 1.0
    if rule.nearest:
        unit = unit_rows(some)
        cosines = unit @ unit.T
        np.fill_diagonal(cosines, -1)
        distances = 1 - cosines.max(1)
    else:
        distances = head.example_distances(some)
    far = float(distances.mean()) - rule.spread[1] / len(some) ** 0.5
    return max(1.0, float(far / rule.centre[1]))


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """How well the examples of a new label agree, by leave-one-out."""

    examples: int
    nearest: str  # the known label that they are most alike
    told: int | None = None  # how many are more like the others than like that label; None of one example
    # how many get the new label among all, or a yes where several may be true; None of one example
    right: int | None = None
    odd: tuple[int, ...] = ()  # examples far from the rest

    def words(self, name: str, files: Sequence[str]) -> str:
        """Return it in sentences; ``files`` names the examples."""
        nearest = f'It looks most like "{self.nearest}".'
        if self.right is None:
            return f"{nearest} One example cannot be checked: give more, five are useful."
        checked = (
            f"{nearest} Leave-one-out on its {self.examples} examples: closer to each other than to "
            f'"{self.nearest}": {self.told} of {self.examples}; classified as "{name}": {self.right} of {self.examples}.'
        )
        if 2 * self.right < self.examples:
            checked += " Give more examples."
        names = listing(files[i] for i in self.odd)
        return (
            f"{checked} Warning: check these examples, which are far from the others: {names}." if self.odd else checked
        )


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The effect of more examples on a known label."""

    examples: int
    before: int  # how many of them were answered with the label before
    after: int | None  # and are by leave-one-out; None of one example

    def words(self, name: str) -> str:
        """Return the effect as a sentence."""
        after = "" if self.after is None else f"; now {self.after}, by leave-one-out"
        return f'{self.before} of {self.examples} examples were classified as "{name}" before{after}.'


def measure_growth(classifier: Classifier, name: str, examples: Scores) -> Growth:
    """Return how many examples of a known label are answered with it, before and after they are learnt."""
    known, place, n = examples.of(classifier), classifier.labels.index(name), len(examples)
    before = int((known.best == place).sum())
    if n == 1:
        return Growth(examples=1, before=before, after=None)
    after, parts = 0, np.arange(n) % MOST_LEFT_OUT
    for part in range(min(n, MOST_LEFT_OUT)):
        rest = _relearn(classifier, name, known.embeddings[parts != part])
        after += int((known[parts == part].of(rest).best == place).sum())
    return Growth(examples=n, before=before, after=after)


def rehearse(
    classifier: Classifier, name: str, examples: Scores, *, texts: Texts | None = None, vector: Vector | None = None
) -> Rehearsal:
    """Return how well a new label would be told from known ones, and which examples disagree with the rest; see ``teach``."""
    known, n = examples.of(classifier), len(examples)
    nearest = int(known.log_odds.mean(0).argmax())
    about = Rehearsal(examples=n, nearest=classifier.labels.names[nearest])
    if n == 1:
        return about
    told = right = 0
    parts = np.arange(n) % MOST_LEFT_OUT
    for part in range(min(n, MOST_LEFT_OUT)):
        rest = known.embeddings[parts != part]
        scores = known[parts == part].of(_from_examples(classifier, name, rest, texts, vector))
        told += int((scores.log_odds[:, -1] > scores.log_odds[:, nearest]).sum())
        several = classifier.calibration.multilabel
        right += int((scores.yes[:, -1] >= 0.5).sum() if several else (scores.best == len(classifier.labels)).sum())
    return replace(about, told=told, right=right, odd=_odd(classifier, known.embeddings))


def _odd(classifier: Classifier, embeddings: Array) -> tuple[int, ...]:
    """Return which examples ``[n, d]`` are much less alike the others than those are to each other; of two, none."""
    if len(embeddings) < FEWEST_TO_DISAGREE:
        return ()
    by = known_scores(classifier.head)[-1]
    alike = all_alike(classifier.head, embeddings, embeddings, by).astype(np.float64)
    others = (alike.sum(1) - alike.diagonal()) / (len(alike) - 1)
    usual = np.sort(others)[(len(others) - 1) // 2]  # the lower median
    return tuple(np.flatnonzero(others < FAR * usual).tolist())


def reads_descriptions(head: Head) -> bool:
    """Return whether a head makes a label of a description alone."""
    if isinstance(head, JoinsKnowledge):
        return head.reads_descriptions
    return isinstance(head, ReadsDescriptions)


def _with_description(classifier: Classifier, new: Labels) -> Labels:
    """Return the labels of a classifier and one more with its description."""
    attributes = None if new.vectors is None else new.vectors[0]
    return classifier.labels.add(new.names[0], vector=attributes, texts=new.texts[0] if new.texts else ())


def _description(classifier: Classifier, name: str, texts: Texts | None, vector: Vector | None) -> Labels:
    """Return one label with its texts or its vector, as the model reads them."""
    head = classifier.head
    if not reads_descriptions(head):
        raise UnsupportedError(
            f"{classifier.kind} learns labels from images: give examples. Methods that read descriptions, such as clarel and "
            "eszsl, also learn from texts or a vector."
        )
    assert isinstance(head, ReadsDescriptions)
    _check_form(head, "texts" if vector is None else "vectors")
    if vector is None:
        new = Labels(names=(name,), texts=(_sentences(texts),))
    else:
        new = Labels(names=(name,), vectors=_numbers(vector, head)[None])
    return head.describe(new)


def _check_form(head: Head, form: Literal["texts", "vectors"]) -> None:
    """Raise an error unless this is how the labels of the model's training were described.

    Labels may have both, and vectors may have been made of texts. So a trained label tells: it was read from its texts
    if they alone give its embedding.
    """
    known = head.labels
    read, why = "texts" if known.texts is not None else "vectors", ""
    if known.texts is not None and known.vectors is not None:
        shortest = min(range(len(known)), key=lambda i: len(known.texts[i]))  # type: ignore[index]
        one = replace(
            known.select([known.names[shortest]]), names=("as if it were new",)
        )  # some know trained names by heart
        try:
            embed = head.embed_labels
            by_texts = np.allclose(embed(replace(one, vectors=None)), embed(one), rtol=1e-3, atol=1e-5)
            read = "texts" if by_texts else "vectors"
        except LabelwiseError as error:
            read, why = "vectors", f" Texts cannot be read: {error}"
    if form != read:
        wanted = (
            "texts" if known.vectors is None or read == "texts" else f"a vector of {known.vectors.shape[1]} numbers"
        )
        raise UsageError(
            f"This classifier was trained with {read} of labels; given {'texts' if form == 'texts' else 'a vector'}. "
            f"Describe the new label by {wanted}, or give examples.{why}"
        )


def _sentences(texts: Texts | None) -> tuple[str, ...]:
    """Return the sentences of a description."""
    sentences = (texts,) if isinstance(texts, str) else tuple(texts or ())
    wrong = [text for text in sentences if not isinstance(text, str) or not text.strip()]
    if wrong or not sentences:
        raise UsageError(
            f"Describe a label by one or more sentences; given {repr(wrong[0]) if wrong else 'an empty list'}."
        )
    return sentences


def _numbers(vector: Vector, head: Head) -> Array:
    """Return a vector ``[a]`` of finite numbers, as many as the model reads."""
    try:
        numbers = np.asarray(vector, np.float32)
    except (TypeError, ValueError) as error:
        raise UsageError(f"A vector must be a list of numbers; given {type(vector).__name__} ({error}).") from None
    assert head.labels.vectors is not None  # else the form would not fit
    size = head.labels.vectors.shape[1]
    if numbers.shape != (size,):
        raise UsageError(
            f"Labels of this classifier have vectors of {size} numbers; given "
            f"{len(numbers) if numbers.ndim == 1 else f'an array of shape {list(numbers.shape)}'}."
        )
    if not np.isfinite(numbers).all():
        position = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise UsageError(
            f"Number {position + 1} of the vector is {float(numbers[position])}; all numbers must be finite."
        )
    return numbers
