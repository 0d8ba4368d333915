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
    # how long it lasts, if the clock ends it: an epoch then lasts its share of the seconds, and the learning rate follows
    # the clock, so that it comes down in time however fast steps are. None: batches end epochs.
    seconds: float | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    # the largest gradient norm, or a function that clips the gradients; None is no limit
    clip: float | Callable[[Sequence[nn.Parameter]], None] | None = None
    # a figure of merit on validation data, larger is better; the best epoch's weights are kept
    validate: Callable[[], float] | None = None
    patience: int | None = None  # stop after this many epochs without a better figure
    # False where too few images validate to say which epoch is best: the last weights are kept, and patience ends the stage
    # only if no epoch was better than the initial weights
    keeps_best: bool = True
    begins_well: bool = False  # also validate the initial weights, and keep them unless later ones are better
    threads: int | None = None  # of a CPU while it trains; None leaves them unchanged
    # decay of a moving average of the weights; the average is validated, stored in snapshots, and replaces the weights at
    # the end of the stage. None does not average.
    average: float | None = None
    # number of alternating kinds of steps, such as critic and generator; ``Batch.phase`` is the current one
    phases: int = 1
    # whether a step runs the same operations for every batch of a shape; False if Python code branches on values
    recordable: bool = True
    # names of entries of ``loss`` that are only logged, without a gradient, not minimised
    logged_terms: tuple[str, ...] = ()

    def minimised(self, terms: Mapping[str, T]) -> dict[str, T]:
        """Return the terms that make up the loss."""
        return {name: term for name, term in terms.items() if name not in self.logged_terms}
