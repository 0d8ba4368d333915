"""What commands do to the network and the disk: run under strace in a network of their own, where nothing answers."""

import ast
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from urllib.request import Request, urlopen

CALLS = "connect,sendto,sendmsg,sendmmsg,open,openat,creat,mkdir,mkdirat,rename,renameat,renameat2,link,linkat,symlink,symlinkat"
TRACE = ("strace", "-f", "--seccomp-bpf", "-qq", "-y", "-s", "4096", "-e", f"trace={CALLS}", "-e", "signal=none", "-o")
SERVICES = {
    "serve": ("8765", "/ready", "/classify"),
    "label": ("8766", "/health", "/actions"),
}  # port, and what is asked
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|^(creat|mkdir|mkdirat|rename\w*|link\w*|symlink\w*)\(")
NAMES = re.compile(r'(?:AT_FDCWD<(?P<cwd>[^>]*)>, )?"(?P<name>[^"]*)"')
LOOKUPS = ("/etc/resolv.conf", "/etc/hosts")


def can_trace() -> bool:
    """Whether this machine lets a process have a network of its own and be watched."""
    if not shutil.which("strace") or not shutil.which("unshare"):
        return False
    tried = subprocess.run(
        ["unshare", "-rn", "strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False
    )
    return tried.returncode == 0


def run_traced(folder: Path, commands: Sequence[Sequence[str]]) -> Path:
    """Run verbs in a folder, one after another; return the file that says what they did."""
    trace = folder.parent / "verbs.trace"
    words = [str(folder), str(trace), repr([[*command] for command in commands])]
    command = ["unshare", "-rn", sys.executable, "-m", "tests.hostile.in_namespace", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return trace


def is_service(command: Sequence[str]) -> bool:
    """Whether a command runs until it is stopped."""
    return command[0] in SERVICES and "--export" not in command


def connections(trace: Path) -> list[str]:
    """Return the calls that spoke to an address, or read how names of hosts are looked up."""
    lines = [line for line in trace.read_text().splitlines() if re.match(r"\d+ +(connect|send\w+)\(", line)]
    spoken = [line for line in lines if "AF_INET" in line or any(name in line for name in LOOKUPS)]
    return spoken + [
        line for line in trace.read_text().splitlines() if "open" in line and any(n in line for n in LOOKUPS)
    ]


def written(trace: Path, folder: Path) -> Iterator[Path]:
    """Yield every path that was opened for writing, made, or renamed, by a process that worked in a folder."""
    for line in trace.read_text().splitlines():
        call = line.partition(" ")[2].strip()
        if WRITES.search(call) and " = -1 " not in call:
            for match in NAMES.finditer(call):
                yield Path(match["cwd"] or folder, match["name"])


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _ask(process: "subprocess.Popen[bytes]", service: str, picture: Path) -> None:
    """Ask a service once, as soon as it answers, and stop it: what an image is, or to store an answer."""
    port, ready, path = SERVICES[service]
    for _ in range(600):
        try:
            urlopen(f"http://127.0.0.1:{port}{ready}", timeout=5).read()
            break
        except OSError:
            assert process.poll() is None, "the service ended"
            time.sleep(0.2)
    body = picture.read_bytes() if service == "serve" else b'{"actions": [{"kind": "add", "label": "bright"}]}'
    asked = Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "image/png"})
    assert urlopen(asked, timeout=60).read().startswith(b"{")
    (verbs,) = _children(process.pid)  # of strace
    subprocess.run(["kill", "-TERM", *_children(int(verbs))], check=False)


def _verb(words: Sequence[str]) -> None:
    from labelwise import cli

    sys.argv = ["labelwise", *words]
    cli.main()


def _verbs(folder: Path, commands: Sequence[Sequence[str]]) -> None:
    """Run verbs, each in a fork of this process, which imports once what they all need."""
    import labelwise.cli.verbs  # noqa: F401

    os.chdir(folder)
    for command in commands:
        port = SERVICES[command[0]][0] if is_service(command) else ""
        process = get_context("fork").Process(target=_verb, args=([*command, *(["--port", port] if port else [])],))
        process.start()
        process.join()
        assert process.exitcode == 0, command


def main(folder: Path, trace: str, commands: Sequence[Sequence[str]]) -> None:
    """Run verbs under strace; in a network whose only device leads back here."""
    with socket.socket() as plug:
        fcntl.ioctl(plug, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
    command = [*TRACE, trace, sys.executable, "-m", "tests.hostile.in_namespace", str(folder), "", repr(commands)]
    process = subprocess.Popen(command)
    try:
        for verb in (each[0] for each in commands if is_service(each)):
            _ask(process, verb, next((folder / "photos").rglob("*.png")))
        assert process.wait(200) == 0
    finally:
        process.kill()


if __name__ == "__main__":
    place, trace_file, listed = sys.argv[1:]
    if trace_file:
        main(Path(place), trace_file, ast.literal_eval(listed))
    else:
        _verbs(Path(place), ast.literal_eval(listed))
