"""A PostgreSQL server of the system's packages in a temporary folder, on a free port of this machine, as a user that is not root."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "max_connections": "40",
    "logging_collector": "off",
}


class CannotStartError(Exception):
    """Why there is no server here."""


def programs() -> Path:
    """Return the folder of ``initdb`` and ``pg_ctl``: on the path, or of Debian's newest version."""
    if known := shutil.which("initdb"):
        return Path(known).resolve().parent
    folders = [file.parent for file in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not folders:
        raise CannotStartError("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    return max(folders, key=lambda folder: int(folder.parent.name))


class Server:
    """A running server, with a user ``labelwise`` that needs no password."""

    def __init__(self) -> None:
        self.programs = programs()
        self.user = None if os.getuid() else _other_user()
        self.folder = Path(tempfile.mkdtemp(prefix="postgres."))
        if self.user is not None:
            shutil.chown(self.folder, self.user)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        try:
            self._do("initdb", "--username=labelwise", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
            self.start()
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            words = getattr(error, "stderr", None) or str(error)
            raise CannotStartError(f"PostgreSQL cannot start: {words.strip()[-300:]}") from error

    def address(self, schema: str | None = None) -> str:
        """Return the address of its database, or of one schema in it."""
        options = "" if schema is None else f"?options=-csearch_path%3D{schema}"
        return f"postgresql://labelwise@127.0.0.1:{self.port}/postgres{options}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [f"-c {name}={value}" for name, value in SETTINGS.items()]
        words = f"-p {self.port} -k {self.folder} {' '.join(settings)}"
        self._do("pg_ctl", "--wait", "--timeout=60", f"--log={self.folder}/log", f"--options={words}", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` is as if it had crashed."""
        self._do("pg_ctl", "--wait", "--timeout=60", f"--mode={mode}", "stop")

    def dump(self, schema: str, file: Path) -> None:
        """Write a schema to a file, as one would keep it."""
        self._client("pg_dump", f"--schema={schema}", f"--file={file}", self.address())

    def restore(self, schema: str, file: Path) -> None:
        """Put a dumped schema in place of the one that is there, in one transaction; connections stay open."""
        drop = f"--command=DROP SCHEMA {schema} CASCADE"
        self._client(
            "psql", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", drop, f"--file={file}", self.address()
        )

    def _client(self, program: str, *words: str) -> None:
        subprocess.run([self.programs / program, *words], check=True, capture_output=True, text=True, timeout=60)

    def freeze(self, frozen: bool) -> None:
        """Stop all its processes where they are, or let them go on."""
        first = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        others = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for pid in (first, *map(int, others)):
            os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def end(self) -> None:
        """Stop it and remove all that it wrote."""
        try:
            self.stop("immediate")
        except subprocess.SubprocessError:  # it does not run
            pass
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _do(self, program: str, *words: str) -> None:
        command = [str(self.programs / program), f"--pgdata={self.folder}/data", *words]
        subprocess.run(  # what a server inherits must not be a pipe that somebody waits for
            command, check=True, user=self.user, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else None, text=True, timeout=90,
        )  # fmt: skip


def _other_user() -> str:
    """Return a user that is not root, which no server may run as."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in known:
            return name
    raise CannotStartError("PostgreSQL does not run as root, and there is no other user")
