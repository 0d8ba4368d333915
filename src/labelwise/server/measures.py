"""Counts and times of a service, as Prometheus reads them. Each worker writes its own to a small file; one answer sums all."""

import json
import os
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from labelwise.checkpoint import write_atomically

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
Key = tuple[str, ...]


class Measures:
    """Counters and histograms of one process.

    Attributes:
        folder: where the workers of a service leave theirs for each other; None where there is one worker.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._counts: Counter[Key] = Counter()
        self._lock = threading.Lock()

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self._counts["labelwise_requests_total", route, str(status)] += 1
            self._observe("labelwise_request_seconds", route, SECONDS, seconds)

    def batch(self, pictures: int) -> None:
        """Count a pass of the model."""
        with self._lock:
            self._observe("labelwise_batch_pictures", "", SIZES, pictures)

    def _observe(self, name: str, route: str, bounds: tuple[float, ...], value: float) -> None:
        place = bisect_left(bounds, value)
        self._counts[f"{name}_bucket", route, "+Inf" if place == len(bounds) else f"{bounds[place]:g}"] += 1
        self._counts[f"{name}_sum", route] += value  # type: ignore[assignment]
        self._counts[f"{name}_count", route] += 1

    def leave(self) -> None:
        """Write this worker's counts where the others find them."""
        if self.folder is None:
            return
        with self._lock:
            rows = [[*key, value] for key, value in self._counts.items()]
        write_atomically(self.folder / f"{os.getpid()}.json", json.dumps(rows).encode())

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all workers' counts and these gauges in the text format of Prometheus."""
        with self._lock:
            whole = self._counts.copy()
        for file in () if self.folder is None else sorted(self.folder.glob("*.json")):
            if file.stem != str(os.getpid()):
                for *key, value in json.loads(file.read_text()):
                    whole[tuple(key)] += value
        return "\n".join([*_requests(whole), *_histogram(whole, "labelwise_request_seconds", "route", SECONDS),
                          *_histogram(whole, "labelwise_batch_pictures", "", SIZES), *_gauges(gauges)]) + "\n"  # fmt: skip


def _requests(counts: Mapping[Key, float]) -> list[str]:
    lines = ["# HELP labelwise_requests_total Requests by route and status.", "# TYPE labelwise_requests_total counter"]
    for key in sorted(key for key in counts if key[0] == "labelwise_requests_total"):
        lines.append(f'labelwise_requests_total{{route="{key[1]}",status="{key[2]}"}} {counts[key]:g}')
    return lines


def _histogram(counts: Mapping[Key, float], name: str, label: str, bounds: tuple[float, ...]) -> list[str]:
    what = "Seconds from the first byte of a request to its answer." if label else "Pictures encoded in one pass."
    lines = [f"# HELP {name} {what}", f"# TYPE {name} histogram"]
    for route in sorted({key[1] for key in counts if key[0] == f"{name}_count"}):
        own, total = (f'{label}="{route}",' if label else ""), 0.0
        for bound in (*(f"{b:g}" for b in bounds), "+Inf"):
            total += counts.get((f"{name}_bucket", route, bound), 0)
            lines.append(f'{name}_bucket{{{own}le="{bound}"}} {total:g}')
        ended = f"{{{own.rstrip(',')}}}" if own else ""
        lines.append(f"{name}_sum{ended} {counts[f'{name}_sum', route]:.6g}")
        lines.append(f"{name}_count{ended} {counts[f'{name}_count', route]:g}")
    return lines


def _gauges(gauges: Mapping[str, float]) -> list[str]:
    return [line for name, value in gauges.items() for line in (f"# TYPE {name} gauge", f"{name} {value:g}")]
