"""The shell commands that make a classifier and its report again."""

import json
import shlex
from collections.abc import Sequence

from labelwise.core.classifier import Classifier
from labelwise.fitting.rebuild import method_of
from labelwise.support.errors import LabelwiseError
from labelwise.support.settings import describe


def fit_command(classifier: Classifier, data: str, out: str, options: Sequence[str] = ()) -> str | None:
    """Return the command that fits a classifier with the same method, settings and seed; None where they are not known.

    ``data`` names its training data in the shell; ``options`` are more words, such as where splits are.
    """
    try:
        method = method_of(classifier)
    except LabelwiseError:
        return None
    try:
        usual = dict(describe(type(method)()))
    except TypeError:
        return None
    words = ["labelwise", "fit", data, "--out", out, "--method", method.name, "--encoder", "none"]
    for key, value in describe(method):
        if usual.get(key) != value:
            plain = json.loads(value)  # text is given without quotes
            words += ["--set", f"{key}={plain if isinstance(plain, str) else value}"]
    shape, seed = classifier.shape, classifier.origin.summary.get("training", {}).get("seed", 0)
    words += ["--size", str(shape[1])] if len(shape) == 3 else []
    return shlex.join([*words, "--seed", str(seed), *options])
