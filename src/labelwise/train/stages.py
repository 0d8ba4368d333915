"""Training stages: the loss, batches and stopping rule of a stretch of gradient descent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor, nn

from labelwise.train.batches import Batch, Batches
from labelwise.train.optimizers import Optimizer, Schedule

T = TypeVar("T")
Loss = Callable[[Batch], Mapping[str, Tensor]]  # the terms of the loss of a batch


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage:
    """One stretch of gradient descent."""

    name: str  # name in the progress bar and the log
    loss: Loss  # returns the terms of the loss of a batch, each the mean over its rows; their sum is minimised
    parameters: Sequence[nn.Parameter]  # what is trained
    batches: Batches  # what it is trained on
    epochs: int  # passes through the batches
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    # the largest gradient norm, or what limits the gradients of these parameters itself; None is no limit
    clip: float | Callable[[Sequence[nn.Parameter]], None] | None = None
    # a figure of merit on validation data, larger is better; the best epoch's weights are kept
    validate: Callable[[], float] | None = None
    patience: int | None = None  # stop after this many epochs without a better figure
    begins_well: bool = False  # also validate the initial weights, and keep them unless later ones are better
    threads: int | None = None  # of a CPU while it trains; None leaves them unchanged
    # the share that stays of a moving average of the weights at each step; where the stage ends, the average takes
    # their place, and it is what is validated and kept in snapshots. None does not average.
    average: float | None = None
    # how many kinds of steps take turns, such as a critic's and a generator's; ``Batch.phase`` says whose turn it is
    phases: int = 1
    # whether a step does the same for every batch of a shape, but for its numbers; one that decides anything in Python does not
    recordable: bool = True
    # names of entries that ``loss`` returns for the log alone, without a gradient; they are not minimised
    measured: tuple[str, ...] = ()

    def minimised(self, terms: Mapping[str, T]) -> dict[str, T]:
        """Return the terms that make up the loss."""
        return {name: term for name, term in terms.items() if name not in self.measured}
