"""The subject of measures: the data of a cell, its method, and its classifier, fitted on first use."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from labelwise.core.classifier import Classifier
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.protocols import PROTOCOLS
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset
from labelwise.support.errors import DataError, UsageError
from labelwise.train.method import Method, Run

Figures = dict[str, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """One cell while it is measured."""

    data: Dataset | None  # None where the measure makes its own
    method: Method | None  # None where the measure trains something else
    run: Run  # seed, device, and the folder of checkpoints; a stopped fit goes on from there
    picture: Path  # the file that a measure may draw
    root: Path | None  # where benchmarks lie

    @property
    def dataset(self) -> Dataset:
        """The data, or an error where the recipe names none."""
        if self.data is None:
            raise UsageError("This measure needs data; the recipe's data set has no source.")
        return self.data

    @cached_property
    def classifier(self) -> Classifier:
        """The classifier of the cell, fitted once."""
        if self.method is None:
            raise UsageError("This measure needs a method; the recipe's row has none.")
        return fit(self.dataset, self.method, replace(self.run, resume=self.run.folder is not None))

    @cached_property
    def evaluation(self) -> Evaluation:
        """The test images, encoded once for every measure."""
        return Evaluation.of(self.classifier, self.dataset.split("test"), self.dataset.labels)

    @property
    def trained_on(self) -> Evaluation:
        """The training images."""
        return Evaluation.of(self.classifier, self.dataset.split("train"), self.dataset.labels)

    def draw(self, figure: Any, dpi: int) -> None:
        """Write a figure of matplotlib as the plot of this cell."""
        self.picture.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(self.picture, dpi=dpi)


def record_of(evaluation: Evaluation, name: str, **options: Any) -> Any:
    """Return the record of a protocol; one that does not apply is an error."""
    protocol = PROTOCOLS[name]
    if why := protocol.reason(evaluation):
        raise DataError(f"{protocol.title}: {why}")
    return protocol.run(evaluation, **options)
