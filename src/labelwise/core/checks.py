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
    """What is checked."""

    train: Callable[[], Classifier]  # returns a classifier; called twice, it must do the same twice
    roundtrip: Callable[[Classifier], Classifier]  # returns a classifier after saving and loading it
    images: Array  # as the encoder takes them [n, ...], at least 8
    few_labels: int = 2  # how many labels select keeps where a check needs a part of them


def check_shapes(subject: Subject, classifier: Classifier) -> None:
    """Features are ``[n, d]``, embeddings ``[n, e']`` and ``[k, e]``, scores ``[n, k]`` and finite."""
    head, labels, images = classifier.head, classifier.labels, subject.images
    features = classifier.encoder(images)
    assert features.shape == (len(images), head.width), f"features have shape {list(features.shape)}, not [n, d]"
    embeddings, label_embeddings = head.embed(features), head.embed_labels(labels)
    for what, table, rows in (("image", embeddings, len(images)), ("label", label_embeddings, len(labels))):
        assert table.ndim == 2, f"{what} embeddings have shape {list(table.shape)}"
        assert len(table) == rows, f"there are {len(table)} {what} embeddings for {rows}"
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
    """A score does not depend on which other labels are asked about."""
    if classifier.head.fitted_together:
        return
    names = classifier.labels.names[: subject.few_labels]
    part = bind(classifier.head, classifier.encoder, classifier.labels.select(names))
    whole = _raw(classifier, subject.images)[:, : len(names)]
    _same(_raw(part, subject.images), whole, "a score depends on the other labels")


def check_pure(subject: Subject, classifier: Classifier) -> None:
    """An image gets the same features to the bit, and the same scores, alone and among others."""
    images, encoder = subject.images, classifier.encoder
    together, alone = encoder(images), np.concatenate([encoder(image[None]) for image in images])
    assert np.array_equal(together, alone), "features of an image depend on the other images"
    backwards = np.concatenate([classifier.head.embed(row[None]) for row in together[::-1]])[::-1]
    _same(
        classifier.head.score(backwards, classifier.label_embeddings),
        _raw(classifier, images),
        "scores of an image depend on the other images",
    )


def check_added_label(subject: Subject, classifier: Classifier) -> None:
    """Adding a label keeps the scores of the others, and removing it gives the old classifier back."""
    if classifier.head.fitted_together:
        return
    before = _log_odds(classifier, subject.images)
    added = classifier.add(classifier.labels.add("a label of the contract check"), classifier.label_embeddings[0] * 0.5)
    after = _log_odds(added, subject.images)
    assert after.shape[1] == before.shape[1] + 1, "adding a label did not add a column"
    _same(after[:, :-1], before, "adding a label changed the other scores", 1e-6)
    removed = added.remove("a label of the contract check")
    _same(_log_odds(removed, subject.images), before, "removing it changed scores", 1e-6)


def check_repeatable(subject: Subject, classifier: Classifier) -> None:
    """The same seed gives the same label embeddings and scores, bit for bit."""
    again = subject.train()
    message = "training twice with one seed gave different"
    assert np.array_equal(again.label_embeddings, classifier.label_embeddings), f"{message} label embeddings"
    assert np.array_equal(_raw(again, subject.images), _raw(classifier, subject.images)), f"{message} scores"


def check_saved(subject: Subject, classifier: Classifier) -> None:
    """A classifier that was saved and loaded gives the same answers, as far as another runtime of its encoder can."""
    loaded = subject.roundtrip(classifier)
    assert loaded.labels.names == classifier.labels.names, "saving changed the labels"
    assert loaded.familiarity.rule == classifier.familiarity.rule, "saving lost the outlier rule"
    assert loaded.calibration.temperature == classifier.calibration.temperature, "saving lost the calibration"
    scores, wanted = (_log_odds(each, subject.images) for each in (loaded, classifier))
    _same(scores, wanted, "saving and loading changed scores", 1e-3)
    again = subject.roundtrip(loaded)
    assert np.array_equal(_log_odds(again, subject.images), scores), "saving a loaded classifier changed scores"


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
    """Run every check; the first that fails raises ``AssertionError``."""
    classifier = subject.train()
    for check in CHECKS.values():
        check(subject, classifier)


def _log_odds(classifier: Classifier, images: Array) -> Array:
    return classifier.scores_of(classifier.head.embed(classifier.encoder(images))).log_odds


def _raw(classifier: Classifier, images: Array) -> Array:
    return classifier.score(classifier.head.embed(classifier.encoder(images)))


def _same(scores: Array, wanted: Array, message: str, tolerance: float = TOLERANCE) -> None:
    scale = max(1.0, float(abs(wanted).max()))
    difference = float(abs(scores - wanted).max())
    assert difference <= tolerance * scale, f"{message}: largest difference {difference:.2e}"
