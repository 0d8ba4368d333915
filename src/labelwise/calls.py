"""``lw.fit``, ``lw.load`` and a classifier with the verbs as methods. Each calls the functions of ``api``."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from labelwise import api
from labelwise.core import classifier as core
from labelwise.core import load as saved
from labelwise.core import store
from labelwise.core.arrays import Array
from labelwise.core.hub import saved_folder
from labelwise.fitting import fit as fitting
from labelwise.fitting.by_words import WordsOptions, fit_words
from labelwise.fitting.choice import FitOptions, decide, frame_of, next_frame
from labelwise.fitting.division import hold_out as divide_off
from labelwise.images.as_images import ImagesLike, as_images
from labelwise.images.catalogue import load as load_data
from labelwise.images.dataset import Dataset, Split
from labelwise.images.decode.decoding import Frame
from labelwise.images.describe.labels import Labels
from labelwise.images.sources.build import check_two_labels
from labelwise.images.sources.hub_datasets import from_datasets, is_dataset
from labelwise.images.sources.rows import Rows, as_labels, label_rows, named_rows
from labelwise.support.errors import DataError, UsageError
from labelwise.tasks.ask import Answer
from labelwise.tasks.classify import Prediction
from labelwise.tasks.explain import Explanation
from labelwise.tasks.gallery import Gallery
from labelwise.tasks.gallery_store import StoredGallery
from labelwise.tasks.outliers import Outlier
from labelwise.tasks.retrieve import Match
from labelwise.tasks.similarity import By
from labelwise.tasks.teach import Texts, Vector
from labelwise.tasks.verify import Verification
from labelwise.train.method import Method, Run

if TYPE_CHECKING:
    from labelwise.core.export import Exported
    from labelwise.fitting.suspects import Suspect
    from labelwise.reporting.model_card import CardWords

WAYS = "Try lw.fit(folder) or lw.fit((images, labels))."


class Classifier(core.Classifier):
    """A classifier with the verbs as methods; images are paths, folders, PIL images, arrays or the content of files.

    >>> classifier = lw.fit(data)
    >>> bool(set(classifier.predict(images)) <= set(classifier.labels.names))
    True
    """

    @classmethod
    def of(cls, classifier: core.Classifier) -> Self:
        """Return a classifier with the verbs."""
        return cls(**{field.name: getattr(classifier, field.name) for field in fields(core.Classifier)})

    def predict(self, images: ImagesLike) -> Array:
        """Return the name of the most probable label of each image ``[n]``."""
        return np.array(self.labels.names)[self.scores(images).best]

    def predict_proba(self, images: ImagesLike) -> Array:
        """Return the probability of each label ``[n, k]``, in the order of ``labels.names``."""
        return self.scores(images).reported

    def classify(
        self, images: ImagesLike, *, top: int = 5, coverage: float | None = None, max_error: float | None = None
    ) -> list[Prediction]:
        """Return the label of each image, or "unknown".

        With ``coverage=0.9``, each lists the labels that hold the right one at this rate. With ``max_error=0.05``, at most this share of
        images gets a wrong answer: the others get a label, a parent of labels, or "unsure".
        """
        return api.classify(self, images, top=top, coverage=coverage, max_error=max_error)

    def restrict(self, occurring: str | Path | Mapping[str, float] | Sequence[str]) -> Self:
        """Return the classifier with some labels only: names, shares by name, or a file."""
        return type(self).of(api.restrict(self, occurring))

    def ask(self, images: ImagesLike, label: str | None = None, *, text: str | None = None) -> list[Answer]:
        """Answer for each image whether it shows ``label``, or whether a sentence fits."""
        return api.ask(self, images, label, text=text)

    def explain(self, image: ImagesLike, label: str | None = None, *, against: str | None = None) -> Explanation:
        """Return the heat map of an image for a label, by default the best one, optionally in contrast to another."""
        return api.explain(self, image, label, against=against)

    def outliers(self, images: ImagesLike) -> list[Outlier]:
        """Return the outlier score of each image, and whether it is unknown."""
        return api.outliers(self, images)

    def verify(self, first: ImagesLike, second: ImagesLike, *, by: By | None = None) -> list[Verification]:
        """Return whether the images of each pair show the same label."""
        return api.verify(self, first, second, by=by)

    def retrieve(
        self, query: ImagesLike, gallery: Gallery | StoredGallery | ImagesLike, k: int = 5, *, by: By | None = None
    ) -> list[list[Match]]:
        """Return the k images of a gallery most similar to each query, best first."""
        return api.retrieve(self, query, gallery, k, by=by)

    def retrieve_by_text(self, text: str, gallery: Gallery | StoredGallery | ImagesLike, k: int = 5) -> list[Match]:
        """Return the k gallery images that fit a sentence best, best first."""
        return api.retrieve_by_text(self, text, gallery, k)

    def teach(
        self,
        name: str,
        examples: ImagesLike | None = None,
        *,
        texts: Texts | None = None,
        vector: Vector | None = None,
        parent: str | None = None,
    ) -> Self:
        """Return the classifier with one more label, learned from example images, sentences or attributes.

        ``parent`` is the group that holds the label, for coarser answers (``classify`` with ``max_error``).
        """
        return type(self).of(api.teach(self, name, examples=examples, texts=texts, vector=vector, parent=parent))

    def forget(self, name: str) -> Self:
        """Return the classifier without one label."""
        return self.remove(name)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Save the classifier as a folder."""
        store.save(self, path, overwrite=overwrite)

    def export(self, path: str | Path, *, overwrite: bool = False) -> "Exported":
        """Write one ONNX file (``.onnx``), or a folder with Python and JavaScript programs that run without labelwise."""
        from labelwise.core.export_folder import export_to

        return export_to(self, path, overwrite=overwrite)

    def push_to_hub(
        self,
        repository: str,
        *,
        card: "CardWords | None" = None,
        private: bool = False,
        onnx: bool = False,
        token: str | None = None,
    ) -> str:
        """Upload the classifier and its model card as ``user/name``; return the address for ``load``."""
        from labelwise.reporting.publish import publish

        return publish(self, repository, card, private=private, onnx=onnx, token=token).address


def load(path: str | Path) -> Classifier:
    """Load a classifier from a folder, or from ``hf://user/name[@revision]`` on the hub; needs no torch."""
    return Classifier.of(saved.load(saved_folder(path)))


def fit(
    data: Any,
    method: str | Method | None = "auto",
    run: Run | None = None,
    *,
    names: Sequence[str] | None = None,
    seed: int | None = None,
    hold_out: float | None = None,
    **settings: Any,
) -> Classifier:
    """Train and calibrate a classifier on data; test images are never read.

    Args:
        data: a path (a folder with one subfolder per label, a table, a pack), a ``Dataset``, or images and their labels:
            ``(paths, ["owl", "wren", ...])``, ``(arrays, y)``, ``(paths, [["owl", "wren"], [], ...])`` where several may be true.
        method: the name of a method, a method with its settings, or "auto" to choose one from the data.
        run: device and checkpoint folder; by default nothing is written to disk.
        names: label names for unlabelled images, which the encoder reads as words.
        seed: the random seed.
        hold_out: the share of images to keep for a test, which ``evaluate`` then uses; None trains a closed form on all.
        settings: settings of the method, nested ones as mappings: ``epochs=5, encoder={"frozen": True}``; ``labelwise settings
            METHOD`` lists them.
    """
    run = run or Run()
    run = run if seed is None else replace(run, seed=seed)
    if names is not None:
        return _fit_words(data, method, tuple(names), run, settings)
    if isinstance(method, Method):
        if settings:
            raise UsageError("Give either the name of a method with settings, or a configured method.")
        dataset = _with_test(as_dataset(data, run.seed, frame_of(method)), hold_out, run.seed)
        return Classifier.of(fitting.fit(dataset, method, run))
    if not isinstance(method, str | None):
        raise UsageError(f"A method must be a name or a Method; given {type(method).__name__}. {WAYS}")
    encoder = settings.pop("encoder", "auto")
    if isinstance(encoder, Mapping):
        settings["encoder"], encoder = encoder, "auto"
    options = FitOptions(method=method or "auto", encoder=encoder, settings=_texts(settings))
    dataset = _with_test(as_dataset(data, run.seed, next_frame(options)), hold_out, run.seed)
    return Classifier.of(fitting.fit(dataset, decide(dataset, options).method, run))


def _with_test(data: Dataset, share: float | None, seed: int) -> Dataset:
    return data if share is None else divide_off(data, share, seed)


def _fit_words(
    data: Any, method: str | Method | None, names: tuple[str, ...], run: Run, settings: Mapping[str, Any]
) -> Classifier:
    """Fit a classifier to label names and unlabelled images."""
    if method not in (None, "auto", "words"):
        raise UsageError("With names, images have no label: leave method out, or give images and their labels.")
    images = as_images(data)
    split = Split(images=images, targets=np.full(len(images), -1))
    dataset = Dataset(name="images", labels=Labels(names=names), splits={"train": split}, own_splits=False)
    return Classifier.of(fit_words(dataset, WordsOptions.of(_texts(settings)), run))


def merge(classifiers: Sequence[core.Classifier], *, seed: int = 0) -> Classifier:
    """Merge classifiers of the same encoder into one with all labels, fitted to their stored features; see ``fitting.merge``."""
    from labelwise.fitting.merge import merge as run

    return Classifier.of(run(classifiers, seed=seed))


def suspects(data: Any, *, likeness: float | None = None) -> "list[Suspect]":
    """Return images with suspicious labels, and duplicates; see ``fitting.suspects``.

    >>> [one.file for one in lw.suspects(data) if one.doubtful]
    []

    Args:
        data: the same as for ``fit``; all splits are checked.
        likeness: the least similarity of duplicates, at most 1; None is 0.97.
    """
    from labelwise.fitting.suspects import suspects as find

    dataset = as_dataset(data)
    return find(dataset) if likeness is None else find(dataset, likeness=likeness)


def as_dataset(data: Any, seed: int = 0, next_frame: Frame | None = None) -> Dataset:
    """Load a data set from a path, a name, images and labels, a data set, or an object of ``datasets``."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        return load_data(data, seed=seed, next_frame=next_frame)
    if is_dataset(data):
        return from_datasets(data, seed)
    if not (isinstance(data, tuple) and len(data) == 2):
        raise UsageError(
            f"Data must be a path, a Dataset, or images and their labels; given {type(data).__name__}. {_way(data)}"
        )
    images, rows = as_images(data[0]), rows_of(data[1])
    if len(images) != len(rows.targets):
        raise DataError(f"There are {len(images)} images but {len(rows.targets)} labels; give one for each image.")
    check_two_labels("images", rows)
    split = Split(images=images, targets=rows.targets)
    files = images.shape is None
    return Dataset(
        name="images",
        labels=Labels(names=tuple(rows.names)),
        splits={"train": split},
        own_splits=False,
        own_images=files,
    )


def _way(data: Any) -> str:
    """Return the call that would work."""
    if hasattr(data, "columns"):
        return 'Try lw.fit((table["path"], table["label"])), with the names of its columns.'
    return WAYS


def rows_of(labels: Any) -> Rows:
    """Return image rows with these labels: one name or number per image, or all true names."""
    several = isinstance(labels, Sequence) and all(
        isinstance(entry, list | tuple | set | frozenset) for entry in labels
    )
    if several and all(isinstance(name, str) for entry in labels for name in entry):
        return named_rows([None] * len(labels), [tuple(entry) for entry in labels])
    values = as_labels(labels)
    if values.dtype.kind == "b":
        raise UsageError(
            'Yes and no do not name labels. Give the names that are true of each image: lw.fit((images, [["owl", "wren"], []])).'
        )
    return label_rows(values, None)


def _texts(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return settings in the form of the shell: texts under dotted keys."""
    texts: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            texts |= _texts(value, f"{prefix}{key}.")
        else:
            texts[prefix + key] = str(value).lower() if value is None or isinstance(value, bool) else str(value)
    return texts
