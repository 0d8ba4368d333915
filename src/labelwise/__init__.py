"""Image classifiers whose labels are inputs.

A model scores every (image, label) pair. Fix the labels and what is left is a classifier. Every task is a question
about the resulting matrix of scores.
"""

from typing import TYPE_CHECKING

from labelwise.support.plugins import lazy_names

__version__ = "0.2.0"

if TYPE_CHECKING:
    from labelwise import data as data
    from labelwise import label as label
    from labelwise import methods as methods
    from labelwise.api import ask as ask
    from labelwise.api import calibrate as calibrate
    from labelwise.api import classify as classify
    from labelwise.api import explain as explain
    from labelwise.api import fit_verification as fit_verification
    from labelwise.api import forget as forget
    from labelwise.api import group as group
    from labelwise.api import outliers as outliers
    from labelwise.api import rank as rank
    from labelwise.api import restrict as restrict
    from labelwise.api import retrieve as retrieve
    from labelwise.api import retrieve_by_text as retrieve_by_text
    from labelwise.api import teach as teach
    from labelwise.api import verify as verify
    from labelwise.calls import Classifier as Classifier
    from labelwise.calls import fit as fit
    from labelwise.calls import load as load
    from labelwise.calls import merge as merge
    from labelwise.calls import suspects as suspects
    from labelwise.core.scores import Scores as Scores
    from labelwise.core.store import save as save
    from labelwise.evaluation.evaluate import evaluate as evaluate
    from labelwise.images.describe.labels import Labels as Labels
    from labelwise.images.view import View as View
    from labelwise.reporting.page import report as report
    from labelwise.tasks.imagine import imagine as imagine
    from labelwise.train.exactness import exact as exact
    from labelwise.train.method import Run as Run
    from labelwise.train.model import LabelModel as LabelModel
    from labelwise.train.model import Spec as Spec
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
