"""A gallery: embeddings of images to search, saved in one file."""

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
# The embeddings of a few images of noise tell a gallery of another model: how many images, and how far they may be off.
PROBES, DRIFT = 4, 0.02


@dataclass(frozen=True, eq=False, kw_only=True)
class Gallery:
    """Embeddings of images to search in. Immutable: ``join`` and ``remove`` return new galleries."""

    embeddings: NDArray[np.float32]  # [m, d]
    files: tuple[str, ...]  # m unique names
    labels: tuple[str, ...] = ()  # the label of each image, m names, or empty
    probe: NDArray[np.float32]  # embeddings of fixed images of noise [p, d], which tell galleries of other models
    index: Index | None = None  # what an approximate search uses, see with_index; None is none

    __repr__ = brief

    def __post_init__(self) -> None:
        if len(self.files) != len(self.embeddings) or (self.labels and len(self.labels) != len(self.embeddings)):
            raise UsageError(
                f"A gallery needs a name for each embedding, and a label for each or none; given {len(self.embeddings)} embeddings, "
                f"{len(self.files)} names and {len(self.labels)} labels."
            )
        if len(set(self.files)) < len(self.files):
            twice = [name for name, count in Counter(self.files).items() if count > 1]
            raise UsageError(f"Names in a gallery must be unique; repeated: {listing(twice)}.")

    def __len__(self) -> int:
        return len(self.files)

    def check(self, classifier: Classifier) -> None:
        """Raise an error where another model made the gallery; a model is tried once."""
        if classifier.head not in self._models:
            check_probe(self.probe, probe_embeddings(classifier))
            self._models.add(classifier.head)

    @cached_property
    def _models(self) -> "WeakSet[Any]":
        """Models that have been tried."""
        return WeakSet()

    def join(self, other: "Gallery") -> "Gallery":
        """Return the images of both, with labels if both have them, and with the index of this one extended."""
        check_probe(self.probe, other.probe)
        embeddings = np.concatenate([self.embeddings, other.embeddings])
        both = bool(self.labels) and bool(other.labels)
        return Gallery(
            embeddings=embeddings,
            files=self.files + other.files,
            labels=self.labels + other.labels if both else (),
            probe=self.probe,
            index=None if self.index is None else self.index.extended(embeddings),
        )

    def remove(self, files: Collection[str]) -> "Gallery":
        """Return the gallery without these images."""
        gone = set(files)
        missing = sorted(gone - set(self.files))
        if missing:
            raise UsageError(f"Not in this gallery of {len(self)} images: {listing(missing)}.")
        rows = [i for i, name in enumerate(self.files) if name not in gone]
        labels = tuple(self.labels[i] for i in rows) if self.labels else ()
        index = None if self.index is None else self.index.selected(self.embeddings, rows)
        files = tuple(self.files[i] for i in rows)
        return replace(self, embeddings=self.embeddings[rows], files=files, labels=labels, index=index)

    def with_index(self) -> "Gallery":
        """Return the gallery with an index for approximate search: its own, or a new one where that is missing or outgrown."""
        if self.index is not None and not self.index.outgrown:
            return self
        return replace(self, index=make_index(self.embeddings))

    @cached_property
    def lists(self) -> Lists:
        """What an approximate search looks through, made from the index when first asked for."""
        if self.index is None:
            raise UsageError("This gallery has no index to search by. Make one first: gallery.with_index().")
        return Lists(self.index, self.embeddings)

    def save(self, path: str | Path) -> None:
        """Write the gallery as one safetensors file with JSON in its header, whole or not at all."""
        about = {"format": FORMAT, "files": self.files, "labels": self.labels}
        arrays: dict[str, NDArray[Any]] = {"codes": self.embeddings, "probe": self.probe}
        if self.index is not None:
            about["index"] = self.index.digest
            arrays |= {"centres": self.index.centres, "regions": self.index.regions}
        write_arrays(Path(path), arrays, about)


def load_gallery(path: str | Path) -> Gallery:
    """Return the gallery that ``Gallery.save`` wrote."""
    arrays, about = read_arrays(Path(path))
    if about.get("format") != FORMAT:
        raise StoreError(f"{path} is not a gallery of this version. Build it again.")
    return Gallery(
        embeddings=arrays["codes"],
        files=tuple(about["files"]),
        labels=tuple(about["labels"]),
        probe=arrays["probe"],
        index=_read_index(path, arrays, about),
    )


def _read_index(path: str | Path, arrays: dict[str, NDArray[Any]], about: dict[str, Any]) -> Index | None:
    """Return the index of a gallery that was read; None where it was saved without."""
    if "index" not in about:
        return None
    try:
        return Index(centres=arrays["centres"], regions=arrays["regions"], digest=about["index"])
    except (KeyError, UsageError) as error:
        raise StoreError(f"The index in {path} is damaged ({error}). Build the gallery again.") from None


def make_gallery(
    classifier: Classifier, images: ImagesLike, files: Sequence[str], labels: Sequence[str] = ()
) -> Gallery:
    """Return a gallery of m images under m unique names, with m labels or none.

    It can be searched with this classifier, and with those that ``teach`` or ``calibrate`` make of it.
    """
    return Gallery(
        embeddings=classifier.encode(images),
        files=tuple(files),
        labels=tuple(labels),
        probe=probe_embeddings(classifier),
    )


def probe_embeddings(classifier: Classifier) -> NDArray[np.float32]:
    """Return the embeddings of fixed images of noise ``[p, d]``."""
    noise = Draws(0).uniform(PROBES, *classifier.shape)
    return classifier.encode(noise)


def check_probe(known: NDArray[np.float32], here: NDArray[np.float32]) -> None:
    """Raise an error where embeddings of the same images ``[p, d]`` differ: another model made them."""
    if known.shape != here.shape or float(np.linalg.norm(known - here)) > DRIFT * float(np.linalg.norm(known)):
        raise UsageError("This gallery was made by another model. Build it again with this one.")
