"""Join the answers to boxes in a finished job: one more file in its folder, with a row per image and event."""

from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labelwise.images.formats.annotations import Record
from labelwise.jobs.job import Job, as_text, schema_of
from labelwise.jobs.parts import arrow
from labelwise.support.files import regular_path
from labelwise.support.writable import write_file

if TYPE_CHECKING:
    from labelwise.tasks.box_answers import Decide, Joined

FILE = "joined.parquet"


def write_joined(job: Job, records: Mapping[str, Record], decide: "Decide") -> list["Joined"]:
    """Write and return the joined answers of a finished job."""
    from labelwise.tasks.box_answers import join

    pyarrow, parquet = arrow(), import_module("pyarrow.parquet")
    answers = {}
    for block, names in enumerate(job.blocks):
        table = parquet.read_table(regular_path(job.place(block)), columns=["answer", "probabilities"])
        labels, label_probabilities = table["answer"].to_pylist(), table["probabilities"].to_pylist()
        for name, label, probabilities in zip(names, labels, label_probabilities, strict=True):
            if label is not None and name in records:
                answers[name] = label, np.asarray(probabilities, np.float32)
    answers_of_groups = join(records, answers, decide)
    rows = [
        {
            "file": as_text(answer.name),
            "answer": answer.label,
            "probability": answer.probability,
            "labels": [word for word, _ in answer.counts],
            "level": answer.level,
        }
        for answer in answers_of_groups
    ]
    sink = BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema_of(job)), sink)
    write_file(Path(job.folder) / FILE, sink.getbuffer())
    return answers_of_groups
