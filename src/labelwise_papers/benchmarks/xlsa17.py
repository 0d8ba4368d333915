"""Zero-shot data in the layout of the "proposed splits": features and splits as two ``.mat`` files in a folder.

``res101.mat`` holds ``features [d, n]``, ``labels [n, 1]`` and perhaps ``image_files``; ``att_splits.mat`` holds the vectors
of the classes ``att [a, k]``, ``allclasses_names``, and which images belong to ``trainval_loc``, ``test_seen_loc`` and
``test_unseen_loc``. All numbering there starts at 1, here at 0. Its ``train_loc`` and ``val_loc`` are not read: in several
files they hold test images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.images.dataset import Dataset
from labelwise.images.describe.knowledge import Knowledge, with_knowledge
from labelwise.images.describe.labels import Labels
from labelwise.images.images import FeatureRows
from labelwise.images.sources.build import build
from labelwise.images.sources.npz_files import read_npz
from labelwise.images.sources.rows import Rows
from labelwise.images.split.divide import pool
from labelwise.images.split.make import zero_shot
from labelwise.support.errors import DataError, UsageError, listing
from labelwise.support.files import read_text
from labelwise.support.rows import Draws
from labelwise.support.writable import write_by, write_file
from labelwise_papers.benchmarks.mat_files import cells, column, indices, matrix, read_mat, strings

PARTS = ("trainval", "test_seen", "test_unseen")
_ATTRIBUTES = "attributes_names.txt"


@dataclass(frozen=True, eq=False, kw_only=True)
class ZeroShotData:
    """Features of images of seen and unseen classes, and a vector for each class."""

    name: str  # of the data
    features: Any  # ``[n, d]`` (float32)
    targets: Any  # positions in the labels ``[n]``
    labels: Labels  # the k classes, seen and unseen, with their ``vectors [k, a]``
    rows: Mapping[str, Any]  # which images belong to ``trainval``, ``test_seen`` and ``test_unseen``
    attribute_names: tuple[str, ...] = ()  # a names, or empty
    files: tuple[str, ...] = ()  # n names of images, or empty

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", np.asarray(self.features, np.float32))
        object.__setattr__(self, "targets", np.asarray(self.targets))
        object.__setattr__(self, "rows", {part: np.asarray(rows) for part, rows in self.rows.items()})
        n, vectors = len(self.features), self.labels.vectors
        if vectors is None:
            raise DataError(f'"{self.name}" has no vectors of its classes; zero-shot data need them.')
        if len(self.targets) != n or (self.files and len(self.files) != n):
            raise DataError(f'"{self.name}" has {n} features, {len(self.targets)} labels and {len(self.files)} files.')
        if not n or not 0 <= int(self.targets.min()) <= int(self.targets.max()) < len(self.labels):
            raise DataError(
                f'"{self.name}": "labels" must number the {len(self.labels)} classes, for one image or more.'
            )
        if self.attribute_names and len(self.attribute_names) != vectors.shape[1]:
            raise DataError(
                f'"{self.name}" has {len(self.attribute_names)} attribute names for {vectors.shape[1]} numbers.'
            )
        if not np.isfinite(self.features).all():
            raise DataError(f'"{self.name}": "features" hold a value that is not a finite number (NaN or infinity).')
        _check_rows(self)

    @property
    def seen(self) -> tuple[str, ...]:
        """The classes that have training images."""
        return self._names("trainval")

    @property
    def unseen(self) -> tuple[str, ...]:
        """The classes that have test images only."""
        return self._names("test_unseen")

    def dataset(self, validation_classes: int | None = None, seed: int = 0) -> Dataset:
        """Return the data set: train and val are divided by class, test holds seen and unseen classes.

        Val holds all training images of some seen classes, drawn at random, and train those of the others. These are
        a third of the seen classes, unless a number is given; 0 leaves val out.
        """
        known = [self.labels.index(name) for name in self.seen]
        count = len(known) // 3 if validation_classes is None else validation_classes
        if not 0 <= count <= len(known) - 2:
            raise UsageError(
                f"There are {len(known)} seen classes; at least two must stay in train, so val can have 0 to "
                f"{len(known) - 2} of them. Given {count}."
            )
        sample = Draws(seed).permutation(len(known))[:count]
        trainval = np.sort(self.rows["trainval"])
        validation = np.isin(self.targets[trainval], np.array(known)[sample])
        tests = np.sort(np.concatenate([self.rows["test_seen"], self.rows["test_unseen"]]))
        parts = {"train": trainval[~validation], "val": trainval[validation], "test": tests}
        rows = Rows(names=self.labels.names, targets=self.targets, images=FeatureRows(self.features), files=self.files)
        return build(
            self.name,
            rows,
            Knowledge(labels=self.labels, attributes=self.attribute_names),
            parts={split: part for split, part in parts.items() if len(part)},
        )

    def _names(self, part: str) -> tuple[str, ...]:
        return tuple(self.labels.names[i] for i in np.unique(self.targets[self.rows[part]]).tolist())


def _check_rows(data: ZeroShotData) -> None:
    """Raise an error where test images or unseen classes are in training."""
    missing = [part for part in PARTS if part not in data.rows]
    if missing:
        raise DataError(f'"{data.name}" lacks the rows of {listing(missing)}; it needs {listing(PARTS)}.')
    for part, rows in data.rows.items():
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(data.features):
            raise DataError(f'"{data.name}": "{part}_loc" must number the {len(data.features)} images.')
        if len(np.unique(rows)) < len(rows):
            raise DataError(f'"{data.name}": "{part}_loc" names an image twice. Keep one.')
    for one, other in (("trainval", "test_seen"), ("trainval", "test_unseen"), ("test_seen", "test_unseen")):
        shared = int(np.isin(data.rows[one], data.rows[other]).sum())
        if shared:
            raise DataError(f'"{data.name}": "{one}_loc" and "{other}_loc" share {shared} images. They must not.')
    both = sorted(set(data.seen) & set(data.unseen))
    if both:
        raise DataError(f'"{data.name}": classes of test_unseen_loc have training images: {listing(both)}.')
    strange = sorted(set(data._names("test_seen")) - set(data.seen))
    if strange:
        raise DataError(f'"{data.name}": classes of test_seen_loc have no training image: {listing(strange)}.')


def read_xlsa17(
    folder: str | Path, *, vectors: str = "att", features: str = "res101.mat", splits: str = "att_splits.mat"
) -> ZeroShotData:
    """Return the zero-shot data of a folder; see the top of this file.

    ``vectors`` is the field that holds the vectors of the classes: ``att``, ``original_att``, or another. As
    ``splits``, ``sent_splits.mat`` holds sentence vectors as ``att``.
    """
    root = Path(folder)
    file = root / features
    fields = read_mat(file)
    images = matrix(fields, "features", file).T
    return ZeroShotData(
        name=root.resolve().name,
        features=np.ascontiguousarray(images, np.float32),
        targets=indices(fields, "labels", file),
        files=strings(fields, "image_files", file) if "image_files" in fields else (),
        **_read_classes(root / splits, vectors, len(images)),
    )


def read_gzsl_pack(root: str | Path, name: str, *, splits: str = "att_splits.mat") -> ZeroShotData:
    """Return zero-shot data whose features are packed as bytes: ``cub_res50.npz`` next to ``gzsl_splits/CUB``.

    The pack holds ``q [n, d]`` (bytes) and ``scale [d]``, whose product are the features; ``labels [n]`` from 0; and
    ``att_col [k]``, which column of the splits' vectors and names belongs to each label.
    """
    arrays = read_npz(Path(root) / f"{name.lower()}_res50.npz", "q", "scale", "labels", "att_col")
    order = arrays["att_col"].astype(np.int64)
    return ZeroShotData(
        name=name,
        features=arrays["q"].astype(np.float32) * arrays["scale"].astype(np.float32),
        targets=arrays["labels"].astype(np.int64),
        **_read_classes(Path(root) / "gzsl_splits" / name / splits, "att", len(arrays["q"]), order),
    )


def _read_classes(file: Path, field: str, n: int, order: npt.NDArray[np.int64] | None = None) -> dict[str, Any]:
    """Return what a file of splits of n images says, under the names of ``ZeroShotData``.

    ``order [k]`` says which column belongs to each label.
    """
    fields = read_mat(file)
    vectors = matrix(fields, field, file).T
    k = len(vectors)
    names = strings(fields, "allclasses_names", file) if "allclasses_names" in fields else None
    names = tuple(f"class {i}" for i in range(1, k + 1)) if names is None else tuple(name.strip() for name in names)
    if len(names) != k or (order is not None and sorted(order.tolist()) != list(range(k))):
        raise DataError(f'"{file}" has {k} columns of "{field}" but {len(names)} names, or the labels are of others.')
    order = np.arange(k) if order is None else order
    names_file = file.parent / _ATTRIBUTES
    lines = read_text(names_file).splitlines() if names_file.exists() else []
    attributes = tuple(line.partition(" ")[2] for line in lines)
    return {
        "labels": Labels(names=tuple(names[i] for i in order), vectors=vectors[order].astype(np.float32)),
        "rows": {part: indices(fields, f"{part}_loc", file, most=n) for part in PARTS},
        "attribute_names": attributes if len(attributes) == vectors.shape[1] else (),
    }


def write_xlsa17(folder: str | Path, data: ZeroShotData) -> None:
    """Write ``res101.mat`` and ``att_splits.mat`` (and the names of attributes), as other codes read them.

    Matrices have one column for each image or class, indices are doubles ``[n, 1]`` that start at 1, names are cell
    arrays. ``original_att`` repeats ``att``.
    """
    from scipy.io import savemat

    root = Path(folder)
    images: dict[str, Any] = {"features": data.features.T.astype(np.float64), "labels": column(data.targets)}
    if data.files:
        images["image_files"] = cells(data.files)
    assert data.labels.vectors is not None  # the data check that
    vectors = data.labels.vectors.T.astype(np.float64)
    about = {"att": vectors, "original_att": vectors, "allclasses_names": cells(data.labels.names)}
    about |= {f"{part}_loc": column(rows) for part, rows in data.rows.items()}
    write_by(root / "res101.mat", lambda stream: savemat(stream, images, do_compression=True))
    write_by(root / "att_splits.mat", lambda stream: savemat(stream, about, do_compression=True))
    if data.attribute_names:
        lines = [f"{i} {name}\n" for i, name in enumerate(data.attribute_names, 1)]
        write_file(root / _ATTRIBUTES, "".join(lines).encode())


def build_zero_shot(
    features: Dataset, knowledge: Knowledge, *, unseen: float | Sequence[str] = 0.25, seed: int = 0
) -> ZeroShotData:
    """Return zero-shot data of encoded images, divided again: some labels have images in the test only.

    The knowledge has an attribute vector for every label; ``unseen`` are the labels to keep out of training, by name
    or as a share of all.
    """
    if not features.features:
        raise DataError(f'"{features.name}" holds images. Encode them first.')
    if features.multilabel:
        raise DataError(
            f'Several labels may be true of one image of "{features.name}"; zero-shot data have one for each.'
        )
    known = with_knowledge(features, knowledge)
    if known.labels.vectors is None:
        raise DataError(
            "Zero-shot data need an attribute vector for each label: columns of numbers, one row per label."
        )
    whole = pool(known)
    rows = zero_shot(whole.targets, known.labels.names, unseen=unseen, seed=seed)
    trainval = np.sort(np.concatenate([rows["train"], rows["val_seen"], rows["val_unseen"]]))
    return ZeroShotData(
        name=features.name,
        features=whole.images.values,
        targets=whole.targets,
        labels=known.labels,
        rows={"trainval": trainval, "test_seen": rows["test_seen"], "test_unseen": rows["test_unseen"]},
        attribute_names=knowledge.attributes,
        files=whole.files,
    )
