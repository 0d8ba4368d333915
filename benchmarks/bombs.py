"""A service beside pictures made to hurt: how long an honest client waits, and what the service takes.

    python benchmarks/bombs.py [--model FOLDER] [--source SRC]... [--pixel-bombs 100] [--scan-bombs 2] [--json FILE]

Each ``--source`` is a source tree to serve from (default: this one), so that two versions are measured in one run, one after the
other on the same model. Quiet: one client classifies small pictures, one after another. Then, beside it, others send at once
PNGs of 25 million pixels (84 kB each), or progressive JPEGs of 40,000 scans (0.4 MB). Memory is that of the service and all
its children together, at its highest.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "src")]

from serve import Running, Talk, drawn_images, fitted  # noqa: E402

from tests.hostile.pictures import pixel_bomb, scan_bomb  # noqa: E402

LONGEST = 150.0  # seconds that bombs are waited for


def memory(process: int) -> int:
    """Return the megabytes that a process and its children hold."""
    total, todo = 0, [process]
    while todo:
        one = todo.pop()
        try:
            total += int(Path(f"/proc/{one}/smaps_rollup").read_text().split("Pss:")[1].split()[0])
            todo += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
            for task in Path(f"/proc/{one}/task").iterdir():
                if task.name != str(one):
                    todo += map(int, (task / "children").read_text().split())
        except (OSError, IndexError):
            continue
    return total // 1000


async def honest(port: int, picture: bytes, times: list[float], stop: asyncio.Event) -> None:
    """Classify one picture after another, with a pause between, and note the seconds of each."""
    async with Talk(port) as talk:
        while not stop.is_set():
            began = time.perf_counter()
            status, _ = await talk.ask("POST", "/classify", picture, "image/jpeg")
            times.append(time.perf_counter() - began)
            assert status == 200
            await asyncio.sleep(0.02)


async def attack(port: int, bomb: bytes, kind: str) -> int:
    """Send a bomb and return the status of the answer, 0 where there is none."""
    try:
        async with Talk(port) as talk, asyncio.timeout(LONGEST):
            return (await talk.ask("POST", "/classify", bomb, kind))[0]
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        return 0


async def measured(service: Running, picture: bytes, bombs: list[tuple[bytes, str]]) -> dict[str, Any]:
    """Return the times of an honest client while bombs are answered, or for five seconds where there are none."""
    times, stop, peak = list[float](), asyncio.Event(), 0
    client = asyncio.create_task(honest(service.port, picture, times, stop))
    await asyncio.sleep(0 if bombs else 5)
    began, before = time.perf_counter(), service.processor()
    sent = [asyncio.create_task(attack(service.port, *one)) for one in bombs]
    while not all(one.done() for one in sent):
        peak = max(peak, memory(service.process.pid))
        await asyncio.sleep(0.1)
    seconds = time.perf_counter() - began
    stop.set()
    await client
    times.sort()
    return {
        "honest answers": len(times),
        "p50_ms": round(1000 * times[len(times) // 2], 1),
        "p99_ms": round(1000 * times[int(0.99 * (len(times) - 1))], 1),
        "longest_ms": round(1000 * times[-1], 1),
        "statuses": {str(code): [one.result() for one in sent].count(code) for code in {one.result() for one in sent}},
        "seconds": round(seconds, 1),
        "processor_s": round(service.processor() - before, 1),
        "peak_mb": max(peak, memory(service.process.pid)),
    }


def trial(source: Path, model: Path, pixel_bombs: int, scan_bombs: int) -> dict[str, Any]:
    """Return the figures of a service that runs from a source tree."""
    (picture,) = drawn_images(1)
    pngs = [(pixel_bomb(5000, i), "image/png") for i in range(min(8, pixel_bombs))]
    loads = {
        "quiet": [],
        "pixel bombs": [pngs[i % len(pngs)] for i in range(pixel_bombs)],
        "scan bombs": [(scan_bomb(40_000), "image/jpeg")] * scan_bombs,
    }
    os.environ["PYTHONPATH"] = str(source)
    service = Running(model)
    asyncio.run(measured(service, picture, []))  # warm
    figures = {name: asyncio.run(measured(service, picture, bombs)) for name, bombs in loads.items()}
    service.end()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--source", type=Path, action="append")
    parser.add_argument("--pixel-bombs", type=int, default=100)
    parser.add_argument("--scan-bombs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, figures = options.model or fitted(Path(folder)), {}
        for i, source in enumerate(options.source or [HERE.parent / "src"]):
            shutil.copytree(model, copy := Path(folder) / f"{i}.lw")
            figures[str(source)] = trial(source, copy, options.pixel_bombs, options.scan_bombs)
            print(json.dumps({str(source): figures[str(source)]}, indent=1), flush=True)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
