"""What could not be saved is refused before pictures are read, or at the latest before the first epoch; after it nothing is lost."""

import os
import shutil
import signal
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.support.errors import StoreError, UsageError
from tests.changed import changed
from tests.conftest import blobs, quick
from tests.fitting.test_one_choice import saved, write_pictures
from tests.forks import Fork, shell

QUICK = ["--size", 8, "--device", "cpu", "--encoder", "none", "--set", "encoder.width=4"]
FIT = [*QUICK, "--method", "softmax", "--set", "epochs=2"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    write_pictures(tmp_path / "some pictures", blobs(per_label=18))
    return tmp_path / "some pictures"


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture may be decoded."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a picture was decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", refuse)


def one_line(text: str) -> str:
    return " ".join(text.split())


def no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("name", "told"), [(b"blob \xff", r"'blob \udcff' is not valid UTF-8"), (b"blob\n5", r"'blob\n5' has a line break")]
)
@pytest.mark.parametrize("inside", ["", "train"])
def test_class_folders_that_cannot_be_labels(
    run: Any, name: bytes, told: str, inside: str, pictures: Path, tmp_path: Path
) -> None:
    if inside:
        (tmp_path / "divided").mkdir()
        pictures = pictures.rename(tmp_path / "divided" / inside).parent
    bad = os.path.join(os.fsencode(pictures / inside), name)
    os.mkdir(bad)
    Image.new("RGB", (8, 8)).save(os.path.join(bad, b"1.png"))
    before = sorted(os.listdir(tmp_path))
    code, out, err = run("fit", pictures, "--out", tmp_path / "m.lw", *FIT)
    assert (code, out) == (1, "")
    assert told in one_line(err)
    assert "Rename it." in one_line(err)
    assert sorted(os.listdir(tmp_path)) == before, "nothing is left behind"


@pytest.mark.usefixtures("unread")
def test_names_in_tables_that_cannot_be_labels(run: Any, pictures: Path, tmp_path: Path) -> None:
    file = next(pictures.rglob("*.png")).relative_to(tmp_path)
    for column in ("label", "labels"):
        (tmp_path / "t.csv").write_text(f'path,{column}\n{file},"a\nb"\n')
        code, _, err = run("fit", tmp_path / "t.csv", "--out", tmp_path / "m.lw", *FIT)
        assert code == 1
        assert r"'a\nb' has a line break" in one_line(err)
    (pictures / "labels.csv").write_text('label,text\n"blob\n0",red\n')
    code, _, err = run("fit", pictures, "--out", tmp_path / "m.lw", *FIT)
    assert code == 1
    assert r"'blob\n0' has a line break" in one_line(err)
    code, _, err = run("fit", pictures, "--names", "a,b\udcff", "--out", tmp_path / "m.lw", *QUICK)
    assert code == 2
    assert "is not valid UTF-8" in one_line(err)


def test_python_refuses_such_names_before_training() -> None:
    data = blobs()
    for name in ("a\nb", "a\udcff"):
        labels = replace(data.labels, names=("x", "y", "z", name))
        with pytest.raises(UsageError, match="has a label that could not be saved"):
            lw.fit(replace(data, labels=labels), quick("softmax", 1))


def test_data_whose_own_name_is_no_utf8(run: Any, pictures: Path, tmp_path: Path) -> None:
    place = os.path.join(os.fsencode(tmp_path), b"set \xff")
    os.rename(pictures, place)
    code, _, err = run("fit", os.fsdecode(place), "--out", tmp_path / "m.lw", *FIT)
    assert code == 0, err
    assert lw.load(tmp_path / "m.lw").origin.summary["training"]["data"] == "set \N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("verb", ["fit", "pretrain", "teach", "forget", "calibrate", "encode"])
@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("file/m", 'file" is a file'),
        ("x" * 249, "File name too long"),
        ("x" * 300, "File name too long"),
        ("/proc/none/m", "No such file or directory"),
        ("m\udcff", "is not valid UTF-8"),
    ],
)
def test_places_that_cannot_be_written(run: Any, verb: str, place: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = {"teach": ["none", "x", "none"], "forget": ["none", "x"], "calibrate": ["none", "none"]}
    command = ["data", "encode"] if verb == "encode" else [verb]
    suffix = {"pretrain": ".safetensors", "encode": ".npz"}.get(verb, "")
    code, out, err = run(*command, *words.get(verb, ["none"]), "--out", tmp_path / f"{place}{suffix}")
    assert (code, out) == (2, ""), "told before the data, which are not there, are looked for"
    assert told in one_line(err).replace("\n", "")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_folders_that_were_made_in_vain_are_removed(run: Any, tmp_path: Path) -> None:
    assert run("fit", "none", "--out", tmp_path / "new" / "deep" / "m.lw")[0] == 1
    assert run("pretrain", "none", "--out", tmp_path / "new" / "m.safetensors")[0] == 1
    assert not list(tmp_path.iterdir())


def test_an_unfinished_run_is_told_before_data_are_read(run: Any, tmp_path: Path) -> None:
    for place in ("m.lw.run", "n.lw.run/trial"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "checkpoint.safetensors").touch()
        code, _, err = run("fit", "none", "--out", tmp_path / place[:4])
        assert code == 2
        assert "An unfinished run is in" in one_line(err)


def test_one_process_at_a_time_writes_to_a_place(
    run: Any, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labelwise.support.writable import sole_writer

    words = ["fit", pictures, "--out", tmp_path / "m.lw", *FIT]
    with sole_writer(tmp_path / "m.lw"):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert f"Another process ({os.getpid()}) is writing to" in one_line(err)
        assert "choose another name" in one_line(err)
        code, _, err = run("pretrain", pictures, "--out", tmp_path / "e.safetensors", *QUICK[:4], "--set", "epochs=1")
        assert code == 0, "elsewhere it may"
        monkeypatch.setenv("RANK", "1")
        assert run("fit", "none", *words[2:])[0] == 1, "other processes of the same run pass, and miss the data"
        monkeypatch.delenv("RANK")
    assert run(*words)[0] == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["e.safetensors", "m.lw", "some pictures"]


def test_a_second_fit_is_refused_and_a_killed_one_leaves_the_place_free(
    run: Any, pictures: Path, tmp_path: Path
) -> None:
    target = tmp_path / "m.lw"
    command = ["fit", pictures, *QUICK, "--method", "softmax", "--out", target]
    first = Fork(shell(*command, "--set", "epochs=1000000"), tmp_path)
    while not (tmp_path / "m.lw.run" / "log.jsonl").exists():
        assert first.poll() is None, first.said()
        time.sleep(0.05)
    code, _, err = run(*command, "--set", "epochs=1")
    first.send_signal(signal.SIGKILL)
    first.wait(30)
    assert code == 2
    assert f"Another process ({first.pid}) is writing to" in one_line(err)
    code, _, err = run(*command, "--set", "epochs=1")
    assert code == 0, err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.lw", "some pictures"]


def test_a_lock_that_its_owner_removes_meanwhile_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    from labelwise.support.writable import sole_writer

    lock, real = fcntl.flock, tmp_path / ".m.lock"
    files: list[int] = []

    def late(file: int, kind: int) -> None:
        if not files:
            real.unlink()
        files.append(file)
        lock(file, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    with sole_writer(tmp_path / "m"):
        assert len(files) == 2
        assert os.path.samestat(os.stat(real), os.fstat(files[-1]))


def test_room_is_asked_for_before_the_first_epoch(
    run: Any, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10**6, 10**6 - 500, 500))
    monkeypatch.setattr("labelwise.train.loop._Loop.train_stage", lambda *_: pytest.fail("it was trained"))
    for words in (
        ["fit", *FIT, "--out", tmp_path / "m.lw"],
        ["pretrain", *QUICK[:4], "--out", tmp_path / "e.safetensors"],
    ):
        code, _, err = run(words[0], pictures, *words[1:])
        assert code == 1
        assert "has 0.0 MB left. Free some space, or choose another place." in one_line(err)
    assert [one.name for one in tmp_path.iterdir()] == ["some pictures"]


def test_what_was_trained_is_kept_when_it_cannot_be_saved(
    run: Any, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["fit", pictures, *FIT, "--out"]
    assert run(*words, tmp_path / "whole.lw")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr("labelwise.support.writable._put_in_place", no_space)
        code, _, err = run(*words, tmp_path / "m.lw")
    assert code == 1
    assert "No space left on device" in one_line(err)
    assert f"The trained weights are in {tmp_path / 'm.lw.run'}" in one_line(err)
    assert "--resume" in one_line(err)
    assert not (tmp_path / "m.lw").exists()
    with monkeypatch.context() as patch:
        patch.setattr("labelwise.train.loop._Loop._train_epoch", lambda *_: pytest.fail("it was trained again"))
        code, _, err = run(*words, tmp_path / "m.lw", "--resume")
    assert code == 0, err
    assert saved(tmp_path / "m.lw") == saved(tmp_path / "whole.lw"), "the same weights, among other things"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.lw", "some pictures", "whole.lw"]


def test_a_target_that_appears_during_training(
    run: Any, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labelwise.fitting.fit import fit

    def slow(*given: Any) -> Classifier:
        (tmp_path / "m.lw").mkdir()
        (tmp_path / "m.lw" / "classifier.json").touch()
        return fit(*given)

    words = ["fit", pictures, *FIT, "--out", tmp_path / "m.lw"]
    with monkeypatch.context() as patch:
        patch.setattr("labelwise.fitting.fit.fit", slow)
        code, _, err = run(*words)
    assert code == 2
    assert "replace it with --overwrite" in one_line(err)
    assert "The trained weights are in" in one_line(err)
    assert run(*words, "--resume", "--overwrite")[0] == 0
    assert len(lw.load(tmp_path / "m.lw").labels) == 4


def test_an_encoder_is_kept_when_it_cannot_be_written(
    run: Any, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "e.safetensors", tmp_path / "e.safetensors.run"
    words = ["pretrain", pictures, *QUICK[:4], "--set", "encoder.width=4", "--set", "epochs=1", "--out", file]
    with monkeypatch.context() as patch:
        patch.setattr("labelwise.train.pretraining.write_tensors", no_space)
        code, _, err = run(*words)
    assert code == 1
    assert f"are in {folder}. Fix the problem and continue with the same command and --resume" in one_line(err)
    assert not file.exists()
    assert run(*words, "--resume")[0] == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["e.safetensors", "some pictures"]


def test_a_checkpoint_that_cannot_be_written(
    run: Any, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labelwise.train.checkpoint.RunFolder.write", no_space)
    code, _, err = run("fit", pictures, *FIT, "--out", tmp_path / "m.lw")
    assert code == 1
    assert "A file could not be written or read: [Errno 28] No space left on device" in one_line(err)


@pytest.mark.usefixtures("unread")
def test_teach_refuses_names_first(run: Any, tmp_path: Path) -> None:
    for name, told in (("a\nb", "has a line break"), ("a\udcff", "is not valid UTF-8"), (" ", "is empty")):
        code, _, err = run("teach", "none", name, "none", "--out", tmp_path / "m")
        assert code == 2
        assert told in one_line(err)


def test_text_that_no_file_can_hold(tmp_path: Path) -> None:
    classifier = lw.fit(blobs(), quick("softmax", 1))
    with pytest.raises(StoreError, match=r"not valid UTF-8: .*\\udcff"):
        lw.save(changed(classifier, summary={"training": {"data": "x\udcff"}}), tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--encoder", "resnet999"], 'No backbone "resnet999"'),
        (["--encoder", "resnet18"], "would keep its random weights"),
        (["--set", "encoder.weights=none.safetensors"], "There is no file of weights"),
    ],
)
def test_an_encoder_that_is_not_there(run: Any, words: list[str], told: str, pictures: Path, tmp_path: Path) -> None:
    for size in ([], ["--size", 8]):
        code, out, err = run("fit", pictures, "--out", tmp_path / "m.lw", *words, *size)
        assert (code, out) == (2 if "weights" not in words[1] else 1, "")
        assert told in one_line(err)


@pytest.mark.parametrize("listed", [False, True], ids=["folder", "table"])
def test_too_few_pictures_and_one_label(run: Any, listed: bool, tmp_path: Path) -> None:
    files = [tmp_path / "few" / name / "1.png" for name in ("cat", "dog")]
    for file in files:
        file.parent.mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(file)
    for count, told in ((2, "too few images: cat 1, dog 1. Method softmax needs 3"), (1, "of one label only (cat)")):
        (tmp_path / "t.csv").write_text("path,label\n" + "".join(f"{f},{f.parent.name}\n" for f in files[:count]))
        data = tmp_path / "t.csv" if listed else tmp_path / "few"
        code, out, err = run("fit", data, "--out", tmp_path / "m.lw", *FIT)
        assert (code, out) == (1, "")
        assert told in one_line(err)
        shutil.rmtree(files[1].parent, ignore_errors=True)
