"""Who ``photos.py`` compares: what ``fit`` makes of features, what version 0.1 made of them, and what a person would do instead."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn.functional import normalize

import labelwise as lw
from labelwise.images.dataset import Split
from labelwise.methods import Indicator, Prototype, Softmax
from labelwise.train.method import Method

LEAD, EARLIER, TUNED = "labelwise", "version 0.1", "logistic regression, tuned"
REFITTED = ", refitted"  # with all labels, those added later among them
SURE = 20.0  # what cosines with means are multiplied by
GRID = [  # what to choose from by cross-validation
    {"scaler": ["passthrough"], "regression__C": [0.1, 1, 10, 100]},
    {"scaler": [StandardScaler()], "regression__C": [0.001, 0.01, 0.1, 1]},
]
NEIGHBOURS = 5

Outcome = tuple[Tensor, dict[str, float]]  # probabilities [n, k] of test features, and what else is told
Fit = Callable[[Split, Tensor], Outcome]
Adding = Callable[[Split, Sequence[Split], Tensor], Iterator[Tensor]]  # answers [n] after each number of examples


def own(method: Method | None, train: Split, images: Tensor) -> Outcome:
    """Return what labelwise fits with a method; None is whatever it takes by itself."""
    classifier = lw.fit(data_of(lw, train)[0], method, lw.Run(device="cpu"))
    estimate = classifier.origin.summary.get("leave_one_out", {})
    told = {f"estimate_{name}": estimate[name] for name in ("accuracy", "low", "high") if name in estimate}
    return torch.from_numpy(classifier.scores(images).probabilities), told


def data_of(library: Any, train: Split) -> tuple[Any, Tensor]:
    """Return training pictures as a data set of this or an earlier version of the library, and the place ``[k]`` of each of its labels."""
    present = torch.unique(train.targets)
    places = torch.full((int(present.max()) + 1,), -1)
    places[present] = torch.arange(len(present))
    kinds = sys.modules[f"{library.__name__}.data.dataset"]
    split = kinds.Split(images=train.images, targets=places[train.targets])
    labels = library.Labels(names=tuple(f"label {i}" for i in present.tolist()))
    return kinds.Dataset(name="photos", labels=labels, splits={"train": split}), present


def earlier_library(sources: Path) -> None:
    """Put the library of version 0.1 in the place of this one, in this process."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("labelwise", "labelwise_papers")]:
        del sys.modules[name]
    sys.path.insert(0, str(sources))
    import labelwise.images.dataset
    import labelwise.methods

    if not Path(labelwise.__file__).is_relative_to(sources.resolve()):
        raise SystemExit(f"{sources} holds no labelwise: it is {labelwise.__file__} that was imported.")


def earlier(train: Split, images: Tensor) -> Outcome:
    """Return what the default of version 0.1 makes of features; its library is in place already."""
    classifier, _ = earlier_fit(train)
    return classifier.probabilities(classifier.scores(images)), {}


def earlier_fit(train: Split) -> tuple[Any, Tensor]:
    library = sys.modules["labelwise"]
    data, present = data_of(library, train)
    method = sys.modules["labelwise.methods"].Indicator()  # what its `fit` chose where every picture has a label
    return library.fit(data, method, library.Run(device="cpu")), present


def learner(make: Callable[[Split], Any], train: Split, images: Tensor) -> Outcome:
    """Return what an estimator of scikit-learn makes of features."""
    model = make(train).fit(train.images.numpy(), train.targets.numpy())
    return torch.from_numpy(model.predict_proba(images.numpy())), {}


def plain(_: Split) -> Any:
    return LogisticRegression(max_iter=1000)


def scaled(_: Split) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def tuned(train: Split) -> GridSearchCV:
    fewest = int(torch.unique(train.targets, return_counts=True)[1].min())
    pipeline = Pipeline([("scaler", "passthrough"), ("regression", plain(train))])
    return GridSearchCV(pipeline, GRID, cv=max(2, min(3, fewest)))


def neighbours(train: Split) -> KNeighborsClassifier:
    return KNeighborsClassifier(min(NEIGHBOURS, len(train)), weights="distance", metric="cosine")


def nearest_mean(train: Split, images: Tensor) -> Outcome:
    """Return the softmax of cosines, times a fixed number, with the mean of each label's features at unit length."""
    unit = normalize(train.images, dim=1)
    means = normalize(torch.stack([unit[train.targets == label].mean(0) for label in train.present]), dim=1)
    return (SURE * normalize(images, dim=1) @ means.T).softmax(1), {}


def teach(
    start: Callable[[Split], tuple[Any, Tensor]], old: Split, examples: Sequence[Split], images: Tensor
) -> Iterator[Tensor]:
    """Yield the answers of a classifier of the old labels that is taught one new label after another."""
    library = sys.modules["labelwise"]
    before, present = start(old)
    for some in examples:
        classifier, new = before, torch.unique(some.targets)
        for label in new.tolist():
            classifier = library.teach(classifier, f"label {label}", examples=some.images[some.targets == label])
        scores = classifier.scores(images)
        yield torch.cat([present, new])[scores.argmax(1) if isinstance(scores, Tensor) else scores.best]


def own_fit(train: Split) -> tuple[Any, Tensor]:
    data, present = data_of(lw, train)
    return lw.fit(data, None, lw.Run(device="cpu")), present


def refit(rival: Fit, old: Split, examples: Sequence[Split], images: Tensor) -> Iterator[Tensor]:
    """Yield the answers of a rival that is fitted to everything anew."""
    for some in examples:
        yield rival(old.join(some), images)[0].argmax(1)


RIVALS: dict[str, Fit] = {
    LEAD: partial(own, None),
    "nearest mean": nearest_mean,
    "nearest neighbours": partial(learner, neighbours),
    "logistic regression": partial(learner, plain),
    "logistic regression, scaled": partial(learner, scaled),
    EARLIER: earlier,
    TUNED: partial(learner, tuned),
    "softmax": partial(own, Softmax()),
    "indicator": partial(own, Indicator()),
    "prototype": partial(own, Prototype()),
}
ADDING: dict[str, Adding] = {
    LEAD: partial(teach, own_fit),
    EARLIER: partial(teach, earlier_fit),
    LEAD + REFITTED: partial(refit, RIVALS[LEAD]),
    "logistic regression" + REFITTED: partial(refit, RIVALS["logistic regression"]),
    "logistic regression, scaled" + REFITTED: partial(refit, RIVALS["logistic regression, scaled"]),
}
