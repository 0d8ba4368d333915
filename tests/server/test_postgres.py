"""Services on several machines: one state in PostgreSQL, what every service knows of it, and what they say when it is away."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg", reason="the extra postgres is not installed")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import postgres_server
import psycopg
from postgres_server import CannotStartError, Server
from sqlalchemy import event, text
from starlette.testclient import TestClient

from labelwise.core.load import load
from labelwise.server import follower, store
from labelwise.server.databases import postgres_engine
from labelwise.server.live import LiveClassifier, bake, folder_of
from labelwise.server.settings import Service
from labelwise.server.store import Position, Record, Store
from labelwise.support.errors import StoreError, UsageError
from tests.server import test_live
from tests.server.asking import PNG, form, images_of, png, saved, serving
from tests.server.test_live import Open, names, same, teach

# What holds for the one database holds for the other: the same tests, with the fixtures below.
test_read_back = test_live.test_what_was_taught_is_read_back_bit_for_bit
test_undo = test_live.test_undo_goes_back_step_by_step_and_survives
test_taught_again = test_live.test_a_label_can_be_forgotten_and_taught_again
test_followed = test_live.test_a_change_of_another_process_is_followed
test_threads = test_live.test_several_threads_change_at_once_and_each_answer_is_what_was_committed


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        running = Server()
    except CannotStartError as error:
        pytest.skip(str(error))
    yield running
    running.end()


@pytest.fixture
def address(server: Server) -> str:
    return server.address(f"test_{secrets.token_hex(4)}")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(tmp_path)


@pytest.fixture
def opened(model: Path, address: str) -> Iterator[Open]:
    several: list[LiveClassifier] = []

    def begin(path: Path = model, read_only: bool = False, state: str = address) -> LiveClassifier:
        several.append(LiveClassifier(load(path), path, state=state, read_only=read_only))
        return several[-1]

    yield begin
    for one in several:
        one.close()


@pytest.fixture
def sql(address: str) -> Iterator[Callable[..., Any]]:
    """A function that does something to the tables behind the back of the services."""
    with contextlib.ExitStack() as stack:

        def do(query: str, *values: Any) -> Any:
            connection = stack.enter_context(psycopg.connect(address, autocommit=True))
            return connection.execute(query.encode(), values)

        yield do


def test_two_services_know_at_once_what_one_was_taught(model: Path, address: str) -> None:
    with serving(model, state=address) as one, serving(model, state=address, workers=2) as other:
        for i in range(12):
            asked, reader = (one, other) if i % 2 else (other, one)
            assert asked.post(f"/teach?label=new{i}", files=form(images_of(i % 4, 2))).json()["change"] == i + 1
            found = reader.get("/labels")
            assert (found.json()["change"], found.json()["labels"][-1]["name"]) == (i + 1, f"new{i}")
            assert "labelwise-stale" not in found.headers
            top = reader.post("/classify?top=100", content=png(images_of(0)[0]), headers=PNG).json()["top"]
            assert f"new{i}" in {row["label"] for row in top}
        assert one.post("/undo").json()["change"] == 13
        assert other.get("/ready").json() == {"status": "ready", "changes": "taken", "away": 0.0, "change": 13}
        assert other.post("/teach?label=new10", files=form(images_of(0, 1))).status_code == 409
    with serving(model, state=address, read_only=True) as reader:
        assert reader.get("/ready").json()["changes"] == "refused"
        assert reader.get("/labels").json()["change"] == 13
    words = bake(model, model.with_name("baked.lw"), address)
    assert "11 of them taught" in words


def patiently(client: TestClient, path: str, good: Callable[[Any], bool]) -> Any:
    end = time.monotonic() + 10
    while not good(answer := client.get(path)):
        assert time.monotonic() < end, (answer.json(), answer.headers)
        time.sleep(0.05)
    return answer


def test_a_server_that_is_away_is_told_and_waited_for(
    model: Path, address: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PATIENCE", 1)
    with serving(model, state=address) as one, serving(model, state=address) as other:
        one.post("/teach?label=a", files=form(images_of(0, 2)))
        patiently(other, "/health", lambda found: found.json()["change"] == 1)
        server.stop()
        try:
            for client in (one, other):
                answer = client.get("/labels")
                assert (answer.status_code, answer.json()["change"]) == (200, 1)
                assert float(answer.headers["labelwise-stale"]) >= 0
                refusal = client.post("/teach?label=b", files=form(images_of(1, 2)))
                assert refusal.status_code == 503
                assert refusal.headers["retry-after"] == "1"
                assert "nothing was changed" in refusal.json()["error"]
                for path in ("/correct?label=b", "/forget?label=b"):  # another service may know it
                    files = form(images_of(1, 2)) if "correct" in path else None
                    assert client.post(path, files=files).status_code == 503
                asked = client.post("/ask?label=b", content=png(images_of(0)[0]), headers=PNG)
                assert (asked.status_code, "labelwise-stale" in asked.headers) == (404, True)
                assert "127.0.0.1" not in refusal.text, "where it is kept is nobody's business"
                assert client.get("/health").status_code == 200
                assert client.get("/ready").json()["changes"] == "away"
                assert "labelwise_store_away_seconds 0.0\n" not in client.get("/metrics").text
            time.sleep(follower.PERIOD + 0.1)
            began = time.monotonic()
            classified = one.post("/classify", content=png(images_of(0)[0]), headers=PNG)
            assert (classified.status_code, classified.json()["change"]) == (200, 1)
            assert "labelwise-stale" in classified.headers
            assert time.monotonic() - began < 1
            with pytest.raises(StoreError, match=r"postgresql://127.0.0.1:\d+/postgres is not available"):
                LiveClassifier(load(model), model, state=address)
        finally:
            server.start()
        assert one.post("/teach?label=b", files=form(images_of(1, 2))).json()["change"] == 2, "at the first try"
        answer = patiently(other, "/labels", lambda found: "labelwise-stale" not in found.headers)
        assert [row["name"] for row in answer.json()["labels"]][-2:] == ["a", "b"]


def test_a_server_that_hangs_keeps_nobody_waiting(
    model: Path, address: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PATIENCE", 1)
    with serving(model, state=address) as one:
        one.post("/teach?label=a", files=form(images_of(0, 2)))
        server.freeze(True)
        try:
            began = time.monotonic()
            answer = one.get("/labels")
            assert (answer.json()["change"], "labelwise-stale" in answer.headers) == (1, True)
            assert time.monotonic() - began < follower.WAIT + 1
            assert one.post("/forget?label=a").status_code == 503
        finally:
            server.freeze(False)
        patiently(one, "/labels", lambda found: "labelwise-stale" not in found.headers)
        assert one.post("/forget?label=a").json()["change"] == 2


def test_a_commit_whose_answer_is_lost_is_found_again(opened: Open) -> None:
    one, other, failures = opened(), opened(), [1]

    @event.listens_for(one.store._engine, "commit")
    def lose(connection: Any) -> None:
        if failures:
            failures.pop()
            connection.connection.commit()
            raise OSError("the connection was lost")

    assert teach(one, "a").change == 1, "committed once, and acknowledged"
    same(one.read().classifier, other.read().classifier)
    assert names(one)[-1] == "a"


def test_a_connection_lost_in_the_midst_is_taken_up_again(opened: Open, sql: Callable[..., Any]) -> None:
    one, other = opened(), opened()
    insert, lost = one.store._insert, [1]

    def cut(*given: Any) -> Any:
        if lost:
            lost.pop()
            sql(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = to_regclass('history') AND mode = 'RowShareLock'"
            )
        return insert(*given)

    one.store._insert = cut  # type: ignore[method-assign, assignment]
    assert teach(one, "a").change == 1
    assert names(other)[-1] == "a"
    assert other.read().change == 1


STOPPED = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from labelwise.server.live import LiveClassifier
from labelwise.core.load import load
from tests.server.test_live import teach
live = LiveClassifier(load(sys.argv[1]), Path(sys.argv[1]), state=sys.argv[2])
teach(live, "whole")
insert = live.store._insert
def wait(*given):
    insert(*given)
    print("half", flush=True)
    time.sleep(60)
live.store._insert = wait
teach(live, "half")
"""


def test_a_service_stopped_in_the_midst_of_a_change_keeps_nobody_from_theirs(
    model: Path, address: str, opened: Open
) -> None:
    root = Path(__file__).parents[2]
    patience = f"import labelwise.server.databases as one; one.LIMIT = 2\n{STOPPED}"
    command = [sys.executable, "-c", patience, str(model), address, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        os.kill(process.pid, signal.SIGSTOP)
        live = opened()
        assert (live.snapshot.change, names(live)[-1]) == (1, "whole")
        teach(live, "next")
        process.kill()
    assert names(opened())[-2:] == ("whole", "next")


DAMAGE = {
    "UPDATE changes SET arrays = set_byte(arrays, 70, 255 - get_byte(arrays, 70)) WHERE number = 2": "ends with change 1 of 3",
    "UPDATE changes SET about = replace(about, 'label', 'x') WHERE number = 3": "ends with change 2 of 3",
    "DELETE FROM changes WHERE number = 2": "ends with change 1 of 3",
    "UPDATE history SET number = number - 1": "ends with change 2 of 2, or its head",
    "DELETE FROM history": "has 0 rows",
    "UPDATE history SET format = 4": "has format 4; this version reads format 1",
    "DROP TABLE changes": "is damaged: relation",
}


@pytest.mark.parametrize("query", DAMAGE)
def test_damage_is_reported(query: str, model: Path, address: str, opened: Open, sql: Callable[..., Any]) -> None:
    live = opened()
    for name in "abc":
        teach(live, name)
    sql(query)
    for read_only in (False, True):
        with pytest.raises(StoreError, match=DAMAGE[query]):
            LiveClassifier(live.base, model, state=address, read_only=read_only)


def test_an_older_copy_is_read_from_the_start(model: Path, address: str, opened: Open, sql: Callable[..., Any]) -> None:
    teach(opened(), "a")
    before = sql("SELECT number, digest FROM history").fetchone()
    with serving(model, state=address) as client:
        client.post("/teach?label=b", files=form(images_of(1, 2)))
        sql("DELETE FROM changes WHERE number = 2")
        sql("UPDATE history SET number = %s, digest = %s", *before)
        answer = client.get("/labels")
        assert (answer.json()["change"], "labelwise-stale" in answer.headers) == (1, False)
        assert answer.json()["labels"][-1]["name"] == "a"
        assert client.post("/teach?label=c", files=form(images_of(1, 2))).json()["change"] == 2
        assert [row["name"] for row in client.get("/labels").json()["labels"]][-2:] == ["a", "c"]


def test_another_model_and_settings_that_lose_are_refused(
    model: Path, address: str, server: Server, opened: Open
) -> None:
    teach(opened(), "a")
    with pytest.raises(StoreError, match="taught to another model"):
        Store(address, "other")
    with pytest.raises(StoreError, match="Start a service without --read-only first"):
        Store(server.address("nothing_yet"), "m", read_only=True)
    with pytest.raises(UsageError, match="--state is not a valid PostgreSQL address"):
        Store("postgresql://host/x?colour=red", "m")
    with pytest.raises(UsageError, match="--state takes a folder, or an address"):
        Service(model=model, state="mysql://host/x")
    engine = postgres_engine(f"{server.address()}?options=-csynchronous_commit%3Doff", read_only=False)
    with engine.connect() as connection:
        assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == "on"
        assert connection.execute(text("SHOW search_path")).scalar_one() == "labelwise"
    engine.dispose()


def test_a_server_without_fsync_is_refused() -> None:
    settings = postgres_server.SETTINGS | {"fsync": "off"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_server, "SETTINGS", settings)
        try:
            careless = Server()
        except CannotStartError as error:
            pytest.skip(str(error))
    try:
        with pytest.raises(UsageError, match="fsync=off"):
            Store(careless.address(), "m")
    finally:
        careless.end()


def test_two_services_that_start_at_once_share_one_history(server: Server) -> None:
    address, stores = server.address(f"test_{secrets.token_hex(4)}"), list[Store]()
    threads = [threading.Thread(target=lambda: stores.append(Store(address, "m"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, one in enumerate(stores):
        one.change(Position(), lambda _, number=number: Record("teach", {"label": str(number)}))  # type: ignore[misc]
    news = stores[0].read(Position())
    assert news is not None
    assert [record.about["label"] for record in news.records] == ["0", "1", "2", "3"]
    for one in stores:
        one.close()


def test_a_folder_of_ones_own(model: Path, tmp_path: Path) -> None:
    with serving(model, state=str(tmp_path / "my state")) as client:
        client.post("/teach?label=a", files=form(images_of(0, 2)))
    assert (tmp_path / "my state" / "changes.sqlite").exists()
    assert not folder_of(model).exists()
    with serving(model, state=str(tmp_path / "my state")) as client:
        assert client.get("/labels").json()["change"] == 1
        assert client.get("/ready").json()["changes"] == "taken"


def test_services_follow_a_dump_that_was_restored_under_them(model: Path, server: Server, tmp_path: Path) -> None:
    """Connections stay open, and the service that did not restart must not serve, or change, the labels that are gone."""
    schema = f"test_{secrets.token_hex(4)}"
    address, dump = server.address(schema), tmp_path / "dump.sql"
    with serving(model, state=address) as one:
        with serving(model, state=address) as other:
            for name in ("kept0", "kept1", "kept2"):
                assert other.post(f"/teach?label={name}", files=form(images_of(0, 1))).status_code == 200
            server.dump(schema, dump)
            for name in ("gone0", "gone1", "gone2"):
                assert other.post(f"/teach?label={name}", files=form(images_of(1, 1))).status_code == 200
            assert one.get("/labels").json()["change"] == 6
            server.restore(schema, dump)
        with serving(model, state=address) as other:  # started again
            for name in ("new0", "new1", "new2", "new3"):
                assert other.post(f"/teach?label={name}", files=form(images_of(2, 1))).status_code == 200
            for client in (one, other):
                answer = client.get("/labels")
                known = [row["name"] for row in answer.json()["labels"] if row["taught"]]
                assert known == ["kept0", "kept1", "kept2", "new0", "new1", "new2", "new3"]
                assert "labelwise-stale" not in answer.headers
            assert one.post("/forget?label=gone1").status_code == 404
            assert one.post("/forget?label=new1").json()["change"] == 8
            top = one.post("/classify?top=100", content=png(images_of(0)[0]), headers=PNG).json()["top"]
            assert not {"gone0", "gone1", "gone2", "new1"} & {row["label"] for row in top}
            assert other.get("/labels").json() == one.get("/labels").json()


@pytest.mark.parametrize("lock", ["LOCK TABLE history IN ACCESS EXCLUSIVE MODE", "SELECT * FROM history FOR UPDATE"])
def test_a_locked_head_is_waited_for_no_longer_than_a_change_is_tried(
    lock: str, model: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PATIENCE", 2.0)
    with serving(model, state=address) as client, psycopg.connect(address) as other:
        assert client.post("/teach?label=a", files=form(images_of(0, 1))).status_code == 200
        other.execute(lock.encode())
        began = time.monotonic()
        answer = client.post("/teach?label=b", files=form(images_of(0, 1)))
        assert answer.status_code == 503
        assert "nothing was changed" in answer.json()["error"]
        assert time.monotonic() - began < 4.5
        assert client.get("/labels").json()["change"] == 1
        other.rollback()
        patiently(client, "/labels", lambda found: "labelwise-stale" not in found.headers)
        assert client.post("/teach?label=b", files=form(images_of(0, 1))).json()["change"] == 2
