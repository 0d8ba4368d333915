"""Encoders from ONNX files. Any ONNX file with a card next to it is an encoder.

The card is a small JSON file of the same name (``birds.onnx`` and ``birds.json``) with the fields of ``Card``.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from labelwise.encoders.encoder import Array, Features
from labelwise.images.view import Fit, View
from labelwise.support.cache import digest
from labelwise.support.errors import DataError, LabelwiseError, StoreError, UsageError
from labelwise.support.files import check_size, open_regular, read_regular
from labelwise.support.settings import from_plain, to_plain

SILENT = 4  # log level: errors are raised, not printed
BESIDE = "session.model_external_initializers_file_folder_path"  # the folder of external weights


def onnxruntime() -> Any:
    """Return the module ``onnxruntime`` with telemetry off.

    Since version 1.29 its builds for Linux report to Microsoft and keep a file in the user's cache, unless this variable is set
    before the import. The function does the same on Windows.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    module = import_module("onnxruntime")
    module.disable_telemetry_events()
    return module


def runtime_name() -> str:
    """Return the name and version of ONNX Runtime without importing it."""
    return f"onnxruntime {version('onnxruntime')}"


def open_session(content: bytes) -> Any:
    """Return a session on one thread for the content of an ONNX file; several threads may use it at once."""
    module = onnxruntime()
    options = module.SessionOptions()
    options.log_severity_level = SILENT
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry(BESIDE, os.devnull)  # not a folder: the model may not read files of this machine
    return module.InferenceSession(content, options, providers=["CPUExecutionProvider"])


MOST_BYTES: Final = 2**31 - 1  # of a protobuf message
MOST_CARD: Final = 2**20
LARGEST: Final = 2**28  # values of one image
ELSEWHERE: Final = b"\x0a\x08location\x12"  # marks weights stored in another file


@dataclass(frozen=True, kw_only=True)
class Card:
    """The inputs and outputs of an ONNX file."""

    name: str
    shape: tuple[int, ...]  # (c, h, w): bytes of an image; (a,): float32, a sound or features
    input: str = "images"
    output: str = "features"  # [n, d]
    maps: str | None = None  # the output [n, d, h, w] for heat maps; features are its mean, or a separate token
    mean: tuple[float, ...] | None = None  # of each channel in [0, 1]; None where the graph takes bytes
    std: tuple[float, ...] | None = None
    fit: Fit = "crop"
    crop: float | None = None  # centre crop, as in ``View``
    mirror: bool = False  # features are averaged over an image and its mirror image
    licence: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if len(self.shape) not in (1, 3) or min(self.shape) < 1 or prod(self.shape) > LARGEST:
            raise UsageError(f"The shape of an encoder's input is (c, h, w) or (a,); given {self.shape}.")
        if (self.mean is None) != (self.std is None) or (self.std is not None and 0 in self.std):
            raise UsageError("A card has both mean and std, none of it 0, or neither.")
        self.view.check(self.shape)

    @property
    def view(self) -> View:
        """The view of images of this shape."""
        return View(crop=self.crop, fit=self.fit, mirror=self.mirror)


class OnnxEncoder:
    """An ONNX file run by ONNX Runtime, one image per run, on the calling thread.

    So the features of an image depend on that image alone, and threads do not wait for each other. The file is read on first
    use. If ``open_encoder`` can open the encoder again by name, shape and view, ``reference`` is that view, and a saved
    classifier need not contain the file.
    """

    def __init__(
        self, card: Card, id: str, read: Callable[[], bytes], width: int | None = None, reference: View | None = None
    ) -> None:
        self.card, self.id, self._read, self._width, self.reference = card, id, read, width, reference
        self.name, self.shape, self.fit, self.has_maps = card.name, card.shape, card.fit, card.maps is not None
        self.window = (slice(None), slice(None)) if len(card.shape) == 1 else card.view.window(*card.shape[1:])
        self._session: Any = None
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return OnnxEncoder, (self.card, self.id, self._read, self._width, self.reference)

    @property
    def runtime(self) -> str:
        """The library and version that runs the encoder."""
        return runtime_name()

    @property
    def width(self) -> int:
        """The number of features of an image."""
        if self._width is None:
            kind = np.uint8 if len(self.shape) == 3 else np.float32
            self._width = self(np.zeros((1, *self.shape), kind)).shape[1]
        return self._width

    @property
    def content(self) -> bytes:
        """The ONNX file."""
        return self._read()

    def __call__(self, images: Array) -> Features:
        """Return the features ``[n, d]`` of images ``[n, *shape]``."""
        rows = [self._seen(image, self.card.output)[0] for image in self._checked(images)]
        return np.concatenate(rows) if rows else np.empty((0, self.width), np.float32)

    def locate(self, images: Array) -> tuple[Features, Features]:
        """Return features ``[n, d]`` and maps ``[n, d, h, w]`` of images ``[n, *shape]``; maps of mirror images are flipped back."""
        if self.card.maps is None:
            raise UsageError(f"{self.name} has no feature maps.")
        rows = [self._seen(image, self.card.output, self.card.maps) for image in self._checked(images)]
        features, maps = (np.concatenate(each) for each in zip(*rows, strict=True))
        if maps.ndim != 4 or maps.dtype != np.float32 or maps.shape[1] != features.shape[1]:
            raise UsageError(
                f"The maps of {self.name} are {list(maps.shape[1:])}; its {features.shape[1]} features need a map each. "
                'Leave "maps" out of its card.'
            )
        return features, maps

    def _checked(self, images: Array) -> Array:
        kind = np.uint8 if len(self.shape) == 3 else np.float32
        if tuple(images.shape[1:]) != self.shape or images.dtype != kind:
            raise UsageError(
                f"{self.name} takes {np.dtype(kind)} [n, {str(self.shape)[1:-1].strip(',')}]; given {images.dtype} {list(images.shape)}."
            )
        return images[(..., *self.window)] if len(self.shape) == 3 else images

    def _seen(self, image: Array, *outputs: str) -> list[Features]:
        results = self._run(image[None], outputs)
        if not self.card.mirror:
            return results
        others = (each if each.ndim == 2 else each[..., ::-1] for each in self._run(image[None, ..., ::-1], outputs))
        return [(one + other) * np.float32(0.5) for one, other in zip(results, others, strict=True)]

    def _run(self, x: Array, outputs: Sequence[str]) -> list[Features]:
        session, fed = self._opened(), {self.card.input: np.ascontiguousarray(self.normalised(x))}
        try:
            results: list[Features] = session.run(list(outputs), fed)
        except Exception as error:  # ONNX Runtime has no error class
            raise DataError(f"ONNX Runtime cannot run {self.name}: {error}") from error
        self._check_features(results[0])
        return results

    def normalised(self, x: Array) -> Array:
        """Normalise images by the mean and the standard deviation of the card."""
        if self.card.mean is None:
            return x
        mean, std = (np.array(each, np.float32)[:, None, None] for each in (self.card.mean, self.card.std))
        normalised: Array = (x.astype(np.float32) / np.float32(255) - mean) / std
        return normalised

    def _check_features(self, features: Any) -> None:
        """Raise an error unless the output for one image matches the card: a row of finite features."""
        kind, shape = getattr(features, "dtype", type(features).__name__), np.shape(features)
        if kind != np.float32 or len(shape) != 2 or shape[0] != 1 or shape[1] != (self._width or shape[1]):
            wanted = f"float32 [1, {self._width or 'd'}]"
            raise DataError(f"{self.name} makes {kind} {list(shape)} of one image; an encoder makes {wanted}.")
        if not np.isfinite(features).all():
            raise DataError(f"{self.name} makes features of an image that are not finite (NaN or infinity).")

    def _opened(self) -> Any:
        with self._lock:
            if self._session is None:
                content = self._read()
                if ELSEWHERE in content:
                    raise StoreError(f"{self.name} keeps its weights in another file. Save it as one ONNX file.")
                try:
                    self._session = open_session(content)
                    self._check_names()
                except LabelwiseError:
                    raise
                except Exception as error:  # ONNX Runtime has no error class
                    raise StoreError(f"ONNX Runtime cannot open {self.name}: {error}") from error
        return self._session

    def _check_names(self) -> None:
        inputs = [each.name for each in self._session.get_inputs()]
        outputs = [each.name for each in self._session.get_outputs()]
        if inputs != [self.card.input] or not {self.card.output, self.card.maps or self.card.output} <= set(outputs):
            raise StoreError(
                f"The card of {self.name} names {self.card.input} and {self.card.output}, but the file has the inputs "
                f"{', '.join(inputs)} and the outputs {', '.join(outputs)}."
            )


def open_onnx(path: str | Path) -> OnnxEncoder:
    """Return the encoder of an ONNX file with a card next to it."""
    path = Path(path)
    card, content = read_card(path.with_suffix(".json")), _read(path)
    return OnnxEncoder(card, onnx_id(card, content), partial(read_file, path))


def read_card(path: Path) -> Card:
    """Return the card in a JSON file."""
    try:
        plain = json.loads(read_regular(path, MOST_CARD))
        if not isinstance(plain, dict):
            raise ValueError("a card is a table")
        return from_plain(Card, plain)
    except FileNotFoundError:
        raise _missing(path) from None
    except (OSError, ValueError, RecursionError, TypeError, UsageError) as error:
        raise StoreError(f'The encoder "{path}" cannot be read: {error}') from None


def _read(path: Path) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise StoreError(f'The encoder "{path}" cannot be read: {error}') from None


def _missing(path: Path) -> StoreError:
    return StoreError(f'There is no "{path}": an encoder is an .onnx file with a card, a .json file.')


def onnx_id(card: Card, content: bytes) -> str:
    """Return an identifier of the features: a digest of the file and of the card fields that affect them."""
    plain = to_plain(replace(card, name="", licence="", source="", maps=None))
    return digest(json.dumps(plain, sort_keys=True).encode(), content).hex()


def read_file(path: Path) -> bytes:
    """Return the content of an ONNX file."""
    with open_regular(path, MOST_BYTES) as file:
        check_size(path, path.stat().st_size, StoreError)
        return file.read(MOST_BYTES)


def card_file(card: Card) -> bytes:
    """Return the card as the content of a JSON file."""
    return json.dumps(to_plain(card), indent=1).encode() + b"\n"
