"""Pictures that look alike among very many: the pairs that comparing each with each finds, however they are divided."""

import json
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from labelwise.images.file_images import FileImages
from labelwise.jobs import duplicates
from labelwise.jobs.duplicates import CELLS, LOOKS, PairJob
from labelwise.jobs.job import Job
from labelwise.jobs.local import run_here
from labelwise.support.errors import UsageError
from tests.cli.conftest import run as run

dataset = pytest.importorskip("pyarrow.dataset")
Pair = tuple[str, str]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder: 60 pictures that vary in few directions, some of them again, resized and compressed; three copies, a grey one, one that cannot be read."""
    folder = tmp_path_factory.mktemp("many photos")
    rng = np.random.default_rng(0)
    shapes = rng.normal(size=(5, 4, 4, 3))
    for i in range(60):
        pixels = np.tensordot(rng.normal(size=5), shapes, 1) + rng.normal(size=(4, 4, 3)) * 0.2
        large = np.kron(128 + 30 * pixels, np.ones((12, 12, 1))).clip(0, 255).astype(np.uint8)
        picture = Image.fromarray(large)
        picture.save(folder / f"{i:02d}.png")
        if i % 6 == 0:
            picture.resize((31, 31)).save(folder / f"{i:02d} small.jpg", quality=70)
        if i == 7:
            for copy in "abc":
                picture.save(folder / f"07 {copy}.png")
    Image.fromarray(np.full((20, 20, 3), 90, np.uint8)).save(folder / "grey.png")
    (folder / "bad.jpg").write_bytes(b"no picture")
    return folder


def found(job: PairJob) -> dict[Pair, float]:
    """The pairs of a finished job."""
    table = dataset.dataset(job.folder).to_table().to_pylist()
    pairs = {(Path(row["file"]).name, Path(row["other"]).name): row["likeness"] for row in table}
    assert len(pairs) == len(table), "a pair is told twice"
    return pairs


def job_of(photos: Path, out: Path, likeness: float = 0.97) -> PairJob:
    """A job whose looks are known."""
    files = tuple(sorted(map(str, photos.iterdir())))
    looks = Job(question="looks", images=FileImages(files), folder=str(out / LOOKS), size=16)
    job = PairJob(folder=str(out), looks=looks, likeness=likeness)
    job.begin()
    looks.begin()
    for block in looks.missing:
        looks.answer(looks.open(1), block)
    job.divide()
    return job


def by_hand(job: PairJob, likeness: float) -> dict[Pair, float]:
    """The pairs of pictures whose looks correlate so much, each compared with each; of equal looks the first stands for the others."""
    rows = [
        row
        for block in range(len(job.looks.sizes))
        for row in dataset.dataset(job.looks.place(block)).to_table().to_pylist()
    ]
    looks = {Path(row["file"]).name: np.frombuffer(row["look"], np.float32) for row in rows if row["look"]}
    first: dict[bytes, str] = {}
    pairs = {}
    for name, look in looks.items():
        if look.any() and first.setdefault(look.tobytes(), name) != name:
            pairs[first[look.tobytes()], name] = 1.0
    for one, other in combinations([name for name in first.values() if looks[name].any()], 2):
        alike = float(looks[one] @ looks[other])
        if alike >= likeness - 1e-5:
            pairs[one, other] = min(alike, 1.0)
    return pairs


@pytest.mark.parametrize("likeness", [0.97, 0.8])
@pytest.mark.parametrize("most", [100, 9])
def test_pairs_are_those_of_each_with_each(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, likeness: float, most: int
) -> None:
    monkeypatch.setattr(duplicates, "MOST", most)
    monkeypatch.setattr(duplicates, "WRITTEN", 7)
    job = job_of(photos, tmp_path / "pairs.parquet", likeness)
    assert (len(job.sizes) == 1) == (most == 100)
    for block in reversed(job.missing):  # in any order
        job.answer(None, block)
    pairs, right = found(job), by_hand(job, likeness)
    assert pairs.keys() == right.keys()
    assert [pairs[pair] for pair in right] == pytest.approx(list(right.values()), abs=1e-5)
    assert len(pairs) > (13 if likeness < 0.9 else 10)
    assert not any("grey" in name or "bad" in name for pair in pairs for name in pair)


def test_the_shell_goes_on_and_processes_find_the_same(photos: Path, tmp_path: Path, run: Any) -> None:
    """Slow: processes are started. What is damaged or missing is made again, the rest is not."""
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    code, text, told = run("data", "duplicates", photos, "--out", one, "--json")
    assert code == 0, told
    document = json.loads(text)
    assert (document["images"], document["unread"]) == (75, 1)
    table = dataset.dataset(one).to_table()
    assert document["pairs"] == table.num_rows
    assert document["alike"] == len({*table["file"].to_pylist(), *table["other"].to_pylist()})
    code, _, told = run("data", "duplicates", photos, "--out", two, "--workers", "2")
    assert code == 0, told
    assert dataset.dataset(two).to_table().equals(table)
    (one / "part-000000.parquet").unlink()
    again = json.loads(run("data", "duplicates", photos, "--out", one, "--json")[1])
    assert again["found_done"] == 0
    assert dataset.dataset(one).to_table().equals(table)
    code, _, told = run("data", "duplicates", photos, "--out", one, "--likeness", "0.9")
    assert code == 2
    assert "different likeness" in " ".join(told.split())
    code, _, told = run("data", "duplicates", photos, "--out", tmp_path / "pairs.csv")
    assert code == 2
    assert "must end with .parquet" in told


def test_blocks_without_a_readable_picture(tmp_path: Path, run: Any) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(20):
        (folder / f"{i:02d}.jpg").write_bytes(b"no picture")
    code, _, told = run("data", "duplicates", folder, "--out", tmp_path / "none.parquet")
    assert (code, "None of the 20 images" in told) == (1, True)
    for name in ("zz.png", "zzz.png"):
        Image.effect_mandelbrot((32, 32), (-2, -1.5, 1, 1.5), 9).save(folder / name)
    job = job_of(folder, tmp_path / "pairs.parquet", 0.97)  # the first of its blocks has none
    for block in job.missing:
        job.answer(None, block)
    assert found(job).keys() == {("zz.png", "zzz.png")}


def test_a_division_that_was_stopped_is_made_anew(photos: Path, tmp_path: Path) -> None:
    whole = job_of(photos, tmp_path / "whole.parquet")
    job = job_of(photos, tmp_path / "half.parquet")
    cells = tmp_path / "half.parquet" / CELLS
    (cells / "boxes.json").unlink()
    (cells / "0.looks").write_bytes(b"half")
    job = job_of(photos, tmp_path / "half.parquet")
    for each in (whole, job):
        each.answer(None, 0)
    assert found(job) == found(whole)
    looks = (cells / "0.looks").read_bytes()
    (cells / "0.looks").write_bytes(looks[:99] + bytes([looks[99] ^ 1]) + looks[100:])
    job_of(photos, tmp_path / "half.parquet")
    assert (cells / "0.looks").read_bytes() == looks, "a flipped bit is found"


def test_cells_that_are_a_link_are_refused(photos: Path, tmp_path: Path) -> None:
    job_of(photos, tmp_path / "pairs.parquet")
    cells, home = tmp_path / "pairs.parquet" / CELLS, tmp_path / "home"
    cells.rename(home)
    (home / "boxes.json").unlink()
    (home / "precious").write_text("x")
    cells.symlink_to(home)
    with pytest.raises(UsageError, match="is a link"):
        job_of(photos, tmp_path / "pairs.parquet")
    assert (home / "precious").exists()


def test_a_picture_that_was_changed_is_compared_again(photos: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(photos, own)
    job = job_of(own, tmp_path / "pairs.parquet")
    for block in job.missing:
        job.answer(None, block)
    assert ("01.png", "58.png") not in found(job)
    shutil.copyfile(own / "01.png", own / "58.png")
    again = job_of(own, tmp_path / "pairs.parquet")
    assert again.missing == list(range(len(again.sizes)))
    for block in again.missing:
        again.answer(None, block)
    assert found(again)["01.png", "58.png"] == 1


def test_ray_finds_the_same(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow, where Ray is installed."""
    pytest.importorskip("ray", reason="Ray is not installed")
    from labelwise.jobs.on_ray import ray_started

    monkeypatch.setattr(duplicates, "MOST", 9)
    here, there = job_of(photos, tmp_path / "here.parquet"), job_of(photos, tmp_path / "there.parquet")
    run_here(here, 1, lambda _: None)
    with ray_started(2) as work:
        work(there, lambda _: None)
    assert found(there) == found(here)
