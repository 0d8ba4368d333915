"""What image embeddings hold without the labels: a logistic regression on them, beside the classifier itself."""

import warnings
from dataclasses import dataclass

import torch

from labelwise.errors import DataError, UnsupportedError
from labelwise.evaluate.tested import Tested
from labelwise.metrics import accuracy


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Accuracy of a logistic regression on image embeddings, and of the classifier.

    Attributes:
        train_images: how many the regression was trained on.
        test_images: how many both were tested on.
        probe: accuracy of the regression.
        classifier: accuracy of the classifier on the same images, all of its labels allowed.
        rounds: passes over the training embeddings.
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


def probe_embeddings(train: Tested, test: Tested, *, seed: int = 0) -> ProbeResult:
    """Return how well a logistic regression, trained by SGD on the embeddings of ``train``, names the images of ``test``.

    Embeddings are used as they come, not standardised, with scikit-learn's own settings but for the loss and the tolerance.

    Args:
        train: images the regression learns from.
        test: images both are tested on.
        seed: of the order in which embeddings are visited.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import SGDClassifier

    if train.multilabel or test.multilabel:
        raise UnsupportedError("The regression chooses one label for each image; of these, several may be true.")
    (known, known_targets), (scores, targets) = train.labelled(), test.labelled()
    if len(torch.unique(known_targets)) < 2:
        raise DataError("The regression needs training images of at least two labels; all of these have the same one.")
    probe = SGDClassifier(loss="log_loss", tol=1e-5, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit(known.embeddings.cpu().numpy(), known_targets.cpu().numpy())
    return ProbeResult(
        train_images=len(known),
        test_images=len(scores),
        probe=accuracy(probe.predict(scores.embeddings.cpu().numpy()), targets),
        classifier=accuracy(scores.best, targets),
        rounds=int(probe.n_iter_),
        converged=int(probe.n_iter_) < probe.max_iter,
        leaked=test.leaked,
    )
