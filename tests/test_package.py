"""The files of a wheel and a source archive are checked; ``make plain`` builds both."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import package  # noqa: E402

LICENCE, NOTICE = (f"labelwise-1.dist-info/licenses/{name}" for name in ("LICENSE", "NOTICE"))


@pytest.fixture(scope="module")
def wheel() -> set[str]:
    return {name.removeprefix("src/") for name in package.files_under("src")} | {LICENCE, NOTICE}


@pytest.mark.parametrize("name", ["labelwise/encoders/cards.toml", "labelwise/server/page/index.html", LICENCE, NOTICE])
def test_a_wheel_without_a_file_is_refused(name: str, wheel: set[str]) -> None:
    assert package.check_wheel(wheel) == []
    assert len(package.check_wheel(wheel - {name})) == 1


def test_a_wheel_with_tests_is_refused(wheel: set[str]) -> None:
    assert package.check_wheel(wheel | {"tests/once.py"}) == ["the wheel should not hold tests/once.py"]


def test_a_source_archive_needs_what_the_tests_need() -> None:
    names = {*package.TOP}.union(*map(package.files_under, package.SOURCES))
    assert all((ROOT / name).is_file() for name in package.TOP)
    assert package.check_sdist(names | {"PKG-INFO"}) == []
    assert package.check_sdist(names - {"constraints.txt"}) == ["the source archive lacks constraints.txt"]
    assert package.check_sdist(names | {"carry/x"}) == ["the source archive should not hold carry/x"]


def test_the_lock_file_holds_what_is_required_and_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([\w-]+)==([^ ;]+)", text, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(line) for line in (*project["dependencies"], *extras["serve"], *extras["export"])]
    assert [each.name for each in wanted if not each.specifier.contains(locked.get(each.name, "0"))] == []
    assert "://" not in text
    assert text.count("--hash=sha256:") >= len(locked)
