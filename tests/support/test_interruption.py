"""Ctrl-C and SIGTERM stop a command soon, whatever it does; nothing half-written is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset
from labelwise.methods import Softmax
from labelwise.support.errors import Interrupted
from labelwise.support.processes import begin_all, deferred_signals
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.model import LabelModel
from labelwise.train.networks.encoder import Encoder
from labelwise.train.pretraining import fresh_encoder, write_encoder
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData
from tests.forks import Fork, shell
from tests.train.spread_script import in_processes

SOON = 30  # seconds; two on a quiet machine
Command = subprocess.Popen[str] | Fork


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures that take long to decode: 240 files, each a picture of six million pixels."""
    root = tmp_path_factory.mktemp("with spaces") / "large pictures"
    noise = np.random.default_rng(0).integers(0, 255, (200, 300, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((3000, 2000)).save(tmp_path_factory.getbasetemp() / "one.png", compress_level=1)
    content = (tmp_path_factory.getbasetemp() / "one.png").read_bytes()
    for i in range(240):
        place = root / f"label {i % 2}"
        place.mkdir(parents=True, exist_ok=True)
        if i < 2:
            (place / f"{i}.png").write_bytes(content)
        else:
            (place / f"{i}.png").symlink_to(root / f"label {i % 2}" / f"{i % 2}.png")
    return root


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images so large that each is decoded by a process of its own: 40 files of 80 million pixels."""
    root = tmp_path_factory.mktemp("slow")
    Image.new("RGB", (9000, 9000), (30, 160, 90)).save(root / "one.png", compress_level=1)
    content = (root / "one.png").read_bytes()
    for i in range(40):
        place = root / "images" / f"label {i % 2}" / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content + bytes([i]))  # what follows the image differs, so each is decoded
    return root / "images"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures that are decoded at once, and an encoder that takes long over them."""
    root = tmp_path_factory.mktemp("small")
    noise = np.random.default_rng(0)
    for i in range(600):
        place = root / "pictures" / f"label {i % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(place / f"{i}.jpg")
    settings = Encoder(backbone="resnet18")
    write_encoder(root / "encoder.safetensors", fresh_encoder(settings, (3, 160, 160)), settings, {})
    return root


def labelwise(words: tuple[str, ...], folder: Path, world: int = 1) -> Fork:
    """Start a command of the shell in a folder, in several processes as torchrun does."""
    return Fork(lambda: in_processes(world, shell(*words)), folder, {"LABELWISE_CACHE": str(folder / "cache")})


def begin(words: tuple[str, ...], folder: Path) -> "subprocess.Popen[str]":
    """Start a command in a folder; SIGINT is as in a terminal, even where the tests themselves run in the background."""
    variables = {"OMP_NUM_THREADS": "1", "LABELWISE_CACHE": str(folder / "cache")}
    return subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait(command: Command, reached: Callable[[], bool]) -> None:
    """Return when a command has come so far."""
    deadline = time.monotonic() + 120
    while command.poll() is None and time.monotonic() < deadline:
        if reached():
            return
        time.sleep(0.02)
    os.killpg(command.pid, signal.SIGKILL)
    raise AssertionError(f"it ended or hung before it could be stopped: {end(command, SOON)}")


def end(command: Command, seconds: float) -> str:
    """Wait for the end of a command; return what it said on standard error."""
    if isinstance(command, Fork):
        command.process.join(seconds)
        assert command.returncode is not None, f"it still ran {seconds} s later"
        return command.said()
    return command.communicate(timeout=seconds)[1]


def stop(command: Command, kind: signal.Signals = signal.SIGINT) -> str:
    """Stop a command that was begun; return what it said on standard error."""
    command.send_signal(kind)
    try:
        return end(command, SOON)
    except (subprocess.TimeoutExpired, AssertionError):
        os.killpg(command.pid, signal.SIGKILL)
        end(command, SOON)
        raise AssertionError(f"it still ran {SOON} s later") from None


def open_files(process: int) -> list[str]:
    """Return the files that a process has open."""
    try:
        return [os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir()]
    except OSError:
        return []


def decodes(process: int) -> bool:
    """Return whether a process has an image open."""
    return any(file.endswith(".png") for file in open_files(process))


def is_worker(process: int) -> bool:
    """Return whether a process is one that decodes large images."""
    try:
        return b"decode.workers" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def children(process: int) -> list[int]:
    """Return the processes that a process has started, by whichever thread."""
    try:
        texts = [(task / "children").read_text() for task in Path(f"/proc/{process}/task").iterdir()]
    except OSError:
        return []
    return [int(word) for text in texts for word in text.split()]


def left(folder: Path) -> list[str]:
    """Return the files that a stopped command left.

    The system frees locks, whose files (and the folder of the run around one) stay behind where a long call into C had to be ended by force.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
    return [path.name for path in files]


def alive(process: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_while_pictures_are_decoded(large: Path, tmp_path: Path, kind: signal.Signals) -> None:
    words = ("fit", str(large), "--out", "m.lw", "--encoder", "none", "--size", "512")
    command = labelwise(words, tmp_path)
    wait(command, lambda: decodes(command.pid))
    assert "Stopped." in stop(command, kind)
    assert command.returncode == 128 + kind
    assert left(tmp_path) == []


def ended(processes: list[int]) -> bool:
    """Return whether processes end soon."""
    deadline = time.monotonic() + SOON
    while any(map(alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, processes))


def test_workers_that_decode_are_ended(slow: Path, tmp_path: Path) -> None:
    words = ("fit", str(slow), "--out", "m.lw", "--encoder", "none", "--size", "512")
    command = labelwise(words, tmp_path)
    started: list[int] = []

    def decoding() -> bool:
        started[:] = [child for child in children(command.pid) if is_worker(child)]
        return bool(started)

    wait(command, decoding)
    assert "Stopped." in stop(command)
    assert command.returncode == 130
    assert ended(started)
    assert left(tmp_path) == []


@pytest.mark.parametrize("world", [1, 2], ids=["one process", "torchrun"])
def test_while_pictures_are_encoded(small: Path, tmp_path: Path, world: int) -> None:
    """A frozen encoder reads all pictures before the first step of training."""
    given = (
        "encoder.weights=" + str(small / "encoder.safetensors"),
        "encoder.frozen=true",
        "encoder.backbone=resnet18",
    )
    words = (
        "fit",
        str(small / "pictures"),
        "--out",
        "m.lw",
        "--size",
        "160",
        *(w for one in given for w in ("--set", one)),
    )
    command = labelwise(words, tmp_path, world)
    wait(command, (tmp_path / "cache" / "cache.sqlite").exists)  # the first features are in the cache
    time.sleep(0.5)
    started = children(command.pid)
    told = stop(command)
    if world == 1:  # torchrun has an exit code of its own
        assert command.returncode == 130
    assert "Stopped." in told
    assert "--resume" in told
    assert [name for name in left(tmp_path) if not name.startswith("cache.sqlite")] == []
    assert ended(started)


def test_while_it_trains_the_checkpoint_is_written_first(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(400, 8)).astype("f4")
    np.savez(tmp_path / "data.npz", features=rows, labels=np.arange(400) % 4, classes=np.array(list("abcd")))
    words = ("fit", "data.npz", "--out", "m.lw", "--method", "softmax", "--set", "epochs=100000", "--set", "batch=16")
    plain = ("--set", "closed_form=false")  # else it ends as soon as training adds nothing
    command = labelwise((*words, *plain), tmp_path)
    log = tmp_path / "m.lw.run" / "log.jsonl"
    wait(command, lambda: log.exists() and log.read_text().count("\n") > 3)
    told = stop(command, signal.SIGTERM)
    assert command.returncode == 143
    assert "Nothing is lost" in told
    assert "--resume" in told
    assert sorted(path.name for path in log.parent.iterdir()) == ["checkpoint.safetensors", "log.jsonl"]


SCRIPT = """
import time
from labelwise.support.processes import stop_on_signals

with stop_on_signals():
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("closing", flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_kills_a_process_that_is_still_closing(tmp_path: Path, kind: signal.Signals) -> None:
    command = begin((sys.executable, "-c", SCRIPT), tmp_path)
    assert command.stdout
    assert command.stdout.readline() == "begun\n"
    command.send_signal(kind)
    assert command.stdout.readline() == "closing\n"
    stop(command, kind)
    assert command.returncode == -kind


WRITE = """
from pathlib import Path
from labelwise.support.writable import write_atomically
from labelwise.support.processes import stop_on_signals

with stop_on_signals():
    print("begun", flush=True)
    while True:
        write_atomically(Path("written"), b"w" * 10_000_000)
"""


@pytest.mark.parametrize("pause", [0.05, 0.12, 0.3])
def test_a_file_that_is_being_written_is_whole(tmp_path: Path, pause: float) -> None:
    command = begin((sys.executable, "-c", WRITE), tmp_path)
    assert command.stdout
    assert command.stdout.readline() == "begun\n"
    wait(command, (tmp_path / "written").exists)
    time.sleep(pause)
    stop(command)
    assert left(tmp_path) == ["written"]
    assert (tmp_path / "written").read_bytes() == b"w" * 10_000_000


@dataclass(frozen=True, kw_only=True)
class Watched(Softmax):
    """Softmax that says when it works before the first step (0) and after each epoch (1, 2, ...)."""

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        reached(0)
        (stage,) = super().stages(model, data)
        epochs = iter(range(1, 99))

        def validate() -> float:
            reached(next(epochs))
            return float(next(model.parameters()).sum())

        yield replace(stage, validate=validate)


def reached(_: int) -> None:
    """Do nothing; replaced by what sends a signal."""


@pytest.mark.parametrize(("moment", "error"), [(0, KeyboardInterrupt), (2, Interrupted)])
def test_work_around_the_steps_of_training_stops_at_once(
    blob_data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int, error: type[BaseException]
) -> None:
    """Pictures may be encoded for minutes before the first step, and after each epoch; the run resumes to the same weights."""
    data, method = training_data(blob_data), Watched(epochs=4, batch=16)
    whole = train(method, data, Run(device="cpu"))[0].state_dict()
    run = Run(device="cpu", folder=tmp_path / "run")
    late = []

    def signalled(now: int) -> None:
        if now == moment:
            signal.raise_signal(signal.SIGINT)
            late.append(now)

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "reached", signalled)
        with pytest.raises(error):
            train(method, data, run)
    assert not late, "work went on"
    assert same(train(method, data, replace(run, resume=True))[0].state_dict(), whole)


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As in the background of a script, where Ctrl-C is meant for what runs in front."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_signals() as note:
            signal.raise_signal(signal.SIGINT)
        assert note.received is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_waits_until_a_pool_has_its_work() -> None:
    """A thread that starts has locks, which a signal between two steps of them would leave held."""

    class Signalled(ThreadPoolExecutor):
        def submit(self, *given: Any, **named: Any) -> Any:
            future = super().submit(*given, **named)
            if given[1] == 1:
                signal.raise_signal(signal.SIGINT)
            begun.append(given[1])
            return future

    begun: list[int] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), Signalled(2) as pool:
            begin_all(pool, abs, range(4))
    finally:
        signal.signal(signal.SIGINT, before)
    assert begun == [0, 1, 2, 3]


def test_a_run_that_keeps_nothing_promises_no_checkpoint(blob_data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules[__name__], "reached", lambda now: signal.raise_signal(signal.SIGINT) if now else None
    )
    with pytest.raises(KeyboardInterrupt):
        train(Watched(epochs=4, batch=16), training_data(blob_data), Run(device="cpu"))


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
