"""The description of a saved classifier, ``classifier.json``."""

import json
from pathlib import Path
from typing import Any

from labelwise.support.errors import StoreError
from labelwise.support.files import read_json_bytes

FORMAT = 3
ABOUT, WEIGHTS = "classifier.json", "weights.safetensors"


def read_about(folder: Path) -> dict[str, Any]:
    """Return the description of the classifier saved in a folder, or raise an error."""
    if not folder.exists():
        left = sorted(folder.parent.glob(f".{folder.name}.*.old")) if folder.parent.exists() else []
        hint = f" A version that was being replaced lies in {left[0]}; rename it back." if left else ""
        raise StoreError(f"No saved classifier at {folder}.{hint or ' Make one with fit.'}")
    try:
        about: dict[str, Any] = json.loads(read_json_bytes(folder / ABOUT))
    except OSError as error:
        raise StoreError(f"{folder} is no saved classifier: cannot read {ABOUT} ({error.strerror}).") from None
    except (ValueError, RecursionError):
        raise StoreError(
            f"{folder / ABOUT} is damaged: it is not JSON. Restore it from a copy, or fit again."
        ) from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        number = about.get("format") if isinstance(about, dict) else None
        raise StoreError(
            f"{folder} has format {number}; this version reads format {FORMAT}. Update labelwise, or fit again."
        )
    return about


def digest_of(path: str | Path) -> str:
    """Return the checksum of a saved classifier's weights; another one means another classifier."""
    files = read_about(Path(path)).get("files")
    return str(files.get(WEIGHTS) if isinstance(files, dict) else None)


def shape_of(path: str | Path) -> tuple[int, ...]:
    """Return the image shape of a saved classifier, without loading it."""
    encoder = read_about(Path(path)).get("encoder")
    shape = encoder.get("shape") if isinstance(encoder, dict) else None
    return tuple(shape) if isinstance(shape, list) else ()
