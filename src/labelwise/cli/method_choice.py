"""Which method with which settings: from the words of the shell, and where they leave it open from the data."""

from typing import TYPE_CHECKING

from labelwise.cli.output import note, out, plain_table
from labelwise.errors import UsageError

if TYPE_CHECKING:
    from labelwise.data import Dataset
    from labelwise.fitting.choice import Wish
    from labelwise.training.stages import Method


def wish_of(method: str, encoder: str, words: list[str], epochs: int | None) -> "Wish":
    """Return what the words of the shell ask for; two that contradict each other are an error."""
    from labelwise.fitting.choice import Wish
    from labelwise.settings import pairs_of

    settings = pairs_of(words)
    if epochs is not None and settings.setdefault("epochs", str(epochs)) != str(epochs):
        raise UsageError(f"--epochs {epochs} and --set epochs={settings['epochs']} differ. Keep one of them.")
    return Wish(method=method, encoder=encoder, settings=settings)


def expected_side(wish: "Wish", data: str) -> int | None:
    """Return the side to read pictures at, so that they are read once; None leaves it to where they come from.

    Settings that every method would refuse are an error: before data are read.
    """
    from labelwise.data.catalogue import names_own_files, side_to_read
    from labelwise.fitting.choice import encoder_of, possible_method

    method = possible_method(wish, own_pictures=names_own_files(data))
    return side_to_read(data, encoder_of(method))


def decided(data: "Dataset", wish: "Wish") -> "Method":
    """Return the method to train, and tell the user why where it was left open."""
    from labelwise.fitting.choice import decide
    from labelwise.training.distribution import is_main_process

    decision = decide(data, wish)
    for reason in decision.reasons if is_main_process() else ():
        note(reason)
    return decision.method


def check_size(data: "Dataset", size: int | None) -> None:
    """Raise an error for a side of pictures where the data hold none."""
    if size is not None and len(data.shape) != 3:
        raise UsageError(
            f'--size {size} is the side of pictures, and "{data.name}" holds {data.shape[0]} numbers for each image. Leave it out.'
        )


def list_settings(name: str) -> None:
    """Print the settings of a method and their defaults."""
    from labelwise.methods import method_class
    from labelwise.settings import describe

    table = plain_table("setting", "default")
    for key, value in describe(method_class("indicator" if name == "auto" else name)()):
        table.add_row(key, value)
    out().print(table)
