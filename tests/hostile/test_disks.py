"""Full and read-only disks: one sentence, an exit code of a user's error, and nothing half-written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.encoders.registry import is_installed
from labelwise.support.errors import StoreError, UsageError
from labelwise.support.writable import sole_writer, write_atomically, write_by, write_file
from tests.contract.subjects import trained
from tests.forks import Fork, shell
from tests.hostile.test_network import write_photos

QUICK = ("fit", "teach", "classify csv", "classify job", "retrieve index", "data shard")


def can_mount() -> bool:
    """Whether this machine lets a process have disks of its own."""
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_mount(), reason="no namespaces of mounts")
@pytest.mark.skipif(not is_installed(), reason="the default encoder is not installed")
def test_verbs_end_in_words_on_disks_that_take_nothing(tmp_path: Path) -> None:
    """Slow: six verbs on three disks each; ``python -m tests.hostile.disks`` tries the others."""
    write_photos(tmp_path / "photos")
    environment = {**os.environ, "LABELWISE_CACHE": str(tmp_path / "cache")}
    fitting = shell("fit", "photos", "--out", "b.lw", "--size", "32")
    assert Fork(fitting, tmp_path, {"LABELWISE_CACHE": environment["LABELWISE_CACHE"]}).wait(60) == 0
    command = ["unshare", "-rm", sys.executable, "-m", "tests.hostile.disks", str(tmp_path), *QUICK, "--all", "--quick"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    ended = done.stdout.splitlines()
    assert [line for line in ended if not line.startswith("  [")] == []
    assert len(ended) == 3 * len(QUICK)
    assert sum("No space left on device" in line for line in ended) > len(QUICK)
    assert sum("Read-only file system" in line for line in ended) == len(QUICK)


def test_what_cannot_be_written_is_one_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r'Cannot write ".*/file/b.txt": .*is a file'):
        write_file(tmp_path / "file" / "b.txt", b"content")
    monkeypatch.setattr(os, "fsync", lambda _: _no_space())
    with pytest.raises(OSError, match="No space"):
        write_atomically(tmp_path / "b.txt", b"content")
    with pytest.raises(StoreError, match=r'Cannot write ".*new/a/b.txt": No space left on device. Free some space'):
        write_by(tmp_path / "new" / "a" / "b.txt", lambda stream: stream.write(b"content"))
    with pytest.raises(StoreError, match=r'Cannot write ".*new/m.lw": No space'):
        save(trained("softmax"), tmp_path / "new" / "m.lw")
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "file"]


def test_a_writer_locks_where_not_even_its_number_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda *_: _no_space())
    with sole_writer(tmp_path / "a"):
        pass
    assert list(tmp_path.iterdir()) == []


def _no_space() -> int:
    raise OSError(28, "No space left on device")


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    save(trained("softmax"), tmp_path / "first.lw")
    (tmp_path / "now.lw").symlink_to(tmp_path / "first.lw")
    save(trained("prototype"), tmp_path / "now.lw", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.lw", "now.lw"]
    assert load(tmp_path / "first.lw").kind == "softmax"
    assert load(tmp_path / "now.lw").kind == "prototype"
