"""The shell in this process, pictures to give to it, and classifiers of them."""

import sys
from pathlib import Path
from typing import Any

import pytest

import labelwise as lw
from labelwise import cli
from tests.changed import changed
from tests.cli.folders import write_folders
from tests.conftest import blobs, quick
from tests.contract.subjects import trained

Run = tuple[int, str, str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*words: object) -> Run:
        monkeypatch.setattr(sys, "argv", ["labelwise", *map(str, words)])
        capsys.readouterr()
        code: object = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        printed = capsys.readouterr()
        return (code if isinstance(code, int) else 0), printed.out, printed.err

    return call


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures as a user has it: one sub-folder per label, and one file that is no picture."""
    root = write_folders(tmp_path_factory.mktemp("pictures"), blobs(per_label=30))
    (root / "train" / "blob 0" / "broken.jpg").write_text("not a picture")
    return root


@pytest.fixture(scope="session")
def model(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that fit saved, of these pictures."""
    path = tmp_path_factory.mktemp("models") / "blobs.lw"
    lw.save(lw.fit(lw.data.load(pictures, size=8), quick("indicator", 60), lw.Run(device="cpu")), path)
    return path


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures, and two classifiers: one as fitted, one without a threshold for pairs."""
    place = tmp_path_factory.mktemp("match")
    write_folders(place / "pictures", blobs(per_label=30, seed=1))
    lw.save(trained("softmax"), place / "m.lw")
    lw.save(changed(trained("softmax"), verifier=None), place / "bare.lw")
    return place
