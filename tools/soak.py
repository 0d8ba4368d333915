"""A service with several workers under mixed load and faults, and a model of what it must know beside it.

    python tools/soak.py [--minutes 30] [--workers 2] [--seed 0] [--faults kill_all,locked_store] [--model FOLDER] [--json FILE]

Clients classify, teach, correct, forget and search; others are slow or rude. Between quiet times a fault is drawn: a worker, the whole or its first
process is killed, processes are stopped for seconds, the disk is full, slow or fails, the clock jumps, another program locks the store, an older
copy is restored into the file that the service has open, a bit of a copy of the state is flipped. Next to it a session of ``labelwise label``
with two browsers has the same disk, clock and kills.
Every answer is checked in the manner of Jepsen: each acknowledged change is there, no read goes back in time, nothing is invented. A
change whose answer was lost may be there or not, but never both. The figures so far are written every minute.
Without the rights of root the state has no disk of its own: it is made full by a limit on the size of files, and is never slow and never fails.
Without a C compiler the clock does not jump. The figures say which faults were not possible.
"""

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "benchmarks"))

from serve import Running, drawn_images, fitted  # noqa: E402 - of the folder above
from soak_asking import conclude, options  # noqa: E402 - beside this file
from soak_clients import Clients  # noqa: E402 - beside this file
from soak_label import Labelling  # noqa: E402 - beside this file
from soak_machine import Clock, Disk  # noqa: E402 - beside this file

from labelwise.support.writable import write_atomically  # noqa: E402 - as tools of the project find it

QUIET = 8.0  # seconds between two faults
PHOTOS = 120  # of a session of labelling


class Soak(Clients):
    """A service, its clients and its faults."""

    def __init__(self, disk: Disk, clock: Clock, workers: int, seed: int, faults: Sequence[str] = ()) -> None:
        gallery = disk.home / "gallery"
        super().__init__(disk.home / "model.lw", [file.read_bytes() for file in sorted(gallery.iterdir())], seed)
        self.disk, self.clock, self.only = disk, clock, faults
        self.file = Path(f"{self.folder}.taught/changes.sqlite")
        self.options = ("--workers", str(workers), "--gallery", str(gallery), "--timeout", "5", "--device", "cpu")
        self.service = Running(self.folder, *self.options)
        self.label = Labelling(gallery.with_name("photos"), disk.home / "project", seed)

    def logged(self, fault: str) -> str:
        """Return what the log says about a fault of the service."""
        return self.service.about(fault)

    def port(self) -> int:
        """Return the port of the service."""
        return self.service.port

    async def watch(self) -> None:
        """Note how much memory and how many processes the service takes."""
        while not self.ended:
            total, tree = 0, self.tree()
            for pid in (self.service.process.pid, *tree):
                with contextlib.suppress(OSError):
                    total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
            figures = self.figures
            figures.rss_now, figures.rss = total, max(figures.rss, total)
            figures.processes = max(figures.processes, 1 + len(tree))
            await asyncio.sleep(1)

    # Faults

    def tree(self) -> dict[int, bytes]:
        """Return the processes that descend from the service, with their command lines."""
        parents, lines = {}, {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                pid = int(folder.name)
                parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                lines[pid] = (folder / "cmdline").read_bytes()
        known = {self.service.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in known} - known:
            known |= more
        return {pid: lines[pid] for pid in sorted(known & set(lines) - {self.service.process.pid})}

    def workers(self) -> list[int]:
        """Return the processes that answer requests."""
        parent = self.service.process.pid
        own = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return [pid for pid, line in self.tree().items() if b"spawn_main" in line and str(pid) in own]

    async def kill_worker(self) -> None:
        """Kill one of the workers."""
        os.kill(self.drawn.choice(self.workers()), signal.SIGKILL)
        await asyncio.sleep(3)

    async def kill_all(self) -> None:
        """Kill the service, start it again, and look whether all is there."""
        await self.start_again(self.tree())

    async def kill_first(self) -> None:
        """Kill the first process alone: those that it started must end by themselves."""
        tree = self.tree()
        await self.start_again({})
        await asyncio.sleep(5)
        left = {pid for pid, line in tree.items() if line and _command(pid) == line}
        if left:
            self.figures.failures[f"{len(left)} processes outlive the first one"] += 1

    async def start_again(self, others: Iterable[int], between: Callable[[], None] = lambda: None) -> None:
        """Kill the first process and others, and start the service anew."""
        self.service.process.kill()
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.service.end(signal.SIGKILL)
        self.label.service.end(signal.SIGKILL)
        await asyncio.to_thread(between)
        await asyncio.sleep(0.5)
        self.service = await asyncio.to_thread(Running, self.folder, *self.options)
        await asyncio.to_thread(self.label.start)

    async def stop(self) -> None:
        """Stop a worker, or all of them, for seconds."""
        workers = [*self.workers(), self.label.service.process.pid]
        some = workers if self.drawn.random() < 0.3 else [self.drawn.choice(workers)]
        for pid in some:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(self.drawn.uniform(0.5, 4))
        for pid in some:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    async def full_disk(self) -> None:
        """Let the disk of the state have no room."""
        with self.disk.full() if self.disk.mounted else self._limit():
            await asyncio.sleep(self.drawn.uniform(1, 4))

    @contextlib.contextmanager
    def _limit(self) -> Iterator[None]:
        pids = (self.service.process.pid, *self.workers(), self.label.service.process.pid)
        hard = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE)[1] for pid in pids}
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, hard[pid]))
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard[pid], hard[pid]))

    async def failed_disk(self) -> None:
        """Let the disk of the state fail; then kill all, and mount it anew."""
        self.disk.fail()
        await asyncio.sleep(self.drawn.uniform(1, 4))
        await self.start_again(self.tree(), self.disk.mend)

    async def slow_disk(self) -> None:
        """Let whoever writes wait again and again."""
        for _ in range(self.drawn.randrange(2, 8)):
            async with self.disk.frozen():
                await asyncio.sleep(self.drawn.uniform(0.1, 1))
            await asyncio.sleep(self.drawn.uniform(0, 0.2))

    async def clock_jump(self) -> None:
        """Set the clock ahead or back, by seconds or years, and after a while right again."""
        for _ in range(self.drawn.randrange(1, 4)):
            self.clock.jump(self.drawn.choice((-1, 1)) * 10 ** self.drawn.uniform(0, 8))
            await asyncio.sleep(self.drawn.uniform(0.5, 2))
        self.clock.jump(0)

    async def locked_store(self) -> None:
        """Let another program write to the store for seconds, sometimes for longer than a change is tried."""
        file = self.drawn.choice((self.file, self.file, self.label.file))
        with contextlib.closing(sqlite3.connect(file, isolation_level=None, timeout=20)) as other:
            other.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(self.drawn.choice((0.5, 2, 5, 12)))
            other.execute("ROLLBACK")

    async def restore_in_place(self) -> None:
        """Restore an older copy into the database that the workers have open, as SQLite's ``.restore`` does."""
        with tempfile.TemporaryDirectory() as folder:
            older = Path(folder, "older.sqlite")
            whose: Soak | Labelling = self.drawn.choice((self, self, self.label))
            await whose.restore(lambda: _copy(whose.file, older), lambda: _copy(older, whose.file))

    async def flip_bit(self) -> None:
        """Flip a bit in a copy of the state, and look whether a start tells, or knows all labels."""
        with tempfile.TemporaryDirectory() as folder:
            copy, before = Path(folder) / "copy.lw", self.model.acknowledged
            await asyncio.to_thread(shutil.copytree, self.folder, copy)
            state = Path(f"{copy}.taught", "changes.sqlite")
            state.parent.mkdir()
            _copy(self.file, state)
            file = self.drawn.choice((state, state, state, copy / "weights.safetensors", copy / "classifier.json"))
            content = bytearray(file.read_bytes())
            content[self.drawn.randrange(len(content))] ^= 1 << self.drawn.randrange(8)
            file.write_bytes(content)
            certain = {name for name, there in self.model.present.items() if there}
            words = [sys.executable, "-m", "labelwise", "serve", str(copy), "--bake", f"{folder}/baked.lw"]
            done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True)
            if done.returncode:
                kind = "a traceback" if "Traceback" in done.stderr else "told"
            else:
                about = json.loads(Path(folder, "baked.lw", "classifier.json").read_text())
                names = set(about["labels"]["names"])
                settled = {name for name in certain if self.model.present.get(name)}
                kind = (
                    "harmless" if settled <= names else "state moved" if before != self.model.acknowledged else "lost"
                )
            if kind == "lost":
                self.model.lost.append(f"a flipped bit of {file.name} drops labels without a word")
            self.figures.flips[f"{kind}, {file.name}"] += 1

    async def disturb(self) -> None:
        """Draw one fault after another."""
        faults: list[Callable[[], Awaitable[None]]] = [
            self.kill_worker, self.kill_worker, self.kill_all, self.kill_first, self.stop, self.full_disk, self.flip_bit,
            self.locked_store, self.restore_in_place,
            *([self.failed_disk, self.slow_disk] if self.disk.mounted else []), *([self.clock_jump] if self.clock.built else []),
        ]  # fmt: skip
        faults = [fault for fault in faults if not self.only or getattr(fault, "__name__", "") in self.only]
        while not self.ended:
            await asyncio.sleep(QUIET * self.drawn.uniform(0.5, 1.5))
            fault = self.drawn.choice(faults)
            name = getattr(fault, "__name__", "")
            self.figures.faults[name] += 1
            self.fault = self.label.fault = "" if name == "flip_bit" else name  # in a copy: the service does not see it
            await fault()
            await asyncio.sleep(2)
            self.fault = self.label.fault = ""

    async def tell(self, file: Path | None) -> None:
        """Write the figures so far every minute, so that a run that is stopped has told them."""
        while not self.ended:
            await asyncio.sleep(60)
            short = ("minutes", "requests", "faults", "acknowledged", "counts", "5xx", "RSS now, MB", "milliseconds")
            figures = self.summary()
            of_label = {key: value for key, value in self.label.summary().items() if key in short}
            print(json.dumps({key: figures[key] for key in short} | {"label": of_label}), file=sys.stderr, flush=True)
            if file:
                write_atomically(file, json.dumps(figures, indent=1).encode() + b"\n")

    async def run(self, seconds: float, file: Path | None) -> dict[str, object]:
        """Return the figures of so many seconds."""
        clients = [self.write(i) for i in range(3)] + [self.read() for _ in range(4)] + [self.search()]
        clients += [*(self.annoy() for _ in range(3)), *self.label.clients()]
        tasks = [asyncio.create_task(client) for client in clients]
        others = [asyncio.create_task(other) for other in (self.disturb(), self.watch(), self.tell(file))]
        await asyncio.wait([*tasks, *others], timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        while self.fault and not others[0].done():
            await asyncio.sleep(0.2)
        self.ended = self.label.ended = True
        for other in others:
            other.cancel()
        results = await asyncio.gather(*tasks, *others, return_exceptions=True)
        broken = [repr(one) for one in results if isinstance(one, Exception)]
        for one in results:
            if isinstance(one, Exception):
                traceback.print_exception(one)
        await self.kill_all()  # what a fresh start knows is checked last
        self.ended, least, began = False, self.model.change, time.monotonic()
        answer = await self.ask("GET", "/labels")
        assert answer is not None
        rows, change = answer[1]["labels"], answer[1]["change"]
        assert isinstance(rows, list)
        assert isinstance(change, int)
        self.model.check({row["name"] for row in rows}, change, least, began)
        await self.label.check()
        self.service.end()
        self.label.service.end()
        return self.summary() | {"broken": broken}

    def summary(self) -> dict[str, object]:
        """Return all figures as one document."""
        figures, impossible = self.figures, list[str]()
        impossible += [] if self.disk.mounted else ["failed_disk", "slow_disk"]
        impossible += [] if self.clock.built else ["clock_jump"]
        return super().summary() | {
            "not possible here": impossible,
            "flipped bits": dict(figures.flips),
            "largest RSS, MB": figures.rss // 10**6,
            "RSS now, MB": figures.rss_now // 10**6,
            "most processes": figures.processes,
            "label sessions": self.label.summary(),
        }


def _copy(source: Path, target: Path) -> None:
    """Copy a database into another one that others may have open."""
    with (
        contextlib.closing(sqlite3.connect(source)) as one,
        contextlib.closing(sqlite3.connect(target, timeout=20)) as other,
    ):
        one.backup(other)


def _command(pid: int) -> bytes:
    """Return the command line of a process; nothing where it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def main() -> None:
    """Soak, print the figures, and exit with 1 where something was lost, stale, invented or broken, or 5xx."""
    parser = options(__doc__, minutes=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--faults", default="", help="only these, with commas between them")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir()
        disk, clock = Disk(home, Path(folder, "disk.img")), Clock(Path(folder))
        os.environ.update(clock.variables)  # of the processes that are started from here on
        try:
            if given.model:
                shutil.copytree(given.model, home / "model.lw")
            else:
                fitted(home).rename(home / "model.lw")
            for name, count in (("gallery", 16), ("photos", PHOTOS)):
                (home / name).mkdir()
                for i, content in enumerate(drawn_images(count, "PNG")):
                    (home / name / f"{i}.png").write_bytes(content)
            os.sync()  # what lies on the disk before the first fault is there after it
            soak = Soak(disk, clock, given.workers, given.seed, [name for name in given.faults.split(",") if name])
            try:
                figures = asyncio.run(soak.run(60 * given.minutes, given.json))
            finally:
                soak.service.process.kill()
                soak.label.service.process.kill()
        finally:
            disk.close()
    conclude(figures, given.json, ["label sessions"] if soak.label.wrong() else [])


if __name__ == "__main__":
    main()
