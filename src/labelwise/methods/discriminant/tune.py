"""Settings of tuning, and what came of it."""

from dataclasses import dataclass

from labelwise.support.errors import UsageError
from labelwise.support.settings import check_range, setting


@dataclass(frozen=True, kw_only=True)
class Tune:
    """Train the pretrained encoder further, and keep that only where validation images gain by it (--tune). For GPUs."""

    rates: tuple[float, ...] = setting(
        (1e-3, 3e-4, 1e-4), "Learning rates; the next is tried where validation does not improve with one."
    )
    minutes: float = setting(10.0, "Minutes of training; half of them for a trial that validation images judge.")
    steps: int | None = setting(
        None, "Steps of a trial, and of training on all images; none: until the minutes are over."
    )
    batch: int = setting(64, "Images of a step, over all processes.")
    weight_decay: float = setting(1e-2, "How fast weights shrink; rarely worth a change.")
    smoothing: float = setting(0.1, "Label smoothing; rarely worth a change.")
    flip: bool = setting(True, "Mirror half of the images; false where left and right differ, as in letters.")

    def __post_init__(self) -> None:
        check_range(self, "at least 1", "steps", "batch")
        check_range(self, "above 0", "minutes")
        check_range(self, "0 or more", "weight_decay")
        check_range(self, "from 0 to below 1", "smoothing")
        if not self.rates or min(self.rates) <= 0:
            raise UsageError(f'Setting "tune.rates" must be numbers above 0, at least one; given {list(self.rates)}.')


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How good an encoder is on validation images."""

    rate: float | None  # of training; None: the original encoder
    likelihood: float  # mean log-likelihood of their labels
    accuracy: float
    steps: int = 0  # it was trained for
