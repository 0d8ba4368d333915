"""The progress bar of a stage of training."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

Bar = Callable[[Mapping[str, Tensor], int, float, float], None]


@contextmanager
def progress_bar(name: str, epochs: int, start: float, *, visible: bool) -> Iterator[Bar]:
    """Yield a function that takes the sums of the loss terms, the step in this epoch, the learning rate and the share that is done.

    The sums are read from the device a few times a second only, so that the bar does not slow training.
    """
    if not visible:
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    words = "[bold]{task.description}[/] epoch {task.fields[epoch]}/" + str(epochs)
    figures = "loss {task.fields[loss]:.3f}  rate {task.fields[rate]:.4f}"
    columns = (TextColumn(words), BarColumn(), TextColumn(figures), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        task = bar.add_task(name, total=1.0, epoch=1, loss=float("nan"), rate=0.0)
        bar.update(task, completed=start)
        last = 0.0

        def update(sums: Mapping[str, Tensor], step: int, rate: float, share: float) -> None:
            nonlocal last
            if share >= 1 or time.monotonic() - last > 0.25:
                last = time.monotonic()
                loss = sum(value.item() for value in sums.values()) / step
                bar.update(task, completed=share, epoch=min(epochs, int(share * epochs) + 1), loss=loss, rate=rate)

        yield update
