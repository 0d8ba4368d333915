"""Two services on one PostgreSQL under load: services killed, PostgreSQL restarted, and a model of what both must know beside them.

    python tools/soak_replicas.py [--minutes 4] [--kills 10] [--restarts 1] [--seed 0] [--model FOLDER] [--json FILE]

Clients teach, forget and read through either service, as behind a proxy. Every answer is checked as in ``soak.py``: each acknowledged change
is there, whichever service is asked, no read goes back in time, nothing is invented; but for answers that say that they may be out of
date (``Labelwise-Stale``), which are counted. A service is killed with ``kill -9`` in the midst of it and started again, one after the other in turn;
PostgreSQL is stopped, is away for two seconds, and starts again. After each fault a label is taught through one service, and how
long the other takes to answer with it is measured. In the end both must answer the same.
PostgreSQL is that of the system's packages, run in a temporary folder as a user that is not root.
"""

import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from postgres_server import Server
from serve import Running, Talk, drawn_images, fitted
from soak_clients import Clients, conclude, options

SLOWEST = 5.0  # seconds that a service may take to answer with what another one was taught
AWAY = 2.0  # seconds for which PostgreSQL is away


class Replicas(Clients):
    """Two services, their clients and their faults."""

    def __init__(self, folder: Path, pictures: list[bytes], server: Server, seed: int) -> None:
        super().__init__(folder, pictures, seed)
        self.server, self.lags = server, list[float]()
        self.options = ("--state", server.address(), "--device", "cpu", "--timeout", "5")
        self.services = [Running(folder, *self.options) for _ in range(2)]

    def port(self) -> int:
        """Return the port of one of the two, whichever."""
        return self.drawn.choice(self.services).port

    async def kill(self, place: int) -> None:
        """Kill a service, and start it again."""
        service = self.services[place]
        service.end(signal.SIGKILL)
        self.services[place] = await asyncio.to_thread(Running, self.folder, *self.options)

    async def restart(self, mode: str) -> None:
        """Stop PostgreSQL, and start it again after a while."""
        await asyncio.to_thread(self.server.stop, mode)
        await asyncio.sleep(AWAY)
        await asyncio.to_thread(self.server.start)

    async def probe(self, place: int) -> None:
        """Teach a label through one service, and note how long the other one takes to answer with it."""
        label, one, other = f"p-{len(self.lags)}", *(self.services[i].port for i in (place, 1 - place))
        self.model.settle(label, None)
        status = 0
        async with Talk(one) as talk:
            while status != 200:
                status, answer = await talk.ask("POST", f"/teach?label={label}", self.pictures[0])
        change, began = answer["change"], time.monotonic()
        self.model.settle(label, True)
        self.model.acknowledged += 1
        async with Talk(other) as talk:
            names: set[str] = set()
            while label not in names and time.monotonic() < began + SLOWEST:
                _, answer = await talk.ask("GET", "/labels")
                names = {row["name"] for row in answer["labels"]}
        self.lags.append(time.monotonic() - began)
        if label not in names:
            self.model.stale.append(f"{label} of change {change} is not known to the other service after {SLOWEST} s")

    async def faults(self, kills: int, restarts: int, seconds: float) -> None:
        """Spread the faults over a while, one service after the other in turn."""
        every = [("kill", i % 2) for i in range(kills)]
        for i in range(restarts):
            every.insert((i + 1) * len(every) // (restarts + 1), ("restart", i % 2))
        for kind, which in every:
            await asyncio.sleep(seconds / len(every) * self.drawn.uniform(0.5, 1))
            self.fault = kind
            self.figures.faults[kind] += 1
            await (self.kill(which) if kind == "kill" else self.restart(("fast", "immediate")[which]))
            await self.probe(which)
            await asyncio.sleep(1)
            self.fault = ""

    async def soak(self, kills: int, restarts: int, seconds: float) -> dict[str, object]:
        """Return the figures of so many seconds of load."""
        clients = [self.write(i) for i in range(3)] + [self.read() for _ in range(4)]
        tasks = [asyncio.create_task(client) for client in clients]
        faults = asyncio.create_task(self.faults(kills, restarts, seconds))
        await asyncio.wait([faults, *tasks], return_when=asyncio.FIRST_COMPLETED)
        self.ended = True
        faults.cancel()
        results = await asyncio.gather(faults, *tasks, return_exceptions=True)
        broken = [repr(one) for one in results if isinstance(one, Exception)]
        answers = []
        for service in self.services:
            least, began = self.model.change, time.monotonic()
            async with Talk(service.port) as talk:
                _, answer = await talk.ask("GET", "/labels")
            names = [row["name"] for row in answer["labels"]]
            self.model.check(set(names), answer["change"], least, began)
            answers.append((answer["change"], names))
        for service in self.services:
            service.end()
        return self.summary() | {
            "the other service answers with a change after, ms": [round(1000 * lag, 1) for lag in self.lags],
            "both answer the same in the end": answers[0] == answers[1],
            "broken": broken,
        }


def main() -> None:
    """Soak, print the figures, and exit with 1 where something was lost, stale, invented or broken, or 5xx."""
    parser = options(__doc__, minutes=4)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--restarts", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or fitted(Path(folder))
        pictures = drawn_images(16, "PNG")
        server = Server()
        soak = None
        try:
            soak = Replicas(model, pictures, server, given.seed)
            figures = asyncio.run(soak.soak(given.kills, given.restarts, 60 * given.minutes))
        finally:
            for service in soak.services if soak else ():
                service.process.kill()
            server.end()
    alike = figures["both answer the same in the end"]
    conclude(figures, given.json, () if alike else ("the two services differ",))


if __name__ == "__main__":
    main()
