"""Image preprocessing of a model-hub folder, in the format of transformers or open_clip."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from labelwise.images.view import Fit
from labelwise.support.errors import StoreError
from labelwise.support.files import read_regular

OPEN_CLIP, PREPROCESSOR = "open_clip_config.json", "preprocessor_config.json"
MOST_JSON: Final = 2**26  # bytes; a tokenizer of a quarter of a million words has 34 MB
INTERPOLATIONS: Final[Mapping[object, str]] = {2: "", 3: " bicubic", "bilinear": "", "bicubic": " bicubic"}

Floats = tuple[float, ...]


def preprocessing(folder: Path) -> tuple[tuple[int, int, int], float | None, Fit, Floats, Floats]:
    """Return the shape, the crop, the fit, and the mean and standard deviation in [0, 1]."""
    if not (folder / PREPROCESSOR).is_file():
        return _preprocessing_of_open_clip(folder)
    plain = read_json(folder / PREPROCESSOR)
    crops, size = bool(plain.get("do_center_crop")), plain.get("size", plain.get("crop_size"))
    short = (size if crops else None) if isinstance(size, int) else (size or {}).get("shortest_edge")
    sides = _sides(size) if short is None else (short, short)
    if short is not None and not crops:
        raise StoreError(f"{PREPROCESSOR} leaves images of any shape; a centre crop or both sides are expected.")
    crop, kind = None, "stretch" if short is None else "crop"
    if crops:
        inner = _sides(plain.get("crop_size", size))
        if inner[0] > sides[0] or inner[0] != inner[1]:
            raise StoreError(f"{PREPROCESSOR} crops {list(inner)} of {list(sides)}; a smaller square is expected.")
        crop = float(inner[0]) if inner[0] < sides[0] else None
    mean: Floats = (0.0, 0.0, 0.0)
    std: Floats = (1.0, 1.0, 1.0)
    if plain.get("do_normalize", True):
        mean, std = (tuple(map(float, plain[name])) for name in ("image_mean", "image_std"))
    step = 255 * float(plain.get("rescale_factor", 1 / 255)) if plain.get("do_rescale", True) else 255.0
    fit = _fit(kind, plain.get("resample", 2))
    return (3, *sides), crop, fit, tuple(each / step for each in mean), tuple(each / step for each in std)


def _preprocessing_of_open_clip(folder: Path) -> tuple[tuple[int, int, int], float | None, Fit, Floats, Floats]:
    try:
        plain = read_json(folder / OPEN_CLIP)
        preprocess, size = plain["preprocess_cfg"], plain["model_cfg"]["vision_cfg"]["image_size"]
    except (OSError, KeyError, TypeError):
        raise StoreError(
            f'"{folder}" does not say how images are brought to the network: get {PREPROCESSOR}.'
        ) from None
    size = preprocess.get("size", size)
    sides = (size, size) if isinstance(size, int) else (int(size[-2]), int(size[-1]))
    mode = {"shortest": "crop", "squash": "stretch"}.get(preprocess.get("resize_mode", "shortest"), "")
    fit = _fit(mode, preprocess.get("interpolation", "bicubic"))
    mean, std = (tuple(map(float, preprocess[name])) for name in ("mean", "std"))
    return (3, *sides), None, fit, mean, std


def _fit(kind: str, interpolation: object) -> Fit:
    if interpolation not in INTERPOLATIONS or not kind:
        raise StoreError(
            f"Images are resized in a way that is not known here: {kind} {interpolation}. Bilinear and bicubic are."
        )
    fits: Mapping[str, Fit] = {
        "crop": "crop", "stretch": "stretch", "crop bicubic": "crop bicubic", "stretch bicubic": "stretch bicubic",
    }  # fmt: skip
    return fits[kind + INTERPOLATIONS[interpolation]]


def _sides(size: Any) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    try:
        return int(size["height"]), int(size["width"])
    except (KeyError, TypeError, ValueError):
        raise StoreError(f"{PREPROCESSOR} has the size {size}; a side, or height and width are expected.") from None


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object from a file of a folder."""
    try:
        plain = json.loads(read_regular(file, MOST_JSON))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f'"{file}" cannot be read: {error}') from None
    if not isinstance(plain, dict):
        raise StoreError(f'"{file}" is a table of names and values in such folders; given {type(plain).__name__}.')
    return plain
