"""Counts and times of a service for Prometheus. Each worker leaves its own in a small file; one answer sums all.

prometheus_client sums over processes, too, but through files mapped into memory, and a full disk would then end a worker.
"""

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from labelwise.files import write_atomically

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
Key = tuple[str, tuple[tuple[str, str], ...]]


class Measures:
    """Counters and histograms of one process.

    Attributes:
        folder: where the workers of a service leave theirs for each other; None where there is one worker.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder, self.name = folder, f"{os.getpid()}.{secrets.token_hex(4)}.json"
        self._own = own = CollectorRegistry()
        self._requests = Counter(
            "labelwise_requests", "Requests by route and status.", ["route", "status"], registry=own
        )
        what = "Seconds from the first byte of a request to its answer."
        self._seconds = Histogram("labelwise_request_seconds", what, ["route"], registry=own, buckets=SECONDS)
        self._sizes = Histogram(
            "labelwise_batch_pictures", "Pictures encoded in one pass.", registry=own, buckets=SIZES
        )

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, pictures: int) -> None:
        """Count a pass of the model."""
        self._sizes.observe(pictures)

    def leave(self) -> None:
        """Write this worker's counts where the others find them; a full disk only makes them old."""
        if self.folder is not None:
            with suppress(OSError):
                rows = [[*key, value] for metric in self._own.collect() for key, value in _samples(metric)]
                write_atomically(self.folder / self.name, json.dumps(rows).encode())

    def text(self, gauges: Mapping[str, float]) -> bytes:
        """Return all workers' counts and these gauges in the text format of Prometheus."""
        self.leave()  # so that what was told once stays told when this worker dies
        whole = CollectorRegistry()
        whole.register(_Sum(list(self._own.collect()), self._others(), gauges))
        return generate_latest(whole)

    def _others(self) -> dict[Key, float]:
        """Return the sums over the other workers, those that died among them."""
        sums: dict[Key, float] = {}
        for file in () if self.folder is None else sorted(self.folder.glob("*.json")):
            for name, labels, value in () if file.name == self.name else json.loads(file.read_text()):
                key = (name, tuple((one, two) for one, two in labels))
                sums[key] = sums.get(key, 0.0) + value
        return sums


class _Sum(Collector):
    """Own counts, those of others, and gauges."""

    def __init__(self, own: list[Metric], others: dict[Key, float], gauges: Mapping[str, float]) -> None:
        self.own, self.others, self.gauges = own, others, gauges

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with the sums over all workers."""
        for metric in self.own:
            sums = dict(_samples(metric))
            for key, value in self.others.items():
                if key[0].startswith(metric.name):
                    sums[key] = sums.get(key, 0.0) + value
            family = Metric(metric.name, metric.documentation, metric.type)
            for (name, labels), value in sums.items():
                family.add_sample(name, dict(labels), value)
            yield family
        for name, value in self.gauges.items():
            yield GaugeMetricFamily(name, "", value)


def _samples(metric: Metric) -> Iterator[tuple[Key, float]]:
    """Yield the samples of a metric but for the times when each was made."""
    for one in metric.samples:
        if not one.name.endswith("_created"):
            yield (one.name, tuple(one.labels.items())), one.value
