"""The network of the sentence transformer, in torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from labelwise.support.regular import regular_path

Array = npt.NDArray[np.float32]
_BATCH = 64
_REMEMBERED = 200_000  # sentences whose vectors are kept


def read_weights(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name."""
    return load_file(regular_path(file))


@dataclass(frozen=True, eq=False, kw_only=True)
class MiniLM:
    """A BERT encoder whose token embeddings are averaged and brought to unit length."""

    weights: dict[str, Tensor]  # tensors under the names that BERT checkpoints use
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
        tokens = [torch.tensor(each.ids) for each in self.tokenizer.encode_batch(list(texts))]
        embeddings = torch.empty(len(tokens), self.weights["embeddings.LayerNorm.weight"].shape[0])
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        with torch.no_grad():
            for start in range(0, len(order), _BATCH):
                rows = order[start : start + _BATCH]
                padded = torch.nn.utils.rnn.pad_sequence([tokens[i] for i in rows], batch_first=True)
                lengths = torch.tensor([len(tokens[i]) for i in rows])
                embeddings[rows] = self._forward(padded, torch.arange(padded.shape[1]) < lengths[:, None])
        return embeddings.numpy()

    def _forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        """Return sentence vectors ``[n, a]`` of tokens ``[n, t]``; ``real [n, t]`` is False where there is padding."""
        table = self.weights
        x = table["embeddings.word_embeddings.weight"][tokens]
        x = x + table["embeddings.position_embeddings.weight"][: tokens.shape[1]]
        x = self._norm(x + table["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(self.layers):
            at = f"encoder.layer.{layer}"
            x = self._norm(x + self._attend(x, real, f"{at}.attention"), f"{at}.attention.output.LayerNorm")
            inner = F.gelu(self._dense(x, f"{at}.intermediate.dense"))
            x = self._norm(x + self._dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        mean = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return F.normalize(mean, dim=-1)

    def _attend(self, x: Tensor, real: Tensor, at: str) -> Tensor:
        """Return what each token gathers from the others ``[n, t, a]``."""
        query, key, value = (
            self._dense(x, f"{at}.self.{part}").view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=real[:, None, None])
        return self._dense(mixed.transpose(1, 2).flatten(2), f"{at}.output.dense")

    def _dense(self, x: Tensor, at: str) -> Tensor:
        return F.linear(x, self.weights[f"{at}.weight"], self.weights[f"{at}.bias"])

    def _norm(self, x: Tensor, at: str) -> Tensor:
        weight = self.weights[f"{at}.weight"]
        return F.layer_norm(x, weight.shape, weight, self.weights[f"{at}.bias"], self.epsilon)
