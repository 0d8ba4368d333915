"""Prometheus metrics of a service, in memory that all workers share, so that any worker can report all of them.

Each worker counts in its own row, and the replacement of a dead worker continues its row. So no count is lost or doubled.
prometheus_client would use files instead, which a full disk breaks.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
ROUTES = 32  # most routes; the last slot holds batch sizes
STATUSES = 600
WIDTH = STATUSES + len(SECONDS) + 2  # per route: counts by status, by time, above all limits, and the sum of times
CELLS = ROUTES * WIDTH  # numbers per worker


class Metrics(Collector):
    """Counters and histograms of one worker (its row of the shared numbers), and the sums over all workers."""

    def __init__(self, memory: Any = None, row: int = 0) -> None:
        cells = np.zeros(CELLS) if memory is None else np.frombuffer(memory)
        self._all: NDArray[np.float64] = cells.reshape(-1, ROUTES, WIDTH)
        self._own = self._all[row]
        self._places: dict[str, int] = {}
        self._gauges: Mapping[str, float] = {}

    def expect(self, routes: Iterable[str]) -> None:
        """Set the routes to count, the same in every worker."""
        self._places = {route: place for place, route in enumerate(sorted(routes))}
        assert len(self._places) < ROUTES

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        cells = self._own[self._places[route]]
        cells[status] += 1
        _observe(cells[STATUSES:], SECONDS, seconds)

    def batch(self, images: int) -> None:
        """Count a batch."""
        _observe(self._own[-1, STATUSES:], SIZES, images)

    def text(self, gauges: Mapping[str, float]) -> bytes:
        """Return the counts of all workers and these gauges in the text format of Prometheus."""
        self._gauges, whole = gauges, CollectorRegistry(auto_describe=False)
        whole.register(self)
        return generate_latest(whole)

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with the sums over all workers, and the gauges."""
        sums = self._all.sum(0)
        requests = CounterMetricFamily(
            "labelwise_requests", "Requests by route and status.", labels=["route", "status"]
        )
        words = "Seconds from the first byte of a request to its answer."
        seconds = HistogramMetricFamily("labelwise_request_seconds", words, labels=["route"])
        for route, place in self._places.items():
            (statuses,) = sums[place, :STATUSES].nonzero()
            for status in statuses.tolist():
                requests.add_metric([route, str(status)], sums[place, status])
            if len(statuses):
                seconds.add_metric([route], *_histogram(sums[place, STATUSES:], SECONDS))
        sizes = HistogramMetricFamily("labelwise_batch_images", "Images encoded together.")
        sizes.add_metric([], *_histogram(sums[-1, STATUSES:], SIZES))
        yield from (requests, seconds, sizes)
        for name, value in self._gauges.items():
            yield GaugeMetricFamily(name, "", value)


def _observe(cells: NDArray[np.float64], limits: Sequence[float], value: float) -> None:
    """Count a value in the first bucket that holds it, and add it to the sum."""
    cells[bisect_left(limits, value)] += 1
    cells[len(limits) + 1] += value


def _histogram(cells: NDArray[np.float64], limits: Sequence[float]) -> tuple[list[tuple[str, float]], float]:
    """Return the cumulative count per limit, infinity last, and the sum of all values."""
    counts = cells[: len(limits) + 1].cumsum().tolist()
    names = [*(str(float(limit)) for limit in limits), "+Inf"]
    return list(zip(names, counts, strict=True)), float(cells[len(limits) + 1])
