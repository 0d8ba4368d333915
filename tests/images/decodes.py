"""Count what is decoded in this process, where Pillow does it."""

from hashlib import sha256
from typing import Any

import pytest
from PIL import ImageFile


def count_decodes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the digest of each file is added when its pixels are decoded."""
    decoded: list[str] = []
    load = ImageFile.ImageFile.load

    def loading(self: ImageFile.ImageFile) -> Any:
        if self.tile and self.fp is not None:  # else its pixels are there already
            at = self.fp.tell()
            self.fp.seek(0)
            decoded.append(sha256(self.fp.read()).hexdigest())
            self.fp.seek(at)
        return load(self)

    monkeypatch.setattr(ImageFile.ImageFile, "load", loading)
    return decoded
