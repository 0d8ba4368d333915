"""Tasks as functions of a classifier and images. Each encodes an image once."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from numpy.typing import ArrayLike

from labelwise.core.classifier import Classifier
from labelwise.core.load import load
from labelwise.core.scores import Scores
from labelwise.encoders.choose import encoder_name
from labelwise.encoders.encode import encode
from labelwise.encoders.registry import open_encoder
from labelwise.images.as_images import ImagesLike, as_images
from labelwise.images.dataset import Split
from labelwise.images.describe.labels import label_name
from labelwise.images.images import skipped_lines
from labelwise.label.grouping import group_images
from labelwise.label.space import directions_of
from labelwise.support.errors import DataError, LabelwiseWarning, UsageError
from labelwise.tasks import ask as ask_task
from labelwise.tasks import calibrate as calibrate_task
from labelwise.tasks import classify as classify_task
from labelwise.tasks import explain as explain_task
from labelwise.tasks import occurring as occurring_task
from labelwise.tasks import outliers as outliers_task
from labelwise.tasks import rank as rank_task
from labelwise.tasks import retrieve as retrieve_task
from labelwise.tasks import teach as teach_task
from labelwise.tasks import verify as verify_task
from labelwise.tasks.gallery import Gallery, make_gallery
from labelwise.tasks.gallery_store import StoredGallery
from labelwise.tasks.similarity import By


def open_on(folder: str | Path, device: str = "auto") -> Classifier:
    """Load a saved classifier for a device: auto and cpu need no torch, cuda runs the trained model."""
    classifier = load(folder)
    if device in ("auto", "cpu"):
        return classifier
    from labelwise.fitting.rebuild import on_device  # needs torch

    return on_device(classifier, device)


def _scores(classifier: Classifier, images: ImagesLike) -> Scores:
    """Return the scores of images, or raise an error if the classifier is none."""
    if not isinstance(classifier, Classifier):
        raise UsageError(f"The classifier comes first, then the images; given {type(classifier).__name__}.")
    return classifier.scores(images)


def classify(
    classifier: Classifier,
    images: ImagesLike,
    *,
    top: int = 5,
    coverage: float | None = None,
    max_error: float | None = None,
) -> list[classify_task.Prediction]:
    """Return the label of each image or "unknown", with the ``top`` labels and their probabilities; see ``tasks.classify``."""
    return classify_task.classify(_scores(classifier, images), top=top, coverage=coverage, max_error=max_error)


def restrict(classifier: Classifier, occurring: str | Path | Mapping[str, float] | Sequence[str]) -> Classifier:
    """Return the classifier with some labels only: names, shares by name, or a file; see ``tasks.occurring``."""
    if isinstance(occurring, str | Path):
        return occurring_task.restrict(classifier, occurring_task.read_occurring(occurring, classifier))
    has_shares = isinstance(occurring, Mapping)
    shares = occurring if isinstance(occurring, Mapping) else dict.fromkeys(occurring, 1.0)
    label_shares = {classifier.labels.meant(name): float(share) for name, share in shares.items() if share > 0}
    return occurring_task.restrict(
        classifier, occurring_task.Occurring(shares=label_shares, has_shares=has_shares, unknown_names=())
    )


def group(images: ImagesLike, count: int | None = None, *, seed: int = 0) -> list[list[str]]:
    """Group similar images: largest group first, and most typical image of each group first.

    Needs no label. Unreadable images are skipped with a warning.

    Args:
        images: at least two images: paths, a folder, PIL images, arrays or the content of files.
        count: the number of groups; None chooses it.
        seed: the random seed.
    """
    image_set = as_images(images)
    features = encode(open_encoder(encoder_name(len(image_set))), image_set)
    for line in skipped_lines(features.skipped):
        warnings.warn(f"Skipped {line}", LabelwiseWarning, stacklevel=2)
    if len(features.ids) < 2:
        raise DataError(f"At least two images that can be read are needed; given {len(features.ids)}.")
    groups = group_images(directions_of(features.values), count, seed)
    return [[features.ids[row] for row in rows.tolist()] for rows in groups]


def ask(
    classifier: Classifier, images: ImagesLike, label: str | None = None, *, text: str | None = None
) -> list[ask_task.Answer]:
    """Answer for each image whether it shows ``label``, or whether a sentence fits, if the model reads sentences."""
    if (label is None) == (text is None):
        raise UsageError("Ask about either a label or a sentence (text=).")
    model = classifier if text is None else ask_task.check_text(classifier, text)
    name = ask_task.DRAFT if label is None else model.labels.meant(label)
    return [replace(answer, label=text or name) for answer in ask_task.ask(model.scores(images), name)]


def outliers(classifier: Classifier, images: ImagesLike) -> list[outliers_task.Outlier]:
    """Return the outlier score of each image, and whether it is unknown."""
    return outliers_task.outliers(_scores(classifier, images))


def explain(
    classifier: Classifier, image: ImagesLike, label: str | None = None, *, against: str | None = None
) -> explain_task.Explanation:
    """Return the heat map of an image for a label, by default the best one, optionally in contrast to another."""
    return explain_task.explain(_scores(classifier, image), label, against)


def rank(
    classifier: Classifier, images: ImagesLike, *, order: Sequence[str] | None = None, coverage: float = 0.8
) -> list[rank_task.Ranked]:
    """Rank images on ordered labels, from lowest to highest; see ``tasks.rank``."""
    rank_task.level_columns(classifier, order)
    return rank_task.rank(_scores(classifier, images), order=order, coverage=coverage)


def verify(
    classifier: Classifier, first: ImagesLike, second: ImagesLike, *, by: By | None = None
) -> list[verify_task.Verification]:
    """Return whether the images of each pair show the same label, known or not; see ``tasks.verify``."""
    verify_task.check_verifier(classifier, by)
    return verify_task.verify(_scores(classifier, first), _scores(classifier, second), by=by)


def fit_verification(
    classifier: Classifier, split: Split, rule: verify_task.Rule = "eer", *, by: By = "similarity", seed: int = 0
) -> Classifier:
    """Return the classifier with a threshold for pairs, fitted on held-out labelled images; see ``tasks.verify``."""
    return verify_task.fit_verifier(_scores(classifier, split.images), split.targets, rule, by=by, seed=seed)


def retrieve(  # noqa: PLR0913 - each may be chosen
    classifier: Classifier,
    query: ImagesLike,
    gallery: Gallery | StoredGallery | ImagesLike,
    k: int = 5,
    *,
    by: By | None = None,
    candidates: int | None = retrieve_task.CANDIDATES,
    approximate: bool | None = None,
    where: str | None = None,
) -> list[list[retrieve_task.Match]]:
    """Return the k images of a gallery most similar to each query, best first; see ``tasks.retrieve``."""
    gallery = _as_gallery(classifier, gallery)
    return retrieve_task.retrieve(
        _scores(classifier, query), gallery, k, by=by, candidates=candidates, approximate=approximate, where=where
    )


def retrieve_by_text(
    classifier: Classifier,
    text: str,
    gallery: Gallery | StoredGallery | ImagesLike,
    k: int = 5,
    *,
    where: str | None = None,
) -> list[retrieve_task.Match]:
    """Return the k gallery images that fit a sentence best; see ``tasks.retrieve``."""
    return retrieve_task.retrieve_by_text(classifier, text, _as_gallery(classifier, gallery), k, where=where)


def _as_gallery(classifier: Classifier, gallery: Gallery | StoredGallery | ImagesLike) -> Gallery | StoredGallery:
    if isinstance(gallery, Gallery | StoredGallery):
        return gallery
    images = classifier.images(gallery)
    return make_gallery(classifier, images, images.ids)


def teach(
    classifier: Classifier,
    name: str,
    *,
    examples: ImagesLike | None = None,
    texts: teach_task.Texts | None = None,
    vector: teach_task.Vector | None = None,
    parent: str | None = None,
) -> Classifier:
    """Return the classifier with one more label, or with more examples of an existing one; see ``tasks.teach``."""
    if not isinstance(name, str):
        raise UsageError(f'The name of a label is text; given {type(name).__name__}. Try teach("owl", images).')
    if os.sep in name and Path(name).exists():
        raise UsageError(f'The label comes first, then its images: teach("owl", images); given the path "{name}".')
    label_name(name)
    scores = None if examples is None else _scores(classifier, examples)
    return teach_task.teach(classifier, name, examples=scores, texts=texts, vector=vector, parent=parent)


def forget(classifier: Classifier, name: str) -> Classifier:
    """Return the classifier without one label."""
    return classifier.remove(classifier.labels.meant(name))


def calibrate(classifier: Classifier, images: ImagesLike, targets: ArrayLike, *, keep: float = 0.95) -> Classifier:
    """Return the classifier with probabilities and outlier rule fitted on held-out images; see ``tasks.calibrate``."""
    return calibrate_task.calibrate(_scores(classifier, images), targets, keep=keep)
