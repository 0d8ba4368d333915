"""What is measured: the data of a cell, its method, and the classifier that is fitted when a measure first asks for it."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from labelwise.classifier import Classifier
from labelwise.data.dataset import Dataset, Split
from labelwise.errors import UsageError
from labelwise.evaluate.tested import Tested
from labelwise.fitting.fit import fit
from labelwise.training.stages import Method, Run


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """One cell while it is measured.

    Attributes:
        name: for files that belong to it.
        data: None where the measure makes its own.
        method: None where the measure trains something else.
        run: seed, device, and the folder of checkpoints; a stopped fit goes on from there.
        pictures: the folder of pictures that measures draw.
        root: where benchmarks lie.
    """

    name: str
    data: Dataset | None
    method: Method | None
    run: Run
    pictures: Path
    root: Path | None

    @property
    def given(self) -> Dataset:
        """The data, or an error where the recipe names none."""
        if self.data is None:
            raise UsageError("This measure needs data; the recipe's data set has no source.")
        return self.data

    @property
    def test(self) -> Split:
        """The test images."""
        return self.given.split("test")

    @cached_property
    def classifier(self) -> Classifier:
        """The classifier of the cell, fitted once."""
        return self.fit(self.given)

    @cached_property
    def tested(self) -> Tested:
        """The test images, encoded once for every measure."""
        return Tested.of(self.classifier, self.test, self.given.labels)

    def fit(self, data: Dataset, part: str = "") -> Classifier:
        """Return a classifier of the cell's method for any data; ``part`` keeps checkpoints of several fits apart."""
        if self.method is None:
            raise UsageError("This measure needs a method; the recipe's row has none.")
        folder = self.run.folder / part if self.run.folder and part else self.run.folder
        return fit(data, self.method, replace(self.run, folder=folder, resume=folder is not None))
