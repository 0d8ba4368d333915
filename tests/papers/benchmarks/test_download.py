import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from labelwise.support.errors import DataError
from labelwise_papers.benchmarks import ENTRIES, Entry
from labelwise_papers.benchmarks import download as fetch
from labelwise_papers.benchmarks.entries import Remote
from tests.papers.benchmarks.made import cub

CONTENT = bytes(i * i % 251 for i in range(50_000))


class Server(ThreadingHTTPServer):
    """Serves ``files``; the first ``breaks`` answers stop in the middle. ``asked`` keeps each Range header."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.breaks = 0
        self.ranges = True
        self.status = 200

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, given = self.server, self.headers.get("Range", "")
        server.asked.append(given)
        content = server.files.get(self.path[1:])
        if content is None or server.status != 200:
            self.send_error(404 if content is None else server.status)
            return
        start = int(given.removeprefix("bytes=").rstrip("-")) if given and server.ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        server.breaks -= 1
        rest = content[start:]
        self.wfile.write(rest[: len(rest) // 2] if server.breaks >= 0 else rest)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def entry(*remotes: Remote) -> Entry:
    return replace(ENTRIES["cub200"], name="made", folder="made", remotes=remotes)


def plain(server: Server, **changes: object) -> Entry:
    server.files["file.bin"] = CONTENT
    made = Remote(url=server.url("file.bin"), file="file.bin", md5=hashlib.md5(CONTENT).hexdigest(), unpack=False)
    return entry(replace(made, **changes))  # type: ignore[arg-type]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once(server: Server, tmp_path: Path) -> None:
    home = fetch(plain(server), tmp_path)
    assert home == tmp_path / "made"
    assert (home / "file.bin").read_bytes() == CONTENT
    assert names(home) == ["file.bin"]
    fetch(plain(server), tmp_path)
    assert server.asked == [""]


def test_a_broken_transfer_is_taken_up_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.breaks = 2
    home = fetch(plain(server), tmp_path)
    assert (home / "file.bin").read_bytes() == CONTENT
    assert server.asked == ["", "bytes=25000-", "bytes=37500-"]


def test_what_arrived_is_kept_for_the_next_time(server: Server, tmp_path: Path) -> None:
    server.breaks = 4
    with pytest.raises(DataError, match=r"broke off 4 times.*download again to go on"):
        fetch(plain(server), tmp_path)
    part = tmp_path / "made/file.bin.part"
    assert part.read_bytes() == CONTENT[: part.stat().st_size]
    have = part.stat().st_size
    server.asked.clear()
    fetch(plain(server), tmp_path)
    assert server.asked == [f"bytes={have}-"]
    assert (tmp_path / "made/file.bin").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    server.ranges, server.breaks = False, 1
    home = fetch(plain(server), tmp_path)
    assert (home / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("have", [len(CONTENT), len(CONTENT) + 9], ids=["whole", "too long"])
def test_a_part_that_is_whole_or_too_long(have: int, server: Server, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made/file.bin.part").write_bytes((CONTENT + bytes(9))[:have])
    home = fetch(plain(server), tmp_path)
    assert (home / "file.bin").read_bytes() == CONTENT
    assert server.asked == ([f"bytes={have}-"] if have == len(CONTENT) else [f"bytes={have}-", ""])


def test_a_wrong_checksum_puts_the_file_aside(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"checksum {hashlib.md5(CONTENT).hexdigest()}, not {'0' * 32}"):
        fetch(plain(server, md5="0" * 32), tmp_path)
    assert names(tmp_path / "made") == ["file.bin.wrong"]
    assert (tmp_path / "made/file.bin.wrong").read_bytes() == CONTENT


def test_a_file_there_with_a_wrong_checksum_is_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made/file.bin").write_bytes(b"old")
    home = fetch(plain(server), tmp_path)
    assert (home / "file.bin").read_bytes() == CONTENT


def test_a_missing_file_and_a_failing_server_are_told(server: Server, tmp_path: Path) -> None:
    made = plain(server, url=server.url("none.bin"))
    with pytest.raises(DataError, match=r"none\.bin. answers 404"):
        fetch(made, tmp_path)
    server.status = 503
    with pytest.raises(DataError, match="answers 503"):
        fetch(plain(server), tmp_path)


def test_no_network_is_told(server: Server, tmp_path: Path) -> None:
    made = plain(server)
    server.server_close()
    with pytest.raises(DataError, match=r"Cannot reach .127\.0\.0\.1.*offline"):
        fetch(made, tmp_path)


def test_other_kinds_of_address_and_sets_without_one_are_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    with pytest.raises(DataError, match="no address of the web"):
        fetch(plain(server, url=f"file://{tmp_path}/secret"), tmp_path)
    with pytest.raises(DataError, match=r"cannot be downloaded.*Register"):
        fetch(ENTRIES["adience"], tmp_path)


def test_too_little_room_is_told_before_the_transfer(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="MB left"):
        fetch(plain(server, megabytes=1e12), tmp_path)
    assert server.asked == []


def archive(name: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as made:
        info = tarfile.TarInfo(name)
        info.size = 2
        made.addfile(info, io.BytesIO(b"hi"))
    return stream.getvalue()


def test_an_archive_is_unpacked_and_removed(server: Server, tmp_path: Path) -> None:
    server.files["a.tgz"] = archive("set/hi.txt")
    home = fetch(entry(Remote(url=server.url("a.tgz"), file="a.tgz")), tmp_path)
    assert (home / "set/hi.txt").read_text() == "hi"
    assert names(home) == ["set"]


def test_an_archive_that_leads_out_is_refused(server: Server, tmp_path: Path) -> None:
    server.files["a.tgz"] = archive("../../out.txt")
    with pytest.raises(DataError, match="leads out of the folder"):
        fetch(entry(Remote(url=server.url("a.tgz"), file="a.tgz")), tmp_path)
    assert list(tmp_path.rglob("out.txt")) == []


def test_archives_stay_until_all_of_them_are_there(server: Server, tmp_path: Path) -> None:
    server.files["a.tgz"] = archive("set/a.txt")
    first = Remote(url=server.url("a.tgz"), file="a.tgz", md5=hashlib.md5(server.files["a.tgz"]).hexdigest())
    both = entry(first, Remote(url=server.url("b.tgz"), file="b.tgz"))
    with pytest.raises(DataError, match="answers 404"):
        fetch(both, tmp_path)
    assert names(tmp_path / "made") == ["a.tgz"]
    server.files["b.tgz"] = archive("set/b.txt")
    fetch(both, tmp_path)
    assert names(tmp_path / "made/set") == ["a.txt", "b.txt"]
    assert len(server.asked) == 3  # the first archive once, the second twice


def test_nothing_is_fetched_for_a_set_that_is_there(server: Server, tmp_path: Path) -> None:
    cub(tmp_path / "cub200/CUB_200_2011")
    made = replace(ENTRIES["cub200"], remotes=plain(server).remotes)
    assert fetch(made, tmp_path) == tmp_path / "cub200"
    assert server.asked == []
