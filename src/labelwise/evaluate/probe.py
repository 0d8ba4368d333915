"""What image codes hold without the labels: a logistic regression on them, beside the classifier itself."""

import warnings
from dataclasses import dataclass

import torch

from labelwise.core import Classifier, Labels
from labelwise.data.dataset import Split
from labelwise.errors import DataError, UnsupportedError
from labelwise.evaluate.answers import labelled_images
from labelwise.evaluate.closed import leaked_share
from labelwise.metrics import accuracy


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Accuracy of a logistic regression on image codes, and of the classifier.

    Attributes:
        train_images: how many the regression was trained on.
        test_images: how many both were tested on.
        probe: accuracy of the regression.
        classifier: accuracy of the classifier on the same images, all of its labels allowed.
        rounds: passes over the training codes.
        converged: whether training ended because it no longer helped, not because the passes ran out.
        leaked: share of the test images that the classifier was trained or calibrated on.
    """

    train_images: int
    test_images: int
    probe: float
    classifier: float
    rounds: int
    converged: bool
    leaked: float


def probe_codes(classifier: Classifier, train: Split, test: Split, labels: Labels, *, seed: int = 0) -> ProbeResult:
    """Return how well a logistic regression, trained by SGD on the codes of ``train``, names the images of ``test``.

    Codes are used as they come, not standardised, with scikit-learn's own settings but for the loss and the tolerance.

    Args:
        classifier: any classifier.
        train: images the regression learns from.
        test: images both are tested on.
        labels: what the targets of both point into.
        seed: of the order in which codes are visited.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import SGDClassifier

    if train.truths is not None or test.truths is not None:
        raise UnsupportedError("The regression chooses one label for each image; of these, several may be true.")
    known, known_targets = labelled_images(classifier, train, labels)
    images, targets = labelled_images(classifier, test, labels)
    if len(torch.unique(known_targets)) < 2:
        raise DataError("The regression needs training images of at least two labels; all of these have the same one.")
    codes, test_codes = classifier.encode(known).float(), classifier.encode(images).float()
    probe = SGDClassifier(loss="log_loss", tol=1e-5, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit(codes.cpu().numpy(), known_targets.cpu().numpy())
    with torch.no_grad():
        chosen = classifier.scores_of_codes(test_codes).argmax(1)
    return ProbeResult(
        train_images=len(known),
        test_images=len(images),
        probe=accuracy(probe.predict(test_codes.cpu().numpy()), targets),
        classifier=accuracy(chosen, targets),
        rounds=int(probe.n_iter_),
        converged=int(probe.n_iter_) < probe.max_iter,
        leaked=leaked_share(classifier, images),
    )
