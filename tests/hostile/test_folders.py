"""The command line pointed at any folder: what is no file is told and not opened, and every name can be shown."""

import io
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from PIL import Image
from rich.text import Text

from labelwise.cli.options import SharedOptions, with_shared
from labelwise.cli.output import escape_unencodable, show
from labelwise.core.store import save
from labelwise.images.as_images import as_images
from labelwise.images.catalogue import load
from labelwise.images.images import Unreadable
from labelwise.images.sources.paths import list_files, list_images
from labelwise.support.errors import DataError, LabelwiseWarning
from labelwise.support.files import open_regular, read_regular
from labelwise.support.text import visible
from labelwise_papers.sound.wav_files import list_wavs, read_wav
from tests.hostile.folders import ODD, biting_folder
from tests.hostile.pictures import encoded
from tests.server.asking import images_of, png
from tests.server.conftest import model_of

TOLD = {
    "pipe.png": "a named pipe, not a file",
    "socket.jpg": "a socket, not a file",
    "endless.png": "a device, not a file",
    "log.jpg": "a device, not a file",
    "vast.png": "1099511627776 bytes; the limit is",
    "gone.png": "no such file",
    "ring.png": "Too many levels of symbolic links",
}


def test_only_files_are_read_and_the_rest_is_told(tmp_path: Path) -> None:
    good = biting_folder(tmp_path)
    with pytest.warns(LabelwiseWarning, match="It is not followed"):
        data = load(tmp_path, size=8)
    assert data.labels.names == ("owl", "wren")
    files = sorted(os.path.relpath(file, tmp_path) for split in data.splits.values() for file in split.files)
    assert files == sorted(f"{label}/{name}" for label in ("owl", "wren") for name in good), "none under another label"
    for name, reason in TOLD.items():
        reasons = [each.reason for each in data.skipped if Path(each.file).name == name]
        assert len(reasons) == 2, name
        assert all(reason in each for each in reasons), reasons


def test_the_shell_shows_names_of_another_encoding(tmp_path: Path) -> None:
    """Slow: the encoding of a process is settled when it starts, and it imports torch."""
    biting_folder(tmp_path / "birds")
    (tmp_path / "birds" / "owl" / "known.png").write_bytes(png(images_of(1)[0]))
    save(model_of("prototype"), tmp_path / "m.lw")
    settings = {**os.environ, "PYTHONIOENCODING": "latin-1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "labelwise", "classify", "m.lw", "birds/owl"]
    said = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, timeout=100, check=False)
    assert said.returncode == 0, said.stderr
    assert b"birds/owl/caf\\xe9 \\xff.png" in said.stdout
    assert "birds/owl/ünï.png".encode("latin-1") in said.stdout
    assert b"#####" in said.stdout, "bars"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_names_of_any_encoding_are_shown_in_any_other(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{ODD} ünï 鳥 \N{OWL} █━ \\"
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    escape_unencodable()
    with with_shared(SharedOptions(json=True)):
        show({"file": name}, Text(""))
    stream.flush()
    document = stream.buffer.getvalue().decode(encoding)
    assert json.loads(document) == {"file": name}
    show({}, Text(name, no_wrap=True))
    stream.flush()
    table = stream.buffer.getvalue().decode(encoding)[len(document) :]
    assert table.startswith("caf\\xe9 \\xff.png ")
    assert ("ünï" in table, "鳥" in table) == (encoding != "ascii", encoding == "utf-8")
    assert ("#-" in table) == (encoding != "utf-8")


def test_a_pipe_is_refused_and_a_growing_file_cut(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "labels.csv")
    with pytest.raises(OSError, match="a named pipe, not a file"):
        open_regular(tmp_path / "labels.csv")
    with pytest.raises(DataError, match="named pipe"):
        read_wav(tmp_path / "labels.csv")
    for label in ("owl", "wren"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "1.png").write_bytes(encoded(_plain(), "PNG"))
    assert load(tmp_path, size=8).labels.names == ("owl", "wren"), "it is no file that says something of labels"
    (tmp_path / "large").write_bytes(bytes(100))
    assert len(read_regular(tmp_path / "large", 100)) == 100
    with pytest.raises(OSError, match="it has 100 bytes; the limit is 99"):
        read_regular(tmp_path / "large", 99)


def _plain() -> Image.Image:
    return Image.new("RGB", (9, 9), (1, 2, 3))


def test_sounds_in_hidden_folders_are_left_out(tmp_path: Path) -> None:
    for name in ("a/1.wav", "a/.trash/2.wav", "a/__MACOSX/3.wav", "a/.4.wav", "a/b/5.WAVE"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in list_wavs(tmp_path)] == ["1.wav", "5.WAVE"]


def test_a_folder_that_changes_while_it_is_read(tmp_path: Path) -> None:
    """Pictures and folders come and go in another thread; what is read is whole, and what is gone is told."""
    content, stop = encoded(_plain(), "PNG"), threading.Event()

    def churn() -> None:
        i = 0
        while not stop.is_set():
            i += 1
            home = tmp_path / str(i % 5)
            home.mkdir(exist_ok=True)
            (home / f"{i % 7}.png").write_bytes(content)
            if i % 3 == 0:
                for file in home.iterdir():
                    file.unlink()
                home.rmdir()

    (tmp_path / "stays.png").write_bytes(content)
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            paths = list_images(tmp_path)
            assert tmp_path / "stays.png" in paths
            for one in as_images(paths).read(range(len(paths)), (3, 4, 4), "crop"):
                if isinstance(one, Unreadable):
                    assert "no such file" in one.reason or "empty" in one.reason
                else:
                    assert one.shape == (3, 4, 4)
    finally:
        stop.set()
        thread.join()


def test_a_folder_without_rights_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir()
    scan = os.scandir

    def forbidden(path: str) -> object:  # rights do not bind every user
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(DataError, match=r'Cannot list the folder ".*shut": Permission denied'):
        list_images(tmp_path)


def test_many_files_are_listed_in_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{i}.png" for i in range(100_000)]
    monkeypatch.setattr(os, "walk", lambda folder, **_: iter([(os.fspath(folder), [], names)]))
    began = time.process_time()
    assert len(list_files(tmp_path, lambda name: name.endswith(".png"))) == 100_000
    assert time.process_time() - began < 5


def test_names_are_written_out() -> None:
    assert visible(ODD) == r"caf\xe9 \xff.png"
    assert visible("ünï 鳥 \\ [red]") == "ünï 鳥 \\ [red]"
