"""Every setting has a help text, which is data of its field."""

from dataclasses import dataclass
from typing import Any

import pytest

from labelwise.methods import METHODS
from labelwise.support.settings import describe, explain, help_of, setting
from labelwise.train.networks.patches import Patches
from labelwise.train.pretraining import Pretrain

KINDS: dict[str, Any] = {**METHODS, "pretrain": Pretrain, "patches": Patches}


@dataclass(frozen=True)
class Part:
    """What a part is.

    More.
    """

    a: int = setting(1, "The first.")
    b: int = 2


@dataclass(frozen=True)
class Whole:
    x: tuple[int, ...] = setting((1, 2), "Some numbers.")
    y: str = setting("#", "A mark.")
    part: Part = Part()
    off: Part | None = setting(None, "What is off.")


@dataclass(frozen=True)
class Heir(Whole):
    y: str = "?"


def test_help_is_that_of_the_field_or_of_the_one_it_overrides() -> None:
    assert help_of(Heir, "y") == "A mark."
    assert help_of(Part, "b") == ""
    settings = {one.key: one for one in explain(Heir())}
    assert list(settings) == ["x", "y", "part.a", "part.b", "off.a", "off.b"]
    assert (settings["y"].default, settings["y"].words) == ('"?"', "A mark.")
    assert (settings["part.a"].group, settings["part.a"].description) == ("part", "What a part is.")
    assert settings["off.a"].description == "Off unless one of these is set. What is off."


@pytest.mark.parametrize("name", KINDS)
def test_every_setting_has_a_help_text(name: str) -> None:
    settings = list(explain(KINDS[name]()))
    assert not [one.key for one in settings if len(one.words) < 5 or not one.words.endswith(".")]
    assert not [one.group for one in settings if not one.description]
    keys = {one.key for one in settings}
    every = {key for key, _ in describe(KINDS[name]())}
    parts = {key for key in every if any(one.startswith(f"{key}.") for one in keys)}
    assert every - parts <= keys, "none is left out"
