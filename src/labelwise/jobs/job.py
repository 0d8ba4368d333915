"""A job: which question, about which files, by which classifier, and the folder of Parquet files that holds the answers.

The folder is what is known of the job: a block whose file is there is done. So a job that was stopped, or killed, goes on with the blocks that
are missing, whatever ran it before.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from labelwise.errors import StoreError, UsageError
from labelwise.files import write_atomically
from labelwise.store import shape_of

if TYPE_CHECKING:
    from labelwise.classifier import Classifier
    from labelwise.data.read.shards import Packed

BLOCK = 500  # pictures of a Parquet file: what a stopped job loses at most, in each process
ABOUT = "_job.json"  # readers of Parquet folders leave out what begins with a line below
Question = Literal["classify", "outliers", "encode", "retrieve"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A question about files; plain values, so that it can be sent to other processes and machines."""

    question: Question
    model: str  # the folder of a saved classifier
    files: tuple["str | Packed", ...]  # pictures in files, or in shards
    out: str  # the folder of Parquet files
    top: int = 3  # labels that ``classify`` lists, pictures that ``retrieve`` does
    gallery: str = ""  # on disk, of ``retrieve``
    by: str = "similarity"  # how ``retrieve`` compares
    size: int = BLOCK  # pictures of a block
    device: str = "cpu"

    @cached_property
    def blocks(self) -> "list[tuple[str | Packed, ...]]":
        """The files, some hundred at a time."""
        return [self.files[start : start + self.size] for start in range(0, len(self.files), self.size)]

    def place(self, block: int) -> Path:
        """Return the file of a block."""
        return Path(self.out) / f"part-{block:06d}.parquet"

    @property
    def missing(self) -> list[int]:
        """The blocks that are not done."""
        there = {name for name in os.listdir(self.out) if re.fullmatch(r"part-\d{6,}\.parquet", name)}
        return [block for block in range(len(self.blocks)) if self.place(block).name not in there]

    def begin(self) -> None:
        """Make the folder, or find what an earlier run of the same job left there; that of another job is refused."""
        arrow()
        if len(shape_of(self.model)) != 3:
            raise UsageError("This model takes precomputed features, not pictures.")
        out, about = Path(self.out), self._identity()
        if out.exists() and not out.is_dir():
            raise UsageError(
                f'"{out}" is a file; answers are written to a folder of Parquet files. Choose another name.'
            )
        file = out / ABOUT
        if out.is_dir() and any(out.iterdir()) and not file.exists():
            raise UsageError(f'"{out}" holds other files. Choose a folder that does not exist yet.')
        if file.exists():
            different = sorted(key for key, value in _read(file).items() if about.get(key) != value)
            if different:
                raise UsageError(
                    f'"{out}" holds answers of another job (other {", ".join(different)}), so it cannot go on. Choose another --out, '
                    "or delete that folder."
                )
            return
        try:
            out.mkdir(parents=True, exist_ok=True)
            write_atomically(file, json.dumps(about, indent=1).encode())
        except OSError as error:
            raise UsageError(f'Cannot write to "{out}": {error.strerror}. Choose another place.') from None

    def _identity(self) -> dict[str, Any]:
        """Return what must be the same for a job to go on."""
        digest = hashlib.blake2b(digest_size=16)
        for file in self.files:
            digest.update(os.fsencode(str(file)) + b"\0")
        model = hashlib.blake2b((Path(self.model) / "classifier.json").read_bytes(), digest_size=16)
        about = {"question": self.question, "classifier": model.hexdigest(), "files": digest.hexdigest()}
        return {
            **about,
            "pictures": len(self.files),
            "top": self.top,
            "size": self.size,
            "gallery": self.gallery,
            "by": self.by,
        }


def _read(file: Path) -> dict[str, Any]:
    try:
        about = json.loads(file.read_bytes())
    except ValueError:
        about = None
    if not isinstance(about, dict):
        raise StoreError(
            f'"{file}" is damaged, so it is not known what the files beside it answer. Delete that folder.'
        )
    return about


def arrow() -> Any:
    """Return pyarrow, or raise an error that says how to get it."""
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise UsageError(
            'Answers about many pictures are written as Parquet, which needs pyarrow: pip install "labelwise[parquet]".'
        ) from None


def answer_block(job: Job, classifier: "Classifier", block: int) -> int:
    """Write the answers about the pictures of a block, and return how many could not be read: each is a row with a reason."""
    files = job.blocks[block]
    rows, unread = _rows(job, classifier, files)
    pyarrow, sink = arrow(), io.BytesIO()
    table = pyarrow.Table.from_pylist(rows, schema=_schema(job, pyarrow))
    import_module("pyarrow.parquet").write_table(table, sink)
    write_atomically(job.place(block), sink.getbuffer())
    return unread


def _rows(job: Job, classifier: "Classifier", files: "Sequence[str | Packed]") -> tuple[list[dict[str, Any]], int]:
    """Return a row for each picture, and how many could not be read."""
    import torch

    from labelwise.data.read.shards import read_packed
    from labelwise.tasks.classify import classify
    from labelwise.tasks.gallery_store import open_gallery
    from labelwise.tasks.outliers import outliers
    from labelwise.tasks.retrieve import retrieve

    places = [Path(file) if isinstance(file, str) else file for file in files]
    pixels, readable, skipped = read_packed(places, classifier.shape, classifier.view.fit)
    reasons = {each.file: each.reason for each in skipped}
    rows: list[dict[str, Any]] = [{"file": _name(str(file)), "reason": reasons.get(str(file))} for file in files]
    scores = classifier.scores(torch.from_numpy(pixels)) if readable else None
    if scores is None:
        return rows, len(skipped)
    if job.question == "classify":
        for row, one in zip(readable, classify(scores, top=job.top), strict=True):
            top = [{"label": label, "probability": value} for label, value in one.top]
            rows[row] |= {"answer": one.label, "probability": one.probability, "labels": list(one.labels)}
            rows[row] |= {"top": top, "strangeness": one.outlier}
    elif job.question == "outliers":
        for row, each in zip(readable, outliers(scores), strict=True):
            rows[row] |= {"strangeness": each.score, "unknown": each.flagged}
    elif job.question == "retrieve":
        near = retrieve(scores, open_gallery(job.gallery), job.top + 1, by=job.by)  # type: ignore[arg-type]
        for row, matches in zip(readable, near, strict=True):
            itself = os.path.realpath(str(files[row]))
            others = [asdict(match) for match in matches if match.file != itself][: job.top]
            rows[row] |= {"matches": [each | {"file": _name(each["file"])} for each in others]}
    else:
        for row, embedding in zip(readable, scores.embeddings.cpu().numpy(), strict=True):
            rows[row] |= {"embedding": embedding}
    return rows, len(skipped)


def _name(file: str) -> str:
    """Return the name of a file as text; bytes that are none are spelled out."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def _schema(job: Job, pyarrow: Any) -> Any:
    text, number = pyarrow.string(), pyarrow.float64()
    own = {
        "classify": [
            ("answer", text), ("probability", number), ("labels", pyarrow.list_(text)),
            ("top", pyarrow.list_(pyarrow.struct([("label", text), ("probability", number)]))), ("strangeness", number),
        ],
        "outliers": [("strangeness", number), ("unknown", pyarrow.bool_())],
        "retrieve": [("matches", pyarrow.list_(pyarrow.struct([("file", text), ("score", number), ("label", text)])))],
        "encode": [("embedding", pyarrow.list_(pyarrow.float32()))],
    }[job.question]  # fmt: skip
    return pyarrow.schema([("file", text), *own, ("reason", text)])
