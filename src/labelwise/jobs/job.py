"""A job: which question, about which files, by which classifier, and the folder of Parquet files that holds the answers."""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from labelwise.core.load import ABOUT as CLASSIFIER
from labelwise.core.load import shape_of
from labelwise.images.decode.crops import file_of
from labelwise.images.sources.paths import in_shard
from labelwise.jobs.parts import Parts, arrow
from labelwise.support.errors import UsageError
from labelwise.support.files import read_regular
from labelwise.support.processes import set_threads

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.images.images import Images, Skipped

BLOCK = 500  # images of a Parquet file: what a stopped job loses at most, in each process
Question = Literal["classify", "outliers", "encode", "retrieve", "looks"]


@dataclass(frozen=True, kw_only=True)
class Job(Parts):
    """A question about files."""

    question: Question
    model: str = ""  # the folder of a saved classifier; of ``looks`` none
    images: "Images | None" = None  # in files, or in shards
    top: int = 3  # labels that ``classify`` lists, pictures that ``retrieve`` does
    gallery: str = ""  # on disk, of ``retrieve``
    by: str | None = None  # how ``retrieve`` compares; None is by the best score there is
    coverage: float | None = None  # what ``classify`` promises
    max_error: float | None = None
    boxed: bool = False  # whether answers of boxes are joined afterwards, which takes all probabilities
    size: int = BLOCK  # images of a block

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The name of each image."""
        return () if self.images is None else tuple(self.images.ids)

    @cached_property
    def blocks(self) -> list[tuple[str, ...]]:
        """The names of images, some hundred at a time."""
        return [self.files[start : start + self.size] for start in range(0, len(self.files), self.size)]

    @cached_property
    def sizes(self) -> list[int]:
        """How many images each block has."""
        return [len(block) for block in self.blocks]

    def words(self, block: int) -> str:
        """Return what a block is about, for messages."""
        return f"the images from {self.blocks[block][0]} to {self.blocks[block][-1]}"

    def open(self, threads: int) -> "Classifier | None":
        """Return the classifier of a worker process, which caches no features: they are in the answers, or of no use."""
        os.environ["LABELWISE_CACHE"] = "off"
        from labelwise.core.load import load

        set_threads(threads)
        return load(self.model) if self.model else None

    def answer(self, opened: "Classifier | None", block: int) -> None:
        """Write the answers about the images of a block: a row for each, with a reason where it could not be read."""
        pyarrow, content = arrow(), self.content(block)
        rows = _looks(self._block(block)) if opened is None else _rows(self, opened, self._block(block))
        schema = schema_of(self)
        self.write(block, content, schema, [pyarrow.Table.from_pylist(rows, schema=schema)])

    def _block(self, block: int) -> "Images":
        assert self.images is not None
        return self.images.select(range(block * self.size, block * self.size + self.sizes[block]))

    def begin(self) -> None:
        """Make the folder; a model that takes no images is refused before."""
        if self.model and len(shape_of(self.model)) != 3:
            raise UsageError("This model takes precomputed features, not images.")
        super().begin()

    def content(self, block: int) -> bytes:
        """Return the digest of the names, sizes and times of the images of a block."""
        digest = hashlib.blake2b(digest_size=16)
        for file in self.blocks[block]:
            digest.update(os.fsencode(file) + b"\0" + _stamp(file))
        return digest.hexdigest().encode()

    def identity(self) -> dict[str, Any]:
        """Return what must be the same for a job to go on."""
        digest = hashlib.blake2b(digest_size=16)
        for file in self.files:
            digest.update(os.fsencode(str(file)) + b"\0")
        content = read_regular(Path(self.model) / CLASSIFIER) if self.model else b""
        model = hashlib.blake2b(content, digest_size=16)
        parts = {"question": self.question, "classifier": model.hexdigest(), "files": digest.hexdigest()}
        return {
            **parts,
            "pictures": len(self.files),
            "top": self.top,
            "size": self.size,
            "gallery": self.gallery and self.gallery + _version(Path(self.gallery)),
            "by": self.by,
            "coverage": self.coverage,
            "max_error": self.max_error,
            "boxed": self.boxed,
        }


def _stamp(file: str) -> bytes:
    """Return size and time of an image's file, or of the shard that it is in; nothing of one that lies elsewhere."""
    for place in (file_of(file), in_shard(file)[0]):
        with suppress(OSError, ValueError):
            stat = os.stat(place)
            return f"{stat.st_size} {stat.st_mtime_ns}".encode()
    return b""


def _version(gallery: Path) -> str:
    """Return what changes with a gallery: the newest version of a table, size and time of a file."""
    versions = sorted(file.name for file in gallery.glob("*.lance/_versions/*"))
    return f" ({versions[0] if versions else _stamp(str(gallery)).decode()})"


def _skip_rows(images: "Images", skipped: "Sequence[Skipped]") -> list[dict[str, Any]]:
    """Return a row for each image with its name and why it cannot be read."""
    reasons = {skip.file: skip.reason for skip in skipped}
    return [{"file": as_text(file), "reason": reasons.get(file)} for file in images.ids]


def _looks(images: "Images") -> list[dict[str, Any]]:
    from labelwise.images.images import skipped_rows
    from labelwise.images.split.lookalikes import fingerprints

    prints, faults = fingerprints(images)
    rows = _skip_rows(images, skipped_rows(images.ids, faults))
    for i, row in enumerate(rows):
        row |= {} if i in faults else {"look": prints[i].tobytes()}
    return rows


def _rows(job: Job, classifier: "Classifier", files: "Images") -> list[dict[str, Any]]:
    """Return a row for each image."""
    from labelwise.encoders.encode import ImagesWithFeatures
    from labelwise.tasks.classify import classify
    from labelwise.tasks.gallery_store import open_gallery
    from labelwise.tasks.outliers import outliers
    from labelwise.tasks.retrieve import retrieve

    features = classifier.features(files)
    rows, readable = _skip_rows(files, features.skipped), features.rows.tolist()
    if not readable:
        return rows
    scores = classifier.scores(ImagesWithFeatures.readable(files, features))
    if job.question == "classify":
        answers = classify(scores, top=job.top, coverage=job.coverage, max_error=job.max_error)
        for at, (row, prediction) in enumerate(zip(readable, answers, strict=True)):
            top = [{"label": label, "probability": value} for label, value in prediction.top]
            rows[row] |= {
                "answer": prediction.label,
                "probability": prediction.probability,
                "labels": list(prediction.labels),
            }
            rows[row] |= {"top": top, "outlier_score": prediction.outlier}
            rows[row] |= {"parents": list(prediction.parents)} if prediction.parents is not None else {}
            rows[row] |= {"level": "box", "probabilities": scores.reported[at]} if job.boxed else {}
    elif job.question == "outliers":
        for row, outlier in zip(readable, outliers(scores), strict=True):
            rows[row] |= {"outlier_score": outlier.score, "unknown": outlier.flagged}
    elif job.question == "retrieve":
        near = retrieve(scores, open_gallery(job.gallery), job.top + 1, by=job.by)  # type: ignore[arg-type]
        for row, matches in zip(readable, near, strict=True):
            itself = os.path.realpath(files.ids[row])
            matches_of_others = [asdict(match) for match in matches if match.file != itself][: job.top]
            rows[row] |= {"matches": [match | {"file": as_text(match["file"])} for match in matches_of_others]}
    else:
        for row, embedding in zip(readable, scores.embeddings, strict=True):
            rows[row] |= {"embedding": embedding}
    return rows


def as_text(file: str) -> str:
    """Return the name of a file as text; bytes that are none are spelled out."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def schema_of(job: Job) -> Any:
    """Return the columns of the answers of a job."""
    pyarrow = arrow()
    text, number = pyarrow.string(), pyarrow.float64()
    own = {
        "classify": [
            ("answer", text), ("probability", number), ("labels", pyarrow.list_(text)),
            ("top", pyarrow.list_(pyarrow.struct([("label", text), ("probability", number)]))), ("outlier_score", number),
        ],
        "outliers": [("outlier_score", number), ("unknown", pyarrow.bool_())],
        "retrieve": [("matches", pyarrow.list_(pyarrow.struct([("file", text), ("score", number), ("label", text)])))],
        "encode": [("embedding", pyarrow.list_(pyarrow.float32()))],
        "looks": [("look", pyarrow.binary())],
    }[job.question]  # fmt: skip
    own += [("parents", pyarrow.list_(text))] if job.max_error is not None else []
    own += [("level", text), ("probabilities", pyarrow.list_(pyarrow.float32()))] if job.boxed else []
    return pyarrow.schema([("file", text), *own, ("reason", text)])
