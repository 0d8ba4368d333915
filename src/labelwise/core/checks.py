"""The contract of a ``LabelModel`` as checks that run. Public: use them on a method of your own.

Each check raises ``AssertionError`` that says what is broken. ``CHECKS`` names them all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier, bind
from labelwise.core.model import LabelModel

TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """What is checked."""

    # returns a trained model and its classifier; called twice, it must do the same twice
    train: Callable[[], Classifier]
    build: Callable[[], LabelModel]  # returns an untrained model of the same settings
    roundtrip: Callable[[Classifier], Classifier]  # returns a classifier after saving and loading it
    images: Tensor  # floats in [0, 1] [n, ...], at least 8
    few_labels: int = 2  # how many labels select keeps where a check needs a part of them


def check_shapes(subject: Subject, classifier: Classifier) -> None:
    """Embeddings are ``[n, d]`` and ``[k, e]``, scores are ``[n, k]`` and finite."""
    model, labels, images = classifier.model, classifier.labels, subject.images
    with torch.no_grad():
        image_embeddings, label_embeddings = model.encode_images(images), model.encode_labels(labels)
        scores = model.score(image_embeddings, label_embeddings)
    for what, embeddings, rows in (("image", image_embeddings, len(images)), ("label", label_embeddings, len(labels))):
        assert embeddings.ndim == 2, f"{what} embeddings have shape {list(embeddings.shape)}"
        assert len(embeddings) == rows, f"there are {len(embeddings)} {what} embeddings for {rows}"
    assert scores.shape == (len(images), len(labels)), f"scores have shape {list(scores.shape)}, not [n, k]"
    assert bool(torch.isfinite(scores).all()), "a score is not a finite number"


def check_permutation(subject: Subject, classifier: Classifier) -> None:
    """Permuting the labels permutes the columns."""
    order = torch.randperm(len(classifier.labels), generator=torch.Generator().manual_seed(0))
    names = [classifier.labels.names[i] for i in order]
    permuted = bind(classifier.model, classifier.labels.select(names))
    _same(_raw(permuted, subject.images), _raw(classifier, subject.images)[:, order], "permuting labels changed scores")


def check_independence(subject: Subject, classifier: Classifier) -> None:
    """A score does not depend on which other labels are asked about."""
    if classifier.model.fitted_together:
        return
    names = classifier.labels.names[: subject.few_labels]
    part = bind(classifier.model, classifier.labels.select(names))
    whole = _raw(classifier, subject.images)[:, : len(names)]
    _same(_raw(part, subject.images), whole, "a score depends on the other labels")


def check_batch_size(subject: Subject, classifier: Classifier) -> None:
    """An image gets the same scores alone and in a batch."""
    model = classifier.model
    with torch.no_grad():
        together = model.encode_images(subject.images)
        alone = torch.cat([model.encode_images(image[None]) for image in subject.images])
    labels = torch.from_numpy(classifier.label_embeddings)
    _same(
        model.score(alone, labels),
        model.score(together, labels),
        "the batch size changes scores",
    )


def check_gradient(subject: Subject, classifier: Classifier) -> None:
    """Gradients of a score reach every image, and only its own image."""
    images = subject.images.clone().requires_grad_()
    scores = classifier.model.score(
        classifier.model.encode_images(images), torch.from_numpy(classifier.label_embeddings)
    )
    (gradient,) = torch.autograd.grad(scores[0].sum(), images)
    assert bool(torch.isfinite(gradient).all()), "the gradient of a score is not finite"
    assert float(gradient[0].abs().sum()) > 0, "no gradient reaches the image"
    assert float(gradient[1:].abs().sum()) == 0, "the score of one image depends on another image"


def check_rebuilt(subject: Subject, classifier: Classifier) -> None:
    """An untrained model given the trained state scores the same: nothing is kept outside parameters and buffers."""
    model = subject.build()
    model.load_state_dict(classifier.model.state_dict())
    rebuilt = bind(model.to(classifier.model.device), classifier.labels)
    _same(
        _raw(rebuilt, subject.images), _raw(classifier, subject.images), "the state dict does not hold the whole model"
    )


def check_added_label(subject: Subject, classifier: Classifier) -> None:
    """Adding a label keeps the scores of the others, bit for bit, and removing it gives the old classifier back."""
    if classifier.model.fitted_together:
        return
    before = _log_odds(classifier, subject.images)
    added = classifier.add(classifier.labels.add("a label of the contract check"), classifier.label_embeddings[0] * 0.5)
    after = _log_odds(added, subject.images)
    assert after.shape[1] == before.shape[1] + 1, "adding a label did not add a column"
    _same(after[:, :-1], before, "adding a label changed the other scores", 1e-6)
    removed = added.remove("a label of the contract check")
    _same(_log_odds(removed, subject.images), before, "removing it changed scores", 1e-6)


def check_repeatable(subject: Subject, classifier: Classifier) -> None:
    """The same seed gives the same weights, bit for bit."""
    again = subject.train().model.state_dict()
    for name, tensor in classifier.model.state_dict().items():
        assert torch.equal(tensor, again[name]), f"training twice with one seed gave different weights ({name})"


def check_saved(subject: Subject, classifier: Classifier) -> None:
    """A classifier that was saved and loaded gives the same answers."""
    loaded = subject.roundtrip(classifier)
    assert loaded.labels.names == classifier.labels.names, "saving changed the labels"
    assert loaded.familiarity.rule == classifier.familiarity.rule, "saving lost the outlier rule"
    assert loaded.calibration.temperature == classifier.calibration.temperature, "saving lost the calibration"
    scores, wanted = (_log_odds(each, subject.images) for each in (loaded, classifier))
    _same(scores, wanted, "saving and loading changed scores", 1e-6)


def check_order(subject: Subject, classifier: Classifier) -> None:
    """Larger is better: calibration keeps the order of an image's labels (its scale is positive)."""
    assert bool((classifier.calibration.scale > 0).all()), "a scale is not positive, so a larger score is not better"
    assert classifier.calibration.temperature > 0, "the temperature is not positive"
    probabilities = classifier.scores_of(classifier.encode(subject.images)).probabilities
    sums = torch.from_numpy(probabilities.sum(1))
    _same(sums, torch.ones(len(sums)), "probabilities do not sum to 1")


Check = Callable[[Subject, Classifier], None]
CHECKS: dict[str, Check] = {
    "shapes": check_shapes,
    "permutation": check_permutation,
    "independence": check_independence,
    "batch size": check_batch_size,
    "gradient": check_gradient,
    "rebuilt": check_rebuilt,
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


def _log_odds(classifier: Classifier, images: Tensor) -> Tensor:
    return torch.from_numpy(classifier.scores_of(classifier.encode(images)).log_odds)


def _raw(classifier: Classifier, images: Tensor) -> Tensor:
    with torch.no_grad():
        return classifier.model.score(
            classifier.model.encode_images(images), torch.from_numpy(classifier.label_embeddings)
        )


def _same(scores: Tensor, wanted: Tensor, message: str, tolerance: float = TOLERANCE) -> None:
    scale = max(1.0, float(wanted.abs().max()))
    difference = float((scores - wanted).abs().max())
    assert difference <= tolerance * scale, f"{message}: largest difference {difference:.2e}"
