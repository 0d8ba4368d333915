"""Services on several machines: one state in PostgreSQL, what every service knows of it, and what they say when it is away."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg", reason="the extra postgres is not installed")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import psycopg
from postgres_server import CannotStartError, Server
from starlette.testclient import TestClient

from labelwise.core.store import load
from labelwise.server import follower, postgres
from labelwise.server.lessons import State
from labelwise.server.postgres import Postgres
from labelwise.server.present import Present, bake, folder_of
from labelwise.server.refusals import Refusal
from labelwise.server.settings import Service
from labelwise.support.errors import StoreError, UsageError
from tests.server import test_changes
from tests.server.asking import PNG, form, images_of, png, saved, serving
from tests.server.test_changes import Open, same, teach
from tests.server.test_database import any_order

# What holds for the one database holds for the other: the same tests, with the fixtures below.
test_read_back = test_changes.test_what_was_taught_is_read_back_bit_for_bit
test_undo = test_changes.test_undo_goes_back_step_by_step_and_survives
test_taught_anew = test_changes.test_a_label_can_be_forgotten_and_taught_anew
test_followed = test_changes.test_a_change_of_another_process_is_followed
test_threads = test_changes.test_two_threads_teach_at_once


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
    found: list[Present] = []

    def begin(path: Path = model, read_only: bool = False, state: str = address) -> Present:
        found.append(Present(load(path), path, state=state, read_only=read_only))
        return found[-1]

    yield begin
    for one in found:
        one.close()


@pytest.fixture
def sql(address: str) -> Iterator[Callable[..., Any]]:
    """A function that does something to the tables behind the back of the services."""
    with contextlib.ExitStack() as stack:

        def do(query: str, *values: Any) -> Any:
            connection = stack.enter_context(psycopg.connect(address, autocommit=True))
            return connection.execute(query.encode(), values)

        yield do


def test_any_order_of_steps(address: str) -> None:
    any_order(0, lambda read_only: Postgres(address, "model", read_only=read_only), 130)


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


def test_a_server_that_is_away_is_told_and_waited_for(model: Path, address: str, server: Server) -> None:
    with serving(model, state=address) as one, serving(model, state=address) as other:
        one.post("/teach?label=a", files=form(images_of(0, 2)))
        patiently(other, "/health", lambda found: found.json()["change"] == 1)  # which does not look itself
        server.stop()
        try:
            for client in (one, other):
                answer = client.get("/labels")
                assert (answer.status_code, answer.json()["change"]) == (200, 1)
                assert float(answer.headers["labelwise-stale"]) >= 0
                refusal = client.post("/teach?label=b", files=form(images_of(1, 2)))
                assert refusal.status_code == 503
                assert refusal.headers["retry-after"] == "1"
                assert "could not be written" in refusal.json()["error"]
                assert "nothing was changed" in refusal.json()["error"]
                assert "127.0.0.1" not in refusal.text, "where it is kept is nobody's business"
                assert client.get("/health").status_code == 200
                assert client.get("/ready").json()["changes"] == "away"
                assert "labelwise_store_away_seconds 0.0\n" not in client.get("/metrics").text
            time.sleep(follower.RETRY + 0.1)
            began = time.monotonic()
            classified = one.post("/classify", content=png(images_of(0)[0]), headers=PNG)
            assert (classified.status_code, classified.json()["change"]) == (200, 1)
            assert "labelwise-stale" in classified.headers
            assert time.monotonic() - began < 1
            with pytest.raises(StoreError, match=r"postgresql://127.0.0.1:\d+/postgres cannot be asked"):
                Present(load(model), model, state=address)
        finally:
            server.start()
        assert one.post("/teach?label=b", files=form(images_of(1, 2))).json()["change"] == 2, "at the first try"
        answer = patiently(other, "/labels", lambda found: "labelwise-stale" not in found.headers)
        assert [row["name"] for row in answer.json()["labels"]][-2:] == ["a", "b"]


def test_a_server_that_hangs_keeps_nobody_waiting(
    model: Path, address: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "PATIENCE", 1)
    with serving(model, state=address) as one:
        one.post("/teach?label=a", files=form(images_of(0, 2)))
        server.freeze(True)
        try:
            began = time.monotonic()
            answer = one.get("/labels")
            assert (answer.json()["change"], "labelwise-stale" in answer.headers) == (1, True)
            assert time.monotonic() - began < follower.PATIENCE + 1
            assert one.post("/forget?label=a").status_code == 503
        finally:
            server.freeze(False)
        patiently(one, "/labels", lambda found: "labelwise-stale" not in found.headers)
        assert one.post("/forget?label=a").json()["change"] == 2


def test_a_commit_whose_answer_is_lost_is_told_as_such(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = opened(), opened()
    real = Postgres._rows

    def lost(self: Postgres, query: str, *values: object) -> list[Any]:
        rows = real(self, query, *values)
        if query == "COMMIT":
            raise psycopg.OperationalError("the connection was lost")
        return rows

    monkeypatch.setattr(Postgres, "_rows", lost)
    with pytest.raises(Refusal, match="nobody knows whether it was all the same") as told:
        teach(one, "a")
    assert (told.value.status, told.value.headers) == (503, {"Retry-After": "1"})
    monkeypatch.undo()
    assert one.served.change == 0, "it is not acknowledged"
    same(one.read().classifier, other.read().classifier)
    assert one.served.classifier.labels.names[-1] == "a"


def test_a_connection_lost_in_the_midst_writes_nothing(opened: Open, sql: Callable[..., Any]) -> None:
    one, other = opened(), opened()
    real = one.database.read

    def lost(state: State) -> State:
        sql(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = to_regclass('head') AND mode = 'RowShareLock'"
        )
        return real(state)

    one.database.read = lost  # type: ignore[method-assign]
    with pytest.raises(Refusal, match=r"does not answer.*nothing was changed"):
        teach(one, "a")
    one.database.read = real  # type: ignore[method-assign]
    assert other.read().change == 0
    teach(one, "b")
    assert other.read().classifier.labels.names[-1] == "b"


STOPPED = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from labelwise.server.present import Present
from labelwise.core.store import load
from tests.server.test_changes import teach
present = Present(load(sys.argv[1]), Path(sys.argv[1]), state=sys.argv[2])
teach(present, "whole")
write = present.database.write
def wait(*given):
    write(*given)
    print("half", flush=True)
    time.sleep(60)
present.database.write = wait
teach(present, "half")
"""


def test_a_service_stopped_in_the_midst_of_a_change_keeps_nobody_from_theirs(
    model: Path, address: str, opened: Open
) -> None:
    root = Path(__file__).parents[2]
    patience = f"import labelwise.server.postgres as one; one.PATIENCE = 2\n{STOPPED}"
    command = [sys.executable, "-c", patience, str(model), address, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        os.kill(process.pid, signal.SIGSTOP)
        present = opened()
        assert (present.served.change, present.served.classifier.labels.names[-1]) == (1, "whole")
        teach(present, "next")
        process.kill()
    assert opened().served.classifier.labels.names[-2:] == ("whole", "next")


DAMAGE = {
    "UPDATE change SET tensors = set_byte(tensors, 70, 255 - get_byte(tensors, 70)) WHERE number = 2": "record 2 differs",
    "UPDATE change SET label = 'x' WHERE number = 3": "record 3 differs",
    "DELETE FROM change WHERE number = 2": "record 2 is missing",
    "UPDATE head SET change = change - 1": "its first record differs",
    "DELETE FROM head": "its first record differs",
    "COMMENT ON TABLE head IS 'labelwise changes, format 4'": "has format 4; this version reads format 3",
    "COMMENT ON TABLE head IS 'something else'": "is damaged",
    "DROP TABLE change": "cannot be used: relation",
}


@pytest.mark.parametrize("query", DAMAGE)
def test_damage_is_told(query: str, model: Path, address: str, opened: Open, sql: Callable[..., Any]) -> None:
    present = opened()
    for name in "abc":
        teach(present, name)
    sql(query)
    for read_only in (False, True):
        with pytest.raises(StoreError, match=DAMAGE[query]):
            Present(present.base, model, state=address, read_only=read_only)


def test_an_older_copy_is_told_and_answers_stay(
    model: Path, address: str, opened: Open, sql: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    teach(opened(), "a")
    before = sql("SELECT * FROM head").fetchone()
    with serving(model, state=address) as client:
        client.post("/teach?label=b", files=form(images_of(1, 2)))
        sql("DELETE FROM change WHERE number = 2")
        sql("DELETE FROM head")
        sql(f"INSERT INTO head VALUES ({', '.join(['%s'] * len(before))})", *before)
        answer = client.get("/labels")
        assert (answer.json()["change"], "labelwise-stale" in answer.headers) == (2, True)
        assert answer.json()["labels"][-1]["name"] == "b"


def test_what_was_taught_without_a_server_is_taken_over(model: Path, address: str, opened: Open) -> None:
    beside = Present(load(model), model)
    for name in "abc":
        teach(beside, name)
    beside.undo()
    beside.forget("blob 0")
    beside.close()
    first, second = opened(), opened()
    assert (first.served.change, second.served.change) == (5, 5)
    same(first.served.classifier, beside.served.classifier)
    first.undo()
    assert second.read().classifier.labels.names == ("blob 0", "blob 1", "blob 2", "blob 3", "a", "b")


def test_another_model_and_settings_that_lose_are_refused(
    model: Path, address: str, server: Server, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    teach(opened(), "a")
    with pytest.raises(StoreError, match=r"taught to another model.*drop the schema"):
        Postgres(address, "other", read_only=False)
    with pytest.raises(StoreError, match="Start a service that is not --read-only first"):
        Postgres(server.address("nothing_yet"), "m", read_only=True)
    show = Postgres._show
    monkeypatch.setattr(Postgres, "_show", lambda self, name: "off" if name == "fsync" else show(self, name))
    with pytest.raises(UsageError, match="fsync=off"):
        Postgres(address, "m", read_only=False)
    monkeypatch.setattr(
        Postgres, "_show", lambda self, name: "off" if name == "synchronous_commit" else show(self, name)
    )
    with contextlib.closing(opened().database) as database:
        assert database._rows("SHOW synchronous_commit") == [("on",)]
    with pytest.raises(UsageError, match="--state is no address of PostgreSQL"):
        Postgres("postgresql://host/x?colour=red", "m", read_only=False)
    with pytest.raises(UsageError, match="--state is a folder, or an address"):
        Service(model=model, state="mysql://host/x")
    with contextlib.closing(Postgres(server.address(), "m", read_only=False)) as usual:
        assert usual._rows("SELECT current_schema()") == [("labelwise",)]


def test_a_folder_of_ones_own(model: Path, tmp_path: Path) -> None:
    with serving(model, state=str(tmp_path / "my state")) as client:
        client.post("/teach?label=a", files=form(images_of(0, 2)))
    assert (tmp_path / "my state" / "changes.sqlite").exists()
    assert not folder_of(model).exists()
    with serving(model, state=str(tmp_path / "my state")) as client:
        assert client.get("/labels").json()["change"] == 1
        assert client.get("/ready").json()["changes"] == "taken"
