"""Executable checks of the contract of encoders, heads and classifiers. Public: use them on your own method.

Each check raises ``AssertionError`` that says what is broken. ``CHECKS`` names them all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labelwise.core.classifier import Classifier, bind
from labelwise.core.head import Array
from labelwise.support.rows import Draws

TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """The functions and images to check."""

    train: Callable[[], Classifier]  # trains a classifier; two calls must give the same result
    roundtrip: Callable[[Classifier], Classifier]  # saves and loads a classifier
    images: Array  # input of the encoder [n, ...], at least 8
    few_labels: int = 2  # labels to select for checks on a subset


def check_shapes(subject: Subject, classifier: Classifier) -> None:
    """Features are ``[n, d]``, embeddings ``[n, e']`` and ``[k, e]``, scores ``[n, k]`` and finite."""
    head, labels, images = classifier.head, classifier.labels, subject.images
    features = classifier.encoder(images)
    assert features.shape == (len(images), head.width), f"features have shape {list(features.shape)}, not [n, d]"
    embeddings, label_embeddings = head.embed(features), head.embed_labels(labels)
    for kind, table, rows in (("image", embeddings, len(images)), ("label", label_embeddings, len(labels))):
        assert table.ndim == 2, f"{kind} embeddings have shape {list(table.shape)}"
        assert len(table) == rows, f"there are {len(table)} {kind} embeddings for {rows}"
    scores = head.score(embeddings, label_embeddings)
    assert scores.shape == (len(images), len(labels)), f"scores have shape {list(scores.shape)}, not [n, k]"
    assert bool(np.isfinite(scores).all()), "a score is not a finite number"


def check_permutation(subject: Subject, classifier: Classifier) -> None:
    """Permuting the labels permutes the columns."""
    order = Draws(0).permutation(len(classifier.labels))
    names = [classifier.labels.names[i] for i in order]
    permuted = bind(classifier.head, classifier.encoder, classifier.labels.select(names))
    _same(_raw(permuted, subject.images), _raw(classifier, subject.images)[:, order], "permuting labels changed scores")


def check_independence(subject: Subject, classifier: Classifier) -> None:
    """A score does not depend on the other labels."""
    if classifier.head.fitted_together:
        return
    names = classifier.labels.names[: subject.few_labels]
    part = bind(classifier.head, classifier.encoder, classifier.labels.select(names))
    full = _raw(classifier, subject.images)[:, : len(names)]
    _same(_raw(part, subject.images), full, "a score depends on the other labels")


def check_pure(subject: Subject, classifier: Classifier) -> None:
    """An image gets bit-identical features and scores alone and in a batch."""
    images, encoder = subject.images, classifier.encoder
    in_batch, one_by_one = encoder(images), np.concatenate([encoder(image[None]) for image in images])
    assert np.array_equal(in_batch, one_by_one), "features of an image depend on the other images"
    backwards = np.concatenate([classifier.head.embed(row[None]) for row in in_batch[::-1]])[::-1]
    _same(
        classifier.head.score(backwards, classifier.label_embeddings),
        _raw(classifier, images),
        "scores of an image depend on the other images",
    )


def check_added_label(subject: Subject, classifier: Classifier) -> None:
    """Adding a label keeps the other scores; removing it restores the classifier."""
    if classifier.head.fitted_together:
        return
    before = _log_odds(classifier, subject.images)
    extended = classifier.add(
        classifier.labels.add("a label of the contract check"), classifier.label_embeddings[0] * 0.5
    )
    after = _log_odds(extended, subject.images)
    assert after.shape[1] == before.shape[1] + 1, "adding a label did not add a column"
    _same(after[:, :-1], before, "adding a label changed the other scores", 1e-6)
    reduced = extended.remove("a label of the contract check")
    _same(_log_odds(reduced, subject.images), before, "removing it changed scores", 1e-6)


def check_repeatable(subject: Subject, classifier: Classifier) -> None:
    """The same seed gives the same label embeddings and scores, bit for bit."""
    repeat = subject.train()
    message = "training twice with one seed gave different"
    assert np.array_equal(repeat.label_embeddings, classifier.label_embeddings), f"{message} label embeddings"
    assert np.array_equal(_raw(repeat, subject.images), _raw(classifier, subject.images)), f"{message} scores"


def check_saved(subject: Subject, classifier: Classifier) -> None:
    """A saved and loaded classifier gives the same answers, within the tolerance of another runtime."""
    first_copy = subject.roundtrip(classifier)
    assert first_copy.labels.names == classifier.labels.names, "saving changed the labels"
    assert first_copy.familiarity.rule == classifier.familiarity.rule, "saving lost the outlier rule"
    assert first_copy.calibration.temperature == classifier.calibration.temperature, "saving lost the calibration"
    scores, expected = (_log_odds(version, subject.images) for version in (first_copy, classifier))
    _same(scores, expected, "saving and loading changed scores", 1e-3)
    second_copy = subject.roundtrip(first_copy)
    assert np.array_equal(_log_odds(second_copy, subject.images), scores), "saving a loaded classifier changed scores"


def check_order(subject: Subject, classifier: Classifier) -> None:
    """Larger is better: calibration keeps the order of an image's labels (its scale is positive)."""
    assert bool((classifier.calibration.scale > 0).all()), "a scale is not positive, so a larger score is not better"
    assert classifier.calibration.temperature > 0, "the temperature is not positive"
    probabilities = classifier.scores(subject.images).probabilities
    _same(probabilities.sum(1), np.ones(len(probabilities)), "probabilities do not sum to 1")


Check = Callable[[Subject, Classifier], None]
CHECKS: dict[str, Check] = {
    "shapes": check_shapes,
    "permutation": check_permutation,
    "independence": check_independence,
    "pure": check_pure,
    "added label": check_added_label,
    "repeatable": check_repeatable,
    "saved": check_saved,
    "order": check_order,
}


def check_all(subject: Subject) -> None:
    """Run all checks; the first failure raises ``AssertionError``."""
    classifier = subject.train()
    for check in CHECKS.values():
        check(subject, classifier)


def _log_odds(classifier: Classifier, images: Array) -> Array:
    return classifier.scores_of(classifier.head.embed(classifier.encoder(images))).log_odds


def _raw(classifier: Classifier, images: Array) -> Array:
    return classifier.score(classifier.head.embed(classifier.encoder(images)))


def _same(scores: Array, expected: Array, message: str, tolerance: float = TOLERANCE) -> None:
    scale = max(1.0, float(abs(expected).max()))
    difference = float(abs(scores - expected).max())
    assert difference <= tolerance * scale, f"{message}: largest difference {difference:.2e}"
