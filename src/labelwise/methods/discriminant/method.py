"""Discriminant: Bayesian estimates of label means, with distances measured by a shared covariance.

A Gaussian for each label with one covariance (linear discriminant analysis) on root features of a frozen encoder. Every choice is
made by exact leave-one-out, in closed form: no validation images, no learning rate, seconds. See ``docs/discriminant.md``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.tune import Tune
from labelwise.methods.shared.label_source import LabelSource, Source
from labelwise.support.errors import DataError, UsageError
from labelwise.support.settings import setting
from labelwise.train.method import Method
from labelwise.train.networks.encoder import Encoder

if TYPE_CHECKING:
    from labelwise.methods.discriminant.model import DiscriminantModel
    from labelwise.train.model import LabelModel, Spec
    from labelwise.train.stages import Stage
    from labelwise.train.train_data import TrainData


@dataclass(frozen=True, kw_only=True)
class Discriminant(Method):
    """The nearest mean of a label, measured by how images of a label spread: the default on features that are not trained."""

    name: ClassVar[str] = "discriminant"
    leaves_out: ClassVar[bool] = True
    tries_kernels: ClassVar[bool] = False

    encoder: Encoder = setting(Encoder(frozen=True), "The network that makes features of images.")
    source: Source = setting("auto", "Read label vectors or texts; auto prefers vectors.")
    sentences: str = setting("words", "What embeds a sentence: words, glove or minilm.")
    prior: str = setting("data", "How frequent labels are: data, equal, or a table of label and share.")
    costs: str | None = setting(None, "A table of label and cost: how many times worse it is to miss one.")
    precision: Literal["float32", "int8"] = setting(
        "float32", "Of the encoder; int8 is faster, calibrated on the training images (needs the extra export)."
    )
    words: bool = setting(
        False, "Add what names of labels say to what images show; the default encoder, and the extra text."
    )
    tune: Tune | None = setting(
        None, "Train the pretrained encoder further first; kept only if validation accuracy improves."
    )

    def __post_init__(self) -> None:
        if self.encoder.code_size is not None:
            raise UsageError(
                "Method discriminant does not change features of the data or a frozen encoder: leave out encoder.code_size. "
                "To train an encoder choose another method, such as indicator."
            )

    @property
    def holds_out(self) -> bool:
        """Whether images are held out: leave-one-out is invalid for an encoder that was trained on the images."""
        return self.tune is not None

    def build(self, spec: "Spec") -> "DiscriminantModel":
        """Return the model before it is solved."""
        from labelwise.methods.discriminant.model import DiscriminantModel

        return DiscriminantModel(spec, self.encoder, self.label_source)

    @property
    def label_source(self) -> LabelSource:
        """The source of label vectors."""
        return LabelSource(source=self.source, sentences=self.sentences)

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with their vectors, if they have descriptions that can be read."""
        source = self.label_source
        if not source.describes(labels):
            return labels
        try:
            return replace(labels, vectors=source.of(labels))
        except DataError:
            if self.source != "auto":
                raise
            return labels  # images are enough

    def stages(self, model: "LabelModel", data: "TrainData") -> "Iterator[Stage]":
        """Yield the stages that tune the encoder, if any; then solve in closed form. See also ``fitting.closed_form``."""
        from labelwise.methods.discriminant.model import DiscriminantModel
        from labelwise.methods.discriminant.tuning import tuning_stages

        assert isinstance(model, DiscriminantModel)
        if self.tune is None:
            model.solve(data.train)
        else:
            model.trials = yield from tuning_stages(model, data, self.tune)
