"""The base of methods: settings, a model, and training stages. Importing this module does not import torch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from labelwise.images.describe.labels import Labels
from labelwise.images.view import View
from labelwise.support.errors import UsageError
from labelwise.support.settings import setting

if TYPE_CHECKING:
    from labelwise.train.model import LabelModel, Spec
    from labelwise.train.stages import Stage
    from labelwise.train.train_data import TrainData


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Hyper-parameters of a training method; subclasses are frozen keyword-only dataclasses."""

    name: ClassVar[str]  # public name
    # required pieces of data, named as in ``data.inspect``: ``targets``, ``vectors``, ``texts``
    needs: ClassVar[tuple[str, ...]] = ("targets",)
    # models score labels with a description and no image; see ``zero_shot``
    zero_shot: ClassVar[bool] = False
    # models are ``LeavesOut``, so no image is held out for calibration
    leaves_out: ClassVar[bool] = False
    # trains on multi-label images; see ``Split.targets``
    multilabel: ClassVar[bool] = False
    # a GPU benchmarks kernels for each shape; takes longer than short training saves
    tries_kernels: ClassVar[bool] = True

    view: View = setting(
        View(),
        "How images are brought to the encoder. After training on random crops of a side, use a crop of that side.",
    )

    @property
    def holds_out(self) -> bool:
        """Whether images are held out for calibration."""
        return not self.leaves_out

    @property
    def uses_targets(self) -> bool:
        """Whether labelled images are required."""
        return "targets" in self.needs

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with precomputed inputs of the models, such as sentence vectors."""
        return labels

    def settle(self, model: "LabelModel") -> "Method":  # noqa: ARG002
        """Return the settings completed with the choices of a trial run on held-out labels."""
        return self

    @abstractmethod
    def build(self, spec: "Spec") -> "LabelModel":
        """Return the untrained model for an image shape and labels."""

    @abstractmethod
    def stages(self, model: "LabelModel", data: "TrainData") -> "Iterator[Stage]":
        """Yield the training stages in order; code between two yields runs between them."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Where and how to train; only the seed and ``accumulate`` affect the result."""

    seed: int = 0  # for weights, order, augmentation and sampling
    device: str = "auto"  # ``auto``, ``cpu`` or ``cuda``
    # folder of ``log.jsonl`` and checkpoints; None: nothing is stored, and the run cannot be resumed. One process at a time
    # may use it.
    folder: Path | None = None
    resume: bool = False  # resume the run in ``folder``
    checkpoint_seconds: float = 60.0  # interval of checkpoints
    # keep the weights in ``folder`` every this many epochs, as ``snapshot-STAGE-EPOCHS.safetensors``; 0 keeps none
    snapshots: int = 0
    progress: bool = False  # show a progress bar on standard error
    # how a GPU takes steps: ``eager``, directly; ``recorded``, recorded once and replayed; ``compiled``, with the image encoder compiled and
    # recorded, which takes half a minute first; ``auto`` records, and compiles if enough time is left
    engine: str = "auto"
    # batches whose gradients are averaged for one step of the optimiser, fewer at the end of an epoch: the effect of larger batches in the
    # memory of one; a stage with alternating kinds of steps still takes a step per batch
    accumulate: int = 1
    exact: bool = False  # bit-identical for any number of threads, but slower: see ``lw.exact``
    notes: tuple[Mapping[str, Any], ...] = ()  # entries for the head of the log
    tell: Callable[[str], None] | None = None  # receives messages before long work; None: silent

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):
            raise UsageError(f'Unknown device "{self.device}". Choose auto, cpu or cuda.')
        if self.engine not in ("auto", "eager", "recorded", "compiled"):
            raise UsageError(f'Unknown engine "{self.engine}". Choose auto, eager, recorded or compiled.')
        if self.accumulate < 1:
            raise UsageError(f"A step takes the gradients of at least one batch; given accumulate={self.accumulate}.")
