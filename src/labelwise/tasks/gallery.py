"""A gallery: embeddings of pictures to search in, made once and kept in one file."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.core.model import LabelModel
from labelwise.images.decode.pictures import Pictures
from labelwise.support.errors import StoreError, UsageError, listing
from labelwise.support.files import read_tensors, write_tensors
from labelwise.support.settings import brief
from labelwise.tasks.gallery_index import Index, Lists, make_index

FORMAT = "labelwise gallery 1"
# A gallery of another model is told by the embeddings of a few pictures of noise: how many, and how far they may be off.
PROBES, DRIFT = 4, 0.02


@dataclass(frozen=True, eq=False, kw_only=True)
class Gallery:
    """Embeddings of pictures to search in. Never changes: ``join`` and ``remove`` return new ones."""

    embeddings: Tensor  # [m, d], float32 on the CPU
    files: tuple[str, ...]  # m unique names
    labels: tuple[str, ...] = ()  # what is known of each picture, m names, or empty
    probe: Tensor  # embeddings of fixed pictures of noise [p, d], which tell whether another model made a gallery
    index: Index | None = None  # what an approximate search goes by, see with_index; None is none

    __repr__ = brief

    def __post_init__(self) -> None:
        if len(self.files) != len(self.embeddings) or (self.labels and len(self.labels) != len(self.embeddings)):
            raise UsageError(
                f"A gallery needs a name for each embedding, and a label for each or none; given {len(self.embeddings)} embeddings, "
                f"{len(self.files)} names and {len(self.labels)} labels."
            )
        if len(set(self.files)) < len(self.files):
            twice = [name for name, count in Counter(self.files).items() if count > 1]
            raise UsageError(f"Names in a gallery must be unique; given more than once: {listing(twice)}.")

    def __len__(self) -> int:
        return len(self.files)

    def check(self, classifier: Classifier) -> None:
        """Raise an error where another model made the gallery; a model is tried once."""
        if classifier.model not in self._models:
            check_probe(self.probe, probe_embeddings(classifier))
            self._models.add(classifier.model)

    @cached_property
    def _models(self) -> "WeakSet[LabelModel]":
        """Models that have been tried."""
        return WeakSet()

    def join(self, other: "Gallery") -> "Gallery":
        """Return the pictures of both; labels are kept if both have them, and an index of this one takes in the others."""
        check_probe(self.probe, other.probe)
        embeddings = torch.cat([self.embeddings, other.embeddings])
        both = bool(self.labels) and bool(other.labels)
        return Gallery(
            embeddings=embeddings,
            files=self.files + other.files,
            labels=self.labels + other.labels if both else (),
            probe=self.probe,
            index=None if self.index is None else self.index.extended(embeddings),
        )

    def remove(self, files: Collection[str]) -> "Gallery":
        """Return the gallery without these pictures."""
        gone = set(files)
        missing = sorted(gone - set(self.files))
        if missing:
            raise UsageError(f"Not in this gallery of {len(self)} pictures: {listing(missing)}.")
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
        tensors = {"codes": self.embeddings, "probe": self.probe}
        if self.index is not None:
            about["index"] = self.index.digest
            tensors |= {"centres": self.index.centres, "regions": self.index.regions}
        write_tensors(Path(path), tensors, about)


def load_gallery(path: str | Path) -> Gallery:
    """Return the gallery that ``Gallery.save`` wrote."""
    tensors, about = read_tensors(Path(path))
    if about.get("format") != FORMAT:
        raise StoreError(f"{path} is no saved gallery (or one of another version). Build it again.")
    return Gallery(
        embeddings=tensors["codes"],
        files=tuple(about["files"]),
        labels=tuple(about["labels"]),
        probe=tensors["probe"],
        index=_read_index(path, tensors, about),
    )


def _read_index(path: str | Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> Index | None:
    """Return the index of a gallery that was read; None where it was saved without."""
    if "index" not in about:
        return None
    try:
        return Index(centres=tensors["centres"], regions=tensors["regions"], digest=about["index"])
    except (KeyError, UsageError) as error:
        raise StoreError(f"The index in {path} is damaged ({error}). Build the gallery again.") from None


def make_gallery(
    classifier: Classifier, pictures: Pictures, files: Sequence[str], labels: Sequence[str] = ()
) -> Gallery:
    """Return a gallery of m pictures under m unique names, with m labels or none.

    It can be searched with this classifier, and with those that ``teach`` or ``calibrate`` make of it.
    """
    images = classifier.batch(pictures)
    return Gallery(
        embeddings=classifier.encode(images).cpu(),
        files=tuple(files),
        labels=tuple(labels),
        probe=probe_embeddings(classifier),
    )


def probe_embeddings(classifier: Classifier) -> Tensor:
    """Return the embeddings of fixed pictures of noise ``[p, d]``, float32 on the CPU."""
    noise = torch.rand(PROBES, *classifier.shape, generator=torch.Generator().manual_seed(0))
    return classifier.encode(noise).cpu()


def check_probe(known: Tensor, here: Tensor) -> None:
    """Raise an error where embeddings of the same pictures ``[p, d]`` differ: another model made them."""
    if known.shape != here.shape or float((known - here).norm()) > DRIFT * float(known.norm()):
        raise UsageError(
            "This gallery was made by another model, so its embeddings mean something else. Build it again with this one."
        )
