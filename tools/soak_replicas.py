"""Several services on one PostgreSQL under load and faults, and a model of what all must know beside them.

    python tools/soak_replicas.py [--minutes 4] [--services 3] [--kills 10] [--others 2] [--seed 0] [--model FOLDER] [--json FILE]

Clients teach, forget and read through any service, as behind a proxy. Every answer is checked as in ``soak.py``: each acknowledged change
is there, whichever service is asked, no read goes back in time, nothing is invented; but for answers that say that they may be out of
date (``Labelwise-Stale``), which are counted. A service is killed with ``kill -9`` in the midst of it and started again, one after the other in turn;
PostgreSQL is stopped, is away for two seconds, and starts again; another program locks the tables for seconds; an older dump is restored in
one transaction while all connections stay open: ``--others`` of each. After each fault a label is taught through one service, and how
long the others take to answer with it is measured. In the end all must answer the same.
PostgreSQL is that of the system's packages, run in a temporary folder as a user that is not root.
"""

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from postgres_server import Server
from serve import Running, Talk, drawn_images, fitted
from soak_asking import conclude, options
from soak_clients import Clients

SLOWEST = 5.0  # seconds that a service may take to answer with what another one was taught
AWAY = 2.0  # seconds for which PostgreSQL is away


class Replicas(Clients):
    """Several services, their clients and their faults."""

    def __init__(self, folder: Path, pictures: list[bytes], server: Server, services: int, seed: int) -> None:
        super().__init__(folder, pictures, seed)
        self.server, self.lags = server, list[float]()
        self.options = ("--state", server.address(), "--device", "cpu", "--timeout", "5")
        self.services = [Running(folder, *self.options) for _ in range(services)]

    def port(self) -> int:
        """Return the port of one of them, whichever."""
        return self.drawn.choice(self.services).port

    def logged(self, fault: str) -> str:
        """Return what the logs say about a fault of one of them."""
        return "".join(one.about(fault) for one in self.services)

    async def kill(self, place: int) -> None:
        """Kill a service, and start it again."""
        service = self.services[place]
        service.end(signal.SIGKILL)
        self.services[place] = await asyncio.to_thread(Running, self.folder, *self.options)

    async def lock(self, place: int) -> None:
        """Let another program keep everybody from the tables, sometimes for longer than a change is tried."""
        async with await psycopg.AsyncConnection.connect(self.server.address()) as other:
            await other.execute("LOCK TABLE labelwise.history IN ACCESS EXCLUSIVE MODE")
            await asyncio.sleep((3, 12)[place % 2])

    async def restore_dump(self, _: int) -> None:
        """Restore an older dump while all services are connected."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "dump.sql")
            await self.restore(
                lambda: self.server.dump("labelwise", file), lambda: self.server.restore("labelwise", file)
            )

    async def restart(self, place: int) -> None:
        """Stop PostgreSQL, and start it again after a while."""
        mode = ("fast", "immediate")[place % 2]
        await asyncio.to_thread(self.server.stop, mode)
        await asyncio.sleep(AWAY)
        await asyncio.to_thread(self.server.start)

    async def probe(self, place: int) -> None:
        """Teach a label through one service, and note how long the others take to answer with it."""
        label, one = f"p-{len(self.lags)}-{self.drawn.randrange(10**6)}", self.services[place].port
        self.model.settle(label, None)
        status = 0
        async with Talk(one) as talk:
            while status != 200:
                status, answer = await talk.ask("POST", f"/teach?label={label}", self.pictures[0])
        change, began = answer["change"], time.monotonic()
        self.model.settle(label, True)
        self.model.acknowledged += 1
        for other in self.services:
            names: set[str] = set()
            async with Talk(other.port) as talk:
                while label not in names and time.monotonic() < began + SLOWEST:
                    _, answer = await talk.ask("GET", "/labels")
                    names = {row["name"] for row in answer["labels"]}
            if label not in names:
                self.model.stale.append(f"{label} of change {change} is not known to every service after {SLOWEST} s")
        self.lags.append(time.monotonic() - began)

    async def faults(self, kills: int, others: int, seconds: float) -> None:
        """Spread the faults over a while, one service after the other in turn."""
        rare: list[Callable[[int], Awaitable[None]]] = [self.restart, self.lock, self.restore_dump]
        every = [(fault, i) for fault in rare for i in range(others)] + [(self.kill, i) for i in range(kills)]
        self.drawn.shuffle(every)
        for fault, number in every:
            await asyncio.sleep(seconds / len(every) * self.drawn.uniform(0.2, 0.6))
            place = number % len(self.services)
            self.fault = getattr(fault, "__name__", "")
            self.figures.faults[self.fault] += 1
            await fault(place if fault == self.kill else number)
            await self.probe(place)
            await asyncio.sleep(1)
            self.fault = ""

    async def soak(self, kills: int, others: int, seconds: float) -> dict[str, object]:
        """Return the figures of so many seconds of load."""
        clients = [self.write(i) for i in range(3)] + [self.read() for _ in range(4)]
        tasks = [asyncio.create_task(client) for client in clients]
        faults = asyncio.create_task(self.faults(kills, others, seconds))
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
            "the other services answer with a change after, ms": [round(1000 * lag, 1) for lag in self.lags],
            "all answer the same in the end": all(one == answers[0] for one in answers),
            "broken": broken,
        }


def main() -> None:
    """Soak, print the figures, and exit with 1 where something was lost, stale, invented or broken, or 5xx."""
    parser = options(__doc__, minutes=4)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--others", type=int, default=2)
    parser.add_argument("--services", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or fitted(Path(folder))
        pictures = drawn_images(16, "PNG")
        server = Server()
        soak = None
        try:
            soak = Replicas(model, pictures, server, given.services, given.seed)
            figures = asyncio.run(soak.soak(given.kills, given.others, 60 * given.minutes))
        finally:
            for service in soak.services if soak else ():
                service.process.kill()
            server.end()
    alike = figures["all answer the same in the end"]
    conclude(figures, given.json, () if alike else ("the services differ",))


if __name__ == "__main__":
    main()
