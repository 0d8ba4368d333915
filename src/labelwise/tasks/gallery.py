"""A gallery: embeddings of images to search, in one file."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from labelwise.core.classifier import Classifier
from labelwise.images.as_images import ImagesLike
from labelwise.support.errors import StoreError, UsageError, listing
from labelwise.support.files import read_arrays, write_arrays
from labelwise.support.rows import Draws
from labelwise.support.settings import brief
from labelwise.tasks.gallery_index import Index, Lists, make_index

FORMAT = "labelwise gallery 1"
# Embeddings of noise images identify the model of a gallery: how many images, and the tolerance.
PROBES, DRIFT = 4, 0.02


@dataclass(frozen=True, eq=False, kw_only=True)
class Gallery:
    """Embeddings of images to search. Immutable: ``join`` and ``remove`` return new galleries."""

    embeddings: NDArray[np.float32]  # [m, d]
    files: tuple[str, ...]  # m unique names
    labels: tuple[str, ...] = ()  # the label of each image, m names, or empty
    probe: NDArray[np.float32]  # embeddings of fixed noise images [p, d], which identify the model
    index: Index | None = None  # for approximate search, see with_index; None: exact search

    __repr__ = brief

    def __post_init__(self) -> None:
        if len(self.files) != len(self.embeddings) or (self.labels and len(self.labels) != len(self.embeddings)):
            raise UsageError(
                f"A gallery needs a name for each embedding, and a label for each or none; given {len(self.embeddings)} embeddings, "
                f"{len(self.files)} names and {len(self.labels)} labels."
            )
        if len(set(self.files)) < len(self.files):
            repeated_files = [name for name, count in Counter(self.files).items() if count > 1]
            raise UsageError(f"Names in a gallery must be unique; repeated: {listing(repeated_files)}.")

    def __len__(self) -> int:
        return len(self.files)

    def check(self, classifier: Classifier) -> None:
        """Raise an error if another model made the gallery; each model is checked once."""
        if classifier.head not in self._models:
            check_probe(self.probe, probe_embeddings(classifier))
            self._models.add(classifier.head)

    @cached_property
    def _models(self) -> "WeakSet[Any]":
        """Models already checked."""
        return WeakSet()

    def join(self, other: "Gallery") -> "Gallery":
        """Return the images of both galleries, with labels if both have them; the index of this one is extended."""
        check_probe(self.probe, other.probe)
        embeddings = np.concatenate([self.embeddings, other.embeddings])
        labels_in_both = bool(self.labels) and bool(other.labels)
        return Gallery(
            embeddings=embeddings,
            files=self.files + other.files,
            labels=self.labels + other.labels if labels_in_both else (),
            probe=self.probe,
            index=None if self.index is None else self.index.extended(embeddings),
        )

    def remove(self, files: Collection[str]) -> "Gallery":
        """Return the gallery without these images."""
        removed = set(files)
        missing = sorted(removed - set(self.files))
        if missing:
            raise UsageError(f"Not in this gallery of {len(self)} images: {listing(missing)}.")
        rows = [i for i, name in enumerate(self.files) if name not in removed]
        labels = tuple(self.labels[i] for i in rows) if self.labels else ()
        index = None if self.index is None else self.index.select(self.embeddings, rows)
        files = tuple(self.files[i] for i in rows)
        return replace(self, embeddings=self.embeddings[rows], files=files, labels=labels, index=index)

    def with_index(self) -> "Gallery":
        """Return the gallery with an index for approximate search: its own, or a new one if missing or outgrown."""
        if self.index is not None and not self.index.outgrown:
            return self
        return replace(self, index=make_index(self.embeddings))

    @cached_property
    def lists(self) -> Lists:
        """The search structure, built from the index on first use."""
        if self.index is None:
            raise UsageError("This gallery has no index to search by. Make one first: gallery.with_index().")
        return Lists(self.index, self.embeddings)

    def save(self, path: str | Path) -> None:
        """Write the gallery atomically as one safetensors file with JSON in its header."""
        description = {"format": FORMAT, "files": self.files, "labels": self.labels}
        arrays: dict[str, NDArray[Any]] = {"codes": self.embeddings, "probe": self.probe}
        if self.index is not None:
            description["index"] = self.index.digest
            arrays |= {"centres": self.index.centres, "regions": self.index.regions}
        write_arrays(Path(path), arrays, description)


def load_gallery(path: str | Path) -> Gallery:
    """Load a gallery that ``Gallery.save`` wrote."""
    arrays, description = read_arrays(Path(path))
    if description.get("format") != FORMAT:
        raise StoreError(f"{path} is not a gallery of this version. Build it again.")
    return Gallery(
        embeddings=arrays["codes"],
        files=tuple(description["files"]),
        labels=tuple(description["labels"]),
        probe=arrays["probe"],
        index=_read_index(path, arrays, description),
    )


def _read_index(path: str | Path, arrays: dict[str, NDArray[Any]], description: dict[str, Any]) -> Index | None:
    """Return the index of a loaded gallery, or None."""
    if "index" not in description:
        return None
    try:
        return Index(centres=arrays["centres"], regions=arrays["regions"], digest=description["index"])
    except (KeyError, UsageError) as error:
        raise StoreError(f"The index in {path} is damaged ({error}). Build the gallery again.") from None


def make_gallery(
    classifier: Classifier, images: ImagesLike, files: Sequence[str], labels: Sequence[str] = ()
) -> Gallery:
    """Return a gallery of m images under m unique names, optionally with labels.

    It can be searched with this classifier, and with those that ``teach`` or ``calibrate`` make of it.
    """
    return Gallery(
        embeddings=classifier.encode(images),
        files=tuple(files),
        labels=tuple(labels),
        probe=probe_embeddings(classifier),
    )


def probe_embeddings(classifier: Classifier) -> NDArray[np.float32]:
    """Return the embeddings of fixed noise images ``[p, d]``."""
    noise = Draws(0).uniform(PROBES, *classifier.shape)
    return classifier.encode(noise)


def check_probe(stored: NDArray[np.float32], computed: NDArray[np.float32]) -> None:
    """Raise an error if embeddings of the same images ``[p, d]`` differ: another model made them."""
    if stored.shape != computed.shape or float(np.linalg.norm(stored - computed)) > DRIFT * float(
        np.linalg.norm(stored)
    ):
        raise UsageError("This gallery was made by another model. Build it again with this one.")
