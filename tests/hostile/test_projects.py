"""Projects of labelling that lie, requests to their page that make no sense, and places where no project can be."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from labelwise.label import ledger
from labelwise.label.actions import Action
from labelwise.server.labelling.app import build
from labelwise.server.labelling.project import ACTIONS, LIST, MODEL, Project, open_project
from labelwise.server.settings import Service
from labelwise.server.store import Position, Record, Store
from labelwise.support.errors import LabelwiseError, StoreError, UsageError
from tests.server.labelling.photos import draw_photos


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_photos(tmp_path_factory.mktemp("photos") / "all", 2)


@pytest.fixture
def project(photos: Path, tmp_path: Path) -> Iterator[Project]:
    with open_project(tmp_path / "p", photos, tell=lambda _: None) as one:
        yield one


LIES: list[tuple[str, Any]] = [
    (LIST, {}),
    (LIST, {"files": 3, "names": []}),
    (LIST, {"files": ["x", 4], "names": []}),
    (LIST, {"files": [], "names": [""]}),
    (LIST, {"files": [], "names": [["x"]]}),
    (ACTIONS, {}),
    (ACTIONS, {"actions": [3]}),
    (ACTIONS, {"actions": [{}]}),
    (ACTIONS, {"actions": [{"kind": "name", "rows": [99], "label": "x"}]}),
    (ACTIONS, {"actions": [{"kind": "merge", "label": "x", "into": "y"}]}),
    (ACTIONS, {"actions": [{"kind": "undo", "of": 7}]}),
    ("teach", {"label": "x"}),
]


@pytest.mark.parametrize("lie", LIES, ids=[json.dumps(lie)[:60] for lie in LIES])
def test_a_store_that_lies_is_refused_in_words(lie: tuple[str, Any], photos: Path, tmp_path: Path) -> None:
    with open_project(tmp_path / "p", photos, tell=lambda _: None):
        pass
    store = Store(tmp_path / "p", MODEL)
    news = store.read(Position())
    assert news is not None
    store.change(news.position, lambda _: Record(*lie))
    store.close()
    with pytest.raises(StoreError, match="damaged"), open_project(tmp_path / "p", photos, tell=lambda _: None):
        pass


def test_a_place_where_no_project_can_be(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "far")
    for place in ("file", "file/p", "link", "x" * 300):
        with pytest.raises(LabelwiseError), open_project(tmp_path / place, photos, tell=lambda _: None):
            pass


REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", f"/gallery/{'1' * 5000}", None),
    ("GET", "/gallery/-1", None),
    ("GET", "/gallery/..%2f..%2fetc%2fpasswd", None),
    ("GET", "/static/../label.html", None),
    ("GET", "/images?label=%ff", None),
    ("GET", "/images?of=" + "x" * 9999, None),
    ("DELETE", "/actions", None),
    ("POST", "/actions", {"actions": [{}]}),
    ("POST", "/actions", {"actions": [{"rows": [1]}]}),
    ("POST", "/actions", {"actions": [{"kind": ["name"], "rows": [1], "label": "x"}]}),
    ("POST", "/actions", {"actions": [{"kind": "name", "rows": [10**400], "label": "x"}]}),
    ("POST", "/actions", {"actions": [{"kind": "name", "rows": [True], "label": "x"}]}),
    ("POST", "/actions", {"actions": [{"kind": "name", "rows": {"1": 2}, "label": "x"}]}),
    ("POST", "/actions", {"actions": [{"kind": "name", "rows": [1], "label": "unknown"}]}),
    ("POST", "/actions", {"actions": [{"kind": "name", "rows": [1], "label": "\ud800"}]}),
    ("POST", "/actions", {"actions": [{"kind": "merge", "label": "x", "into": "y"}]}),
    ("POST", "/actions", {"actions": [{"kind": "undo", "of": 10**30}]}),
    ("POST", "/actions", {"actions": [{"kind": "name", "rows": [1], "label": "x", "seconds": float("nan")}]}),
    ("POST", "/actions", {"actions": [{"kind": "name", "rows": [1], "label": "x"}], "person": ["x"]}),
    ("POST", "/export", {"format": "csv", "precision": float("nan")}),
    ("POST", "/export", {"format": "../x"}),
    ("POST", "/question", "["),
    ("POST", "/question", "[" * 100_000),
    ("POST", "/question", "1" * 5000),
    ("POST", "/question", '{"browser": ' + "1" * 5000 + "}"),
]


def test_requests_that_make_no_sense_are_refused_and_change_nothing(project: Project, tmp_path: Path) -> None:
    page = TestClient(build(project, Service(model=tmp_path), tmp_path / "p"), "http://127.0.0.1")
    for method, path, body in REQUESTS:
        content = body if body is None or isinstance(body, str) else json.dumps(body)
        answer = page.request(method, path, content=content)
        assert 400 <= answer.status_code < 500, (method, path[:80], answer.text[:200])
        assert answer.json()["error"], path[:80]
    assert project.session.actions == []
    assert page.get("/state").status_code == 200


def test_an_action_that_is_on_disk_is_acknowledged_whatever_happens_next(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = TestClient(build(project, Service(model=tmp_path), tmp_path / "p"), "http://127.0.0.1")
    name = {"kind": "name", "rows": [1], "label": "x"}
    assert page.post("/actions", json={"actions": [name], "browser": 3}).status_code == 400
    assert page.post("/undo", json={"browser": 3}).status_code == 400
    assert project.session.actions == []
    change, gone = project._store.change, list[bool]()

    def cut_off(*given: Any) -> Any:
        found = change(*given)
        gone.append(True)
        return found

    def read(*_: Any) -> None:
        if gone:
            raise StoreError("The disk is gone.")

    monkeypatch.setattr(project._store, "change", cut_off)
    monkeypatch.setattr(project._store, "read", read)
    assert page.post("/actions", json={"actions": [name]}).status_code == 200
    assert [one.kind for one in project.session.actions] == ["name"]
    later = page.post("/actions", json={"actions": [name]})
    assert (later.status_code, later.headers["retry-after"]) == (503, "1")
    gone.clear()
    assert page.post("/undo", json={}).status_code == 200


def test_labels_do_not_fill_the_memory(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_LABELS", 3)
    project.add([Action(kind="add", label=name) for name in "abc"])
    for kind, rows in (("add", ()), ("name", (0,)), ("not", (0,))):
        with pytest.raises(UsageError, match="at most 3 labels"):
            project.add([Action(kind=kind, rows=rows, label="d")])  # type: ignore[arg-type]
    project.add([Action(kind="name", rows=(0,), label="A")])


def test_one_word_in_two_spellings_is_one_label(project: Project) -> None:
    project.add(
        [Action(kind="name", rows=(0,), label="caf\u00e9"), Action(kind="name", rows=(1,), label=" cafe\u0301 ")]
    )
    assert project.session.names == ["caf\u00e9"]
