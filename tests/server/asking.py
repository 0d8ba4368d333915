"""What tests of the service share: a saved model, a client in the same process, images as files."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from torch import Tensor

from labelwise.core.store import save
from tests.conftest import blobs
from tests.pixels_of import px
from tests.server.conftest import model_of

pytest.importorskip("fastapi", reason="the extra serve is not installed")
from starlette.testclient import TestClient

from labelwise.server.app import build
from labelwise.server.settings import Service

PNG = {"content-type": "image/png"}


def png(image: Tensor, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(stream, kind)
    return stream.getvalue()


def images_of(label: int = 0, count: int = 5) -> Tensor:
    split = blobs(6).split("test")
    return px(split)[split.targets == label][:count]


def saved(folder: Path, name: str = "softmax") -> Path:
    path = folder / f"{name}.lw"
    if not path.exists():
        save(model_of(name), path)
    return path


@contextlib.contextmanager
def serving(model: Path, headers: dict[str, str] | None = None, **settings: Any) -> Iterator[TestClient]:
    """A client of a service that runs in this process."""
    app = build(Service(model=model, device="cpu", **settings))
    with TestClient(app, base_url="http://127.0.0.1:8000", headers=headers) as client:
        yield client


def form(images: Tensor, field: str = "images") -> list[tuple[str, tuple[str, bytes, str]]]:
    return [(field, (f"{i}.png", png(image), "image/png")) for i, image in enumerate(images)]
