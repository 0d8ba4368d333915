"""What a service answers while its store is restored, damaged, locked or removed, and while its files are replaced."""

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from labelwise.server import store as module
from labelwise.server.batcher import Batcher
from labelwise.server.live import LiveClassifier, folder_of
from labelwise.server.store import FILE
from tests.server.asking import PNG, form, images_of, png, saved, serving
from tests.server.services import SERVING, Running
from tests.server.test_running import patiently, workers_of

IMAGE = png(images_of(0)[0])
REQUESTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("GET", "/health", {}),
    ("GET", "/ready", {}),
    ("GET", "/labels", {}),
    ("GET", "/card", {}),
    ("GET", "/metrics", {}),
    ("POST", "/classify", {"content": IMAGE, "headers": PNG}),
    ("POST", "/teach?label=new", {"files": form(images_of(1, 2))}),
    ("POST", "/forget?label=a", {}),
    ("POST", "/undo", {}),
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(tmp_path)


@pytest.fixture
def started() -> Iterator[list[Running]]:
    services: list[Running] = []
    yield services
    for one in services:
        one.end(signal.SIGKILL)


def asked(service: Running) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=60)


def teach(client: Any, name: str, label: int = 1) -> Any:
    return client.post(f"/teach?label={name}", files=form(images_of(label, 2)))


def taught(client: Any) -> list[str]:
    return [row["name"] for row in client.get("/labels").json()["labels"] if row["taught"]]


def test_workers_follow_a_copy_that_was_restored_in_place(model: Path, tmp_path: Path, started: list[Running]) -> None:
    """SQLite's own ``.restore`` writes an older history into the file that both workers have open."""
    started.append(Running(model, "--workers", "2"))
    file = folder_of(model) / FILE

    def everybody_knows(labels: list[str], change: int) -> None:
        for _ in range(12):
            with asked(started[0]) as one:  # a new connection reaches any worker
                answer = one.get("/labels")
            names = [row["name"] for row in answer.json()["labels"] if row["taught"]]
            assert (names, answer.json()["change"]) == (labels, change)
            assert "labelwise-stale" not in answer.headers

    with asked(started[0]) as one:
        patiently(one, "/health")
        assert teach(one, "kept").status_code == 200
        with closing(sqlite3.connect(file)) as live, closing(sqlite3.connect(tmp_path / "copy")) as copy:
            live.backup(copy)
        for name in ("gone0", "gone1", "gone2"):
            assert teach(one, name).status_code == 200
        everybody_knows(["kept", "gone0", "gone1", "gone2"], 4)
        with closing(sqlite3.connect(tmp_path / "copy")) as copy, closing(sqlite3.connect(file, timeout=20)) as live:
            copy.backup(live)
        everybody_knows(["kept"], 1)
        for name in ("new0", "new1", "new2", "new3"):
            assert teach(one, name).status_code == 200
        everybody_knows(["kept", "new0", "new1", "new2", "new3"], 5)
        assert one.post("/forget?label=gone1").status_code == 404
        assert one.post("/forget?label=new1").json()["change"] == 6
        everybody_knows(["kept", "new0", "new2", "new3"], 6)


def test_a_committed_change_is_answered_with_success(model: Path) -> None:
    """Twelve clients teach and forget the same names; every change in the store was answered with 200, and no other request was."""
    with serving(model) as client:
        answers: list[tuple[int, int | None]] = []

        def work(number: int) -> None:
            for turn in range(8):
                name = f"label{(number + turn) % 3}"
                answer = teach(client, name) if (number + turn) % 2 else client.post(f"/forget?label={name}")
                answers.append((answer.status_code, answer.json().get("change")))
                if (number + turn) % 7 == 0:
                    answer = client.post("/undo")
                    answers.append((answer.status_code, answer.json().get("change")))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        last = client.get("/labels").json()["change"]
    changes = sorted(change for status, change in answers if status == 200 and change is not None)
    assert changes == list(range(1, last + 1))
    assert {status for status, _ in answers} <= {200, 404, 409}
    assert last > 8


DAMAGE = {
    "altered": "UPDATE changes SET about = replace(about, 'a', 'x') WHERE number = 2",
    "cut": "DELETE FROM changes WHERE number = 3",
    "no head": "DELETE FROM history",
    "another format": "UPDATE history SET format = 9",
    "another model": "UPDATE history SET model = 'other'",
    "no changes": "DROP TABLE changes",
    "no history": "DROP TABLE history",
    "older": "ALTER TABLE history DROP COLUMN digest",
    "undo of nothing": "UPDATE changes SET kind = 'undo' WHERE number = 1",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_store_is_answered_with_503_or_marked_stale(
    what: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(model) as client:
        for name in "abc":
            teach(client, name)
        monkeypatch.setattr(module, "PATIENCE", 0.2)
        with closing(sqlite3.connect(folder_of(model) / FILE)) as other:
            other.execute(DAMAGE[what])
            other.execute("UPDATE history SET number = 4") if what in ("altered", "cut", "undo of nothing") else None
            other.commit()
        statuses = {}
        for method, path, more in REQUESTS:
            answer = client.request(method, path, **more)
            statuses[path] = answer.status_code
            assert answer.status_code in (200, 503), (path, answer.text)
            if answer.status_code == 200:
                assert "labelwise-stale" in answer.headers or what == "no changes", path  # none is read if none is new
            else:
                assert answer.headers["retry-after"]
                assert str(model.parent) not in answer.text, "where it lies is nobody's business"
        assert {statuses[path] for path in ("/teach?label=new", "/forget?label=a", "/undo")} == {503}
        assert statuses["/classify"] == 200


def test_bytes_of_the_database_that_are_overwritten_are_answered_with_503(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(model) as client:
        teach(client, "a")
        monkeypatch.setattr(module, "PATIENCE", 0.2)
        file = folder_of(model) / FILE
        with closing(sqlite3.connect(file)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with file.open("r+b") as stream:
            stream.seek(20)
            stream.write(os.urandom(file.stat().st_size - 20))
        for method, path, more in REQUESTS:
            answer = client.request(method, path, **more)
            assert answer.status_code in (200, 503), (path, answer.text)


@pytest.mark.parametrize("which", ["*", FILE, f"{FILE}-wal"])
def test_no_change_is_acknowledged_into_a_file_that_was_removed(
    which: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is removed while the change is written."""
    insert = module.Store._insert
    folder = folder_of(model)

    def remove() -> None:
        for file in folder.glob(which):
            file.unlink()

    def removing(self: Any, *given: Any) -> Any:
        news = insert(self, *given)
        remove()
        return news

    acknowledged = set[str]()
    with serving(model) as client:
        assert teach(client, "a").status_code == 200
        monkeypatch.setattr(module, "PATIENCE", 0.3)
        with monkeypatch.context() as patch:
            patch.setattr(module.Store, "_insert", removing)
            acknowledged |= {"b"} if teach(client, "b").status_code == 200 else set()
        remove()
        acknowledged |= {"c"} if teach(client, "c").status_code == 200 else set()
    with serving(model) as client:
        assert acknowledged <= set(taught(client))
    assert not acknowledged or which != "*"


def test_the_state_is_its_owners_alone(model: Path, started: list[Running]) -> None:
    before = os.umask(0o000)
    try:
        started.append(Running(model))
    finally:
        os.umask(before)
    with asked(started[0]) as one:
        teach(one, "a")
    folder = folder_of(model)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def test_an_open_reader_does_not_slow_changes(model: Path) -> None:
    with serving(model) as client, closing(sqlite3.connect(folder_of(model) / FILE, isolation_level=None)) as reader:
        teach(client, "a")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM changes").fetchall()
        began = time.monotonic()
        for i in range(4):
            assert teach(client, f"b{i}").status_code == 200
        assert time.monotonic() - began < 2.5, "a second each"


def test_workers_stay_while_the_store_is_locked(model: Path, started: list[Running]) -> None:
    """A worker that dies meanwhile comes back, and answers what can be answered."""
    started.append(Running(model, "--workers", "2"))
    assert started[0].waits_for(SERVING, 2)
    with asked(started[0]) as one:
        assert teach(one, "a").status_code == 200
        with closing(sqlite3.connect(folder_of(model) / FILE, isolation_level=None)) as locking:
            locking.execute("BEGIN EXCLUSIVE")
            first, second = workers_of(started[0])
            os.kill(first, signal.SIGKILL)
            end = time.monotonic() + 60
            while len(workers_of(started[0])) < 2 and time.monotonic() < end:
                time.sleep(0.1)
            refusal = patiently(one, "/health") and teach(one, "b")
            assert refusal.status_code == 503
            assert second in workers_of(started[0])
            assert started[0].waits_for(SERVING, 3), "the new one opens the store, though it is locked"
            assert len(workers_of(started[0])) == 2
            assert "ended" not in started[0].said().partition("exit code -9")[2]
            locking.execute("ROLLBACK")
        assert teach(one, "b").status_code == 200
    assert started[0].process.poll() is None


def test_a_service_without_a_store_it_can_open_does_not_end(
    model: Path, started: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of another program keeps even readers out; each worker waits and tries again, and the service goes on."""
    started.append(Running(model, "--workers", "2"))
    assert started[0].waits_for(SERVING, 2)
    with asked(started[0]) as one:
        assert teach(one, "a").status_code == 200
    folder = folder_of(model)
    away = folder.with_name("away")
    folder.rename(away)  # as where rights were taken
    for worker in workers_of(started[0]):
        os.kill(worker, signal.SIGKILL)
    assert started[0].waits_for(SERVING, 4), started[0].said()
    assert started[0].process.poll() is None
    shutil.rmtree(folder, ignore_errors=True)
    away.rename(folder)
    with asked(started[0]) as one:
        patiently(one, "/health")
        assert taught(one) == ["a"]


def test_an_answer_whose_look_at_the_store_was_late_says_so(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the store is back by the time of the answer: the scores are of what was known before."""
    away, read, scored = threading.Event(), LiveClassifier.read, Batcher._score

    def slow(live: LiveClassifier) -> Any:
        if away.is_set():
            while away.is_set():
                time.sleep(0.01)
        return read(live)

    def back(self: Batcher, *given: Any) -> Any:
        answers = scored(self, *given)
        away.clear()
        time.sleep(0.5)
        return answers

    with serving(model) as client:
        monkeypatch.setattr(LiveClassifier, "read", slow)
        monkeypatch.setattr(Batcher, "_score", back)
        assert "labelwise-stale" not in client.post("/classify", content=IMAGE, headers=PNG).headers
        away.set()
        time.sleep(0.6)  # a look is under way
        answer = client.post("/classify", content=IMAGE, headers=PNG)
        assert answer.status_code == 200
        assert "labelwise-stale" in answer.headers


@pytest.mark.parametrize("what", ["pipe", "link", "removed"])
def test_an_example_that_was_replaced_is_shown_as_it_was(what: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "try").mkdir()
    file, secret = tmp_path / "try" / "bird.png", tmp_path / "secret"
    file.write_bytes(IMAGE)
    secret.write_text("secret")
    with serving(model, examples=tmp_path / "try") as client:
        (one,) = client.get("/card").json()["examples"]
        file.unlink()
        if what == "pipe":
            os.mkfifo(file)
        elif what == "link":
            file.symlink_to(secret)
        done: list[Any] = []
        asking = threading.Thread(target=lambda: done.append(client.get(one["image"])), daemon=True)
        asking.start()
        asking.join(5)
        if asking.is_alive():  # let it go, so that the test ends
            os.close(os.open(file, os.O_RDWR | os.O_NONBLOCK))
        assert done, "nobody waits for a pipe"
        assert (done[0].status_code, done[0].content) == (200, IMAGE)


@pytest.mark.parametrize("what", ["pipe", "link", "image"])
def test_an_image_of_the_gallery_that_was_replaced_is_not_shown(what: str, model: Path, tmp_path: Path) -> None:
    folder, secret = tmp_path / "gallery", tmp_path / "secret.png"
    folder.mkdir()
    for i, image in enumerate(images_of(0, 3)):
        (folder / f"{i}.png").write_bytes(png(image))
    secret.write_bytes(png(images_of(3)[0]))
    with serving(model, gallery=folder) as client:
        rows = client.post("/retrieve", content=IMAGE, headers=PNG).json()["matches"]
        (one,) = [row["image"] for row in rows if row["file"] == "1.png"]
        file = folder / "1.png"
        file.unlink()
        if what == "pipe":
            os.mkfifo(file)
        elif what == "link":
            file.symlink_to(secret)
        else:
            file.write_bytes(secret.read_bytes())
        assert client.get(one).status_code == 404
        assert client.get(rows[0]["image"] if rows[0]["file"] != "1.png" else rows[1]["image"]).status_code == 200


def test_lines_of_the_log_are_json_whatever_clients_send(model: Path, started: list[Running]) -> None:
    started.append(Running(model, "--log", "json"))
    rude = (
        b"\x16\x03\x01\0\xff" * 40,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 9\r\n\r\n--y\r\n\r\n\r\n",
        b"POST /classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\nContent-Length: 4\r\n\r\n\x89PNG",
        b"GET /%00%0a%1b[31m HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /a?" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /teach?label=a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HEAD / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 3,
    )
    for sent in rude:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", started[0].port)) as one:
            one.settimeout(5)
            one.sendall(sent)
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_WR)
                one.recv(100)
    with asked(started[0]) as client:
        client.post("/classify", content=truncated(), headers=PNG)
        client.get("/health")
    assert started[0].end() == 0
    lines = started[0].said().splitlines()
    assert len(lines) > len(rude)
    for line in lines:
        assert isinstance(json.loads(line), dict), line


def truncated() -> bytes:
    return png(images_of(0)[0].repeat(1, 40, 40))[:-200]


HOSTS = {
    "127.0.0.1": True,
    "127.0.0.1:8000": True,
    "LOCALHOST:1": True,
    "[::1]": True,
    "[::1]:8000": True,
    "::1": False,
    "[::1": False,
    "[::1]evil.example": False,
    "[127.0.0.1]": False,
    "[localhost]:80": False,
    "127.0.0.1:evil.example": False,
    "127.0.0.1:80:evil.example": False,
    "127.0.0.1:99999": False,
    "localhost:-1": False,
    "localhost :80": False,
    "evil.example@localhost": False,
    "localhost/evil": False,
    "localhost,evil.example": False,
    "": False,
}


def test_only_a_host_that_is_written_as_one_is_believed(model: Path) -> None:
    with serving(model) as client:
        answers = {host: client.get("/health", headers={"host": host}).status_code == 200 for host in HOSTS}
    assert answers == HOSTS
