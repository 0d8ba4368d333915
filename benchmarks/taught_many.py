"""How long a change takes after 100, 1,000, 10,000 taught labels: to teach, to forget, to undo, for another worker to follow, to start.

``python benchmarks/taught_many.py [--labels 10000]``. The model is small and features are drawn, so that what is seen is what grows.
Milliseconds, and in brackets those of a processor, which a busy machine does not change as much; medians but for ``teach``, a mean.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

import labelwise as lw
from labelwise.core.load import load
from labelwise.server.live import LiveClassifier
from labelwise.tasks.teach import teach

EACH = 20  # labels over which the time of one is averaged


class Times:
    """How long each kind of step took."""

    def __init__(self) -> None:
        self.steps: dict[str, list[tuple[float, float]]] = {}

    def take(self, kind: str, step: Callable[[], object], share: int = 1) -> None:
        """Do a step and note what a share of it took."""
        wall, processor = time.perf_counter(), time.process_time()
        step()
        pair = (time.perf_counter() - wall) / share, (time.process_time() - processor) / share
        self.steps.setdefault(kind, []).append(pair)

    def __str__(self) -> str:
        middle = {
            kind: [1000 * median(values) for values in zip(*pairs, strict=True)] for kind, pairs in self.steps.items()
        }
        return ", ".join(f"{kind} {wall:.1f} ({processor:.1f}) ms" for kind, (wall, processor) in middle.items())


def main() -> None:
    """Print a line for each number of labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--labels", type=int, default=10_000)
    most = parser.parse_args().labels
    data = lw.data.load("finches")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "m.lw"
        lw.save(lw.fit(data, lw.methods.Indicator(epochs=1)), model)
        writer, follower = (LiveClassifier(load(model), model) for _ in range(2))
        scores, count = writer.base.scores(data.split("test").images[:5]), 0

        def add(labels: int) -> None:
            nonlocal count
            for _ in range(labels):
                count += 1
                name = f"taught {count}"
                writer.teach(name, "examples", lambda now, name=name: teach(now, name, examples=scores))  # type: ignore[misc]

        for mark in (number for number in (100, 1_000, 3_000, 10_000) if number <= most):
            add(mark - EACH - count)
            follower.read()
            times = Times()
            times.take("teach", lambda: add(EACH), EACH)
            times.take("follow", follower.read, EACH)
            for i in range(1, 6):
                times.take("forget", lambda name=f"taught {count * i // 6}": writer.forget(name))  # type: ignore[misc]
                times.take("follow forget", follower.read)
                times.take("undo", writer.undo)
                times.take("follow undo", follower.read)
            print(f"{count:,} labels: {times}", flush=True)
            assert np.array_equal(
                follower.snapshot.classifier.label_embeddings, writer.snapshot.classifier.label_embeddings
            )
        writer.close()
        follower.close()
        base = load(model)
        times = Times()
        for _ in range(3):
            times.take("start", lambda: LiveClassifier(base, model).close())
        print(times)


if __name__ == "__main__":
    main()
