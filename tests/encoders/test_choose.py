"""The automatic choice: the most accurate encoder at hand that is quick enough, and what would be better."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

import labelwise as lw
from labelwise.cli.data import read_features
from labelwise.encoders import choose
from labelwise.encoders.choose import Known, choose_encoder, encoder_name, known_encoders
from labelwise.fitting.suspects import suspects
from labelwise.server.labelling.project import open_project
from labelwise.support.errors import UsageError


def known(monkeypatch: pytest.MonkeyPatch, here: str) -> None:
    every = [
        Known(name="strong", about="", licence="MIT", megabytes=80, ms=600, accuracy=90),
        Known(name="weak", about="", licence="MIT", megabytes=5, ms=1, accuracy=60),
    ]
    monkeypatch.setattr(choose, "known_encoders", lambda: [replace(e, at_hand=e.name in here) for e in every])
    monkeypatch.setattr(choose, "threads", lambda: 1)


@pytest.mark.parametrize(
    ("here", "images", "name", "reason"),
    [
        ("weak", 10, "weak", "More accurate (80 MB): labelwise encoders get strong"),
        ("weak strong", 10, "strong", "strong is the most accurate of 2 installed encoders."),
        ("weak strong", 100_000, "weak", "strong would take about 1000 minutes."),
        ("strong", 100_000, "strong", ""),
    ],
)
def test_the_choice_weighs_accuracy_against_time(
    monkeypatch: pytest.MonkeyPatch, here: str, images: int, name: str, reason: str
) -> None:
    known(monkeypatch, here)
    choice = choose_encoder(images)
    assert choice is not None
    assert (choice.name, choice.reason) == (name, reason)


def test_nothing_at_hand_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, "")
    assert choose_encoder(10) is None
    assert encoder_name(10) == "efficientnet_lite0"
    known(monkeypatch, "weak strong")
    assert (encoder_name(10), encoder_name(100_000)) == ("strong", "weak")


def test_the_registry_says_what_each_costs() -> None:
    every = known_encoders()
    assert [each.accuracy for each in every] == sorted((each.accuracy for each in every), reverse=True)
    assert {"efficientnet_lite0", "tinyvit-5m", "dinov2-small"} <= {each.name for each in every}
    assert all(each.ms > 0 and each.megabytes > 1 and each.licence and each.about for each in every)


def test_all_verbs_use_the_encoder_of_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(2):
            Image.new("RGB", (32, 32), (100 * i, 50, 0)).save(tmp_path / "photos" / label / f"{i}.png")
    known(monkeypatch, "strong")
    with pytest.raises(UsageError, match='No encoder "strong"'):
        lw.group(tmp_path / "photos")
    with pytest.raises(UsageError, match='No encoder "strong"'):
        suspects(lw.data.load(tmp_path / "photos"))
    with (
        pytest.raises(UsageError, match='No encoder "strong"'),
        open_project(tmp_path / "project", tmp_path / "photos"),
    ):
        pass
    with pytest.raises(UsageError, match='No backbone "strong"'):
        read_features(str(tmp_path / "photos"), "auto", None)
