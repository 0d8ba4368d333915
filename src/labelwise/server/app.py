"""The routes: the words of the shell over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from labelwise import __version__
from labelwise.server import answers
from labelwise.server.bodies import TYPES, read_form, read_lesson, read_picture
from labelwise.server.engine import Engine
from labelwise.server.guard import Guard
from labelwise.server.measures import Measures
from labelwise.server.questions import MOST_TOP, Ask, Classify, Explain, Outliers, Teach, Verify
from labelwise.server.refusals import STATUSES, Refusal
from labelwise.server.settings import Service
from labelwise.server.shown import TYPES as SHOWN_TYPES
from labelwise.server.shown import small_picture

PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
              ".svg": "image/svg+xml"}  # fmt: skip
DESCRIPTION = "Questions to one image classifier, and labels that it is taught while it runs."
MOST_TEXT = 2_000
Top = Annotated[int, Query(ge=1, le=MOST_TOP, description="How many to list.")]
Label = Annotated[str, Query(min_length=1, max_length=500, description="A label.", examples=["barn owl"])]
MaybeLabel = Annotated[str | None, Query(min_length=1, max_length=500, description="A label.", examples=["barn owl"])]
Text = Annotated[
    str | None, Query(min_length=1, max_length=MOST_TEXT, description="A sentence, where the model reads texts.")
]


def build(service: Service, measures: Measures | None = None) -> ASGIApp:
    """Return the application of a service, its classifier loaded and its journal read."""
    measures = measures or Measures()
    engine = Engine(service, measures)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        leaving = asyncio.create_task(_leave(measures))
        yield
        leaving.cancel()
        await asyncio.get_running_loop().run_in_executor(None, engine.stop)

    app = FastAPI(
        title="labelwise", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None, lifespan=life
    )
    _handle_errors(app)
    _add_page(app)
    _add_reading(app, engine)
    _add_questions(app, engine)
    _add_changes(app, engine)
    routes = frozenset(path for route in app.routes if "{" not in (path := getattr(route, "path", "{")))
    app.state.engine = engine
    return Guard(app, service, measures, routes)


async def _leave(measures: Measures) -> None:
    """Leave the counts of this worker for the others, every second."""
    while measures.folder is not None:
        await asyncio.sleep(1)
        measures.leave()


def _reply(document: Any) -> Response:
    """Return a JSON answer; it is not validated anew, which would take longer than the question."""
    return Response(json.dumps(document, ensure_ascii=False, allow_nan=False).encode(), media_type="application/json")


def _refused(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the refusals that a route declares, and those of all routes."""
    every = sorted({400, 401, 403, 404, 405, 429, 500, 503, *statuses})
    return {status: {"model": answers.Error, "description": STATUSES[status]} for status in every}


BODY = (408, 411, 413, 415, 422)


def _only(request: Request, *names: str) -> None:
    """Refuse options that a route does not have."""
    for name in request.query_params:
        if name not in names:
            raise Refusal(400, f'No option "{name}" here. Options: {", ".join(names) or "none"}.')


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> Response:
        return JSONResponse({"error": error.text}, error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def wrong(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return JSONResponse({"error": f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}."}, 400)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        said = {
            404: f"There is no route {request.url.path}.",
            405: f"{request.url.path} does not take {request.method}.",
        }
        return JSONResponse({"error": said.get(error.status_code, str(error.detail))}, error.status_code, error.headers)


def _add_page(app: FastAPI) -> None:
    """Add the page and its files; the list is made once, so that no path of a client is ever opened."""
    files = {file.name: file for file in sorted(PAGE.iterdir()) if file.suffix in PAGE_TYPES} if PAGE.is_dir() else {}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _file(files, "index.html")

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        return _file({key: file for key, file in files.items() if key != "index.html"}, name)


def _file(files: dict[str, Path], name: str) -> Response:
    if name not in files:
        raise Refusal(404, "There is no such file.")
    return Response(files[name].read_bytes(), media_type=PAGE_TYPES[files[name].suffix])


def _add_reading(app: FastAPI, engine: Engine) -> None:
    service = engine.service

    @app.get("/health", response_model=answers.Health, responses=_refused(), summary="Whether the service is up")
    async def health(request: Request) -> Response:
        _only(request)
        now = await engine.present()
        named = {"status": "ok", "model": service.model.resolve().name}
        return _reply({**named, "labels": len(now.classifier.labels), "change": now.change})

    @app.get("/card", response_model=answers.Card, responses=_refused(), summary="What the model is and can")
    async def card(request: Request) -> Response:
        _only(request)
        labels = (await engine.present()).classifier
        counts = {"labels": len(labels.labels), "described": len(labels.described)}
        examples = [
            {"name": name, "picture": f"/examples/{one}"}
            for name, one in zip(engine.examples.names, engine.examples.ids, strict=True)
        ]
        seen = counts["labels"] - counts["described"]
        return _reply({**engine.card, **counts, "seen": seen, "examples": examples})

    @app.get("/labels", response_model=answers.LabelList, responses=_refused(), summary="All labels, taught ones last")
    async def labels(request: Request) -> Response:
        _only(request)
        now = await engine.present()
        lessons = {one.label: one for one in now.story.state.taught}
        rows = []
        for name in now.classifier.labels.names:
            one = lessons.get(name)
            row: dict[str, Any] = {"name": name, "taught": one is not None, "from": one.source if one else "training"}
            rows.append(row | ({"examples": one.examples} if one and one.source == "examples" else {}))
        last = now.story.undoable[-1] if now.story.undoable else None
        undo = last and {"action": last.action, "label": last.label}
        return _reply({"change": now.change, "labels": rows, "undo": undo})

    picture = {200: {"content": {"image/jpeg": {}}, "description": "The picture."}}

    @app.get("/gallery/{id}", responses={**_refused(), **picture}, response_class=Response, summary="A gallery picture")
    async def gallery_picture(id: str) -> Response:
        if engine.gallery is None:
            raise Refusal(404, "There is no gallery.")
        file = engine.gallery.find(id)
        loop = asyncio.get_running_loop()
        return Response(await loop.run_in_executor(None, small_picture, file, service.pixels), media_type="image/jpeg")

    @app.get("/examples/{id}", responses={**_refused(), **picture}, response_class=Response, summary="A picture to try")
    async def example_picture(id: str) -> Response:
        file = engine.examples.find(id)
        return Response(file.read_bytes(), media_type=SHOWN_TYPES[file.suffix.lower()])

    text = {200: {"content": {"text/plain": {}}, "description": "Counts and times."}}

    @app.get("/metrics", responses={**_refused(), **text}, response_class=Response, summary="Figures for Prometheus")
    async def metrics(request: Request) -> Response:
        _only(request)
        now = await engine.present()
        gauges = {
            "labelwise_queue_length": engine.batcher.length,
            "labelwise_labels": len(now.classifier.labels),
            "labelwise_changes": now.change,
        }
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(engine.measures.text(gauges), headers={"content-type": kind})


BINARY = {"schema": {"type": "string", "format": "binary"}}


def _form(*fields: str, many: bool = False) -> dict[str, Any]:
    one: dict[str, Any] = {"type": "string", "format": "binary"}
    shape = {"type": "array", "items": one, "minItems": 1, "maxItems": 64} if many else one
    return {"schema": {"type": "object", "properties": dict.fromkeys(fields, shape), "required": list(fields),
                       "additionalProperties": False}}  # fmt: skip


def _takes(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": content}}


PICTURE = _takes({**dict.fromkeys(TYPES, BINARY), "multipart/form-data": _form("image")})


def _add_questions(app: FastAPI, engine: Engine) -> None:
    service = engine.service

    def route(path: str, model: Any, summary: str, body: dict[str, Any]) -> Any:
        return app.post(path, response_model=model, responses=_refused(*BODY), summary=summary, openapi_extra=body)

    @route("/classify", answers.Classification, "What is it?", PICTURE)
    async def classify(request: Request, top: Top = 5) -> Response:
        _only(request, "top")
        return _reply(await engine.ask(Classify(top), [await read_picture(request, service)]))

    @route("/ask", answers.Asked, "Is it a y? A label, or what a sentence says", PICTURE)
    async def ask(request: Request, label: MaybeLabel = None, text: Text = None) -> Response:
        _only(request, "label", "text")
        if (label is None) == (text is None):
            raise Refusal(400, "Ask about a label (?label=NAME) or a sentence (?text=...), one of the two.")
        engine.check("ask" if text is None else "ask_text")
        return _reply(await engine.ask(Ask(label, text), [await read_picture(request, service)]))

    @route("/explain", answers.Explanation, "Why? A heat map of what speaks for a label", PICTURE)
    async def explain(request: Request, label: MaybeLabel = None, text: Text = None) -> Response:
        _only(request, "label", "text")
        if label is not None and text is not None:
            raise Refusal(400, "Explain a label (?label=NAME) or a sentence (?text=...), not both.")
        engine.check("explain")
        if text is not None:
            engine.check("ask_text")
        return _reply(await engine.ask(Explain(label, text), [await read_picture(request, service)]))

    @route("/outliers", answers.Outlier, "Is it none of the labels?", PICTURE)
    async def outliers(request: Request) -> Response:
        _only(request)
        engine.check("outliers")
        return _reply(await engine.ask(Outliers(), [await read_picture(request, service)]))

    pair = _takes({"multipart/form-data": _form("a", "b")})

    @route("/verify", answers.Verification, "Do two pictures show the same label?", pair)
    async def verify(request: Request) -> Response:
        _only(request)
        engine.check("verify")
        if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            raise Refusal(415, "Two pictures are sent in a form (multipart/form-data) with the fields a and b.")
        return _reply(await engine.ask(Verify(), await read_form(request, service, {"a": 1, "b": 1})))

    @route("/retrieve", answers.Matches, "Which pictures of the gallery are most like it?", PICTURE)
    async def retrieve(request: Request, top: Top = 8) -> Response:
        _only(request, "top")
        engine.check("retrieve")
        return _reply({"matches": await engine.retrieve(await read_picture(request, service), top)})


def _add_changes(app: FastAPI, engine: Engine) -> None:
    lesson = _takes(
        {
            "multipart/form-data": _form("images", many=True),
            "application/json": {"schema": answers.TeachBody.model_json_schema()},
            **dict.fromkeys(TYPES, BINARY),
        }
    )

    def route(path: str, model: Any, summary: str, body: dict[str, Any] | None = None) -> Any:
        refused = _refused(*BODY, 409)
        return app.post(path, response_model=model, responses=refused, summary=summary, openapi_extra=body)

    @route("/teach", answers.Changed, "Add a label from pictures, sentences or a vector", lesson)
    async def teach(request: Request, label: MaybeLabel = None) -> Response:
        _only(request, "label")
        if engine.service.read_only:
            engine.check("teach_examples")
        body, pictures = await read_lesson(request, engine.service)
        if label is not None and body.label is not None and label != body.label:
            raise Refusal(400, f'The label is given twice and differs: "{label}" and "{body.label}".')
        name = label or body.label
        if name is None:
            raise Refusal(400, "Say which label is taught: ?label=NAME.")
        if not pictures and (body.texts is None) == (body.vector is None):
            raise Refusal(400, "A label is described by texts or by a vector, one of the two.")
        engine.check("teach_examples" if pictures else "teach_texts" if body.texts is not None else "teach_vector")
        texts = None if body.texts is None else tuple(body.texts)
        if texts is not None and sum(map(len, texts)) > 10 * MOST_TEXT:
            raise Refusal(400, f"The texts of a label have at most {10 * MOST_TEXT} characters.")
        question = Teach(name, texts, None if body.vector is None else tuple(body.vector))
        served = await engine.teach(question, pictures)
        return _reply({"label": name, "labels": len(served.classifier.labels), "change": served.change})

    @route("/forget", answers.Changed, "Remove a label")
    async def forget(request: Request, label: Label) -> Response:
        _only(request, "label")
        engine.check("forget")
        served = await engine.forget(label)
        return _reply({"label": label, "labels": len(served.classifier.labels), "change": served.change})

    @route("/undo", answers.Undone, "Take back the last change")
    async def undo(request: Request) -> Response:
        _only(request)
        engine.check("undo")
        undone, served = await engine.undo()
        return _reply({"undone": undone, "labels": len(served.classifier.labels), "change": served.change})
