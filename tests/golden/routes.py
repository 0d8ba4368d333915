"""What the service answers over HTTP: whole conversations, so that teaching, forgetting and taking back are seen by what follows."""

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.golden.outside import HERE, lines, plain, service

RED, DISC, SQUARES = "data/photos/0 red square.png", "data/photos/3 red disc.png", "data/squares/60.png"
STRANGE, SMALL, TORN = "data/strange/0.png", "data/described/test/red cross/0.png", "data/damaged/torn.png"
CROSSES = tuple(f"data/green-cross/{i}.png" for i in range(4))
NOT_OURS = ("Input should be", "inputs are not permitted")  # how pydantic puts it
COUNTED = ("labelwise_requests_total", "labelwise_labels", "labelwise_changes")


@dataclass(frozen=True)
class Request:
    """One request; ``picture`` is its body, ``form`` the files of each field, ``json`` a document."""

    method: str
    path: str
    picture: str = ""
    form: tuple[tuple[str, Sequence[str]], ...] = ()
    json: Any = None
    headers: tuple[tuple[str, str], ...] = ()

    def send(self, client: Any) -> Any:
        """Return the response."""
        headers = dict(self.headers)
        if self.picture:
            content = Path(self.picture).read_bytes()
            return client.request(
                self.method, self.path, content=content, headers={"content-type": "image/png"} | headers
            )
        files = [(field, (name, Path(name).read_bytes(), "image/png")) for field, names in self.form for name in names]
        return client.request(self.method, self.path, files=files or None, json=self.json, headers=headers)


def get(path: str, **headers: str) -> Request:
    return Request("GET", path, headers=tuple(headers.items()))


def post(path: str, picture: str = "", *, json: Any = None, **form: Sequence[str]) -> Request:
    return Request("POST", path, picture, tuple(form.items()), json)


ABOUT = (get("/health"), get("/card"), get("/labels"))
LOOK = (post("/classify?top=8", RED), get("/labels"))
WRONG = (
    post("/classify?top=0", RED),
    post("/classify?topp=1", RED),
    post("/classify", TORN),
    post("/ask", RED),
    post("/ask?label=owl", RED),
    post("/ask?label=red%20disc&text=red", RED),
    post("/explain?label=owl", RED),
    post("/teach?label=unknown", images=CROSSES[:1]),
    post("/teach?label=red%20disc", images=CROSSES[:1]),
    post("/teach", images=CROSSES[:1]),
    post("/forget?label=owl"),
    post("/undo"),
    get("/nothing"),
    get("/classify"),
    get("/gallery/none"),
    get("/examples/none"),
)

TALKS: dict[str, tuple[str, str, tuple[Request, ...]]] = {
    "indicator": (
        "whitened",
        "--gallery data/gallery --examples data/photos",
        (
            *ABOUT,
            post("/classify", RED),
            post("/classify?top=1", image=[STRANGE]),
            post("/ask?label=red%20square", RED),
            post("/ask?text=a%20red%20square", RED),
            post("/explain?label=red%20disc", DISC),
            post("/explain", image=[DISC]),
            post("/outliers", STRANGE),
            post("/verify", a=[RED], b=[DISC]),
            post("/verify", a=[RED]),
            post("/retrieve?top=4", RED),
            post("/retrieve", image=[DISC]),
            *WRONG,
            post("/teach?label=green%20cross", images=CROSSES),
            *LOOK,
            post("/ask?label=green%20cross", CROSSES[0]),
            post("/explain?label=green%20cross", CROSSES[0]),
            post("/teach?label=stripes", STRANGE),
            post("/teach", json={"label": "owl", "texts": ["a grey owl"]}),
            post("/teach", json={"label": "owl", "vector": [1.0, 0.0]}),
            *LOOK,
            post("/forget?label=red%20disc"),
            post("/ask?label=red%20disc", RED),
            *LOOK,
            post("/undo"),
            post("/forget?label=green%20cross"),
            *LOOK,
            post("/undo"),
            post("/undo"),
            *LOOK,
            get("/health"),
            get("/metrics"),
            get("/openapi.json"),
            get("/"),
            get("/docs"),
        ),
    ),
    "softmax": ("calibrated", "", (get("/card"), *LOOK, post("/outliers", RED), post("/teach?label=x", images=CROSSES), *LOOK)),
    "prototype": ("similar", "", (get("/card"), *LOOK, post("/verify", a=[RED], b=[DISC]), post("/explain", RED))),
    "clarel": (
        "clarel",
        "",
        (
            *ABOUT,
            post("/classify", SMALL),
            post("/ask?text=a%20green%20square", SMALL),
            post("/explain?text=a%20red%20cross", SMALL),
            post("/explain", SMALL),
            post("/outliers", SMALL),
            post("/teach", json={"label": "hat", "texts": ["a green square", "this square has a hat"]}),
            post("/teach?label=other", json={"label": "hat", "texts": ["a green square"]}),
            post("/teach?label=cross", images=CROSSES),
            post("/classify?top=10", SMALL),
            get("/labels"),
            post("/forget?label=blue%20square"),
            post("/classify?top=10", SMALL),
            get("/card"),
        ),
    ),
    "eszsl": (
        "eszsl",
        "",
        (
            get("/card"),
            post("/teach", json={"label": "blue cross", "vector": [0, 0, 1, 0, 0, 1]}),
            post("/teach", json={"label": "short", "vector": [0, 1]}),
            post("/teach", json={"label": "none"}),
            post("/classify?top=9", SMALL),
            get("/labels"),
        ),
    ),
    "several": (
        "several",
        "",
        (
            get("/card"),
            post("/classify", SQUARES),
            post("/ask?label=green", SQUARES),
            post("/teach?label=new", images=CROSSES),
            post("/classify?top=1", SQUARES),
        ),
    ),
    "grades": ("grades", "", (get("/card"), post("/classify", "data/grades/pictures/66.png"))),
    "zero_label": ("named", "", (get("/card"), *LOOK, post("/teach?label=x", images=CROSSES), *LOOK)),
    "state": ("served", "", (*ABOUT, *LOOK, post("/ask?label=green%20cross", RED), post("/undo"), *LOOK)),
    "guarded": (
        "indicator",
        "--read-only --token secret",
        (
            get("/health"),
            get("/card"),
            get("/card", authorization="Bearer wrong"),
            get("/card", authorization="Bearer secret"),
            Request("POST", "/teach?label=x", form=(("images", CROSSES),), headers=(("authorization", "Bearer secret"),)),
            Request("POST", "/forget?label=red%20disc", headers=(("authorization", "Bearer secret"),)),
            Request("POST", "/undo", headers=(("authorization", "Bearer secret"),)),
        ),
    ),
}  # fmt: skip


def talk(name: str) -> list[Any]:
    """Return the requests of a conversation and what is answered to each."""
    model, words, requests = TALKS[name]
    for folder in (f"{model}.lw", f"{model}.lw.taught"):
        if Path("folders", folder).exists():
            shutil.copytree(Path("folders", folder), folder)
    return service([f"{model}.lw", *words.split()], lambda client: [_heard(client, one) for one in requests])  # type: ignore[no-any-return]


def _heard(client: Any, request: Request) -> dict[str, Any]:
    """Return a request and its answer as JSON values."""
    answer = request.send(client)
    kind = answer.headers.get("content-type", "")
    heard = {"asked": f"{request.method} {request.path}", "status": answer.status_code, "type": kind}
    if request.json is not None:
        heard["asked"] += f" {request.json}"
    if request.path == "/openapi.json":
        return heard | {"routes": _routes(answer.json())}
    if request.path == "/metrics":
        counts = (line.removesuffix(".0") for line in lines(answer.text) if line.startswith(COUNTED))
        return heard | {"lines": sorted(counts)}
    if kind != "application/json":
        return heard
    document = answer.json()
    if any(words in document.get("error", "") for words in NOT_OURS):
        document["error"] = "<words of a library>"
    pictures = [one.pop("image") for key in ("matches", "examples") for one in document.get(key, ())]
    if pictures:  # ids depend on the place of the file
        shown = client.get(pictures[0])
        heard["first picture"] = [shown.status_code, shown.headers["content-type"], pictures[0].split("/")[1]]
    return heard | {"json": plain(document)}


def _routes(document: dict[str, Any]) -> dict[str, Any]:
    """Return what the document of the service says of each route."""
    return {
        f"{method.upper()} {path}": {
            "id": route.get("operationId"),
            "summary": route["summary"],
            "options": sorted((one["in"], one["name"], one["required"]) for one in route.get("parameters", ())),
            "takes": sorted(route.get("requestBody", {}).get("content", {})),
            "answers": {status: sorted(one.get("content", {})) for status, one in sorted(route["responses"].items())},
        }
        for path, methods in document["paths"].items()
        for method, route in methods.items()
    }


def teach_over_http() -> None:
    """Teach a service one label more and one less, and undo a change; keep its state."""
    home = HERE / "folders"
    shutil.rmtree(home / "served.lw.taught", ignore_errors=True)
    requests = (
        post("/teach?label=green%20cross", images=CROSSES),
        post("/forget?label=red%20disc"),
        post("/teach?label=stripes", STRANGE),
        post("/undo"),
    )
    service(["folders/served.lw"], lambda client: [_heard(client, one) for one in requests])
    with closing(sqlite3.connect(home / "served.lw.taught" / "changes.sqlite")) as state:
        state.execute("PRAGMA journal_mode=DELETE")  # readers create no files beside it
