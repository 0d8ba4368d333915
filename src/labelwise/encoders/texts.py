"""The text network of an image-text encoder, run by ONNX Runtime and ``tokenizers``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.encoders.onnx import open_session
from labelwise.support.errors import DataError, StoreError, UsageError
from labelwise.support.rows import unit_rows

Array = npt.NDArray[Any]
INSTALL = "pip install 'labelwise[text]'"


@dataclass(frozen=True, eq=False, kw_only=True)
class TextNetwork:
    """A text network with its tokenizer: all that a saved classifier needs to encode a sentence."""

    graph: Array = field(metadata={"shape": ("_bytes",), "dtype": "u"})  # the ONNX file
    tokenizer: Array = field(metadata={"shape": ("_text",), "dtype": "u"})  # tokenizer.json
    output: str  # sentence embeddings [n, d]
    longest: int  # tokens; longer sentences are truncated
    padding: int | None = None  # the padding token; None: no padding
    lowercase: bool = False

    def encode(self, sentences: Sequence[str]) -> Array:
        """Return embeddings of unit length ``[n, d]``, float32. Sentences are encoded one at a time."""
        rows = [self._encoded(sentence) for sentence in sentences]
        embeddings = np.concatenate(rows).astype(np.float32)
        if embeddings.ndim != 2 or not np.isfinite(embeddings).all():
            raise DataError(f"The text network makes {list(embeddings.shape)} of sentences; finite rows are expected.")
        return unit_rows(embeddings)

    def tokens(self, sentence: str) -> dict[str, Array]:
        """Return all inputs that a text network may take for one sentence, each ``[1, t]``."""
        ids = self._reader.encode(sentence.lower() if self.lowercase else sentence).ids
        filling = 0 if self.padding is None else self.longest - len(ids)
        values = {
            "input_ids": ids + [self.padding or 0] * filling,
            "attention_mask": [1] * len(ids) + [0] * filling,
            "token_type_ids": [0] * (len(ids) + filling),
            "position_ids": range(len(ids) + filling),
        }
        return {name: np.array([each], np.int64) for name, each in values.items()}

    def _encoded(self, sentence: str) -> Array:
        tokens, inputs = self.tokens(sentence), self._session.get_inputs()
        if missing := {each.name for each in inputs} - set(tokens):
            raise StoreError(f"The text network asks for {min(missing)}, and tokens are all there is to give.")
        fed = {
            each.name: tokens[each.name].astype(np.int32 if each.type == "tensor(int32)" else np.int64)
            for each in inputs
        }
        try:
            (made,) = self._session.run([self.output], fed)
        except Exception as error:  # ONNX Runtime has no error class
            raise DataError(f"ONNX Runtime cannot run the text network: {error}") from error
        return np.asarray(made)

    @cached_property
    def _session(self) -> Any:
        try:
            return open_session(self.graph.tobytes())
        except Exception as error:  # see above
            raise StoreError(f"ONNX Runtime cannot open the text network: {error}") from error

    @cached_property
    def _reader(self) -> Any:
        try:
            tokenizers = import_module("tokenizers")
        except ModuleNotFoundError:
            raise UsageError(
                f'New sentences are read by the package "tokenizers", which is not installed: {INSTALL}.'
            ) from None
        try:
            reader = tokenizers.Tokenizer.from_str(self.tokenizer.tobytes().decode())
        except Exception as error:  # it raises a bare Exception
            raise StoreError(f"The tokenizer cannot be read ({error}). Get its tokenizer.json again.") from None
        reader.no_padding()
        reader.enable_truncation(self.longest)
        return reader
