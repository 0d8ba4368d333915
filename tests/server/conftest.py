"""A service over a small model, a browser that opens its page, and images to show it."""

import asyncio
import contextlib
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.core.known_examples import KnownExamples
from labelwise.fitting.fit import fit
from labelwise.train.method import Run
from tests.changed import changed
from tests.conftest import blobs, quick, squares
from tests.contract.subjects import trained
from tests.once import once
from tests.pixels_of import px

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@once
def model_of(name: str) -> Classifier:
    """A method trained for a moment: on six labels if it reads descriptions, on four if not.

    ``several`` is multi-label, ``growing`` knows the examples of its labels, ``tree`` their parents: it is sure of no label.
    """
    if name == "tree":
        model = trained("discriminant")
        parents = tuple(("warm",) if i % 2 else ("cold",) for i in range(len(model.labels)))
        calibration = replace(model.calibration, temperature=30.0, mistakes=np.full(99, 0.55, np.float32))
        return changed(model, labels=replace(model.labels, parents=parents), calibration=calibration)
    if name == "growing":
        model, split = trained("discriminant"), blobs().split("train")
        known = KnownExamples.of(model.labels.names, model.scores(px(split)).embeddings, split.targets)
        return changed(model, examples=known)
    return fit(squares(), quick("indicator"), Run(device="cpu")) if name == "several" else trained(name)


@dataclass
class Site:
    """A running service, asked over HTTP as anyone would."""

    url: str
    stop: Callable[[], None]
    token: str = ""

    def get(self, path: str) -> Any:
        return self._send(urllib.request.Request(f"{self.url}{path}"))

    def post(self, path: str, image: Path, **query: str | int) -> Any:
        address = f"{self.url}{path}?{urlencode(query)}"
        return self._send(urllib.request.Request(address, image.read_bytes(), {"Content-Type": "image/png"}))

    def _send(self, request: urllib.request.Request) -> Any:
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


def start(model: Path, port: int = 0, **settings: Any) -> Site:
    """Serve a saved model in a thread; returns when it answers."""
    uvicorn = pytest.importorskip("uvicorn")
    pytest.importorskip("fastapi")
    from labelwise.server.app import build
    from labelwise.server.settings import Service

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    app = build(Service(model=model, device="cpu", **settings))
    config = uvicorn.Config(app, ws="none", lifespan="on", log_config=None, timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)

    async def answer() -> None:
        await server.serve(sockets=[listener])
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        while server.server_state.connections:  # transports close in the next turns of the loop
            await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: asyncio.run(answer()), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        time.sleep(0.01)

    def stop() -> None:
        server.should_exit = True
        thread.join(10)
        listener.close()

    return Site(f"http://127.0.0.1:{listener.getsockname()[1]}", stop, settings.get("token") or "")


@dataclass
class Images:
    """Blobs of six colours as files; each label's are its own colour."""

    folder: Path

    def of(self, label: int, count: int = 1, first: int = 0) -> list[Path]:
        split = blobs(6).split("test")
        found = px(split)[split.targets == label][first : first + count]
        return [self.save(image, f"blob {label} {first + i}") for i, image in enumerate(found)]

    def save(self, image: Tensor, name: str) -> Path:
        path = self.folder / f"{name}.png"
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
        return path

    def gallery(self) -> Path:
        """A folder with three images of each of four labels, none of them among the first five of ``of``."""
        folder = self.folder / "gallery"
        folder.mkdir()
        for label in range(4):
            for file in self.of(label, 3, first=5):
                file.rename(folder / file.name)
        return folder


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """A function that serves a model of this name; all that it started is stopped in the end."""
    with contextlib.ExitStack() as stack:

        def begin(name: str = "indicator", **settings: Any) -> Site:
            folder = tmp_path / f"{name}.lw"
            if not folder.exists():
                lw.save(model_of(name), folder)
            found = start(folder, **settings)
            stack.callback(found.stop)
            return found

        yield begin


@dataclass
class Visit:
    """A page opened in the browser, and what it must never do: log an error, break its own rules, call a stranger."""

    page: "Page"
    refusals: bool = False  # whether answers such as 401 and 503 are expected; the browser logs each
    faults: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def open(self, site: Site, view: str = "ask", ready: bool = True) -> "Page":
        self.page.goto(f"{site.url}/#{view}")
        if ready:
            self.page.wait_for_selector("body.ready")
        return self.page


@pytest.fixture
def visit(browser: "Browser") -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(30_000)
    page = context.new_page()
    found = Visit(page)
    page.on("console", lambda said: found.faults.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: found.faults.append(str(error)))
    page.on(
        "request",
        lambda sent: (
            found.strangers.append(sent.url)
            if not sent.url.startswith(("http://127.0.0.1:", "blob:", "data:"))
            else None
        ),
    )
    page.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.error('policy: ' + e.violatedDirective))"
    )
    yield found
    context.close()
    said = [text for text in found.faults if not (found.refusals and "Failed to load resource" in text)]
    assert not said
    assert not found.strangers
