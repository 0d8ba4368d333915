"""Each call of a request to the disk fails in turn: what can be answered is, all else is an honest 503, and nothing is lost."""

import errno
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from labelwise.server.gallery import small_image
from labelwise.server.labelling import project
from labelwise.server.labelling.app import build
from labelwise.server.labelling.export import FORMS
from labelwise.server.labelling.project import open_project
from labelwise.server.middleware import response_to
from labelwise.server.settings import Service
from labelwise.support import cache
from labelwise.support.errors import DataError, StoreError
from tests.hostile.failing import failing_disk
from tests.server.labelling.photos import draw_photos

PERSON = {"person": "ann", "browser": "ann"}
NAMED = {"actions": [{"kind": "name", "rows": [0], "label": "blue"}, {"kind": "unknown", "rows": list(range(3, 8))}]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[TestClient]:
    """A session whose photos, store, cache and exports are on the disk that fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(home / "cache"))
        with open_project(home / "p", draw_photos(home / "photos", 5), tell=lambda _: None) as opened:
            service = Service(model=home / "p")
            with TestClient(build(opened, service, home / "p"), base_url="http://127.0.0.1") as one:
                assert one.post("/actions", json={**NAMED, **PERSON}).status_code == 200
                yield one


def honest(answer: Any) -> bool:
    """Whether an answer is right, or asks to try again."""
    return bool(answer.status_code == 200 or (answer.status_code == 503 and answer.headers["retry-after"] == "1"))


def write_out(form: str, client: TestClient) -> Any:
    return client.post("/export", json={"format": form})


REQUESTS: dict[str, Callable[[TestClient], Any]] = {
    "state": lambda client: client.get("/state"),
    "a label": lambda client: client.get("/images?label=blue"),
    "no label": lambda client: client.get("/images?of=unknown"),
    "an image": lambda client: client.get("/gallery/1"),
    "a question": lambda client: client.post("/question", json=PERSON),
    **{f"export {form}": partial(write_out, form) for form in FORMS},
}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.filterwarnings("ignore:Features cannot be cached")
def test_a_disk_that_fails_is_an_honest_503(name: str, client: TestClient, home: Path) -> None:
    right, tried = REQUESTS[name](client).content, 0
    with failing_disk(home) as disk:
        for what in disk.tries(errno.EIO):
            small_image.cache_clear()
            answer, tried = REQUESTS[name](client), tried + 1
            assert honest(answer), (what, answer.text)
    assert REQUESTS[name](client).content == right
    assert tried > 4
    assert not [each for each in home.rglob(".*") if each.suffix in (".old", ".part")]


def test_words_that_cannot_be_found_leave_a_list_as_it_is(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DataError("ONNX Runtime cannot run it: no memory")

    monkeypatch.setattr(project, "is_installed", lambda: True)
    monkeypatch.setattr(project, "open_encoder", fail)
    answer = client.get("/images?of=unknown")
    assert (answer.status_code, answer.json()["count"]) == (200, 5)
    assert {tuple(group["words"]) for group in answer.json()["groups"]} == {()}


ERRORS: list[tuple[Exception, int]] = [
    (OSError(errno.EIO, "Input/output error"), 503),
    (OSError(errno.ENOSPC, "No space left on device"), 503),
    (MemoryError(), 503),
    (RuntimeError("can't start new thread"), 503),
    (StoreError("/secret/place is damaged"), 503),
    (DataError("no image"), 400),
    (RuntimeError("anything else"), 500),
    (FileNotFoundError(errno.ENOENT, "No such file"), 500),
]


@pytest.mark.parametrize(("error", "status"), ERRORS, ids=[repr(error) for error, _ in ERRORS])
def test_the_machine_fails_with_503_and_without_a_path(error: Exception, status: int) -> None:
    answer = response_to(error)
    assert answer.status_code == status
    assert (answer.headers.get("retry-after") == "1") == (status == 503)
    assert b"/secret" not in answer.body
