"""The cache of features: what was kept comes back whole or not at all, whoever else writes."""

import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from labelwise.support.cache import _CONNECTION, Cache, user_folder
from labelwise.support.errors import LabelwiseWarning

SOME = {bytes([i]) * 16: bytes([i]) * 100 for i in range(50)}
WRITER = """
import sys
from labelwise.support.cache import Cache
start, count = int(sys.argv[1]), int(sys.argv[2])
for i in range(start, start + count):
    Cache().write(b"owner", {i.to_bytes(16, "big"): i.to_bytes(4, "big") * 500}, "network")
    print(i, flush=True)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "user cache"))
    return Cache()


def writer(start: int, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", WRITER, str(start), str(count)], stdout=subprocess.PIPE, text=True)


def test_entries_come_back_and_belong_to_their_owner(cache: Cache) -> None:
    assert cache.read(b"a", list(SOME)) == {}
    cache.write(b"a", SOME, "network")
    assert cache.read(b"a", [*SOME, b"none"]) == SOME
    assert cache.read(b"b", list(SOME)) == {}
    assert list(cache.contents().encoders.values()) == [50]
    cache.clear()
    assert cache.read(b"a", list(SOME)) == {}
    assert not list(cache.file.parent.iterdir())


def test_only_the_user_may_look_into_the_folder(cache: Cache) -> None:
    cache.write(b"a", SOME)
    assert cache.file.parent.stat().st_mode & 0o777 == 0o700


def test_off_is_off(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write(b"a", SOME)
    monkeypatch.setenv("LABELWISE_CACHE", "off")
    assert cache.read(b"a", list(SOME)) == {}
    assert user_folder().name == "labelwise"


def test_a_file_that_is_damaged_inside_is_recreated_when_it_is_checked(cache: Cache) -> None:
    cache.write(b"a", {i.to_bytes(16, "big"): bytes(5000) for i in range(200)})
    cache.check()
    assert len(cache.read(b"a", [bytes(15) + b"\1"])) == 1
    _CONNECTION.close()
    content = cache.file.read_bytes()
    cache.file.write_bytes(content[:8192] + b"\xff" * 4096 + content[12288:])
    with pytest.warns(LabelwiseWarning, match="damaged"):
        cache.check()
    cache.write(b"a", SOME)
    assert cache.read(b"a", list(SOME)) == SOME


def test_only_the_user_may_read_the_file(cache: Cache) -> None:
    cache.write(b"a", SOME)
    assert {each.stat().st_mode & 0o777 for each in cache.file.parent.iterdir()} == {0o600}


def test_a_file_that_another_process_removed_is_made_again(cache: Cache) -> None:
    cache.write(b"a", SOME)
    cache.file.unlink()
    cache.write(b"b", SOME)
    assert cache.read(b"a", list(SOME)) == {}
    assert cache.read(b"b", list(SOME)) == SOME


def test_a_fork_and_threads_use_it_at_once(cache: Cache) -> None:
    cache.write(b"a", SOME)
    if (child := os.fork()) == 0:
        known = cache.read(b"a", list(SOME))
        cache.write(b"child", SOME)
        os._exit(0 if known == SOME else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.read(b"child", list(SOME)) == SOME
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: cache.write(bytes([i]), SOME), range(40)))
        assert all(known == SOME for known in pool.map(lambda i: cache.read(bytes([i]), list(SOME)), range(40)))


@pytest.mark.parametrize("damage", ["no database", "cut off", "overwritten"])
def test_a_damaged_file_is_recreated_with_a_warning(cache: Cache, damage: str) -> None:
    cache.write(b"a", {i.to_bytes(16, "big"): bytes(5000) for i in range(100)})
    _CONNECTION.close()
    content = cache.file.read_bytes()
    changed = {
        "no database": b"text" * 5000,
        "cut off": content[: len(content) // 3],
        "overwritten": content[:4096] + b"\xff" * 60_000 + content[64_096:],
    }
    cache.file.write_bytes(changed[damage])
    with pytest.warns(LabelwiseWarning, match="damaged"):
        cache.read(b"a", [i.to_bytes(16, "big") for i in range(100)])
    cache.write(b"a", SOME)
    assert cache.read(b"a", list(SOME)) == SOME


def test_where_nothing_can_be_written_it_is_told_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "file"))
    with pytest.warns(LabelwiseWarning, match="Features cannot be cached in"):
        Cache().write(b"a", SOME)
    assert Cache().read(b"a", list(SOME)) == {}


def test_a_full_disk_is_told_and_no_error(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write(b"a", SOME)
    _CONNECTION.close()
    connect = sqlite3.connect

    def small(*words: object, **more: object) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*words, **more)  # type: ignore[call-overload]
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        return db

    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.warns(LabelwiseWarning, match="full"):
        cache.write(b"a", {b"large": bytes(10**6)})
    assert cache.read(b"a", [*SOME, b"large"]) == SOME


def test_what_was_used_longest_ago_goes_where_there_is_no_room(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.limit = 0.45  # about 80 entries, of which a fifth goes
    keys = [i.to_bytes(16, "big") for i in range(1000)]
    old, used, new = keys[:20], keys[20:40], keys[40:]
    monkeypatch.setattr(time, "time", lambda: 1.0e9)
    cache.write(b"a", {key: bytes(5000) for key in (*old, *used)})
    monkeypatch.setattr(time, "time", lambda: 1.1e9)
    cache.read(b"a", used)
    monkeypatch.setattr(time, "time", lambda: 1.2e9)
    for count, key in enumerate(new, 41):
        cache.write(b"a", {key: bytes(5000)})
        if sum(cache.contents().encoders.values()) < count:
            break
    assert set(cache.read(b"a", used)) == set(used)
    assert len(cache.read(b"a", old)) < len(old)
    for key in new:
        cache.write(b"a", {key: bytes(5000)})
    assert cache.contents().megabytes < 2 * cache.limit
    assert new[-1] in cache.read(b"a", new[-1:])


def test_several_processes_write_at_once_and_nothing_is_lost(cache: Cache) -> None:
    processes = [writer(1000 * k, 60) for k in range(4)]
    for process in processes:
        out, _ = process.communicate(timeout=120)
        assert len(out.splitlines()) == 60
    keys = [(1000 * k + i).to_bytes(16, "big") for k in range(4) for i in range(60)]
    known = cache.read(b"owner", keys)
    assert known == {key: key[-4:] * 500 for key in keys}


def test_a_writer_that_is_killed_leaves_what_it_had_kept(cache: Cache) -> None:
    process = writer(0, 100_000)
    assert process.stdout is not None
    done = [int(process.stdout.readline()) for _ in range(30)]
    process.kill()
    process.communicate()
    keys = [i.to_bytes(16, "big") for i in done]
    assert cache.read(b"owner", keys) == {key: key[-4:] * 500 for key in keys}
    cache.write(b"owner", SOME)
    assert cache.read(b"owner", list(SOME)) == SOME


def test_a_folder_that_others_may_write_to_is_not_used(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write(b"a", SOME)
    cache.file.parent.chmod(0o777)
    with pytest.warns(LabelwiseWarning, match=r"can be written by every user .*so it is not used"):
        assert cache.read(b"a", list(SOME)) == {}
    before = cache.file.read_bytes()
    cache.write(b"a", {b"more": b"x"})
    assert cache.file.read_bytes() == before
    cache.file.parent.chmod(0o700)
    assert cache.read(b"a", list(SOME)) == SOME


def test_a_folder_of_another_user_is_not_used(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write(b"a", SOME)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.warns(LabelwiseWarning, match="belongs to another user"):
        assert cache.read(b"a", list(SOME)) == {}
    assert cache.contents().encoders == {}


def test_entries_that_nobody_wrote_are_left_out(cache: Cache) -> None:
    row = np.arange(4, dtype=np.float32)
    cache.write(b"a", {b"good": row.tobytes(), b"half": row.tobytes()[:8], b"nan": (row * np.nan).tobytes()})
    _CONNECTION.close()
    db = sqlite3.connect(cache.file)
    entries = [("text", "x" * 16, 0), ("number", 10**15, 0), ("none", None, 0), ("late", row.tobytes(), "never")]
    for key, value, used in entries:
        db.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (b"a", key.encode(), value, used))
    db.commit()
    db.close()
    keys = [b"good", b"half", b"nan", b"text", b"number", b"none", b"late"]
    assert set(cache.read(b"a", keys)) == {b"good", b"half", b"nan", b"late"}
    assert set(cache.read(b"a", keys, 16)) == {b"good", b"nan", b"late"}
    rows = cache.read_rows(b"a", keys, 4)
    assert set(rows) == {b"good", b"late"}
    assert np.array_equal(rows[b"good"], row)
