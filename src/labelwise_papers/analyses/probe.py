"""Linear probe: a logistic regression on image embeddings, compared with the classifier."""

import warnings
from typing import Any

import numpy as np

from labelwise.core.metrics import accuracy
from labelwise.evaluation.evaluation import Evaluation
from labelwise.support.errors import DataError, UnsupportedError


def probe_embeddings(train: Evaluation, test: Evaluation, *, seed: int = 0) -> dict[str, Any]:
    """Return how well a logistic regression on the embeddings of ``train`` names the images of ``test`` (``probe``).

    It is trained by SGD, visits embeddings in an order that the seed draws, and takes them as they come, not standardised, with
    scikit-learn's own settings but for loss and tolerance. ``classifier`` is the accuracy of the classifier itself, all its labels allowed;
    ``rounds`` counts passes, and ``converged`` says whether these ended because they no longer helped.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import SGDClassifier

    if train.multilabel or test.multilabel:
        raise UnsupportedError("The regression chooses one label for each image; of these, several may be true.")
    (known, known_targets), (scores, targets) = train.labelled(), test.labelled()
    if len(np.unique(known_targets)) < 2:
        raise DataError("The regression needs training images of at least two labels; all of these have the same one.")
    probe = SGDClassifier(loss="log_loss", tol=1e-5, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit(known.embeddings, known_targets)
    return {
        "train_images": len(known),
        "test_images": len(scores),
        "probe": accuracy(probe.predict(scores.embeddings), targets),
        "classifier": accuracy(scores.best, targets),
        "rounds": int(probe.n_iter_),
        "converged": int(probe.n_iter_) < probe.max_iter,
        "leaked": test.leaked,
    }
