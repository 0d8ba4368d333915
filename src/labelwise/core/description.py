"""The description of a saved classifier, ``classifier.json``: one SHA-256 of each other file, and one of what it says itself."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labelwise.support.errors import StoreError
from labelwise.support.regular import read_regular

FORMAT = 3
ABOUT, WEIGHTS = "classifier.json", "weights.safetensors"
CHECKSUM = "checksum"
ENTRIES = {
    "format", "encoder", "head", "labels", "unseen", "examples", "calibration", "outlier_rule", "verifier", "thresholds", "method", "summary", "versions", "files",
}  # fmt: skip


def description_bytes(about: Mapping[str, Any]) -> bytes:
    """Return a description as the content of its file, with the SHA-256 of what it says as its first entry."""
    plain = json.loads(json.dumps(about))
    return json.dumps({CHECKSUM: _checksum(plain), **plain}, indent=1, ensure_ascii=False).encode() + b"\n"


def read_about(folder: Path) -> dict[str, Any]:
    """Return the description of the classifier saved in a folder, or raise an error."""
    if not folder.exists():
        left = sorted(folder.parent.glob(f".{folder.name}.*.old")) if folder.parent.exists() else []
        hint = f" A version that was being replaced lies in {left[0]}; rename it back." if left else ""
        raise StoreError(f"No saved classifier at {folder}.{hint or ' Make one with fit.'}")
    file = folder / ABOUT
    try:
        about: dict[str, Any] = json.loads(read_regular(file))
    except OSError as error:
        raise StoreError(f"{folder} is no saved classifier: cannot read {ABOUT} ({error.strerror}).") from None
    except (ValueError, RecursionError):
        raise StoreError(f"{file} is damaged: it is not JSON. Restore it from a copy, or fit again.") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        number = about.get("format") if isinstance(about, dict) else None
        raise StoreError(
            f"{folder} has format {number}; this version reads format {FORMAT}. Update labelwise, or fit again."
        )
    stated = about.pop(CHECKSUM, None)
    if (stated is not None and stated != _checksum(about)) or about.keys() - ENTRIES:
        raise StoreError(
            f"{file} differs from its checksum: it is damaged, or was edited. Restore it from a copy, or fit again. "
            f'If you edited it on purpose, remove its entry "{CHECKSUM}", the second line.'
        )
    return about


def _checksum(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def digest_of(path: str | Path) -> str:
    """Return the checksum of a saved classifier's weights; another one means another classifier."""
    files = read_about(Path(path)).get("files")
    return str(files.get(WEIGHTS) if isinstance(files, dict) else None)


def shape_of(path: str | Path) -> tuple[int, ...]:
    """Return the image shape of a saved classifier, without loading it."""
    encoder = read_about(Path(path)).get("encoder")
    shape = encoder.get("shape") if isinstance(encoder, dict) else None
    return tuple(shape) if isinstance(shape, list) else ()
