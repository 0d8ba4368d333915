import re
from pathlib import Path

import pytest

from labelwise.support.errors import DataError, UsageError
from labelwise_papers.benchmarks import ENTRIES, list_benchmarks, load_benchmark, where
from labelwise_papers.benchmarks.packs_at_hand import PACKS
from labelwise_papers.benchmarks.registry import LAYOUTS, PROTOCOLS, data_root
from tests.papers.benchmarks import made

NAMES = """cifar10 cifar100 cifar100-20 stl10 pets cub200 cub20 cars196 cars-bmw bmw10 flowers102 pacs mnist fashion-mnist
tinyimagenet lsun omniglot miniimagenet utkface adience awa1 awa2 sun apy cub flo voxceleb1 audiomnist"""


def test_every_benchmark_is_there() -> None:
    assert set(ENTRIES) == set(NAMES.split())


@pytest.mark.parametrize("name", NAMES.split())
def test_an_entry_says_all_that_is_needed(name: str) -> None:
    entry = ENTRIES[name]
    assert entry.licence
    assert entry.files
    assert re.search(r"\d{4}", entry.citation)
    assert "\n" not in entry.citation
    assert re.match(r"https?://", entry.homepage)
    assert bool(entry.remotes) != bool(entry.get)
    assert all(remote.md5 is None or re.fullmatch(r"[0-9a-f]{32}", remote.md5) for remote in entry.remotes)
    assert len({remote.file for remote in entry.remotes}) == len(entry.remotes)
    if entry.what == "images":
        assert entry.side
        assert entry.folder in LAYOUTS
        assert tuple(PROTOCOLS.get(name, {"standard": None})) == entry.protocols or name == "pacs"
        assert set(PROTOCOLS.get(name, {"standard": None})) == set(entry.protocols)
        assert not entry.packs or entry.packs[0] in PACKS


@pytest.mark.parametrize("name", NAMES.split())
def test_a_missing_set_is_an_error_that_says_what_to_get(name: str, tmp_path: Path) -> None:
    entry = ENTRIES[name]
    with pytest.raises(DataError) as caught:
        load_benchmark(name, root=tmp_path)
    said = str(caught.value)
    assert said == where(name, tmp_path)
    assert str(tmp_path / entry.folder) in said
    for piece in (entry.licence, entry.homepage, *entry.files, *entry.packs):
        assert piece in said
    for remote in entry.remotes:
        assert remote.url in said
        assert remote.md5 is None or remote.md5 in said


def test_an_archive_that_was_not_unpacked_is_told(tmp_path: Path) -> None:
    (tmp_path / "cub200").mkdir()
    (tmp_path / "cub200/CUB_200_2011.tgz").write_bytes(b"x")
    assert "not unpacked: CUB_200_2011.tgz" in where("cub200", tmp_path)
    assert "not unpacked" not in where("pets", tmp_path)


def test_a_set_that_is_there_is_told(tmp_path: Path) -> None:
    made.cub(tmp_path / "cub200")
    assert f'was found: "{tmp_path / "cub200"}"' in where("cub20", tmp_path)


def test_unknown_names_and_protocols_are_errors_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='Did you mean "cifar10"'):
        load_benchmark("cifar-10", root=tmp_path)
    with pytest.raises(UsageError, match=r'no protocol "sketches".*Did you mean "sketch".*cartoon'):
        load_benchmark("pacs", root=tmp_path, protocol="sketches")


def test_the_root_is_the_argument_then_the_environment_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABELWISE_DATA", str(tmp_path / "env"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert data_root(tmp_path / "given") == tmp_path / "given"
    assert data_root() == tmp_path / "env"
    monkeypatch.delenv("LABELWISE_DATA")
    assert data_root() == tmp_path / "home/.cache/labelwise/data"
    made.cub(tmp_path / "home/.cache/labelwise/data/cub200")
    assert len(load_benchmark("cub200").split("train")) == 4


def test_the_list_says_what_is_found(tmp_path: Path) -> None:
    assert [row["name"] for row in list_benchmarks(tmp_path) if row["found"]] == []
    for name in made.MADE:
        made.MADE[name](tmp_path / name)
    found = {row["name"]: row["found"] for row in list_benchmarks(tmp_path) if row["found"]}
    assert set(found) == set(made.MADE) | {"cub20", "cars-bmw"}
    assert found["cub20"] == str(tmp_path / "cub200")
    rows = {row["name"]: row for row in list_benchmarks(tmp_path)}
    assert (rows["cub200"]["train"], rows["cub200"]["test"], rows["cub200"]["classes"]) == (5994, 5794, 200)
    assert (rows["cub"]["what"], rows["audiomnist"]["what"]) == ("features", "audio")


def test_pictures_that_cannot_be_read_are_listed(tmp_path: Path) -> None:
    made.cub(tmp_path / "cub200")
    (tmp_path / "cub200/images/002.Bird_1/b_0.jpg").write_bytes(b"junk")
    data = load_benchmark("cub200", root=tmp_path)
    assert made.pairs(data.split("train")) == [(0, 0), (4, 2), (6, 3)]
    assert [Path(each.file).name for each in data.skipped] == ["b_0.jpg"]
