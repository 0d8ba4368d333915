"""How long a change takes after 100, 1,000, 10,000 taught labels: to teach, to forget, to undo, for another worker to follow, to start.

``python benchmarks/taught_many.py [--labels 10000]``. The model is small and features are drawn, so that what is seen is what grows.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import labelwise as lw
from labelwise.server.present import Present
from labelwise.store import load
from labelwise.tasks.teach import teach

EACH = 20  # labels over which the time of one is averaged


def seconds(step: Callable[[], object]) -> float:
    """Return how long a step takes."""
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def main() -> None:
    """Print a line for each number of labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--labels", type=int, default=10_000)
    most = parser.parse_args().labels
    data = lw.data.load("finches")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "m.lw"
        lw.save(lw.fit(data, lw.methods.Indicator(epochs=1)), model)
        writer, follower = (Present(load(model), model) for _ in range(2))
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
            processor = time.process_time()
            wall = seconds(lambda: add(EACH))
            processor = time.process_time() - processor
            row = {"teach": wall / EACH, "processor": processor / EACH, "follow": seconds(follower.read) / EACH}
            name = f"taught {count // 2}"
            row |= {"forget": seconds(lambda name=name: writer.forget(name)), "follow forget": seconds(follower.read)}  # type: ignore[misc]
            row |= {"undo": seconds(writer.undo), "follow undo": seconds(follower.read)}
            print(f"{count:,} labels:", ", ".join(f"{what} {1000 * value:.1f} ms" for what, value in row.items()))
            assert torch.equal(follower.served.classifier.label_embeddings, writer.served.classifier.label_embeddings)
        writer.close()
        follower.close()
        base = load(model)
        print(f"start: {seconds(lambda: Present(base, model).close()):.1f} s")


if __name__ == "__main__":
    main()
