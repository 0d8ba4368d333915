"""What the verb doctor says of the machine, and what it keeps to itself."""

import json
import os
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from labelwise import __version__
from labelwise.cli import doctor

SECRET = "hf_a_token_of_mine"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home of Ada"
    (home / "my cache").mkdir(parents=True, mode=0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LABELWISE_CACHE", str(home / "my cache"))
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setattr("shutil.which", lambda _: None)
    return home


def test_it_names_versions_cache_and_limits(run: Any, home: Path) -> None:
    code, out, _ = run("doctor", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["labelwise"] == __version__
    assert found["packages"]["numpy"] == metadata.version("numpy")
    assert found["cache"]["folder"] == "~/my cache"
    assert found["cores"] >= 1
    assert found["memory_gb"] > 0
    assert "fastapi" in found["extras"]["serve"]
    assert "dev" not in found["extras"]


def test_text_and_json_hold_no_secret_and_no_home_folder(run: Any, home: Path) -> None:
    for words in ((), ("--json",)):
        out = run("doctor", *words)[1]
        assert SECRET not in out
        assert str(home) not in out
    assert "~/my cache" in out


def test_a_package_that_is_not_installed_is_named(run: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version_of", lambda name: None if name in ("torch", "scipy", "fastapi") else "1.0")
    lines = run("doctor")[1].splitlines()
    (packages,) = (line for line in lines if line.startswith("packages"))
    assert "torch not installed" in packages
    assert "extra serve     not installed: fastapi" in lines
    assert "Problem: scipy is missing. Install labelwise again." in lines
    assert not [line for line in lines if line.startswith("Problem: torch")]


def test_a_cache_that_others_may_write_to_is_a_problem(run: Any, home: Path) -> None:
    os.chmod(home / "my cache", 0o777)
    found = json.loads(run("doctor", "--json")[1])
    assert [each for each in found["problems"] if "cache folder" in each]


@pytest.mark.parametrize("fails", [False, True])
def test_gpus_are_those_of_the_driver(fails: bool, run: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def driver(command: tuple[str, ...], **_: Any) -> subprocess.CompletedProcess[str]:
        if fails:
            raise subprocess.CalledProcessError(9, command)
        return subprocess.CompletedProcess(command, 0, "NVIDIA H200, 143771 MiB, 570.1\n", "")

    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("subprocess.run", driver)
    assert json.loads(run("doctor", "--json")[1])["gpus"] == ([] if fails else ["NVIDIA H200, 143771 MiB, 570.1"])


def test_plug_ins_are_named_with_their_package(run: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = home / "colours-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: colours\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text("[labelwise.plugins]\nbright = a_module\n")
    monkeypatch.syspath_prepend(home)
    assert "bright (colours 1.2)" in run("doctor")[1]
