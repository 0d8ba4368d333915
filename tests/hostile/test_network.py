"""Nothing phones home, and nothing is written outside of what a command was told to write, the cache and the working folder."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelwise.encoders.registry import is_installed
from labelwise.train import export_encoder
from tests.hostile.in_namespace import can_trace, connections, run_traced, written

COMMANDS = (
    ("fit", "photos", "--out", "b.lw", "--size", "32"),
    ("classify", "b.lw", "photos", "--out", "answers.parquet", "--workers", "2"),
    ("teach", "b.lw", "fourth", "photos/1/1.png", "--out", "taught.lw"),
    ("export", "b.lw", "--out", "b.onnx"),
    ("fit", "photos", "--out", "s.lw", "--method", "softmax", "--encoder", "none", "--size", "16", "--set", "epochs=1"),
    ("export", "s.lw", "--out", "s.onnx"),
    ("serve", "b.lw"),
    ("label", "photos", "--out", "project"),
    ("label", "--out", "project", "--import", "labels.csv", "--export", "copies"),
    ("encoders", "list"),
    ("encoders", "try", "photos", "efficientnet_lite0", "--images", "10"),
    ("audit", "photos", "--out", "audit.html", "--csv", "audit.csv", "--apply", "applied.csv"),
    ("group", "photos", "--out", "groups"),
)


@pytest.mark.skipif(not can_trace(), reason="no strace, or no namespaces of networks")
@pytest.mark.skipif(not is_installed(), reason="the default encoder is not installed")
def test_no_command_connects_or_writes_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow: thirteen commands, and all of them are watched."""
    folder, home, cache, scratch = (tmp_path / name for name in ("work", "home", "cache", "scratch"))
    write_photos(folder / "photos")
    (folder / "labels.csv").write_text("path,label\nphotos/0/1.png,dark\n")
    home.mkdir()
    scratch.mkdir()
    for variable, value in {"HOME": home, "LABELWISE_CACHE": cache, "TMPDIR": scratch}.items():
        monkeypatch.setenv(variable, str(value))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # modules are compiled when they are installed
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "ORT_DISABLE_TELEMETRY"):
        monkeypatch.delenv(variable, raising=False)
    trace = run_traced(folder, COMMANDS)
    assert not list(home.iterdir())
    left = [
        each.name for each in scratch.iterdir() if not each.name.startswith("torchinductor_")
    ]  # an empty folder of torch
    assert left == [], "temporary files are removed"
    assert "onnxruntime" in trace.read_text(), "it was watched while it ran"
    assert connections(trace) == []
    places = {Path(os.path.normpath(file)) for file in written(trace, folder)}
    assert {each for each in places if not _allowed(each, folder, cache, scratch)} == set()
    for name in ("b.lw", "answers.parquet", "taught.lw", "b.onnx", "s.onnx", "project", "audit.html", "groups"):
        assert any(folder / name in (each, *each.parents) for each in places), "what is written is seen"


def write_photos(folder: Path) -> None:
    """Three labels, each a shade on noise."""
    made = np.random.default_rng(0)
    for label in range(3):
        (folder / str(label)).mkdir(parents=True)
        for number in range(8):
            values = made.integers(80 * label, 80 * label + 60, (32, 32, 3), np.uint8)
            Image.fromarray(values).save(folder / str(label) / f"{number}.png")


def _allowed(file: Path, *folders: Path) -> bool:
    inside = any(folder in (file, *file.parents) for folder in folders)
    return inside or file in (Path("/dev/null"), Path("/dev/tty")) or str(file).startswith("/dev/shm/sem.")  # locks


def test_a_trace_that_connects_or_writes_elsewhere_is_told(tmp_path: Path) -> None:
    trace = tmp_path / "some.trace"
    trace.write_text(
        '7 connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("1.1.1.1")}, 16) = -1 ENETUNREACH (x)\n'
        '7 sendto(3<socket:[1]>, "", 1, 0, {sa_family=AF_UNIX}, 2) = 1\n'
        '7 openat(AT_FDCWD</tmp/a>, "/etc/resolv.conf", O_RDONLY|O_CLOEXEC) = 3</etc/resolv.conf>\n'
        '7 openat(AT_FDCWD</tmp/a>, "id", O_WRONLY|O_CREAT, 0666) = 3</tmp/a/id>\n'
        '7 mkdir("/root/.cache", 0777) = 0\n'
        '7 mkdir("here", 0777) = 0\n'
        '7 mkdir("/root/.config", 0777) = -1 EEXIST (File exists)\n'
    )
    assert len(connections(trace)) == 2
    assert list(written(trace, tmp_path)) == [Path("/tmp/a/id"), Path("/root/.cache"), tmp_path / "here"]


def test_telemetry_is_off_before_onnxruntime_is_imported() -> None:
    """Slow: in a new process."""
    program = (
        "import os, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'onnxruntime':\n"
        "            print(os.environ.get('ORT_DISABLE_TELEMETRY'))\n"
        "sys.meta_path.insert(0, Watch())\n"
        "from labelwise.encoders.onnx import onnxruntime\n"
        "onnxruntime()\n"
    )
    plain = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run([sys.executable, "-c", program], env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1"]


def test_packages_that_import_onnxruntime_come_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(export_encoder, "onnxruntime", lambda: order.append("onnxruntime"))
    monkeypatch.setattr(export_encoder, "import_module", order.append)
    export_encoder.check_packages()
    assert order == ["onnxruntime", "onnx", "onnxscript"]
