"""Options and settings of the shell add up; those that contradict each other are an error, and none is dropped."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelwise as lw
from labelwise.methods import Indicator, Softmax
from labelwise.support.errors import UsageError
from labelwise.support.settings import explain
from labelwise.train.networks.encoder import Encoder
from tests.fitting.test_one_choice import SIDE, folder_of, installed, saved

__all__ = ["installed"]
NAMED = "efficientnet_lite0"
QUICK = ["--device", "cpu", "--method", "softmax", "--set", "epochs=1"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return folder_of(tmp_path, "")


def encoder(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = saved(folder)["method"]["settings"]["encoder"]
    return found


@pytest.mark.usefixtures("installed")
def test_an_encoder_and_its_settings_add_up(run: Any, pictures: Path, tmp_path: Path) -> None:
    words = ["fit", pictures, "--encoder", NAMED, *QUICK]
    code, _, err = run(*words, "--out", tmp_path / "a.lw", "--set", "encoder.code_size=5")
    assert code == 0, err
    assert encoder(tmp_path / "a.lw") == {**vars(Encoder(backbone=NAMED, code_size=5, frozen=True))}
    assert lw.load(tmp_path / "a.lw").familiarity.memory.shape[1] == 5  # type: ignore[union-attr]
    assert lw.load(tmp_path / "a.lw").shape == (3, SIDE, SIDE)
    code, _, err = run(*words, "--out", tmp_path / "b.lw", "--set", "encoder.backbone=auto", "--set", "encoder.size=10")
    assert code == 0, err
    assert encoder(tmp_path / "b.lw") == {**vars(Encoder(backbone=NAMED, frozen=True, size=10))}
    code, _, err = run(*words, "--out", tmp_path / "c.lw", "--set", "encoder.width=16")
    assert code == 2
    assert '"efficientnet_lite0" takes grey or colour images and no width' in " ".join(err.split())


def test_settings_that_leave_the_network_open_keep_the_automatic_encoder(
    run: Any, installed: bool, pictures: Path, tmp_path: Path
) -> None:
    code, _, err = run("fit", pictures, "--out", tmp_path / "m.lw", *QUICK, "--set", "encoder.code_size=5")
    assert code == 0, err
    found = Encoder(backbone=NAMED, code_size=5, frozen=True) if installed else Encoder(code_size=5)
    assert encoder(tmp_path / "m.lw") == {**vars(found)}
    code, _, err = run("fit", pictures, "--out", tmp_path / "n.lw", *QUICK, "--set", "encoder.width=4")
    assert code == 0, err
    assert encoder(tmp_path / "n.lw") == {**vars(Encoder(width=4))}
    assert lw.load(tmp_path / "n.lw").shape == (3, 64, 64)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("encoder.backbone", "resnet18"), ("encoder.weights", "w.safetensors"), ("encoder.frozen", "false")],
)
def test_settings_that_contradict_the_encoder(run: Any, setting: str, value: str, tmp_path: Path) -> None:
    words = ["fit", tmp_path, "--out", tmp_path / "m.lw", "--encoder", NAMED, "--set", f"{setting}={value}"]
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    told = " ".join(err.split())
    assert f"--encoder {NAMED} uses that backbone with its own weights" in told
    assert f"{setting}={value}" in told
    assert "Leave out one of them" in told


def test_no_encoder_takes_the_settings_as_they_are() -> None:
    from labelwise.fitting.choice import FitOptions, make_method

    made = make_method(FitOptions(method="softmax", encoder="none", settings={"encoder.backbone": NAMED}), photos=True)
    assert made == Softmax(encoder=Encoder(backbone=NAMED))
    with pytest.raises(UsageError, match=r'No setting "encoder\.widht"'):
        make_method(FitOptions(method="softmax", encoder=NAMED, settings={"encoder.widht": "3"}))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fit", "DATA", "--set", "batch=3", "--set", "batch=4"], '"batch" is given twice, as "3" and as "4".'),
        (["pretrain", "DATA", "--kind", "moco", "--set", "kind=simclr"], "--kind moco and --set kind=simclr differ."),
        (["pretrain", "DATA", "--kind", "patches", "--resume"], "Leave out --resume"),
        (["pretrain", "DATA", "--kind", "patches", "--device", "cuda"], "Leave out --resume and --device cuda"),
    ],
)
def test_two_words_for_one_thing(run: Any, words: list[object], told: str, tmp_path: Path) -> None:
    given = [tmp_path if word == "DATA" else word for word in words]
    code, out, err = run(*given, "--out", tmp_path / "x.safetensors")
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_the_same_said_twice_is_no_contradiction(run: Any, pictures: Path, tmp_path: Path) -> None:
    words = ["--set", "epochs=1", "--set", "epochs=1", "--set", "encoder.width=4", "--size", 8]
    code, _, err = run("fit", pictures, "--out", tmp_path / "m.lw", *QUICK, *words)
    assert code == 0, err


def test_a_size_is_taken_or_refused(run: Any, tmp_path: Path) -> None:
    words = [
        "--size",
        16,
        "--out",
        tmp_path / "m.lw",
        "--device",
        "cpu",
        "--set",
        "epochs=1",
        "--set",
        "encoder.width=4",
    ]
    code, _, err = run("fit", "digits", *words)
    assert code == 0, err
    assert lw.load(tmp_path / "m.lw").shape == (1, 16, 16)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "f.npz", features=rng.normal(size=(40, 3)).astype(np.float32), labels=["a", "b"] * 20)
    for verb in (["data", "encode"], ["fit"], ["pretrain"], ["data", "check"]):
        out = [] if verb[-1] == "check" else ["--out", tmp_path / f"n.{'npz' if 'encode' in verb else 'safetensors'}"]
        code, _, err = run(*verb, tmp_path / "f.npz", *out, "--size", 16)
        assert code == 2, verb
        assert "--size 16 resizes images" in " ".join(err.split())


def test_encode_drops_no_option(run: Any, pictures: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.lw"
    assert run("fit", pictures, "--out", model, *QUICK, "--size", 8, "--set", "encoder.width=4")[0] == 0
    words = ["data", "encode", pictures, "--encoder", model]
    code, _, err = run(*words, "--out", tmp_path / "f.npz", "--size", 16)
    assert code == 2
    assert "takes images of shape [3, 8, 8], but --size is 16" in " ".join(err.split())
    code, _, err = run(*words, "--out", tmp_path / "f.npz", "--size", 8)
    assert code == 0, err
    code, _, err = run("data", "encode", tmp_path / "f.npz", "--encoder", NAMED, "--out", tmp_path / "g.npz")
    assert code == 1
    assert "already has features" in " ".join(err.split())
    assert run("data", "encode", tmp_path / "f.npz", "--out", tmp_path / "g.npz")[0] == 0
    assert run("fit", tmp_path / "f.npz", "--out", tmp_path / "features.lw", *QUICK)[0] == 0
    code, _, err = run(
        "data", "encode", tmp_path / "f.npz", "--encoder", tmp_path / "features.lw", "--out", tmp_path / "h.npz"
    )
    assert code == 0, err


def test_pretrain_kind_as_a_setting(run: Any, pictures: Path, tmp_path: Path) -> None:
    words = ["--set", "kind=moco", "--set", "epochs=1", "--set", "encoder.width=4", "--set", "batch=16", "--size", 8]
    code, out, err = run("pretrain", pictures, "--out", tmp_path / "e.safetensors", *words, "--json", "--device", "cpu")
    assert code == 0, err
    assert json.loads(out)["kind"] == "moco"


def test_a_method_that_another_one_extends_keeps_its_group() -> None:
    """What a study imports changes nothing."""
    before = {one.key: one.group for one in explain(Indicator())}

    class Study(Indicator):
        """A method of a study."""

    assert {one.key: one.group for one in explain(Indicator())} == before
    assert {"indicator", "training"} <= set(before.values())
    assert {one.key: one.group for one in explain(Study())} == before
