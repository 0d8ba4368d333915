"""Jobs: the same rows whoever works on them, nothing lost or doubled by kills, another job's folder is refused."""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from labelwise.core.classifier import Classifier
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.fitting.fit import fit
from labelwise.images import file_images
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.file_images import FileImages
from labelwise.jobs.job import Job
from labelwise.jobs.local import run_here
from labelwise.jobs.parts import ABOUT
from labelwise.methods import Discriminant
from labelwise.support import processes
from labelwise.support.errors import LabelwiseError, UsageError
from labelwise.train.method import Run
from tests.cli.conftest import run as run
from tests.contract.subjects import trained

dataset = pytest.importorskip("pyarrow.dataset")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a classifier and 25 pictures, one of which cannot be read."""
    folder = tmp_path_factory.mktemp("a job")
    save(trained("softmax"), folder / "m.lw")
    rng = np.random.default_rng(0)
    (folder / "pictures").mkdir()
    for i in range(24):
        Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(folder / "pictures" / f"{i:02d}.png")
    (folder / "pictures" / "05 bad.jpg").write_bytes(b"no picture")
    return folder


def job_of(place: Path, out: Path, question: Any = "classify", *, size: int = 4, **more: Any) -> Job:
    files = tuple(sorted(str(file) for file in (place / "pictures").iterdir()))
    job = Job(
        question=question, model=str(place / "m.lw"), images=FileImages(files), folder=str(out), size=size, **more
    )
    job.begin()
    return job


def rows(job: Job) -> list[dict[str, Any]]:
    return dataset.dataset(job.folder).to_table().to_pylist()  # type: ignore[no-any-return]


def answered(job: Job, classifier: Classifier) -> Job:
    for block in job.missing:
        job.answer(classifier, block)
    return job


def test_answers_are_those_of_the_task_and_a_bad_picture_is_a_row(place: Path, tmp_path: Path) -> None:
    import labelwise as lw

    classifier = load(place / "m.lw")
    job = answered(job_of(place, tmp_path / "c.parquet", top=2), classifier)
    table = {Path(row["file"]).name: row for row in rows(job)}
    assert len(table) == 25
    assert [name for name, row in table.items() if row["reason"]] == ["05 bad.jpg"]
    good = [str(file) for file in job.files if "bad" not in str(file)]
    for file, one in zip(good, lw.classify(classifier, good, top=2), strict=True):
        row = table[Path(file).name]
        assert row["answer"] == one.label
        assert row["probability"] == pytest.approx(one.probability, abs=1e-6)
        assert [each["label"] for each in row["top"]] == [label for label, _ in one.top]
    strange = rows(answered(job_of(place, tmp_path / "o.parquet", "outliers"), classifier))
    assert [row["outlier_score"] for row in strange] == pytest.approx(
        [row["outlier_score"] for row in rows(job)], abs=1e-6
    )
    embedded = rows(answered(job_of(place, tmp_path / "e.parquet", "encode"), classifier))
    np.testing.assert_allclose(
        [row["embedding"] for row in embedded if not row["reason"]], classifier.scores(good).embeddings, atol=1e-5
    )


@pytest.mark.parametrize("count", [1, 2])
def test_a_process_takes_as_many_threads_as_it_was_given(
    place: Path, tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, used = job_of(place, tmp_path / "c.parquet", size=25), set[int]()
    own = file_images.decode

    def decode(file: Any, frame: Any) -> Any:
        used.add(threading.get_ident())
        time.sleep(0.01)  # so that a second thread gets its share
        return own(file, frame)

    monkeypatch.setattr(file_images, "decode", decode)
    monkeypatch.setattr(processes, "_THREADS", [0])
    monkeypatch.setenv("LABELWISE_CACHE", "off")  # which ``open`` does
    job.answer(job.open(count), 0)
    assert len(used - {threading.get_ident()}) == (0 if count == 1 else count)


def test_what_is_done_is_not_done_again_and_what_is_damaged_or_missing_is(place: Path, tmp_path: Path) -> None:
    classifier = load(place / "m.lw")
    job = answered(job_of(place, tmp_path / "c.parquet"), classifier)
    whole = rows(job)
    job.place(2).unlink()
    truncated, empty, other = (job.place(block) for block in (0, 3, 4))
    truncated.write_bytes(truncated.read_bytes()[:-9])
    empty.write_bytes(b"")
    other.write_bytes(job.place(5).read_bytes())
    half = Path(job.folder) / ".part-000003.parquet.77.part"
    half.write_bytes(b"half")
    assert job.missing == [0, 2, 3, 4]
    assert rows(answered(job_of(place, tmp_path / "c.parquet"), classifier)) == whole
    assert not half.exists(), "what a process that was killed leaves is removed"


def test_a_part_that_is_damaged_anywhere_is_made_again(place: Path, tmp_path: Path) -> None:
    job = answered(job_of(place, tmp_path / "c.parquet", size=25), load(place / "m.lw"))
    whole = job.place(0).read_bytes()
    for at in range(0, len(whole), len(whole) // 40):
        job.place(0).write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert job.missing == [0], f"byte {at}"
    job.place(0).write_bytes(whole)
    assert job.missing == []


def test_an_image_that_was_changed_is_answered_again(place: Path, tmp_path: Path) -> None:
    classifier = load(place / "m.lw")
    shutil.copytree(place, tmp_path / "own")
    job = answered(job_of(tmp_path / "own", tmp_path / "c.parquet"), classifier)
    before = rows(job)
    shutil.copyfile(tmp_path / "own" / "pictures" / "12.png", tmp_path / "own" / "pictures" / "09.png")
    (tmp_path / "own" / "pictures" / "20.png").unlink()
    job.begin()
    changed = {job.files.index(str(tmp_path / "own" / "pictures" / name)) // 4 for name in ("09.png", "20.png")}
    assert set(job.missing) == changed
    after = rows(answered(job, classifier))
    assert [row["file"] for row in before] == [row["file"] for row in after]
    by_name = {Path(row["file"]).name: row for row in after}
    assert by_name["09.png"]["probability"] == by_name["12.png"]["probability"]
    assert "no such file" in by_name["20.png"]["reason"]


def test_another_job_is_refused(place: Path, tmp_path: Path) -> None:
    job_of(place, tmp_path / "c.parquet")
    with pytest.raises(UsageError, match="another job \\(different question\\)"):
        job_of(place, tmp_path / "c.parquet", "outliers")
    with pytest.raises(UsageError, match="different top"):
        job_of(place, tmp_path / "c.parquet", top=5)
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").touch()
    with pytest.raises(UsageError, match="holds other files"):
        job_of(place, other)
    (tmp_path / "c.parquet" / ABOUT).write_text("{}")
    with pytest.raises(UsageError, match=r"another job .*different .*classifier, .*question"):
        job_of(place, tmp_path / "c.parquet")
    (tmp_path / "c.parquet" / ABOUT).write_text("{")
    with pytest.raises(LabelwiseError, match="damaged"):
        job_of(place, tmp_path / "c.parquet")


def test_a_model_of_features_and_one_that_is_missing_are_refused(place: Path, tmp_path: Path, run: Any) -> None:
    labels = Labels(names=("a", "b"))
    split = Split(images=torch.rand(20, 4), targets=torch.arange(20) % 2)
    data = Dataset(name="numbers", labels=labels, splits={"train": split})
    save(fit(data, Discriminant(), Run(device="cpu")), tmp_path / "numbers.lw")
    for model, why in (("numbers.lw", "takes precomputed features"), ("none.lw", "none.lw")):
        code, _, told = run("classify", tmp_path / model, place / "pictures", "--out", tmp_path / "x.parquet")
        assert code
        assert why in " ".join(told.split())
        assert "Traceback" not in told
        assert not (tmp_path / "x.parquet").exists()


def test_killed_processes_lose_and_double_nothing(place: Path, tmp_path: Path) -> None:
    """Slow: real processes are started, killed and started again, each of which imports torch."""
    whole = rows(answered(job_of(place, tmp_path / "whole.parquet", size=1), load(place / "m.lw")))
    job, killed, over = job_of(place, tmp_path / "killed.parquet", size=1), [], threading.Event()

    def kill_one() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not over.is_set():
            for child in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
                for number in child.read_text().split():
                    words = Path(f"/proc/{number}/cmdline")
                    if words.exists() and b"spawn_main" in words.read_bytes() and any(Path(job.folder).glob("part-*")):
                        os.kill(int(number), signal.SIGKILL)
                        killed.append(number)
                        return
            time.sleep(0.001)

    watcher = threading.Thread(target=kill_one)
    watcher.start()
    counts: list[int] = []
    run_here(job, 1, counts.append)
    over.set()
    watcher.join()
    assert killed
    assert rows(job) == whole
    assert sum(counts) <= len(whole), "no block is told as done twice"


def test_the_shell(place: Path, tmp_path: Path, run: Any) -> None:
    out = tmp_path / "found it.parquet"
    words = ["classify", place / "m.lw", place / "pictures", "--out", out, "--json"]
    code, text, told = run(*words)
    assert code == 0, told
    document = json.loads(text)
    assert (document["images"], document["unread"], document["found_done"]) == (25, 1, 0)
    assert sum(document["answers"].values()) == 24
    again = json.loads(run(*words)[1])
    assert again["found_done"] == again["files"]
    for wrong, why in (
        ([*words[:3], "--workers", "2"], "goes with --out"),
        ([*words[:4], tmp_path / "found.csv"], "or a folder of answers (.parquet)"),
        ([*words, "--csv", "x.csv"], "Leave out --csv"),
    ):
        code, _, told = run(*wrong)
        assert code == 2
        assert why in " ".join(told.split())


def test_ray_gives_the_same_rows_though_actors_are_killed(place: Path, tmp_path: Path) -> None:
    """Slow, where Ray is installed: it starts its own processes. Each actor is killed once, in the middle of its work."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from labelwise.jobs.on_ray import ray_started

    whole = rows(answered(job_of(place, tmp_path / "whole.parquet", size=1), load(place / "m.lw")))
    job, counts, killed = job_of(place, tmp_path / "ray.parquet", size=1), list[int](), list[int]()

    def done(count: int) -> None:
        counts.append(count)
        if len(counts) in (3, 8):
            killed.append(next(number for number in actors() if number not in killed))
            os.kill(killed[-1], signal.SIGKILL)

    with ray_started(2) as run:
        run(job, done)
        assert not job.missing
        run(job, done)  # nothing is left to do
    assert len(killed) == 2
    assert rows(job) == whole
    assert sum(counts) == len(whole), "each block is told once"
    assert not ray.is_initialized()
    until(lambda: not actors())


def until(reached: Callable[[], bool]) -> None:
    """Wait until something is so, at most half a minute."""
    for _ in range(300):
        if reached():
            return
        time.sleep(0.1)
    raise AssertionError("not so after half a minute")


def actors() -> list[int]:
    """The processes of actors of Ray that are at work."""
    numbers = [each.name for each in Path("/proc").iterdir() if each.name.isdigit()]
    words = {number: _words(Path("/proc") / number / "cmdline") for number in numbers}
    return sorted(int(number) for number, line in words.items() if line.startswith(b"ray::RayWorker"))


def _words(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def test_ray_says_in_words_what_is_wrong(place: Path, tmp_path: Path, run: Any) -> None:
    """Slow, where Ray is installed."""
    pytest.importorskip("ray", reason="Ray is not installed")
    model = tmp_path / "m.lw"
    shutil.copytree(place / "m.lw", model)
    (model / "weights.safetensors").write_bytes(b"nothing")
    words = ("classify", model, place / "pictures", "--out", tmp_path / "x.parquet", "--workers", "ray:1")
    code, _, told = run(*words)
    assert code
    assert "its checksum differs" in " ".join(told.split())
    assert "Traceback" not in told


def test_pictures_in_shards(place: Path, tmp_path: Path, run: Any) -> None:
    """The same answers, and the one that cannot be read is a row, too."""
    import tarfile

    with tarfile.open(tmp_path / "some pictures.tar", "w") as tar:
        for file in sorted((place / "pictures").iterdir()):
            tar.add(file, file.name)
    table = {}
    for source in (place / "pictures", tmp_path / "some pictures.tar"):
        out = tmp_path / f"{source.stem}.parquet"
        assert run("classify", place / "m.lw", source, "--out", out, "--json")[0] == 0
        table[source.suffix] = {
            Path(row["file"]).name: row | {"file": ""} for row in dataset.dataset(out).to_table().to_pylist()
        }
    assert table[""] == table[".tar"]


def test_what_is_most_like_each_of_very_many(place: Path, tmp_path: Path, run: Any) -> None:
    pytest.importorskip("lancedb")
    model, pictures, gallery = place / "m.lw", place / "pictures", tmp_path / "all of them.lance"
    code, _, told = run("retrieve", model, "--gallery", pictures, "--index", gallery)
    assert code == 0, told
    out = tmp_path / "near.parquet"
    code, text, told = run("retrieve", model, pictures, "--gallery", gallery, "--out", out, "--top", "2", "--json")
    assert code == 0, told
    assert json.loads(text)["unread"] == 1
    answers = {row["file"]: row for row in dataset.dataset(out).to_table().to_pylist()}
    one = pictures / "03.png"
    plain = json.loads(run("retrieve", model, one, "--gallery", gallery, "--top", "2", "--json")[1])["queries"][0]
    job = answers[str(one)]
    assert [match["file"] for match in job["matches"]] == [match["file"] for match in plain["matches"]]
    assert str(one) not in {match["file"] for match in job["matches"]}
    assert [match["score"] for match in job["matches"]] == pytest.approx(
        [m["score"] for m in plain["matches"]], abs=1e-5
    )
    code, _, told = run("retrieve", model, pictures, "--gallery", pictures, "--out", tmp_path / "x.parquet")
    assert code == 2
    assert "photos.lance" in told
