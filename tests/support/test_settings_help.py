"""Every setting is explained by the comment beside its field."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from labelwise.fitting.patches import Patches
from labelwise.fitting.pretraining import Pretrain
from labelwise.methods import METHODS
from labelwise.support.settings import describe
from labelwise.support.settings_help import explain, field_words

KINDS: dict[str, Any] = {**METHODS, "pretrain": Pretrain, "patches": Patches}


@dataclass(frozen=True)
class Part:
    """What a part is.

    More.
    """

    a: int = 1  # the first
    b: int = 2


@dataclass(frozen=True)
class Whole:
    # of several
    # lines
    x: tuple[int, ...] = (
        1,
        2,  # with more inside
    )
    y: str = "#"  # a mark: ``#``
    part: Part = field(default_factory=Part)
    off: Part | None = None  # what is off


@dataclass(frozen=True)
class Heir(Whole):
    y: str = "?"


def test_words_are_the_comments_above_and_beside_a_field() -> None:
    assert field_words(Whole)["x"] == "of several lines with more inside"
    assert field_words(Heir)["y"] == "a mark: ``#``", "what is not said again stays"
    assert field_words(Part) == {"a": "the first", "b": ""}
    settings = {one.key: one for one in explain(Heir())}
    assert list(settings) == ["x", "y", "part.a", "part.b", "off.a", "off.b"]
    assert (settings["y"].default, settings["y"].words) == ('"?"', "A mark: #")
    assert (settings["part.a"].group, settings["part.a"].about) == ("part", "What a part is.")
    assert settings["off.a"].about == "Off unless one of these is set. What is off"


@pytest.mark.parametrize("name", KINDS)
def test_every_setting_has_words(name: str) -> None:
    settings = list(explain(KINDS[name]()))
    assert not [one.key for one in settings if len(one.words) < 5]
    assert not [one.group for one in settings if not one.about]
    keys = {one.key for one in settings}
    every = {key for key, _ in describe(KINDS[name]())}
    parts = {key for key in every if any(one.startswith(f"{key}.") for one in keys)}
    assert every - parts <= keys, "none is left out"
