"""Count which files are decoded, in this process."""

from typing import Any

import pytest

from labelwise.images import stored
from labelwise.images.decode.workers import decode_safely


def count_decodes(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list to which each file (or its content) is added when it is decoded."""
    decoded: list[object] = []

    def decoding(file: Any, frame: Any) -> Any:
        decoded.append(file)
        return decode_safely(file, frame)

    monkeypatch.setattr(stored, "decode_safely", decoding)
    return decoded
