"""Counts and times of a service for Prometheus. Each worker leaves its own in a small file; one answer sums all.

prometheus_client sums over processes, too, but through files mapped into memory, and a full disk would then end a worker.
"""

import json
import os
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from labelwise.files import write_atomically

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Measures(Collector):
    """Counters and histograms of one process, and the sums over all workers, who leave theirs for each other in a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder, self.name = folder, f"{os.getpid()}.{secrets.token_hex(4)}.json"
        self._own = own = CollectorRegistry()
        words = "Requests by route and status."
        self._requests = Counter("labelwise_requests", words, ["route", "status"], registry=own)
        words = "Seconds from the first byte of a request to its answer."
        self._seconds = Histogram("labelwise_request_seconds", words, ["route"], registry=own, buckets=SECONDS)
        words = "Pictures encoded in one pass."
        self._sizes = Histogram("labelwise_batch_pictures", words, registry=own, buckets=SIZES)
        self._gauges: Mapping[str, float] = {}

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
                write_atomically(self.folder / self.name, json.dumps(self._rows()).encode())

    def text(self, gauges: Mapping[str, float]) -> bytes:
        """Return all workers' counts and these gauges in the text format of Prometheus."""
        self.leave()  # so that what was told once stays told when this worker dies
        self._gauges, whole = gauges, CollectorRegistry(auto_describe=False)
        whole.register(self)
        return generate_latest(whole)

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with the sums over all workers, those that died among them, and the gauges."""
        files = () if self.folder is None else sorted(self.folder.glob("*.json"))
        others = [json.loads(file.read_text()) for file in files if file.name != self.name]
        sums: defaultdict[tuple[str, str], float] = defaultdict(float)
        for rows in (self._rows(), *others):
            for name, labels, value in rows:
                sums[name, json.dumps(labels)] += value
        for metric in self._own.collect():
            family = Metric(metric.name, metric.documentation, metric.type)
            for (name, labels), value in sums.items():
                if name.startswith(metric.name):
                    family.add_sample(name, json.loads(labels), value)
            yield family
        for name, value in self._gauges.items():
            yield GaugeMetricFamily(name, "", value)

    def _rows(self) -> list[tuple[str, dict[str, str], float]]:
        """Return the names, labels and values of this worker's counts, but for the times when each was made."""
        samples = (one for metric in self._own.collect() for one in metric.samples)
        return [(one.name, one.labels, one.value) for one in samples if not one.name.endswith("_created")]
